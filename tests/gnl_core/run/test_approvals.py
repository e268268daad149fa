"""Questions and their answers: each belongs to one call, one kind and the very bytes shown, and is spent once."""

import pytest

from gnl_core import (
    Context,
    RequireApproval,
    RunBusyError,
    SideEffectRetryBlockedError,
    UnknownQuestionError,
    decide,
    keys,
    list_interrupts,
    resume_run,
    run_durable,
    tool,
)
from gnl_core.approvals import Approval
from gnl_core.canonical import args_hash
from gnl_core.errors import AlreadyDecidedError, ConfigError, DivergenceError
from gnl_core.lock import acquire_ops
from gnl_core.owner import new_owner, register, unregister
from gnl_core.testing.scripted import Call, ScriptedModel


def charging(effects, *, fails=0, **options):
    """A side effect that raises after its first `fails` effects."""

    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt {amount}"

    return charge


def paying(*amounts):
    """A script of one turn that pays every amount, and a last word."""
    return ScriptedModel([[("charge", {"amount": amount}) for amount in amounts], "paid"])


def yes(amount, **options):
    return Approval(approved=True, args_digest=args_hash({"amount": amount}), **options)


@pytest.fixture
def drive(journal):
    """Drive run 'r'."""

    async def go(tools, model=None, **options):
        return await run_durable(
            run_id="r", journal=journal, model=model or paying(1), tools=tools, prompt="pay", **options
        )

    return go


def told(result):
    """What the model was told of each call."""
    return {
        part.tool_call_id: part.text for message in result.messages if message.role == "tool" for part in message.parts
    }


# Which call ----------------------------------------------------------------------------------------------------------


async def test_s24_three_parallel_gated_calls_ask_three_questions_in_model_order(drive, journal, effects):
    result = await drive([charging(effects, confirm=True)], paying(3, 1, 2))
    assert [one.question for one in result.interrupts] == [f"r/s0p{n}/confirm/0" for n in range(3)]
    assert [one.args for one in result.interrupts] == [{"amount": 3}, {"amount": 1}, {"amount": 2}]
    assert (result.finish_reason, effects.count()) == ("suspended", 0)
    assert [one.question for one in await list_interrupts(journal)] == [one.question for one in result.interrupts]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
async def test_s23_an_answer_reaches_its_own_call_whatever_the_order(drive, journal, effects, order):
    charge = charging(effects, confirm=True)
    await drive([charge], paying(10, 20, 30))
    for done, position in enumerate(order):
        await decide(journal, f"r/s0p{position}/confirm/0", True)
        result = await drive([charge], paying(10, 20, 30))
        open_ones = sorted(set(range(3)) - set(order[: done + 1]))
        assert [one.tool_call_id for one in result.interrupts] == [f"s0p{n}" for n in open_ones]
        assert effects.counts() == {f"charge r/s0p{n}": 1 for n in order[: done + 1]}
    assert result.text == "paid"
    assert told(result) == {"s0p0": "receipt 10", "s0p1": "receipt 20", "s0p2": "receipt 30"}


async def test_s25_a_sibling_that_is_done_stays_done(drive, journal, effects):
    @tool
    def ship(item: str, ctx: Context) -> str:
        effects.fire("ship", ctx)
        return "shipped"

    def model():
        return ScriptedModel([[("ship", {"item": "x"}), ("charge", {"amount": 1}), ("ship", {"item": "y"})], "ok"])

    tools = [ship, charging(effects, confirm=True)]
    first = await drive(tools, model())
    assert [call.status for call in first.steps[0].calls] == ["succeeded", "suspended", "succeeded"]
    await decide(journal, "r/s0p1/confirm/0", True)
    assert (await drive(tools, model())).text == "ok"
    assert effects.counts() == {"ship r/s0p0": 1, "ship r/s0p2": 1, "charge r/s0p1": 1}


# Who passes it, and when ---------------------------------------------------------------------------------------------


async def test_s27_a_recorded_answer_is_carried_out_by_a_drive_that_passes_none(drive, journal, effects):
    charge = charging(effects, confirm=True)
    await drive([charge])
    await decide(journal, "r/s0p0/confirm/0", True, actor="ana")
    result = await resume_run(
        run_id="r", journal=journal, model=[paying(1)], tools=[charge], context={"any": 1}, actor="worker-2"
    )
    assert (result.text, result.interrupts, effects.count()) == ("paid", (), 1)


