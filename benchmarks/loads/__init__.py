"""The contenders of load.py: one process each, many runs at once in it."""
