"""The agents that get killed. Each starts its run or resumes it; `effects` lies in the run's folder."""

import asyncio
import contextlib
import resource
import signal

from gnl_core import (
    Context,
    Duplicates,
    InMemoryStorage,
    RunLimits,
    agent_tool,
    durable_context,
    durable_tools,
    run_durable,
    stream_durable,
    tool,
    with_idempotency,
)
from gnl_core.errors import DoubtError, ModelUnavailableError, NotPerformedError
from gnl_core.journal import Put, get, new_batch
from gnl_core.lock import Heartbeat
from gnl_core.testing.faulty import FaultyJournal, die
from gnl_core.testing.scripted import ScriptedModel

RUN = "order-1"


def charge(effects, **options):
    """A side effect: async, one effect a call."""

    @tool(name="charge", **options)
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card."""
        return effects.fire("charge", ctx, {"receipt": amount})

    return charge


def ship(effects, **options):
    """A side effect in a thread."""

    @tool(name="ship", **options)
    def ship(ctx: Context, box: int) -> dict:
        """Ship a box."""
        return effects.fire("ship", ctx, {"shipped": box})

    return ship


@tool(name="stock", side_effect=False)
async def stock(sku: str) -> int:
    """Read how many there are."""
    return len(sku)


def drive_run(journal, turns, tools, **options):
    model = turns if hasattr(turns, "spec") else ScriptedModel(turns)
    return run_durable(run_id=RUN, journal=journal, model=model, tools=tools, prompt="Do it.", **options)


# Scenarios of the kill matrix --------------------------------------------------------------------------------------


async def single(journal, effects):
    return await drive_run(journal, [[("charge", {"amount": 10})], "Done."], [charge(effects)])


async def repeated(journal, effects):
    """The same call again in a conversation; a person says yes."""
    turns = [[("charge", {"amount": 10})], [("charge", {"amount": 10})], "Done."]
    return await drive_run(journal, turns, [charge(effects)], thread_id="t", limits=_repeats("suspend"))


async def twins(journal, effects):
    """The same call twice in one step, by the default."""
    return await drive_run(journal, [[("charge", {"amount": 10})] * 2, "Done."], [charge(effects)])


async def left_out(journal, effects):
    """Two runs of one conversation that ask for the same work; the second is driven whatever became of the first."""
    turns, options = [[("charge", {"amount": 10})], "Done."], {"thread_id": "t", "limits": _repeats("skip")}
    try:
        return await drive_run(journal, turns, [charge(effects)], **options)
    finally:
        await run_durable(
            run_id="order-2",
            journal=journal,
            model=ScriptedModel(turns),
            tools=[charge(effects)],
            prompt="2",
            **options,
        )


def _repeats(action):
    return RunLimits(side_effect_duplicates=Duplicates(action=action, scope="thread"))


async def two_steps(journal, effects):
    turns = [[("charge", {"amount": 10})], [("ship", {"box": 1})], "Done."]
    return await drive_run(journal, turns, [charge(effects), ship(effects)])


async def parallel(journal, effects):
    calls = [("charge", {"amount": 10}), ("ship", {"box": 1}), ("charge", {"amount": 20})]
    return await drive_run(journal, [calls, "Done."], [charge(effects), ship(effects)])


async def approval(journal, effects):
    return await drive_run(journal, [[("charge", {"amount": 10})], "Done."], [charge(effects, confirm=True)])


async def quiet(journal, effects):
    """Keeps to itself what came of it: the journal alone says that it waits."""
    with contextlib.suppress(DoubtError):
        await drive_run(journal, [[("charge", {"amount": 1})], "done"], [charge(effects, confirm=True)])


async def half_gated(journal, effects):
    """One call that asks beside one that does not."""
    calls = [("ship", {"box": 1}), ("charge", {"amount": 10})]
    return await drive_run(journal, [calls, "Done."], [ship(effects), charge(effects, confirm=True)])


async def streamed(journal, effects):
    model = ScriptedModel([["Let me charge.", ("charge", {"amount": 10})], "Done."])
    stream = await stream_durable(run_id=RUN, journal=journal, model=model, tools=[charge(effects)], prompt="Do it.")
    async with stream:
        async for _ in stream.events:
            pass
        return await stream.result


async def sub_agent(journal, effects):
    child = agent_tool(
        name="clerk",
        description="Charges cards.",
        model=ScriptedModel([[("charge", {"amount": 10})], "Charged."]),
        tools=[charge(effects)],
    )
    turns = [[("clerk", {"task": "Charge 10."})], [("ship", {"box": 1})], "Done."]
    return await drive_run(journal, turns, [child, ship(effects)])


async def sub_agent_approval(journal, effects):
    child = agent_tool(
        name="clerk",
        description="Charges cards.",
        model=ScriptedModel([[("charge", {"amount": 10})], "Charged."]),
        tools=[charge(effects, confirm=True)],
    )
    return await drive_run(journal, [[("clerk", {"task": "Charge 10."})], "Done."], [child])


def recovering(effects):
    """A charge that can ask the world whether it happened: here, the log."""

    def recover(ctx: Context, amount: int) -> dict:
        effect = effects.find(ctx)
        return {"done": False} if effect is None else {"done": True, "output": effect.output}

    return charge(effects, recover=recover)


async def recover(journal, effects):
    return await drive_run(journal, [[("charge", {"amount": 10})], "Done."], [recovering(effects)])


async def recover_parallel(journal, effects):
    calls = [("charge", {"amount": 10}), ("charge", {"amount": 20})]
    return await drive_run(journal, [calls, "Done."], [recovering(effects)])


async def mixed(journal, effects):
    calls = [("stock", {"sku": "abc"}), ("charge", {"amount": 10})]
    return await drive_run(journal, [calls, [("stock", {"sku": "x"})], "Done."], [stock, charge(effects)])


async def sub_agents_in_parallel(journal, effects):
    def clerk(name):
        return agent_tool(
            name=name,
            description="Charges cards.",
            model=ScriptedModel([[("charge", {"amount": 10}), ("ship", {"box": 1})], "Charged."]),
            tools=[charge(effects), ship(effects)],
        )

    calls = [("clerk", {"task": "Charge 10."}), ("aide", {"task": "Charge 10."})]
    return await drive_run(journal, [calls, "Done."], [clerk("clerk"), clerk("aide")])


async def keyed(journal, effects):
    """The same work twice in one step, and once more in the next: known across runs by its key."""
    tools = [charge(effects, idempotency_key=lambda args: f"order-{args['amount']}", window="cross-run")]
    turns = [[("charge", {"amount": 10}), ("charge", {"amount": 10})], [("charge", {"amount": 10})], "Done."]
    return await drive_run(journal, turns, tools)


async def by_args(journal, effects):
    tools = [charge(effects, idempotency="args")]
    turns = [[("charge", {"amount": 10}), ("charge", {"amount": 20})], [("charge", {"amount": 10})], "Done."]
    return await drive_run(journal, turns, tools)


async def looked_up(journal, effects):
    """A tool that asks the world before it acts, and after a crash."""

    def lookup(ctx: Context, amount: int) -> dict:
        effect = effects.find(ctx)
        return {"exists": False} if effect is None else {"exists": True, "output": effect.output}

    return await drive_run(journal, [[("charge", {"amount": 10})], "Done."], [charge(effects, lookup=lookup)])


async def own_loop(journal, effects):
    """A loop of one's own over durable tools."""
    async with durable_context(journal=journal, run_id=RUN) as context:
        tools = durable_tools([charge(effects), ship(effects)], context)
        await tools["charge"].call({"amount": 10}, tool_call_id="s0p0")
        await tools["ship"].call({"box": 1}, tool_call_id="s1p0")


