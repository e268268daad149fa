"""Batches: one thing done to many items, each a run with one call, looked at before anything runs."""
