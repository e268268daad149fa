"""Bounds of an exam's options, for the program, the exam and whatever reads its files."""

MAX_REPEATS = 100
"""How often a pair may be asked again."""
MAX_VALID_DAYS = 3650
"""Longest time from the end of an exam to the expiry of its certificate."""
