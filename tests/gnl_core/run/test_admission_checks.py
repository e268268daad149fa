"""Who comes again with something else: refused before anything is written, in words that name nobody else."""

import asyncio
import logging

import pytest

from gnl_core import (
    Approval,
    Context,
    agent_tool,
    args_hash,
    derived_run_id,
    durable_context,
    fork_run,
    keys,
    read_idem_ledger,
    resume_run,
    run_durable,
    stream_durable,
    tool,
)
from gnl_core.errors import (
    ConfigError,
    NotAnAgentRunError,
    RunActorMismatchError,
    RunAgentMismatchError,
    RunBusyError,
    RunInputMismatchError,
    RunNotFoundError,
    RunOwnerMismatchError,
    RunSweptError,
    RunThreadMismatchError,
    StoreCorruptError,
    StoreUnavailableError,
    ThreadOwnerMismatchError,
    UnknownQuestionError,
)
from gnl_core.ledger import LedgerEntry
from gnl_core.testing.scripted import ScriptedModel

ONE = [[("charge", {"order": 1})], "Done."]
WORK = derived_run_id("agent:billing", "resource", "ann", "invoice-1")
MINE = {"resource_id": "ann", "thread_id": "t-ann", "agent": "billing", "actor": "clerk", "bind_actor": True}
MISMATCHES = [
    ({"resource_id": "bob"}, RunOwnerMismatchError),
    ({"resource_id": "bob", "agent": "support", "thread_id": "t-bob", "actor": "eve"}, RunOwnerMismatchError),
    ({"agent": "support"}, RunAgentMismatchError),
    ({"agent": "support", "thread_id": "t-bob"}, RunAgentMismatchError),
    ({"thread_id": "t-bob"}, RunThreadMismatchError),
    ({"thread_id": "t-bob", "actor": "eve"}, RunThreadMismatchError),
    ({"actor": "eve"}, RunActorMismatchError),
    ({"prompt": "Something else."}, RunInputMismatchError),
    ({"actor": "eve", "prompt": "Something else."}, RunActorMismatchError),
]


def charging(effects, **options):
    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


def drive(journal, tools=(), turns=ONE, run_id="r", *, door=run_durable, **options):
    options.setdefault("prompt", "Go.")
    return door(run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=tools, **options)


async def unwritten(rows, attempt, error, match=None):
    """Whoever is refused has changed no row."""
    before = await rows.all()
    with pytest.raises(error, match=match) as refused:
        await attempt
    assert await rows.all() == before
    return refused.value


# Whose the conversation is -----------------------------------------------------------------------------------------


async def test_a_conversation_is_its_first_persons(journal, rows, effects):
    charge = charging(effects)
    await drive(journal, [charge], run_id="a", thread_id="t", resource_id="ann")
    refused = await unwritten(
        rows, drive(journal, [charge], run_id="b", thread_id="t", resource_id="bob"), ThreadOwnerMismatchError, "shared"
    )
    assert "ann" not in str(refused)
    assert set(refused.detail) == {"run_id"}
    await drive(journal, [charge], run_id="c", thread_id="t", resource_id="ann", turns=["Hi."])
    await drive(journal, [charge], run_id="d", thread_id="t", turns=["An operator's."])
    await drive(journal, [charge], run_id="e", thread_id="t", resource_id="bob", shared_thread=True, turns=["Hi."])
    assert effects.counts() == {"charge order-1": 1}


async def test_of_two_persons_who_begin_a_conversation_at_once_one_owns_it(journal):
    begun = [
        drive(journal, run_id=f"r-{who}", thread_id="t", resource_id=who, turns=["Hi."])
        for who in ("ann", "bob", "cem")
    ]
    done = await asyncio.gather(*begun, return_exceptions=True)
    assert sorted(type(one).__name__ for one in done) == ["DurableResult", *["ThreadOwnerMismatchError"] * 2]


