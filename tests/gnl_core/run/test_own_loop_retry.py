"""A model step of one's own loop that seemed to fail is tried again: what was recorded of it after all counts."""

import asyncio

import pytest

from gnl_core import Message, TextPart, durable_context, keys, run_durable, tool, with_durable_model
from gnl_core.errors import ModelUnavailableError, RunBusyError, RunFencedError, StoreUnknownError
from gnl_core.journal import Create, get, new_batch
from gnl_core.model.messages import ModelRequest
from gnl_core.owner import new_owner, register, unregister
from gnl_core.records import FORMAT, read_step
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel, raise_once

ASKED = ModelRequest(None, (Message("user", (TextPart("Go."),)),))
STEP = keys.model("r", keys.ROOT, 0)


def writes(segment):
    return lambda ops: any(segment in op.key for op in ops if not hasattr(op, "by"))


def unknown(segment, when, times=4):
    return Fault(action="unknown", when=when, times=times, match=writes(segment))


class Held:
    """A journal whose answer to the first batch of a model step comes late: after the caller was cancelled."""

    def __init__(self, inner):
        self.inner, self.applied = inner, asyncio.Event()

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def apply(self, ops, *, batch):
        outcome = await self.inner.apply(ops, batch=batch)
        if writes("model")(ops) and not self.applied.is_set():
            self.applied.set()
            await asyncio.Event().wait()
        return outcome


async def test_a_step_cancelled_while_it_was_recorded_is_replayed_by_the_retry(journal):
    scripted, held = ScriptedModel(["One.", "Two."]), Held(journal)
    async with durable_context(run_id="r", journal=held) as ctx:
        model = with_durable_model(scripted, ctx)
        task = asyncio.ensure_future(model.generate(ASKED))
        await held.applied.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await model.generate(ASKED)).text == "One."
        assert ctx.warnings == ()
    assert scripted.calls == 1
    assert read_step(await get(journal, STEP)).response.text == "One."


@pytest.mark.parametrize(("when", "calls"), [("after", 1), ("before", 2)])
async def test_a_step_of_unknown_outcome_is_looked_for_before_the_model_is_asked_again(journal, when, calls):
    faulty, scripted = FaultyJournal(journal, fault=unknown("model", when)), ScriptedModel(["One.", "Two."])
    async with durable_context(run_id="r", journal=faulty) as ctx:
        model = with_durable_model(scripted, ctx)
        with pytest.raises(StoreUnknownError):
            await model.generate(ASKED)
        assert (await model.generate(ASKED)).text == "One."
    assert (scripted.calls, faulty.hit) == (calls, 4)
    assert read_step(await get(journal, STEP)).response.text == "One."
    assert (await get(journal, keys.head("r"))).value["status"] == "completed"


async def test_a_drive_ends_its_run_although_its_last_step_was_recorded_unknown_to_it(journal):
    faulty, model = FaultyJournal(journal, fault=unknown("model", "after")), ScriptedModel([[("look", {})], "Done."])

    @tool(side_effect=False)
    def look() -> str:
        """Look."""
        return "seen"

    options = {"run_id": "r", "model": model, "tools": [look], "prompt": "Go."}
    with pytest.raises(StoreUnknownError):
        await run_durable(journal=faulty, **options)
    assert (await get(journal, keys.lock("r"))).value["released"] is True
    assert (await get(journal, keys.head("r"))).value["status"] == "failed"
    assert (await run_durable(journal=journal, **options)).text == "Done."
    assert model.calls == 2


async def test_a_foreign_row_of_the_step_is_no_retry_of_ours(journal, rows):
    scripted = ScriptedModel(["One."])
    async with durable_context(run_id="other", journal=journal) as ctx:
        await with_durable_model(scripted, ctx).generate(ASKED)
    row = (await get(journal, keys.model("other", keys.ROOT, 0))).value

    async def meddle():
        async with durable_context(run_id="r", journal=journal) as ctx:
            await rows.put(STEP, row)
            await with_durable_model(ScriptedModel(["Mine."]), ctx).generate(ASKED)

    with pytest.raises(RunFencedError):
        await meddle()


# The exclusive claim -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [None, unknown("claim", "after")], ids=["model", "store"])
async def test_a_claim_of_ones_own_does_not_stand_in_the_way_of_a_retry(journal, fault):
    scripted = ScriptedModel([raise_once(ModelUnavailableError("down"), "One.")] * 2)
    async with durable_context(
        run_id="r", journal=FaultyJournal(journal, fault=fault), exclusive_model_step=True
    ) as ctx:
        model = with_durable_model(scripted, ctx)
        if fault is not None:
            with pytest.raises(StoreUnknownError):
                await model.generate(ASKED)
        with pytest.raises(ModelUnavailableError):
            await model.generate(ASKED)
        assert (await model.generate(ASKED)).text == "One."


async def test_a_claim_of_somebody_elses_does(journal):
    other = new_owner()
    register(other)
    try:
        async with durable_context(run_id="r", journal=journal, exclusive_model_step=True) as ctx:
            claim = Create(keys.model_claim("r", keys.ROOT, 0), {"f": FORMAT, "owner": other.to_json()})
            await journal.apply((claim,), batch=new_batch())
            scripted = ScriptedModel(["One."])
            for _ in range(2):
                with pytest.raises(RunBusyError, match="another worker is asking"):
                    await with_durable_model(scripted, ctx).generate(ASKED)
            assert scripted.calls == 0
    finally:
        unregister(other)
