"""The first table of an embedder."""

import json

import numpy as np
import pytest

from gnl_fixtures import FixtureSet
from gnl_qualify.embedder_table import BATCH, embedder_table
from gnl_qualify.embedder_text import render_table
from gnl_semantic.embedder.port import EmbedderProfile


class NumberEmbedder:
    """Puts texts with one number on one axis, and everything else nearby: an embedder that knows this set's truth."""

    model_id = "test:numbers"
    profile = EmbedderProfile(dimension=2)

    def __init__(self, closeness):
        self.closeness = closeness
        self.largest = 0

    async def embed(self, texts):
        self.largest = max(self.largest, len(texts))
        angles = [self.closeness(text) for text in texts]
        return np.array([[np.cos(a), np.sin(a)] for a in angles], dtype=np.float32)


def by_number(text):
    return 1.2 if "70" in text else 0.0


async def test_a_knowing_embedder_has_auc_1_and_the_shares_say_why(room):
    table = await embedder_table(NumberEmbedder(by_number), room.set_of(10))
    rows = {row.label: row for row in table.cosines}
    assert (table.auc_paraphrase_near_miss, table.auc_same_different) == (1.0, 1.0)
    assert rows["dup-paraphrase"].mean == pytest.approx(1.0)
    assert rows["near-miss"].median == pytest.approx(np.cos(1.2))
    assert {level: share.k for level, share in rows["near-miss"].at_least.items()} == dict.fromkeys(
        ("0.60", "0.80", "0.85", "0.90"), 0
    )
    assert rows["dup-exact"].at_least["0.90"].k == 10


async def test_a_blind_embedder_is_at_chance(room):
    table = await embedder_table(NumberEmbedder(lambda text: 0.0), room.set_of(10))
    assert (table.auc_paraphrase_near_miss, table.auc_same_different) == (0.5, 0.5)


async def test_a_missing_side_is_not_measured(room):
    table = await embedder_table(NumberEmbedder(by_number), FixtureSet("x", room.pairs_of(dup_exact=3)))
    assert table.auc_paraphrase_near_miss is table.auc_same_different is None
    assert "not measured" in render_table(table)


async def test_only_one_batch_of_texts_is_handed_over_at_a_time(room):
    embedder = NumberEmbedder(by_number)
    table = await embedder_table(embedder, room.set_of(60))
    assert embedder.largest == 2 * BATCH
    assert table.pairs == sum(row.n for row in table.cosines) == 240


async def test_the_ladders_counts_add_up_by_label_and_by_language(room):
    table = await embedder_table(NumberEmbedder(by_number), room.set_of(10))
    for rows in (table.ladder_by_label, table.ladder_by_language):
        assert all(r.identity_equal + r.matched + r.separated + r.gray == r.n for r in rows)
        assert sum(row.n for row in rows) == 40
    exact = next(row for row in table.ladder_by_label if row.name == "dup-exact")
    assert exact.identity_equal == 10


async def test_text_and_json_show_the_table(room):
    table = await embedder_table(NumberEmbedder(by_number), room.set_of(5))
    assert json.loads(json.dumps(table.to_json()))["set_id"] == table.set_id
    lines = render_table(table).splitlines()
    assert lines[0].startswith("embedder test:numbers, set invented ")
    assert [line for line in lines if line.startswith("dup-exact, tr")]


def test_the_program_measures_the_built_in_embedder(room, tmp_path):
    room.write_set(tmp_path / "set.json", room.set_of(5))
    done = room.run("calibrate", "--fixtures", "set.json", "--json", "t.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    rows = {row["label"]: row["mean"] for row in table["cosines"]}
    assert rows["dup-exact"] == pytest.approx(1.0, abs=1e-3)
    assert rows["unrelated"] < rows["dup-paraphrase"]
    assert done.stdout.startswith("embedder local:")
