"""The ledger tells the truth: the ladder of this tree has sat the held-out set, with the figures written there."""

import json

from click.testing import CliRunner

from gnl_fixtures import load_shipped
from gnl_qualify.cli import cli
from gnl_qualify.sittings import sitting_line, sittings_of


def test_the_ladder_of_this_tree_scores_what_the_ledger_says(tmp_path):
    report = tmp_path / "report.json"
    args = ["--judge", "builtin:ladder", "--out", str(tmp_path / "cert.json"), "--json", str(report)]
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == 1
    measured = sitting_line(json.loads(report.read_text(encoding="utf-8")), commit="x")
    cells = [cell.strip() for cell in measured.strip("|").split("|")]
    ledger = sittings_of(load_shipped("heldout").set_id)
    assert ledger
    # All but the date and the commit.
    assert cells[1:4] + cells[5:] in [[*row.cells.values()][1:4] + [*row.cells.values()][5:] for row in ledger]
