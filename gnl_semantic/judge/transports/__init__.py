"""One file for each way to reach a judge."""