async def without_a_run(journal, effects):
    """A tool that is to act once, in no run at all: nobody can be asked, so it must be able to tell."""
    once = with_idempotency(recovering(effects), journal)
    await once(amount=10)
    await once(amount=10)


async def declined(journal, effects):
    """A tool that says for certain that nothing happened, and one that acts after it."""

    @tool
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card that is declined."""
        raise NotPerformedError("declined")

    turns = [[("charge", {"amount": 10})], [("ship", {"box": 1})], "Done."]
    return await drive_run(journal, turns, [charge, ship(effects)])


async def reading(journal, effects):
    calls = [("stock", {"sku": "a"}), ("stock", {"sku": "b"})]
    return await drive_run(journal, [calls, [("stock", {"sku": "c"})], "Done."], [stock])


# Agents of single scenarios ----------------------------------------------------------------------------------------


def there(effects, name):
    return (effects.path.parent / name).exists()


async def until(effects, name):
    while not there(effects, name):  # noqa: ASYNC110 - the event is another process's
        await asyncio.sleep(0.005)


def announce(effects, name):
    (effects.path.parent / name).touch()


async def provider_fails(journal, effects):
    """The request after the charge fails until the file 'provider_up' is there; then it reads the receipt aloud."""

    def second(request):
        if not there(effects, "provider_up"):
            return ModelUnavailableError("HTTP 500")
        return "It says " + request.messages[-1].parts[0].text

    return await drive_run(journal, [[("charge", {"amount": 10})], second], [charge(effects)])


async def retried_by_host(journal, effects):
    """A host that tries three times."""
    for attempt in range(2):
        try:
            return await provider_fails(journal, effects)
        except ModelUnavailableError:
            announce(effects, f"attempt-{attempt}")
    return await provider_fails(journal, effects)


def long_tool(journal, effects, *, lock_ttl=1.0):
    """The tool has its effect, announces 'in_tool', and returns once 'release' is there."""

    @tool(claim_ttl=1.0)
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card, slowly."""
        receipt = effects.fire("charge", ctx, {"receipt": amount})
        announce(effects, "in_tool")
        await until(effects, "release")
        return receipt

    return drive_run(journal, [[("charge", {"amount": 10})], "Done."], [charge], lock_ttl=lock_ttl)