async def test_nobodys_conversation_becomes_the_first_persons(journal):
    await drive(journal, run_id="a", thread_id="t", turns=["Hi."])
    await drive(journal, run_id="b", thread_id="t", resource_id="ann", turns=["Hi."])
    with pytest.raises(ThreadOwnerMismatchError):
        await drive(journal, run_id="c", thread_id="t", resource_id="bob", turns=["Hi."])


# Whose it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["suspended", "completed"])
@pytest.mark.parametrize(("other", "error"), MISMATCHES)
async def test_l67_a_refusal_writes_nothing_and_names_nobody(journal, rows, effects, state, other, error):
    charge = charging(effects, confirm=state == "suspended")
    await drive(journal, [charge], **MINE)
    for door in (run_durable, stream_durable):
        wrong = {**MINE, **other, "strict_input": True, "door": door}
        refused = await unwritten(rows, drive(journal, [charge], **wrong), error)
        assert (refused.http_status, refused.resumable) == (409, False)
        told = f"{refused} {refused.detail}"
        assert not [name for name in ("ann", "t-ann", "billing", "clerk", "Go.") if f"{name!r}" in told]
        assert refused.detail["run_id"] == "r"


async def test_l67_a_refused_call_records_none_of_its_answers(journal, rows, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge], **MINE)
    wrong = {**MINE, "resource_id": "bob", "approvals": {"s0p0": True}}
    await unwritten(rows, drive(journal, [charge], **wrong), RunOwnerMismatchError)
    result = await drive(journal, [charge], **MINE, approvals={"s0p0": True})
    assert (result.text, effects.count()) == ("Done.", 1)


async def test_s11_a_run_id_that_another_agent_has_used(journal, rows, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge], agent="billing")
    await unwritten(rows, drive(journal, [charge], agent="support"), RunAgentMismatchError, "another agent's")
    result = await resume_run(
        run_id="r", journal=journal, model=ScriptedModel(ONE), tools=[charge], approvals={"s0p0": True}
    )
    assert (result.text, effects.count()) == ("Done.", 1)


async def test_l68_an_actor_is_compared_only_where_both_sides_have_one(journal, rows, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge], actor="ann", bind_actor=True)
    assert (await drive(journal, [charge], bind_actor=True)).interrupts
    assert (await drive(journal, [charge], actor="eve")).interrupts, "nobody asked for it to be bound"
    await unwritten(rows, drive(journal, [charge], actor="eve", bind_actor=True), RunActorMismatchError)
    approval = Approval(approved=True, actor="boss")
    assert (await drive(journal, [charge], actor="ann", bind_actor=True, approvals={"s0p0": approval})).text == "Done."

    await drive(journal, [charge], run_id="n")
    assert (await drive(journal, [charge], run_id="n", actor="eve", bind_actor=True)).interrupts


async def test_l68_an_operator_goes_on_with_a_persons_run_as_that_persons(journal, effects):
    seen = []

    @tool(confirm=True)
    async def charge(ctx: Context, order: int) -> str:
        """Charge."""
        seen.append((ctx.resource_id, ctx.thread_id))
        return "ok"

    await drive(journal, [charge], resource_id="ann", thread_id="t")
    await drive(journal, [charge], approvals={"s0p0": True})
    assert seen == [("ann", "t")]


@pytest.mark.parametrize(
    ("claim", "error"), [({"resource_id": "ann"}, RunOwnerMismatchError), ({"thread_id": "t"}, RunThreadMismatchError)]
)
async def test_a_run_of_nobody_is_not_free_to_be_claimed(journal, rows, claim, error):
    await drive(journal, turns=["Hi."])
    await unwritten(rows, drive(journal, turns=["Hi."], **claim), error)


async def test_ones_own_loop_is_held_to_the_same(journal, rows):
    async with durable_context(run_id="r", journal=journal, resource_id="ann"):
        pass

    async def enter(**options):
        async with durable_context(run_id="r", journal=journal, **options):
            pass

    await unwritten(rows, enter(resource_id="bob"), RunOwnerMismatchError)
    await enter(resource_id="ann", strict_input=True)


# What it was asked -------------------------------------------------------------------------------------------------