@pytest.mark.parametrize("name", ["r/s0p0/confirm/0", "s0p0", "r/s0p0", "call_0_0"])
async def test_an_open_question_can_be_answered_along_with_a_drive(drive, journal, effects, name):
    charge = charging(effects, confirm=True)
    await drive([charge])
    result = await drive([charge], approvals={name: True})
    assert (result.text, effects.count(), result.unused_approvals) == ("paid", 1, ())
    # A host that retries passes the same again.
    again = await drive([charge], approvals={name: True})
    assert (again.text, effects.count()) == ("paid", 1)
    with pytest.raises(AlreadyDecidedError) as refused:
        await drive([charge], approvals={name: False})
    assert refused.value.detail["approved"] is True


@pytest.mark.parametrize("name", ["r/s0p0/confirm/0", "s0p0", "r/s0p0", "call_0_0"])
async def test_an_answer_may_come_before_its_question_if_it_names_the_bytes(drive, rows, effects, name):
    result = await drive([charging(effects, confirm=True)], approvals={name: yes(1, actor="ana", reason="known")})
    assert (result.text, effects.count(), result.unused_approvals) == ("paid", 1, ())
    (answer,) = [value for key, (value, _) in (await rows.values()).items() if "/answer/" in key]
    assert (answer["actor"], answer["reason"], answer["kind"], answer["approved"]) == ("ana", "known", "confirm", True)


async def test_a_refusal_that_comes_before_its_question_is_recorded_with_who_and_why(drive, rows, effects):
    no = Approval(approved=False, args_digest=args_hash({"amount": 1}), actor="ana", reason="not today")
    result = await drive([charging(effects, confirm=True)], approvals={"s0p0": no})
    assert effects.count() == 0
    assert "did not run" in told(result)["s0p0"]
    assert "not today" in told(result)["s0p0"]
    (answer,) = [value for key, (value, _) in (await rows.values()).items() if "/answer/" in key]
    assert (answer["actor"], answer["approved"]) == ("ana", False)


async def test_one_answer_ahead_satisfies_every_gate_that_asks(drive, rows, effects):
    guard_calls = []

    def guard(call):
        guard_calls.append(call.tool_call_id)
        return RequireApproval("over the limit")

    result = await drive([charging(effects, confirm=True)], guard=guard, approvals={"s0p0": yes(1)})
    assert (result.text, effects.count(), guard_calls) == ("paid", 1, ["s0p0"])
    kinds = {key.split("/")[5] for key in await rows.values() if "/answer/" in key}
    assert kinds == {"confirm", "guard"}, "each question it answers has its record"


async def test_an_answer_ahead_for_other_bytes_is_held_and_listed_as_unused(drive, rows, effects):
    result = await drive([charging(effects, confirm=True)], approvals={"s0p0": yes(2)})
    assert [one.question for one in result.interrupts] == ["r/s0p0/confirm/0"]
    assert (result.unused_approvals, effects.count()) == (("s0p0",), 0)
    assert not [key for key in await rows.values() if "/answer/" in key], "what matched nothing is stored nowhere"


async def test_one_answer_ahead_by_a_providers_id_opens_one_call(drive, effects):
    model = ScriptedModel([[Call("charge", {"amount": 1}, "call_0")], [Call("charge", {"amount": 1}, "call_0")], "ok"])
    result = await drive([charging(effects, confirm=True)], model, approvals={"call_0": yes(1)})
    assert (effects.count(), [one.question for one in result.interrupts]) == (1, ["r/s1p0/confirm/0"])


async def test_an_ambiguous_providers_id_is_refused_with_our_ids(drive, effects):
    def model():
        return ScriptedModel([[Call("charge", {"amount": n}, "call_0") for n in (1, 2)], "paid"])

    charge = charging(effects, confirm=True)
    await drive([charge], model())
    with pytest.raises(UnknownQuestionError, match=r"r/s0p0/confirm/0, r/s0p1/confirm/0"):
        await drive([charge], model(), approvals={"call_0": True})
    result = await drive([charge], model(), approvals={"s0p1": True})
    assert (effects.counts(), [one.tool_call_id for one in result.interrupts]) == ({"charge r/s0p1": 1}, ["s0p0"])
    # Now it names one.
    await drive([charge], model(), approvals={"call_0": True})
    assert effects.counts() == {"charge r/s0p0": 1, "charge r/s0p1": 1}


@pytest.mark.parametrize("name", ["s0p7", "call_9", "other/s0p0/confirm/0", "r/s0p0/guard/0", "r/s0p0/in_doubt/1", ""])
async def test_s35_an_answer_to_no_open_question_is_refused_with_the_open_ones(drive, rows, effects, name):
    charge = charging(effects, confirm=True)
    await drive([charge])
    before = await rows.values()
    with pytest.raises(UnknownQuestionError, match="r/s0p0/confirm/0"):
        await drive([charge], approvals={name: True})
    assert await rows.values() == before, "nothing is stored"


