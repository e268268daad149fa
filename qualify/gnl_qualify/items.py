"""From labelled pairs to blind items: what may come near a judge, and the key that may not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gnl_core.identity import Identity, SemanticIdentity, Unusable
from gnl_fixtures import FixtureSet, Pair
from gnl_qualify.errors import PairUnusableError
from gnl_qualify.sample import shuffled

SUBJECT = "subject"
_IDENTITY = SemanticIdentity(keys=(SUBJECT,))


@dataclass(frozen=True, slots=True)
class Item:
    """One pair as the judge meets it: no label, no id of the set, no note.

    Attributes:
        id: Opaque; the place in the shuffled order.
        tool_name: The tool both records belong to.
        first: Canonical sentence of `a`, built by the runtime's code.
        second: Canonical sentence of `b`.
    """

    id: str
    tool_name: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Paper:
    """The items of one exam in the order they are put, and the key to mark them with.

    Attributes:
        items: For the judge's side.
        key: The labelled pair of each item's id; for the marker's side only.
    """

    items: tuple[Item, ...]
    key: Mapping[str, Pair]


def set_paper(fixtures: FixtureSet, *, seed: int) -> Paper:
    """Return the blind, shuffled items of a set.

    Raises:
        PairUnusableError: A value of a pair identifies no job.
    """
    items: list[Item] = []
    key: dict[str, Pair] = {}
    for number, pair in enumerate(shuffled(fixtures.pairs, seed=seed), start=1):
        first, second = identity_of(pair, "a"), identity_of(pair, "b")
        item = Item(f"q{number:05d}", pair.tool_name, first.sentence, second.sentence)
        items.append(item)
        key[item.id] = pair
    return Paper(tuple(items), key)


def identity_of(pair: Pair, side: Literal["a", "b"]) -> Identity:
    """Return the identity that the runtime would build of one side of a pair.

    Raises:
        PairUnusableError: The value identifies no job.
    """
    value = pair.a if side == "a" else pair.b
    identity = _IDENTITY.build(pair.tool_name, {SUBJECT: value})
    if isinstance(identity, Unusable):
        raise PairUnusableError(
            f"pair '{pair.id}': field '{side}': {value[:80]!r} identifies no job "
            f"({identity.cause}): correct or remove the pair",
            pair=pair.id,
            field=side,
        )
    return identity