async def test_s12_strict_input_refuses_other_content_and_replays_its_own(journal, rows, effects):
    charge = charging(effects)
    await drive(journal, [charge], strict_input=True, system="Be brief.")
    for other in ({"prompt": "Go!"}, {"messages": [{"role": "user", "content": "Hi."}]}, {"system": "Be long."}):
        wrong = {"system": "Be brief.", **other}
        await unwritten(rows, drive(journal, [charge], strict_input=True, **wrong), RunInputMismatchError)
    nothing = [AssertionError("asked")]
    for same in ({"system": "Be brief."}, {}):
        result = await drive(journal, [charge], nothing, strict_input=True, **same)
        assert (result.text, result.warnings) == ("Done.", ())
    again = await resume_run(
        run_id="r", journal=journal, model=ScriptedModel(nothing), tools=[charge], strict_input=True
    )
    assert (again.text, effects.count()) == ("Done.", 1)


@pytest.mark.parametrize("run_id", [WORK, f"{WORK}#2"])
async def test_l65_other_content_under_a_derived_id_is_refused_whatever_the_options_say(journal, rows, effects, run_id):
    charge = charging(effects)
    await drive(journal, [charge], run_id=run_id)
    wrong = {"run_id": run_id, "prompt": "Something else.", "strict_input": False}
    refused = await unwritten(rows, drive(journal, [charge], **wrong), RunInputMismatchError, "work_key")
    assert refused.detail["differs"] == ["messages"]
    assert (await drive(journal, [charge], [AssertionError("asked")], run_id=run_id)).text == "Done."


GROWN = [
    {"role": "user", "content": "Go."},
    {"role": "assistant", "content": "May I?"},
    {"role": "user", "content": "Yes."},
]


async def test_l66_an_answer_to_a_call_of_the_run_lets_a_grown_conversation_in(journal, rows, effects):
    charge = charging(effects, confirm=True)
    begun = {"run_id": WORK, "strict_input": True}
    await drive(journal, [charge], **begun)
    grown = {**begun, "messages": GROWN, "prompt": None}
    await unwritten(rows, drive(journal, [charge], **grown), RunInputMismatchError)
    for name in ("s0p1", "s9p9", "nonsense", f"{WORK}/s0p1", "r/s0p0/confirm/0", "/", f"{WORK}#2/s0p0"):
        invented = {**grown, "approvals": {name: True}}
        await unwritten(rows, drive(journal, [charge], **invented), RunInputMismatchError)
    ahead = {**grown, "approvals": {"s0p1": Approval(approved=True, args_digest=args_hash({"order": 1}))}}
    await unwritten(rows, drive(journal, [charge], **ahead), RunInputMismatchError)
    assert effects.count() == 0
    result = await drive(journal, [charge], **grown, approvals={f"{WORK}/s0p0/confirm/0": True})
    assert (result.text, effects.count()) == ("Done.", 1)
    assert result.messages[0].parts[0].text == "Go.", "it goes on with what it began with"
    for name in ("s0p0", f"{WORK}/s0p0", f"{WORK}/s0p0/confirm/0"):
        again = await drive(journal, [charge], [AssertionError("asked")], **grown, approvals={name: True})
        assert (again.text, effects.count()) == ("Done.", 1), "also when the call is over"


async def test_l66_the_question_of_a_sub_agent_lets_in_too(journal, rows, effects):
    worker = agent_tool(
        name="worker", description="d", model=ScriptedModel(ONE), tools=[charging(effects, confirm=True)]
    )
    turns = [[("worker", {"task": "pay"})], "Done."]
    first = await drive(journal, [worker], turns, strict_input=True)
    (interrupt,) = first.interrupts
    grown = {"strict_input": True, "messages": GROWN, "prompt": None}
    result = await drive(journal, [worker], turns, **grown, approvals={interrupt.question: True})
    assert (result.text, effects.count()) == ("Done.", 1)


