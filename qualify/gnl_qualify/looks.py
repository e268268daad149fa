"""Which sitting on a set this is: every look uses some of a set up, and seven looks should say so."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from gnl_qualify.sittings import count_sittings
from gnl_qualify.transcript import Header

_LONGEST_HEADER = 1 << 20


def sitting_number(set_id: str, *, folder: Path, private: bool) -> int:
    """Return 1 plus the sittings on a set that can be found: the ledger's and the transcripts of a folder.

    Args:
        set_id: Of the whole set, 16 hex digits: a sample of it is a look at it.
        folder: Where this sitting's transcript will stand; the kept '.previous' ones beside it count.
        private: A user's own set, of which no ledger is kept.
    """
    return 1 + (count_sittings(set_id, private=private) or 0) + sum(_of(path) == set_id for path in _files(folder))


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if ".jsonl" in path.name and path.is_file()]
    except OSError:
        return []


def _of(path: Path) -> str | None:
    """Return the id of the whole set a transcript is about, None for any other file."""
    try:
        with path.open("rb") as file:
            header = Header.model_validate_json(file.readline(_LONGEST_HEADER))
    except (OSError, ValidationError):
        return None
    return header.sampled_from or header.set_id
