"""An export over an earlier one: what a person wrote into the file stays.

A file holds no mark of who wrote a label, so every label that stands in it counts as a person's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gnl_fixtures import SAME_JOB, Draft, FixtureError
from gnl_fixtures.loader import parse_drafts
from gnl_qualify.errors import OutputPathError
from gnl_qualify.export_pairs import BOTH_WAYS, SOURCE, Exported


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """An export that took in what stood in the file.

    Attributes:
        exported: What is to be written.
        kept: Labels of the file that the journal does not say.
        against: Of these, pairs that the journal says something else of: the pair's id, the label that stays, what the
            journal says.
        only_here: Labelled pairs of the file that the export has not found; they stand last.
        dropped: Pairs of the file without a label that the export has not found; they are left out.
    """

    exported: Exported
    kept: int = 0
    against: tuple[tuple[str, str, str], ...] = ()
    only_here: int = 0
    dropped: int = 0


def standing(path: Path) -> tuple[Draft, ...]:
    """Return the pairs of an earlier export at `path`, none where there is no file.

    Raises:
        OutputPathError: What stands there is no export, or cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise OutputPathError(f"--out {path}: cannot be read: {error.strerror}") from None
    try:
        drafts = parse_drafts(data, f"--out {path}")
        source = json.loads(data.decode("utf-8-sig")).get("source")
    except FixtureError as error:
        raise OutputPathError(f"{error}. It is not overwritten: mend it, or name another file") from None
    if source != SOURCE:
        raise OutputPathError(
            f"--out {path}: holds pairs that no export wrote (field 'source' is not {SOURCE!r}). It stays as "
            "it is: name another file"
        )
    return drafts


def merge(found: Exported, before: tuple[Draft, ...]) -> Merged:
    """Put the labels of an earlier file into a new export.

    The same pair is the one with the same id, or else the one of the same tool with the same two texts.

    Args:
        found: What the journal says now.
        before: The pairs of the file.
    """
    left = {one.id: one for one in before}
    matched: dict[str, Draft] = {}
    for pair in found.pairs:
        if pair.id in left:
            matched[pair.id] = left.pop(pair.id)
    for pair in found.pairs:
        if pair.id not in matched:
            # A labelled one first: were the texts written twice, no label may be lost to a null.
            alike = sorted(_alike(pair, left), key=lambda one: one.label is None)
            if alike:
                matched[pair.id] = left.pop(alike[0].id)
    pairs: list[Draft] = []
    kept = 0
    against: list[tuple[str, str, str]] = []
    for pair in found.pairs:
        old = matched.get(pair.id)
        if old is None:
            pairs.append(pair)
        elif old.label is None:
            # Texts and names as they stand: a person may have taken something out of them.
            news = pair.label is not None or pair.note == BOTH_WAYS
            pairs.append(replace(old, label=pair.label, note=pair.note if news else old.note))
        else:
            pairs.append(old)
            kept += old.label != pair.label
            says = _says_otherwise(old, pair)
            if says:
                against.append((old.id, old.label, says))
    only_here = [one for one in left.values() if one.label is not None]
    return Merged(
        exported=Exported((*pairs, *only_here), found.left_out),
        kept=kept,
        against=tuple(against),
        only_here=len(only_here),
        dropped=len(left) - len(only_here),
    )


def _alike(pair: Draft, left: dict[str, Draft]) -> Iterator[Draft]:
    return (one for one in left.values() if one.tool_name == pair.tool_name and {one.a, one.b} == {pair.a, pair.b})


def _says_otherwise(old: Draft, new: Draft) -> str:
    """Return what the journal says against a label, or ''. A finer label of the same kind is no contradiction."""
    if new.note == BOTH_WAYS:
        return "both, in two questions"
    if new.label is None or (new.label in SAME_JOB) == (old.label in SAME_JOB):
        return ""
    return new.label
