"""Which of two stores a row belongs to where `composite` spreads a journal: pure functions of the key.

A row may live in the cache's store if nobody is harmed by its loss, if it is written in batches of its own, and if its
version is compared with no other row's. Of all that the runtime records this holds for one family, the verdicts of
judges: one that is lost is asked for again, and of two the first one counts by its own row alone.

It does not hold for the copies of vectors (`semvec`), although they can be made anew: each is written in the batch that
ends a call, and what is read of them is held against the versions of the records that they copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gnl_core.journal.port import Key

Home = Literal["runs", "cache"]
"""'runs': what a guarantee rests on. 'cache': what can be lost and made anew."""

CACHED = ("semjudge",)
"""Parts of a conversation's scope whose rows belong to the cache; see `gnl_core.keys`."""


def home_of(key: Key) -> Home:
    """Return the home of a row."""
    return "cache" if len(key) > 2 and key[0] == "xthr" and key[2] in CACHED else "runs"


def homes_of(prefix: Key) -> tuple[Home, ...]:
    """Return the homes of the rows at and below a prefix of whole segments, 'runs' first."""
    if len(prefix) > 2:
        return (home_of(prefix),)
    return ("runs",) if prefix and prefix[0] != "xthr" else ("runs", "cache")


def by_home(keys: Iterable[Key]) -> tuple[list[Key], list[Key]]:
    """Return keys in their order, those of 'runs' and those of 'cache': a batch has one home."""
    runs: list[Key] = []
    cache: list[Key] = []
    for key in keys:
        (runs if home_of(key) == "runs" else cache).append(key)
    return runs, cache
