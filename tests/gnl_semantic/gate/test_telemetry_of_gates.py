"""What is counted of a real gate: its own incidents, counters and settings, read back."""

import pytest

from gnl_core import decide
from gnl_semantic import read_telemetry


async def answer(shop, run, approved, **said):
    await decide(shop.journal, f"{run}/s0p0/semantic/0", approved, **said)


@pytest.fixture
async def played(shop, judge_that):
    """A conversation that meets each rung once: r1 is done; each later run looks like it in another way."""
    judge = judge_that("SAME", "DIFFERENT", "what?")
    shop.gate = shop.gated(rules=True, judge=judge, min_similarity=0.1)
    await shop.run({"sku": "INV-2026-0142"})
    await shop.run({"sku": "inv-2026-0142 "})  # equal identity, other arguments
    await answer(shop, "r2", False)
    await shop.run({"sku": "inv 2026 142"})  # a rule
    await answer(shop, "r3", True, relation="different_work")
    await shop.run({"sku": "january rent invoice"})  # gray, and the judge says same
    await answer(shop, "r4", False)
    await shop.run({"sku": "inv 26 cleaning"})  # gray, different
    await shop.run({"sku": "lamp for the hall"})  # gray, no verdict
    return await read_telemetry(shop.journal)


async def test_each_rung_is_counted_where_it_spoke(played):
    assert played.to_json()["by_origin"] == {"identity": 1, "rule": 1, "judge": 1, "channel": 0}
    assert (played.decisions.denied, played.decisions.approved, played.decisions.pending) == (2, 1, 0)
    assert played.by_origin["rule"].different_work == 1
    assert [row.keys for row in played.declarations] == [("sku",)]
    assert played.unreadable == 0


async def test_the_judge_s_outcomes_and_times_are_told(played):
    judge = played.judge
    assert (judge.same, judge.different, judge.unsure, judge.skipped) == (1, 1, 0, {"parse-fail": 1})
    assert judge.timed >= 2
    assert judge.latency_p95 is not None


async def test_gray_calls_stand_in_the_scans_and_in_the_counters(played):
    assert played.scan.gray_calls == 2, "the call that the judge asked about left no scan"
    assert played.runs.count("gray") == played.runs.count("judged") == 3
    assert played.runs.count("guarded") == 6
    assert played.runs.with_gate == 6
    assert (played.runs.share("judged").k, played.runs.share("judged").n) == (3, 6)


async def test_the_settings_in_force_are_the_gate_s(played):
    settings = played.in_force
    assert settings.rules
    assert settings.judge
    assert settings.settings["judge"]["model_id"] == "judge@1"
    assert settings.settings["embed_model_id"] == "fake@1"


async def test_what_people_saw_is_the_canonical_sentence(played):
    assert [(one.origin, one.sentence, one.decision) for one in played.recent] == [
        ("judge", "createProduct: inv-2026-0142", "denied"),
        ("rule", "createProduct: inv-2026-0142", "approved"),
        ("identity", "createProduct: inv-2026-0142", "denied"),
    ]
    assert played.recent[0].present == "createProduct: january rent invoice"


async def test_an_outage_of_the_embedder_is_told_once(shop):
    await shop.run({"sku": "a"})
    shop.embed.error = RuntimeError("down")
    for sku in ("b", "c", "d", "e"):
        await shop.run({"sku": sku})
    trouble = (await read_telemetry(shop.journal)).trouble
    assert trouble.embedder_outages == 1
    assert [what for _, _, what in trouble.recent] == ["embedder-outage"]