async def test_s35_approvals_of_a_new_run_store_nothing(journal, drive, rows, effects):
    with pytest.raises(UnknownQuestionError):
        await drive([charging(effects, confirm=True)], approvals={"s0p0": True})
    assert await rows.values() == {}, "line 55: no ghost run"
    with pytest.raises(ConfigError):
        await drive([charging(effects, confirm=True)], approvals={"s0p0": "yes"})
    assert await rows.values() == {}


async def test_a_doubt_cannot_be_answered_ahead(drive, rows, effects):
    with pytest.raises(UnknownQuestionError):
        await drive([charging(effects)], approvals={"r/s0p0/in_doubt/1": yes(1)})
    assert await rows.values() == {}


# Spent once ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approval", [True, yes(1)])
@pytest.mark.parametrize("name", ["s0p0", "r/s0p0/confirm/0", "call_0_0"])
async def test_s30_the_same_approval_passed_again_is_no_licence_to_run_again(drive, effects, name, approval):
    charge = charging(effects, fails=1, confirm=True)
    if approval is True:
        await drive([charge])
    await drive([charge], approvals={name: approval})  # the body raises after its effect
    assert effects.count() == 1
    for _ in range(2):
        with pytest.raises(SideEffectRetryBlockedError) as blocked:
            await drive([charge], approvals={name: approval})
        (question,) = blocked.value.interrupts
        assert question.question == "r/s0p0/in_doubt/1"
    assert effects.count() == 1
    # Naming the new question is a new answer.
    result = await drive([charge], approvals={question.question: True})
    assert (result.text, effects.count()) == ("paid", 2)


async def test_an_answer_ahead_that_no_gate_asked_for_opens_no_doubt(drive, effects):
    charge = charging(effects, fails=1)
    await drive([charge], approvals={"s0p0": yes(1)})
    with pytest.raises(SideEffectRetryBlockedError):
        await drive([charge], approvals={"s0p0": yes(1)})
    assert effects.count() == 1


async def test_line_2_a_doubt_of_a_call_that_nobody_was_asked_about_is_answered_by_its_id_once(drive, effects):
    charge = charging(effects, fails=2)
    await drive([charge])
    await drive([charge], approvals={"s0p0": True})
    assert effects.count() == 2
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive([charge], approvals={"s0p0": True})
    assert effects.count() == 2, "it was said once"
    assert [one.question for one in blocked.value.interrupts] == ["r/s0p0/in_doubt/2"]


async def test_s37_the_next_question_says_that_it_may_have_happened(drive, journal, effects):
    charge = charging(effects, fails=1, confirm=True)
    (asked,) = (await drive([charge])).interrupts
    await drive([charge], approvals={asked.question: True})
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive([charge])
    (question,) = blocked.value.interrupts
    assert (question.kind, question.attempt) == ("in_doubt", 1)
    assert "may have happened already" in question.reason
    assert question.reason != asked.reason
    (listed,) = await list_interrupts(journal)
    assert listed.question == question.question


async def test_line_20_with_approval_scope_call_the_answer_stands_for_the_calls_life(drive, effects):
    charge = charging(effects, fails=1, confirm=True)
    await drive([charge])
    await drive([charge], approvals={"s0p0": True}, approval_scope="call")
    assert effects.count() == 1
    result = await drive([charge], approval_scope="call")
    assert (result.text, effects.count()) == ("paid", 2)


async def test_line_20_a_denial_is_never_spent(drive, journal, effects):
    charge = charging(effects, confirm=True)
    await drive([charge])
    await decide(journal, "r/s0p0/confirm/0", False)
    for _ in range(3):
        assert (await drive([charge], approval_scope="call")).interrupts == ()
    assert effects.count() == 0


# What it covers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [{"amount": 1000}, {"amount": True}, {}])
async def test_an_answer_does_not_cover_bytes_that_changed_in_the_journal(drive, journal, rows, effects, fresh):
    charge = charging(effects, confirm=True)
    await drive([charge])
    await decide(journal, "r/s0p0/confirm/0", True)
    await rows.change(keys.tool("r", "~", 0, 0), args=fresh)
    # Whoever changed the record, the model's step still says 1: that is what would run, and what was approved.
    result = await drive([charge])
    assert effects.count() == 1
    assert told(result) == {"s0p0": "receipt 1"}