def long_held(journal, effects):
    """The same, under a lock that no stall of the machine outlasts."""
    return long_tool(journal, effects, lock_ttl=600.0)


def long_beating(journal, effects):
    """The same under a lock of a minute, renewed ten times a second: tests move the store's clock past it."""
    wait = Heartbeat._stopped_before

    async def often(self, due):
        return await wait(self, min(due, asyncio.get_running_loop().time() + 0.1))

    Heartbeat._stopped_before = often
    return long_tool(journal, effects, lock_ttl=60.0)


async def long_model(journal, effects):
    """The second model step announces 'in_model' and answers once 'release' is there."""

    async def second(request):
        announce(effects, "in_model")
        await until(effects, "release")
        return [("charge", {"amount": 20})]

    turns = [[("charge", {"amount": 10})], second, "Done."]
    return await drive_run(journal, turns, [charge(effects)], lock_ttl=1.0)


async def guarded(journal, effects):
    """A confirm tool whose run goes on after a refusal; the last turn reads the refusal aloud."""

    def second(request):
        return "It says " + request.messages[-1].parts[0].text

    return await drive_run(journal, [[("charge", {"amount": 10})], second], [charge(effects, confirm=True)])


async def cut_stream(journal, effects):
    """The first stream breaks off after three events until the file 'provider_up' is there."""
    model = ScriptedModel(
        [["I will charge the card.", ("charge", {"amount": 10})], "Done."],
        cut_after=None if there(effects, "provider_up") else 3,
    )
    stream = await stream_durable(run_id=RUN, journal=journal, model=model, tools=[charge(effects)], prompt="Do it.")
    async with stream:
        async for _ in stream.events:
            pass
        return await stream.result


class DyingModel(ScriptedModel):
    """Kills the process once the runtime has taken in three events of a stream."""

    async def stream(self, request):
        taken = 0
        async for event in super().stream(request):
            yield event
            taken += 1
            if taken == 3:
                die()


async def killed_in_stream(journal, effects):
    """Dies while its first answer streams; the second process streams it whole."""
    kind = ScriptedModel if there(effects, "died") else DyingModel
    announce(effects, "died")
    model = kind([["I will charge the card.", ("charge", {"amount": 10})], "Done."])
    stream = await stream_durable(run_id=RUN, journal=journal, model=model, tools=[charge(effects)], prompt="Do it.")
    async with stream:
        async for _ in stream.events:
            pass
        return await stream.result


async def full_disk(journal, effects):
    """The disk is full from the intent of the charge on, unless the file 'room' is there."""

    def fill(_, ops):
        intent = any(isinstance(getattr(op, "value", None), dict) and op.value.get("status") == "running" for op in ops)
        if intent and any("tool" in op.key for op in ops) and not there(effects, "room"):
            # What a write beyond the limit gets is EFBIG, as long as its signal is not deadly.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            size = effects.path.with_name("journal.sqlite-wal").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return await single(FaultyJournal(journal, on_write=fill), effects)


# Agents without a memory: the harness must find them out -----------------------------------------------------------


async def careless(journal, effects):
    """Keeps no journal at all: writes a row to be killed at, and charges every time."""
    storage = InMemoryStorage()
    await journal.apply([Put(("note", "a"), 1)], batch=new_batch())
    await single(storage.runs, effects)
    await journal.apply([Put(("note", "b"), 1)], batch=new_batch())


async def forgetful(journal, effects):
    """Notes the charge before it makes it, and believes the note: a crash between loses the charge."""
    if await get(journal, ("note", "charged")) is None:
        await journal.apply([Put(("note", "charged"), 1)], batch=new_batch())
        effects.fire("charge", f"{RUN}/s0p0")


async def forgetful_when_settled(journal, effects):
    """Does the same inside a tool: the doubt is settled, the call is begun again, and it believes its note."""

    @tool
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card, unless the note says that it was."""
        if await get(journal, ("note", "charged")) is not None:
            return {"receipt": amount}
        await journal.apply([Put(("note", "charged"), 1)], batch=new_batch())
        return effects.fire("charge", ctx, {"receipt": amount})

    return await drive_run(journal, [[("charge", {"amount": 10})], "Done."], [charge])


async def dead_end(journal, effects):
    """Gives up for ever once it was interrupted, without a question."""
    if await get(journal, ("note", "begun")) is not None:
        raise ModelUnavailableError("it was begun before")
    await journal.apply([Put(("note", "begun"), 1)], batch=new_batch())
    effects.fire("charge", f"{RUN}/s0p0")


async def hanging(journal, effects):
    """Sleeps for ever once it was interrupted."""
    if await get(journal, ("note", "begun")) is not None:
        signal.pause()
    await journal.apply([Put(("note", "begun"), 1)], batch=new_batch())


async def never_ends(journal, effects):
    raise ModelUnavailableError("not even undisturbed")
