"""The ledger of sittings."""

from pathlib import Path

import pytest

from gnl_qualify.errors import ReportInvalidError
from gnl_qualify.exam import Settings, sit_exam
from gnl_qualify.sittings import count_sittings, sitting_line, sittings_of
from gnl_reports.model import to_json

LEDGER = """\
# Sittings

| some | other table |
|---|---|
| 0123456789abcdef | x |

| date | set id | judge | result |
|---|---|---|---|
| 2030-01-01 | 0123456789abcdef | builtin:ladder@1 | failed |
| 2030-01-02 | fedcba9876543210 | builtin:ladder@1 | failed |
| 2030-01-03 | 0123456789abcdef | builtin:ladder@2 | certified |
| a broken line |
"""


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "SITTINGS.md"
    path.write_text(LEDGER, encoding="utf-8")
    return path


def test_the_sittings_of_a_set_in_order(ledger):
    found = sittings_of("0123456789abcdef", ledger=ledger)
    assert [sitting.cells["judge"] for sitting in found] == ["builtin:ladder@1", "builtin:ladder@2"]
    assert sittings_of("0" * 16, ledger=ledger) == []


def test_the_shipped_ledger_is_found_and_private_sets_have_none():
    assert isinstance(sittings_of("0" * 16), list)
    assert count_sittings("0" * 16, private=False) == 0
    assert count_sittings("0" * 16, private=True) is None


async def test_a_new_line_fits_the_shipped_ledger_and_is_read_back(room, tmp_path):
    sitting = await sit_exam(
        room.FunctionJudge(lambda user: "UNSURE" if "1003" in user else room.truth(user)),
        room.set_of(10),
        Settings(repeat_sample=0, order_sample=0),
        transcript=tmp_path / "t.jsonl",
    )
    report = sitting.report
    line = sitting_line(to_json(report), commit="0123456789abcdef")
    shipped = Path(__file__).parents[2] / "fixtures" / "SITTINGS.md"
    ledger = tmp_path / "SITTINGS.md"
    ledger.write_text(shipped.read_text(encoding="utf-8").rstrip("\n") + f"\n{line}\n", encoding="utf-8")
    (found,) = sittings_of(report.fixtures.set_id, ledger=ledger)
    assert found.cells["judge"] == "test-model"
    assert found.cells["commit"] == "0123456789ab"
    assert found.cells["same/different/unsure/unparsed/error"] == "18/18/4/0/0"
    assert (found.cells["recall"], found.cells["false alarms"], found.cells["result"]) == (
        "9/10",
        "0/10",
        "provisional",
    )


@pytest.mark.parametrize("report", [{}, {"groups": []}, [], {"groups": {"label": [{"counts": 1}]}}])
def test_what_is_no_report_gives_no_line(report):
    with pytest.raises(ReportInvalidError, match="no JSON report"):
        sitting_line(report, commit="c")
