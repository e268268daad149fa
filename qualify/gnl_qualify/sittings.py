"""The ledger of sittings: how often built-in judges have been shown a published set.

Every look at a held-out set uses some of it up, so that reports count the looks. The ledger is a Markdown table that
people read; `gnl-semantic-qualify sitting REPORT.json` prints the line of a new sitting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from gnl_core.canonical import digest
from gnl_core.errors import NotCanonicalError
from gnl_qualify.errors import ReportInvalidError

_SET_ID = re.compile(r"[0-9a-f]{16}")
_SET_COLUMN = "set id"
_KINDS = (("same",), ("different",), ("unsure",), ("unparsed",), ("error", "timeout"))
"""What the ledger's column of counts adds up, in its order."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """One line of the ledger: its cells by the name of their column, lower case."""

    cells: Mapping[str, str]

    @property
    def set_id(self) -> str:
        """The set that was put."""
        return self.cells[_SET_COLUMN]


def sittings_of(set_id: str, *, ledger: Path | None = None) -> list[Sitting] | None:
    """Return the recorded sittings on a set, oldest first, or None where there is no ledger.

    Args:
        set_id: 16 hex digits.
        ledger: The Markdown file; by default the one of this installation.
    """
    path = ledger or _shipped()
    if path is None:
        return None
    return [sitting for sitting in _rows(path.read_text(encoding="utf-8")) if sitting.set_id == set_id]


def count_sittings(set_id: str, *, private: bool) -> int | None:
    """Return the number of recorded sittings; None for a private set, of which no ledger is kept."""
    sittings = None if private else sittings_of(set_id)
    return None if sittings is None else len(sittings)


def sitting_line(report: Mapping[str, Any], *, commit: str) -> str:
    """Return the ledger's line of a sitting, without a line break.

    Args:
        report: The JSON report of the sitting.
        commit: Hash of the commit that was measured.

    Raises:
        ReportInvalidError: It is no report of an exam.
    """
    try:
        counts = [group["counts"] for group in report["groups"]["label"]]
        cells = (
            report["provenance"]["finished_at"][:10],
            report["fixtures"]["set_id"],
            report["judge"]["model_id"],
            digest(report["judge"]["parameters"])[:16],
            commit[:12],
            "/".join(str(sum(c[kind] for c in counts for kind in kinds)) for kinds in _KINDS),
            *(f"{bar['rate']['k']}/{bar['rate']['n']}" for bar in report["bars"]),
            report["status"],
        )
        return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
    except (AttributeError, KeyError, TypeError, NotCanonicalError) as error:
        raise ReportInvalidError(f"is no JSON report of an exam ({type(error).__name__}: {error})") from None


def _shipped() -> Path | None:
    """Return the ledger beside the fixtures: inside the package in a wheel, one folder above it in a source tree."""
    package = Path(str(files("gnl_fixtures")))
    found = (path for path in (package / "SITTINGS.md", package.parent / "SITTINGS.md") if path.is_file())
    return next(found, None)


def _rows(text: str) -> list[Sitting]:
    columns: list[str] = []
    sittings: list[Sitting] = []
    for line in text.splitlines():
        if not line.lstrip().startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not columns:
            columns = [cell.lower() for cell in cells]
        elif _SET_COLUMN in columns and len(cells) == len(columns):
            sitting = Sitting(dict(zip(columns, cells, strict=True)))
            if _SET_ID.fullmatch(sitting.set_id):
                sittings.append(sitting)
    return sittings
