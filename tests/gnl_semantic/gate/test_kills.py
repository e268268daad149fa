"""A guarded conversation that is killed at every write and around every effect, and driven again each time."""

import json
import subprocess
import sys

SCENARIO = """
import dataclasses, json, sys
from datetime import UTC, datetime
from gnl_core import Context, Duplicates, RunLimits, SemanticIdentity, keys, run_durable, tool
from gnl_core.journal import get, scan_all
from gnl_core.testing import ScriptedModel, crashtest
from gnl_semantic import Judge, SemanticGate
from gnl_semantic.judge import Certificate, read_certificate
from gnl_semantic.judge.qualification import SHIPPED
from gnl_semantic.vectors import VectorCache

CALLS = [{"sku": "Samsung 42 inch TV"}, {"sku": " SAMSUNG 42 INCH TV"}, {"sku": "SMSNG TV42"}]
fields = read_certificate(SHIPPED["builtin:local"]).model_dump()
fields |= {"judge_model_id": "judge@1", "passed_at": datetime.now(UTC).isoformat()}
certificate = Certificate.issue(**fields)

async def embed(texts):
    return [[2.0, 0.0] for _ in texts]

async def same(system, user):
    return "SAME"

async def scenario(journal, effects):
    @tool(name="order", side_effect=True, semantic_identity=SemanticIdentity(keys=("sku",)))
    async def order(sku: str, ctx: Context) -> str:
        "Order it."
        return effects.fire("order", ctx, "ordered")

    judge = Judge(same, judge_model_id="judge@1", qualification=certificate)
    gate = SemanticGate(embed=embed, embed_model_id="fake@1", rules=True, judge=judge, cache=VectorCache())
    result = await run_durable(
        run_id="r", journal=journal, tools=[order], prompt="go", thread_id="t",
        model=ScriptedModel([*([("order", call)] for call in CALLS), "done"]),
        limits=RunLimits(side_effect_duplicates=Duplicates(scope="thread", semantic=gate)),
    )
    if not result.interrupts:
        kept = [entry async for entry in scan_all(journal, ("xthr", "t", "sem"), blobs=True)]
        counted = (await get(journal, keys.generation(("xthr", "t"), "order"))).value
        tombs = [entry async for entry in scan_all(journal, ("xthr", "t", "semtomb"))]
        slots = [entry async for entry in scan_all(journal, ("run", "r", "req", "slot"))]
        verdicts = [entry async for entry in scan_all(journal, ("xthr", "t", "semjudge"))]
        assert len(kept) == counted["n"] == 3, (len(kept), counted)
        assert all(entry.blob for entry in kept)
        assert len(tombs) == 2, tombs
        assert len(verdicts) == 1, verdicts
        assert 1 <= len(slots) <= 2, slots
    return result

report = crashtest(scenario)
print(json.dumps(dataclasses.asdict(report), default=str))
"""


def test_killed_anywhere_a_guarded_conversation_comes_to_the_same_records_and_asks_as_often():
    done = subprocess.run([sys.executable, "-c", SCENARIO], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    bad = [one for one in report["results"] if one["outcome"] not in ("completed", "settled")]
    assert bad == []
    assert report["effects"] == {"order r/s0p0": 1, "order r/s1p0": 1, "order r/s2p0": 1}
    assert all(set(one["effects"].values()) == {1} for one in report["results"])
    assert len(report["results"]) == 2 * (report["writes"] + 3)
