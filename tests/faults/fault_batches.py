"""A batch that gets killed: what its processes do, and what they tell of it."""

from pathlib import Path

from gnl_core import Context, SemanticIdentity, create_batch, tool
from gnl_core.errors import GnlError
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.faulty import Fault, FaultyJournal, die

ITEMS = [{"key": f"k{number}", "sku": f"sku-{number % 2}"} for number in range(3)]
"""The first and the last are one person's same job."""


def creating(effects, *, recovers):
    def recover(ctx: Context):
        known = effects.find(ctx)
        return {"done": True, "output": known.output} if known is not None else {"done": False}

    @tool(semantic_identity=SemanticIdentity(keys=("sku",)), recover=recover if recovers else None)
    async def create(ctx: Context, key: str, sku: str) -> dict:
        return effects.fire("create", ctx, {"created": key})

    return create


async def run_batch(storage, folder, fault=None, *, recovers=True, items=ITEMS, concurrency=1, **options):
    """Look at the batch and run it; the token of the first look is the token of every run."""
    fault = Fault(**fault) if fault else None
    effects = EffectLog(Path(folder) / "effects.jsonl")
    if fault is not None and fault.at == "effect":
        setattr(effects, fault.when, lambda number: die() if fault.hits(number) else None)
    journal = FaultyJournal(storage.runs, fault=fault)
    batch = create_batch(
        journal=journal,
        tool=creating(effects, recovers=recovers),
        item_key="key",
        resource_id="ann",
        thread_id="t",
        concurrency=concurrency,
        **options,
    )
    try:
        token = (await batch.preflight("march", items)).token
        report = await batch.run("march", items, plan_token=token)
    except GnlError as error:
        return {"error": error.code, "detail": error.detail}
    return {
        "token": token,
        "outcomes": {item.key: item.outcome for item in report.items},
        "codes": sorted({item.code for item in report.items} - {""}),
        "outputs": {item.key: item.output for item in report.items},
        "questions": [one.question for one in report.interrupts],
        "writes": journal.writes,
    }