async def test_a_wrong_answer_is_still_refused_once_it_let_its_caller_in(journal, rows, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge], strict_input=True)
    grown = {"strict_input": True, "messages": GROWN, "prompt": None, "approvals": {"r/s0p0/confirm/7": True}}
    await unwritten(rows, drive(journal, [charge], **grown), UnknownQuestionError)


# What was swept ----------------------------------------------------------------------------------------------------


async def test_s76_a_late_retry_of_a_swept_run_is_refused(journal, rows, effects):
    await rows.put(keys.swept("r"), {"f": 1, "at": 1})
    await rows.put(keys.swept(WORK), {"f": 1, "at": 1})
    charge = charging(effects)
    for attempt in (
        drive(journal, [charge], tombstone_policy="reject"),
        drive(journal, [charge], run_id=WORK),
        resume_run(run_id=WORK, journal=journal, model=ScriptedModel(ONE)),
        drive(journal, [charge], tombstone_policy="reject", door=stream_durable),
    ):
        refused = await unwritten(rows, attempt, RunSweptError, "retention sweep")
        assert refused.http_status == 409
    assert effects.count() == 0
    await unwritten(rows, resume_run(run_id="r", journal=journal, model=ScriptedModel(ONE)), RunNotFoundError)
    assert (await drive(journal, [charge])).text == "Done.", "an id of the caller's own, without the policy"


async def test_a_run_that_is_there_is_not_swept(journal, rows, effects):
    charge = charging(effects)
    await drive(journal, [charge], run_id=WORK)
    await rows.put(keys.swept(WORK), {"f": 1, "at": 1})
    assert (await drive(journal, [charge], [AssertionError("asked")], run_id=WORK)).text == "Done."


async def test_a_sweep_between_the_look_and_the_first_write_is_seen(journal, rows, effects):
    """The tombstone comes after it was looked for: the batch that begins the run expects that there is none."""

    class Sweeping:
        def __getattr__(self, name):
            return getattr(journal, name)

        async def apply(self, ops, *, batch):
            await rows.put(keys.swept(WORK), {"f": 1, "at": 1})
            return await journal.apply(ops, batch=batch)

    with pytest.raises(RunSweptError):
        await drive(Sweeping(), [charging(effects)], run_id=WORK)
    assert set(await rows.all()) == {keys.encode(keys.swept(WORK))}


# The ledger --------------------------------------------------------------------------------------------------------


async def test_every_refusal_is_noted_outside_of_the_run(journal, rows, effects):
    charge = charging(effects, confirm=True)
    terms = {"strict_input": True, "conflict_ledger": True}
    await drive(journal, [charge], **MINE, **terms)
    mine = await rows.all(keys.request("r"))
    codes = []
    for other, error in MISMATCHES:
        with pytest.raises(error):
            await drive(journal, [charge], **{**MINE, **terms, **other})
        codes.append(error.code)
    assert await rows.all(keys.request("r")) == mine
    found = await read_idem_ledger(journal)
    assert sorted(entry.code for entry in found) == sorted(codes)
    assert [entry.at for entry in found] == sorted((entry.at for entry in found), reverse=True)
    assert {(entry.run_id, entry.work_key_hash) for entry in found} == {("r", None)}
    assert {entry.actor for entry in found} == {"clerk", "eve"}
    written = str(await rows.values(keys.conflicts()))
    assert not [word for word in ("Something", "ann", "bob", "t-bob", "support") if word in written]
    assert await read_idem_ledger(journal, run_id="other") == []
    assert len(await read_idem_ledger(journal, run_id="r", limit=2)) == 2


async def test_a_busy_and_a_swept_run_are_noted_and_nothing_else_is(journal, rows):
    terms = {"conflict_ledger": True, "tombstone_policy": "reject"}
    await rows.put(keys.swept("s"), {"f": 1, "at": 1})
    with pytest.raises(RunSweptError):
        await drive(journal, run_id="s", **terms)
    model = ScriptedModel(["Hi."], gate=(gate := asyncio.Event()))
    task = asyncio.ensure_future(run_durable(run_id="r", journal=journal, model=model, prompt="Go."))
    await model.entered.wait()
    with pytest.raises(RunBusyError):
        await drive(journal, **terms)
    gate.set()
    await task
    with pytest.raises(UnknownQuestionError):
        await drive(journal, **terms, approvals={"s9p9": True})
    with pytest.raises(RunOwnerMismatchError):
        await drive(journal, resource_id="bob")
    found = await read_idem_ledger(journal)
    assert {(entry.run_id, entry.code) for entry in found} == {("s", "run_swept"), ("r", "run_busy")}


