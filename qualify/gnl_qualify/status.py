"""The program's name and its exit statuses."""

from __future__ import annotations

PROGRAM = "gnl-semantic-qualify"
PASSED, FAILED, USAGE, INTERNAL, INTERRUPTED = 0, 1, 2, 70, 130
"""Passed or done; failed; options or files that cannot be used; a fault of the program; interrupted."""