async def test_an_answer_does_not_cover_a_model_step_that_changed_in_the_journal(drive, journal, rows, effects):
    charge = charging(effects, confirm=True)
    await drive([charge])
    await decide(journal, "r/s0p0/confirm/0", True)
    key = keys.model("r", "~", 0)
    entry = (await rows.all())[keys.encode(key)]
    text = entry.value
    (part,) = [part for part in text["response"]["parts"] if part.get("name") == "charge"]
    part["args"] = {"amount": 1000}
    await rows.put(key, text)
    for _ in range(2):
        with pytest.raises(DivergenceError) as differs:
            await drive([charge])
        (question,) = differs.value.interrupts
        assert (question.question, question.args) == ("r/s0p0/confirm/0", {"amount": 1}), "as it was asked"
    assert effects.count() == 0


@pytest.mark.parametrize(
    "row", [{}, True, {"f": 1}, {"f": 1, "approved": 1}, {"f": 2, "approved": True}, {"f": 1, "approved": True}]
)
async def test_line_55_an_answer_that_cannot_be_read_is_no_approval(drive, journal, rows, effects, row):
    charge = charging(effects, confirm=True)
    await drive([charge])
    await rows.put(keys.answer("r", "~", "s0p0", "confirm", 0), row)
    result = await drive([charge])
    assert (effects.count(), len(result.interrupts)) == (0, 1)
    await decide(journal, "r/s0p0/confirm/0", True)
    assert (await drive([charge])).text == "paid"


async def test_a_forged_answer_to_another_question_opens_nothing(drive, journal, rows, effects):
    charge = charging(effects, confirm=True)
    await drive([charge])
    await decide(journal, "r/s0p0/confirm/0", True)
    real = (await rows.values())["run/r/~/answer/s0p0/confirm/000"][0]
    await rows.delete("run/r/~/answer/s0p0/confirm/000")
    for other in ("guard/000", "confirm/001", "in_doubt/001", "taint/000"):
        await rows.put(f"run/r/~/answer/s0p0/{other}", real)
    await rows.put("run/r/~/answer/s0p1/confirm/000", real)
    assert len((await drive([charge])).interrupts) == 1
    assert effects.count() == 0


async def test_a_refused_drive_records_no_answer(drive, journal, rows, effects):
    charge = charging(effects, confirm=True)
    await drive([charge])
    other = new_owner()
    register(other)
    try:
        read = await journal.get_many([keys.lock("r"), keys.beat("r")])
        ops = acquire_ops("r", *read.entries, now=read.now, owner=other, ttl_ms=60_000)
        await journal.apply(ops, batch=7)
        with pytest.raises(RunBusyError) as busy:
            await drive([charge], approvals={"s0p0": True})
        assert busy.value.retry_after >= 1
        assert not [key for key in await rows.values() if "/answer/" in key]
    finally:
        unregister(other)
    assert (await drive([charge], approvals={"s0p0": True})).text == "paid"


# Two names -----------------------------------------------------------------------------------------------------------

NAMES = ["s0p0", "r/s0p0", "r/s0p0/confirm/0", "call_1"]


@pytest.mark.parametrize("said", [True, False])
async def test_one_answer_under_two_names_is_one_answer(drive, journal, effects, said):
    charge = charging(effects, confirm=True)
    model = ScriptedModel([[Call("charge", {"amount": 1}, "call_1")], "paid"])
    await drive([charge], model)
    result = await drive([charge], model, approvals=dict.fromkeys(NAMES, said))
    assert (effects.count(), result.interrupts, result.unused_approvals) == (int(said), (), ())


@pytest.mark.parametrize("names", [NAMES[:2], NAMES[2::-1], NAMES[2:]])
async def test_answers_that_differ_under_two_names_are_refused(drive, journal, rows, effects, names):
    charge = charging(effects, confirm=True)
    model = ScriptedModel([[Call("charge", {"amount": 1}, "call_1")], "paid"])
    await drive([charge], model)
    before = await rows.all()
    for first in (True, False):
        with pytest.raises(ConfigError, match="differently"):
            await drive([charge], model, approvals={names[0]: first, names[1]: not first})
    assert (await rows.all(), effects.count()) == (before, 0)


async def test_answers_that_come_ahead_and_differ_under_two_names_are_refused(drive, journal, rows, effects):
    charge = charging(effects, confirm=True)
    digest = args_hash({"amount": 1})
    no = Approval(approved=False, args_digest=digest)
    for one, other in (("s0p0", "r/s0p0"), ("r/s0p0/confirm/0", "s0p0")):
        with pytest.raises(ConfigError, match="differently"):
            await drive([charge], approvals={one: yes(1), other: no})
    assert await rows.all() == {}
    # Two questions of one call are two questions, and other bytes are another call.
    await drive([charge], approvals={"r/s0p0/confirm/0": yes(1), "r/s0p0/guard/0": no, "r/s0p0": yes(2)})
    assert effects.count() == 1
