"""A claim that waits for its siblings: they may be asked about for long before any body of the step begins."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from gnl_core import Allow, Context, run_durable, tool
from gnl_core.errors import RefusedError
from gnl_core.testing import FaultyJournal, ScriptedModel

TTL_S = 60.0
BOTH = [[("charge", {"order": 1}), ("ship", {"box": 1})], "done"]
ONE = [[("charge", {"order": 1})], "done"]


@pytest.fixture
def journal(storage, clock):
    """The journal of the store, whose clock a test moves."""
    return clock.moved(storage.runs)


@pytest.fixture
def let_pass(clock, monkeypatch):
    """Let seconds pass by the store's clock and by this process's own."""
    passed = []
    own = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(passed))
    monkeypatch.setattr("gnl_core.slots.time", own, raising=False)

    def go(seconds):
        passed.append(seconds)
        clock.pass_ms(round(seconds * 1000))

    return go


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    """Owners are seen as those of another host are: neither known to live nor known to be dead."""
    monkeypatch.setattr("gnl_core.look.is_alive", lambda owner: False)
    monkeypatch.setattr("gnl_core.look.is_dead", lambda owner: False)


class Step:
    """A run whose step claims a charge first, then waits at its sibling until a test lets it go on."""

    def __init__(self, journal, effects):
        self.journal, self.effects = journal, effects
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.entered, self.finish = asyncio.Event(), asyncio.Event()
        self.begun = 0

    def tools(self, *, waits=False):
        @tool(idempotency="args", window="cross-run", claim_ttl=TTL_S, recover=lambda order: {"done": False})
        async def charge(ctx: Context, order: int) -> dict:
            """Charge."""
            self.begun += 1
            if waits:
                self.entered.set()
                await self.finish.wait()
            return self.effects.fire("charge", f"order-{order}", {"receipt": order})

        @tool(name="ship")
        async def ship(ctx: Context, box: int) -> dict:
            """Ship."""
            return self.effects.fire("ship", f"box-{box}", {"shipped": box})

        return [charge, ship]

    async def guard(self, call):
        if call.tool_name == "ship":
            self.asked.set()
            await self.go_on.wait()
        return Allow()

    def drive(self, *, waits=False):
        guard = None if self.go_on.is_set() else self.guard
        return self.run("a", BOTH, self.tools(waits=waits), guard=guard)

    def run(self, run_id, turns, tools, *, journal=None, **options):
        model, journal = ScriptedModel(turns), journal or self.journal
        return run_durable(run_id=run_id, journal=journal, model=model, tools=tools, prompt="go", **options)


class Watched(FaultyJournal):
    """A journal that says when keyed work was read several times, so that somebody waits for it, and counts claims."""

    def __init__(self, inner):
        super().__init__(inner)
        self.waits, self._seen, self.claims = asyncio.Event(), 0, 0

    async def get_many(self, keys):
        self._seen += sum(key[0] != "run" and "charge" in str(key) for key in keys)
        if self._seen >= 4:
            self.waits.set()
        return await super().get_many(keys)

    async def apply(self, ops, *, batch):
        written = [op.value for op in ops if op.key[0] != "run" and isinstance(getattr(op, "value", None), dict)]
        self.claims += sum(value.get("status") == "running" for value in written)
        return await super().apply(ops, batch=batch)


@pytest.fixture
def step(journal, effects):
    return Step(journal, effects)


def outputs(result):
    return [call.output for step in result.steps for call in step.calls]


async def test_a_claim_that_waited_for_its_siblings_is_renewed_before_its_body_begins(step, journal, effects, let_pass):
    first = asyncio.create_task(step.drive(waits=True))
    await step.asked.wait()
    let_pass(TTL_S * 2 / 3)
    step.go_on.set()
    await step.entered.wait()
    let_pass(TTL_S * 2 / 3)  # longer than its time after the claim, and not after the body's beginning
    watched = Watched(journal)
    second = asyncio.create_task(step.run("b", ONE, step.tools(), journal=watched))
    waits = asyncio.create_task(watched.waits.wait())
    await asyncio.wait({second, waits}, return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()
    assert not second.done(), "it waits for the body that has begun"
    step.finish.set()
    assert outputs(await first) == [{"receipt": 1}, {"shipped": 1}]
    assert outputs(await second) == [{"receipt": 1}]
    assert (effects.counts()["charge order-1"], step.begun) == (1, 1)


async def test_a_claim_that_somebody_else_took_meanwhile_begins_nothing_here(step, effects, let_pass):
    first = asyncio.create_task(step.drive())
    await step.asked.wait()
    let_pass(TTL_S + 1)
    assert outputs(await step.run("b", ONE, step.tools())) == [{"receipt": 1}]
    step.go_on.set()
    with pytest.raises(RefusedError, match="did not begin: somebody else claimed") as refused:
        await first
    assert (refused.value.detail["tool"], refused.value.detail["tool_call_id"]) == ("charge", "s0p0")
    assert (effects.counts()["charge order-1"], step.begun) == (1, 1)
    again = await step.drive()
    assert outputs(again) == [{"receipt": 1}, {"shipped": 1}]
    assert (effects.counts(), step.begun) == ({"charge order-1": 1, "ship box-1": 1}, 1)


@pytest.mark.parametrize(("share", "written"), [(0.4, 1), (0.6, 2)], ids=["young", "old"])
async def test_a_claim_that_is_young_is_written_once(step, journal, effects, let_pass, share, written):
    watched = Watched(journal)
    run = asyncio.create_task(step.run("a", BOTH, step.tools(), journal=watched, guard=step.guard))
    await step.asked.wait()
    let_pass(TTL_S * share)
    step.go_on.set()
    assert (await run).text == "done"
    assert (watched.claims, effects.counts()["charge order-1"]) == (written, 1)
