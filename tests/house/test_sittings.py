"""The ledger tells the truth: the judges of this tree have sat the held-out set, with the figures written there."""

import json

import pytest
from click.testing import CliRunner

from gnl_fixtures import load_shipped
from gnl_qualify.cli import cli
from gnl_qualify.sittings import sitting_line, sittings_of


@pytest.mark.parametrize(("judge", "exit_code"), [("builtin:ladder", 1), ("builtin:local", 0)])
def test_a_built_in_judge_of_this_tree_scores_what_the_ledger_says(tmp_path, monkeypatch, judge, exit_code):
    monkeypatch.setenv("GNL_CACHE_DIR", str(tmp_path / "cache"))
    report = tmp_path / "report.json"
    args = ["--judge", judge, "--out", str(tmp_path / "cert.json"), "--json", str(report)]
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == exit_code
    measured = sitting_line(json.loads(report.read_text(encoding="utf-8")), commit="x")
    cells = [cell.strip() for cell in measured.strip("|").split("|")]
    ledger = sittings_of(load_shipped("heldout").set_id)
    assert ledger
    # All but the date and the commit.
    newest = [[*row.cells.values()] for row in ledger if row.cells["judge"] == cells[2]][-1]
    assert cells[1:4] + cells[5:] == newest[1:4] + newest[5:]
