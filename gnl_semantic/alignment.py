"""Two texts side by side: the gaps where they differ.

A separator may conclude something only from tokens that stand in the same place of both texts. `differences` returns
those places: everything between two of them reads the same on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from gnl_semantic.folds import Reading, is_letters

Difference: TypeAlias = tuple[Sequence[str], Sequence[str]]
"""The tokens of either side at one place; one may be empty."""

MAX_CELLS = 4_096
"""Largest table of the alignment; texts whose differing middles are longer count as not alignable."""


def differences(a: Reading, b: Reading) -> list[Difference] | None:
    """Return the places where `a` and `b` differ, in order, or None where they are too long to align.

    Numbers are equal by value, letters by text, and letters that only a space divides differently ('air fryer',
    'airfryer') are no difference. Ties are broken by order: to be symmetric, a caller sorts the two.
    """
    x, y = a.values, b.values
    start = 0
    while start < len(x) and start < len(y) and x[start] == y[start]:
        start += 1
    end_x, end_y = len(x), len(y)
    while end_x > start and end_y > start and x[end_x - 1] == y[end_y - 1]:
        end_x, end_y = end_x - 1, end_y - 1
    rows, columns = end_x - start, end_y - start
    if rows * columns > MAX_CELLS:
        return None
    found: list[Difference] = []
    row = column = 0
    anchors = _common(x[start:end_x], y[start:end_y]) if rows * columns > 1 else []
    for at_row, at_column in [*anchors, (rows, columns)]:
        left = a.tokens[start + row : start + at_row]
        right = b.tokens[start + column : start + at_column]
        if (left or right) and not _same_letters(left, right):
            found.append((left, right))
        row, column = at_row + 1, at_column + 1
    return found


def _same_letters(left: Sequence[str], right: Sequence[str]) -> bool:
    return "".join(left) == "".join(right) and all(map(is_letters, (*left, *right)))


def _common(x: Sequence[str], y: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence."""
    width = len(y)
    table = [[0] * (width + 1)]
    for token in reversed(x):
        below, line = table[-1], [0] * (width + 1)
        for column in range(width - 1, -1, -1):
            if token == y[column]:
                line[column] = below[column + 1] + 1
            else:
                line[column] = max(below[column], line[column + 1])
        table.append(line)
    table.reverse()
    pairs: list[tuple[int, int]] = []
    row = column = 0
    while row < len(x) and column < width:
        if x[row] == y[column]:
            pairs.append((row, column))
            row, column = row + 1, column + 1
        elif table[row + 1][column] >= table[row][column + 1]:
            row += 1
        else:
            column += 1
    return pairs
