"""The figures of a calibration as tidy pandas frames, and those as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnl_core.errors import MissingExtraError
from gnl_qualify.calibration.chain import ANSWERS
from gnl_qualify.calibration.measure import FORMS, RUNGS, Measured
from gnl_reports.calibration_model import CalibrationReport, ListedPair
from gnl_semantic.rate import Rate

if TYPE_CHECKING:
    from pandas import DataFrame

TABLES = (
    "thresholds", "cosines", "levels", "histogram", "bands", "areas", "roc", "centring", "candidates", "ladder",
    "chain", "arms", "languages",
)  # fmt: skip
LISTINGS = ("blind_spots", "below", "ladder_wrong")
NAMES = (*TABLES, *LISTINGS, "pairs")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def frames_of(report: CalibrationReport, measured: Measured, said: NDArray[np.uint8] | None) -> dict[str, DataFrame]:
    """Return one frame a name of `NAMES`; a rate becomes the columns `_k`, `_n`, `_share`, `_low` and `_high`.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("data frames", "qualify") from None

    found = {name: pd.DataFrame.from_records(_flat(getattr(report, name))) for name in TABLES}
    listed = [one.name for one in fields(ListedPair)]
    # Named columns, since a list without pairs has no row to take them from.
    found |= {name: pd.DataFrame(_flat(getattr(report, name).pairs), columns=listed) for name in LISTINGS}
    pairs = measured.fixtures.pairs
    columns: dict[str, object] = {
        name: pd.Categorical([getattr(pair, name) for pair in pairs])
        for name in ("label", "lang", "domain", "tool_name")
    }
    columns |= {f"cosine_{form}": measured.cosines[form] for form in FORMS}
    columns |= {"rung": pd.Categorical.from_codes(measured.rungs.astype(int), RUNGS), "folds_alike": measured.alike}
    if said is not None:
        codes = np.where(said < len(ANSWERS), said.astype(int), -1)
        columns["judge"] = pd.Categorical.from_codes(codes, ANSWERS)
    found["pairs"] = pd.DataFrame({"id": [pair.id for pair in pairs], **columns})
    return found


def csv_of(frame: DataFrame) -> str:
    """Return a frame as CSV in which no text of a stranger is a formula to a spreadsheet: such a text gets a quote."""
    safe = frame.copy()
    for name in safe.columns:
        if safe[name].dtype.kind == "O" or str(safe[name].dtype) in ("category", "str", "string"):
            safe[name] = [_safe(value) for value in safe[name]]
    text: str = safe.to_csv(index=False, lineterminator="\n")
    return text


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _flat(rows: Iterable[Any]) -> Iterator[dict[str, object]]:
    for row in rows:
        flat: dict[str, object] = {}
        for one in fields(row):
            value = getattr(row, one.name)
            if isinstance(value, Rate):
                parts = (value.k, value.n, value.value, value.low, value.high)
                flat |= dict(
                    zip((f"{one.name}_{end}" for end in ("k", "n", "share", "low", "high")), parts, strict=True)
                )
            else:
                flat[one.name] = value
        yield flat