async def test_an_items_id_at_an_agents_door_is_noted_too(journal):
    terms = {"run_id": "batch:b:k1", "conflict_ledger": True}
    for door in (run_durable, stream_durable):
        with pytest.raises(NotAnAgentRunError):
            await drive(journal, **terms, door=door)
    with pytest.raises(NotAnAgentRunError):
        async with durable_context(**terms, journal=journal):
            raise AssertionError("it was let in")
    found = await read_idem_ledger(journal)
    assert [(entry.run_id, entry.code) for entry in found] == [("batch:b:k1", "not_an_agent_run")] * 3
    with pytest.raises(StoreUnavailableError, match="ledger"):
        await drive(NoLedger(journal), **terms, audit_on_reject="require")


class NoLedger:
    """A store that takes everything but refusals."""

    def __init__(self, journal):
        self.journal = journal

    def __getattr__(self, name):
        return getattr(self.journal, name)

    async def apply(self, ops, *, batch):
        if any(op.key[:2] == keys.conflicts() for op in ops):
            raise StoreUnavailableError("no ledger")
        return await self.journal.apply(ops, batch=batch)


async def test_l72_a_refusal_that_must_be_noted_and_cannot_be(journal, rows, caplog):
    await drive(journal, turns=["Hi."], resource_id="ann")
    wrong = {"resource_id": "bob", "conflict_ledger": True}
    with caplog.at_level(logging.WARNING):
        await unwritten(rows, drive(NoLedger(journal), **wrong), RunOwnerMismatchError)
    assert "could not be noted" in caplog.text
    await unwritten(rows, drive(NoLedger(journal), **wrong, audit_on_reject="require"), StoreUnavailableError, "ledger")
    with pytest.raises(RunOwnerMismatchError):
        await drive(journal, **wrong, audit_on_reject="require")
    assert len(await read_idem_ledger(journal)) == 1


async def test_l72_a_ledger_that_cannot_be_read_is_not_empty(journal, rows):
    class Unlisted:
        async def scan(self, *args, **options):
            raise StoreUnavailableError("gone")

    with pytest.raises(StoreUnavailableError):
        await read_idem_ledger(Unlisted())
    with pytest.raises(ConfigError, match="limit"):
        await read_idem_ledger(journal, limit=0)
    for value in ({"f": 1}, {"f": 1, "code": 7}, {"f": 1, "code": "run_busy", "actor": 7}):
        await rows.put(keys.conflict(5, "r", "ab"), value)
        with pytest.raises(StoreCorruptError, match="idem/conflict/"):
            await read_idem_ledger(journal)


async def test_a_long_ledger_is_read_page_by_page_newest_first(journal, rows):
    for at in range(1_200):
        await rows.put(keys.conflict(at, f"r{at % 3}", "ab"), {"f": 1, "code": "run_busy"})
    found = await read_idem_ledger(journal, run_id="r1")
    assert [entry.at for entry in found] == [at for at in reversed(range(1_200)) if at % 3 == 1]
    assert found[0] == LedgerEntry(run_id="r1", code="run_busy", at=1_198)


async def test_a_fork_of_named_work_may_be_driven_under_its_suffix(journal, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge], run_id=WORK, resource_id="ann")
    await fork_run(journal=journal, run_id=WORK, step=0, new_run_id=f"{WORK}#fork-1")
    result = await drive(journal, [charge], run_id=f"{WORK}#fork-1", resource_id="ann", approvals={})
    assert [one.tool_call_id for one in result.interrupts] == ["s0p0"]
