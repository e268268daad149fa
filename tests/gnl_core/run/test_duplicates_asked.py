"""The default for repeats: a person is asked, with the first call shown; what a yes and a no come to, and how long."""

import pytest

from gnl_core import (
    Approval,
    Context,
    Duplicates,
    DuplicatesByClass,
    DuplicateSideEffectError,
    RunLimits,
    agent_tool,
    args_hash,
    cancel_run,
    decide,
    fork_run,
    keys,
    list_interrupts,
    read_incidents,
    resume_run,
    run_durable,
    tool,
)
from gnl_core.errors import (
    CanceledError,
    SideEffectRetryBlockedError,
    UnknownQuestionError,
)
from gnl_core.testing.scripted import ScriptedModel

CHARGE = [("charge", {"amount": 1})]
TWICE = [CHARGE, CHARGE, "done"]


def charging(effects, *, fails=0, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt {effects.fired}"

    return charge


def limits(action, **others):
    return RunLimits(side_effect_duplicates=action, **others)


async def drive(journal, tools, turns, *, run_id="r", **options):
    options.setdefault("prompt", "go")
    return await run_durable(run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=tools, **options)


def statuses(result):
    return [call.status for step in result.steps for call in step.calls]


async def noted(journal, run_id="r"):
    """Source, action and call of each incident, in order."""
    return [(one.source, one.action, one.tool_call_id) for one in await read_incidents(journal, run_id)]


def told(result):
    """What the model was told of each call."""
    return [part.text for message in result.messages if message.role == "tool" for part in message.parts]


# Suspend -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "suspend"])
async def test_l40_suspend_is_the_default_and_shows_what_was_done(journal, rows, effects, given):
    result = await drive(journal, [charging(effects)], TWICE, limits=limits(given))
    (question,) = result.interrupts
    assert (question.question, question.kind, question.args) == ("r/s1p0/duplicate/0", "duplicate", {"amount": 1})
    assert effects.count() == 1
    first = (await rows.all())["run/r/~/tool/000000/000"]
    assert question.prior == {"origin": "exact", "run_id": "r", "tool_call_id": "s0p0", "at": first.updated_at}
    assert "call s0p0 of run r" in question.reason
    assert "just now" in question.reason
    shown = (await rows.values())[keys.encode(keys.question("r", keys.ROOT, "s1p0", "duplicate", 0))][0]
    assert shown == {"f": 1, "tool": "charge", "kind": "duplicate", "prior": question.prior}
    assert await noted(journal) == [("duplicate-guard", "suspend", "s1p0")]
    (listed,) = await list_interrupts(journal)
    assert listed.prior == question.prior


async def test_l40_approve_runs_it_a_second_time_for_real(journal, effects):
    await drive(journal, [charging(effects)], TWICE)
    await decide(journal, "r/s1p0/duplicate/0", True)
    for _ in range(2):
        result = await drive(journal, [charging(effects)], TWICE)
        assert [call.output for step in result.steps for call in step.calls] == ["receipt 1", "receipt 2"]
    assert effects.counts() == {"charge r/s0p0": 1, "charge r/s1p0": 1}
    assert await noted(journal) == [("duplicate-guard", "suspend", "s1p0")]


async def test_l40_deny_ends_it_denied_and_the_model_reads_so_in_the_past_tense(journal, effects):
    await drive(journal, [charging(effects)], TWICE)
    await decide(journal, "r/s1p0/duplicate/0", False, reason="once is enough")
    result = await drive(journal, [charging(effects)], TWICE)
    assert (result.text, statuses(result), effects.count()) == ("done", ["succeeded", "denied"], 1)
    assert told(result)[1].startswith("A person refused this call and it did not run. Reason: once is enough.")


async def test_l46_after_a_no_the_next_repeat_of_the_request_does_not_run_and_is_not_asked(journal, effects):
    turns = [CHARGE, CHARGE, CHARGE, CHARGE, "done"]
    await drive(journal, [charging(effects)], turns)
    await decide(journal, "r/s1p0/duplicate/0", False)
    result = await drive(journal, [charging(effects)], turns)
    assert (result.text, result.interrupts, effects.count()) == ("done", (), 1)
    assert statuses(result) == ["succeeded", "denied", "denied", "denied"]
    assert "refused" in told(result)[2]
    assert (await drive(journal, [charging(effects)], turns)).messages == result.messages


async def test_l46_a_no_binds_sub_agents_too_and_no_later_request(journal, effects):
    charge = charging(effects)
    helper = agent_tool(name="helper", description="pays", model=ScriptedModel([CHARGE, "paid"]), tools=[charge])
    turns = [CHARGE, CHARGE, [("helper", {"task": "pay"})], "done"]
    await drive(journal, [charge, helper], turns)
    await decide(journal, "r/s1p0/duplicate/0", False)
    result = await drive(journal, [charge, helper], turns)
    assert (result.text, effects.count()) == ("done", 1)
    (question,) = (await drive(journal, [charge], TWICE, run_id="next")).interrupts
    assert question.question == "next/s1p0/duplicate/0", "a new request asks again"


async def test_s82_a_yes_is_for_one_repeat_and_the_next_is_asked_again(journal, effects):
    turns = [CHARGE, CHARGE, CHARGE, "done"]
    await drive(journal, [charging(effects)], turns)
    await decide(journal, "r/s1p0/duplicate/0", True)
    (question,) = (await drive(journal, [charging(effects)], turns)).interrupts
    assert (question.question, effects.count()) == ("r/s2p0/duplicate/0", 2)
    assert question.prior["tool_call_id"] == "s0p0"


async def test_s82_a_deliberate_repeat_is_two_executions(journal, effects):
    @tool
    def add_to_cart(item: str, ctx: Context) -> str:
        effects.fire("add", ctx)
        return "added"

    turns = [[("add_to_cart", {"item": "tshirt"})], [("add_to_cart", {"item": "tshirt"})], "two of them"]
    await drive(journal, [add_to_cart], turns)
    await decide(journal, "r/s1p0/duplicate/0", True, relation="deliberate_repeat")
    assert ((await drive(journal, [add_to_cart], turns)).text, effects.count()) == ("two of them", 2)


async def test_skip_leaves_it_out_and_tells_the_model(journal, effects):
    for _ in range(2):
        result = await drive(journal, [charging(effects)], TWICE, limits=limits("skip"))
        assert (result.text, statuses(result), effects.count()) == ("done", ["succeeded", "denied"], 1)
    assert "did not run" in told(result)[1]
    assert await noted(journal) == [("duplicate-guard", "skip", "s1p0")]


# Words ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "named"), [({}, True), ({"side_effect": True}, False)])
async def test_the_question_names_the_way_out_for_a_tool_that_declares_nothing(journal, effects, options, named):
    (question,) = (await drive(journal, [charging(effects, **options)], TWICE)).interrupts
    assert ("side_effect=False" in question.reason) is named


# Answers ahead -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("name", ["s1p0", "r/s1p0/duplicate/0"])
async def test_an_answer_given_ahead_counts_and_is_recorded(journal, rows, effects, approved, name):
    ahead = {name: Approval(approved=approved, args_digest=args_hash({"amount": 1}), actor="ann")}
    result = await drive(journal, [charging(effects)], TWICE, approvals=ahead)
    assert (result.text, result.interrupts, effects.count()) == ("done", (), 2 if approved else 1)
    assert result.unused_approvals == ()
    answer = (await rows.values())[keys.encode(keys.answer("r", keys.ROOT, "s1p0", "duplicate", 0))][0]
    assert (answer["approved"], answer["actor"]) == (approved, "ann")
    assert await noted(journal) == [("duplicate-guard", "answered-ahead", "s1p0")]


async def test_an_answer_given_ahead_for_other_arguments_is_none(journal, effects):
    ahead = {"s1p0": Approval(approved=True, args_digest=args_hash({"amount": 2}))}
    result = await drive(journal, [charging(effects)], TWICE, approvals=ahead)
    assert (len(result.interrupts), effects.count(), result.unused_approvals) == (1, 1, ("s1p0",))


# Forks and resumes ---------------------------------------------------------------------------------------------------


async def test_copies_of_a_fork_are_earlier_work(journal, effects):
    await drive(journal, [charging(effects)], [CHARGE, "done"])
    await fork_run(journal=journal, run_id="r", step=1, new_run_id="f")
    result = await drive(journal, [charging(effects)], [CHARGE, CHARGE, "done"], run_id="f", prompt=None)
    (question,) = result.interrupts
    assert (question.question, question.prior["tool_call_id"], effects.count()) == ("f/s1p0/duplicate/0", "s0p0", 1)


async def test_a_fork_asks_what_its_source_had_been_answered(journal, effects):
    await drive(journal, [charging(effects)], TWICE)
    await fork_run(journal=journal, run_id="r", step=2, new_run_id="f")
    await decide(journal, "r/s1p0/duplicate/0", True)
    result = await drive(journal, [charging(effects)], TWICE, run_id="f", prompt=None)
    assert [one.question for one in result.interrupts] == ["f/s1p0/duplicate/0"]
    assert effects.count() == 1


@pytest.mark.parametrize(
    "rule",
    [
        "block",
        Duplicates(action="block", scope="thread", ttl_ms=60_000),
        DuplicatesByClass(by_class={"transactional": "block"}, default="off"),
    ],
    ids=["word", "object", "by_class"],
)
async def test_a_resume_goes_by_the_frozen_rule(journal, effects, rule):
    charge = charging(effects, effect_class="transactional" if isinstance(rule, DuplicatesByClass) else None)
    await drive(journal, [charge], TWICE, limits=limits(rule), thread_id="t", max_steps=1)
    with pytest.raises(DuplicateSideEffectError):
        await resume_run(run_id="r", journal=journal, model=ScriptedModel(TWICE), tools=[charge])
    assert effects.count() == 1


async def test_an_answer_to_no_question_is_refused(journal, effects):
    await drive(journal, [charging(effects)], TWICE, limits=limits("warn"))
    with pytest.raises(UnknownQuestionError):
        await decide(journal, "r/s1p0/duplicate/0", True)


# The life of an answer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["question", "call"])
async def test_a_yes_to_a_repeat_is_spent_by_its_claim_unless_it_stands_for_the_call(journal, effects, scope):
    @tool
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired == 2:
            raise RuntimeError("the line went dead")
        return "receipt"

    await drive(journal, [charge], TWICE, approval_scope=scope)
    await decide(journal, "r/s1p0/duplicate/0", True)
    await drive(journal, [charge], TWICE, approval_scope=scope, max_steps=2)
    assert effects.count() == 2
    if scope == "question":
        with pytest.raises(SideEffectRetryBlockedError):
            await drive(journal, [charge], TWICE, approval_scope=scope)
        assert effects.count() == 2
    else:
        assert (await drive(journal, [charge], TWICE, approval_scope=scope)).text == "done"
        assert effects.count() == 3


async def test_an_expired_yes_lets_no_repeat_run(journal, effects):
    await drive(journal, [charging(effects)], TWICE)
    await decide(journal, "r/s1p0/duplicate/0", True, expires_at=1)
    assert [one.question for one in (await drive(journal, [charging(effects)], TWICE)).interrupts] == [
        "r/s1p0/duplicate/0"
    ]
    assert effects.count() == 1


async def test_a_canceled_request_asks_nothing_new(journal, effects):
    async def cancels(request):
        await cancel_run(journal, "r")
        return CHARGE

    with pytest.raises(CanceledError):
        await drive(journal, [charging(effects)], [CHARGE, cancels, "done"])
    assert (await list_interrupts(journal), effects.count()) == ([], 1)
