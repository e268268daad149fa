"""How a rule for repeats is declared, what is refused before a run starts, and where nobody can be asked."""

import json
import logging

import pytest

from gnl_core import (
    Context,
    Duplicates,
    DuplicatesByClass,
    DuplicateSideEffectError,
    RunLimits,
    SemanticIdentity,
    durable_context,
    durable_tools,
    read_incidents,
    resume_run,
    run_durable,
    tool,
    with_idempotency,
)
from gnl_core.errors import ApprovalRequiredError, ConfigError, ToolDeclarationError
from gnl_core.limits import read_limits
from gnl_core.prior import Found, Inactive
from gnl_core.testing.scripted import ScriptedModel

CHARGE = [("charge", {"amount": 1})]
TWICE = [CHARGE, CHARGE, "done"]


class Finder:
    """A finder that finds nothing."""

    def check(self):
        return ("look here",)

    def freeze(self):
        return {"top_k": 3}

    async def find(self, subject, *, judge):
        return Found()

    async def remember(self, subject):
        return ()


def charging(effects, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        return f"receipt {amount}"

    return charge


async def drive(journal, tools, turns=TWICE, *, run_id="r", rule=None, **options):
    return await run_durable(
        run_id=run_id,
        journal=journal,
        model=ScriptedModel(turns),
        tools=tools,
        prompt="go",
        limits=RunLimits(side_effect_duplicates=rule),
        **options,
    )


# Forms ---------------------------------------------------------------------------------------------------------------

FORMS = [
    "block",
    Duplicates(action="block"),
    {"action": "block"},
    DuplicatesByClass(by_class={"transactional": "block"}, default="off"),
    {"by_class": {"transactional": "block"}, "default": "off"},
    {"by_class": {"transactional": {"action": "block", "ttl_ms": 60_000}}, "default": {"action": "off"}},
    DuplicatesByClass(by_class={"notification": "off"}, default="block"),
]


@pytest.mark.parametrize("rule", FORMS, ids=str)
async def test_a_rule_is_a_word_an_object_or_a_mapping(journal, effects, rule):
    by_class = isinstance(rule, DuplicatesByClass) or (isinstance(rule, dict) and "by_class" in rule)
    charge = charging(effects, effect_class="transactional" if by_class else None)
    with pytest.raises(DuplicateSideEffectError):
        await drive(journal, [charge], rule=rule)
    assert effects.count() == 1


async def test_each_class_has_its_own_rule(journal, effects):
    @tool(effect_class="notification")
    def mail(to: str, ctx: Context) -> str:
        effects.fire("mail", ctx)
        return "sent"

    @tool
    def plain(ctx: Context) -> str:
        effects.fire("plain", ctx)
        return "ok"

    tools = [charging(effects, effect_class="transactional"), mail, plain]
    turns = [[*CHARGE, ("mail", {"to": "ann"}), ("plain", {})]] * 2 + ["done"]
    rule = {"by_class": {"transactional": "suspend", "notification": "skip"}, "default": "warn"}
    result = await drive(journal, tools, turns, rule=rule)
    assert [one.question for one in result.interrupts] == ["r/s1p0/duplicate/0"]
    assert [call.status for call in result.steps[1].calls] == ["suspended", "denied", "succeeded"]
    assert [(one.action, one.tool_call_id) for one in await read_incidents(journal, "r")] == [
        ("suspend", "s1p0"),
        ("skip", "s1p1"),
        ("warn", "s1p2"),
    ]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("ask", ["side_effect_duplicates", "'ask'", "'suspend'", "'skip'"]),
        (3, ["side_effect_duplicates", "int"]),
        (["warn"], ["side_effect_duplicates", "list"]),
        ({"action": "ask"}, ["Duplicates.action", "'ask'"]),
        ({"scope": "run"}, ["Duplicates.scope", "'run'", "'request'", "'thread'"]),
        ({"ttl_ms": 0}, ["Duplicates.ttl_ms", "0"]),
        ({"ttl_ms": -5}, ["Duplicates.ttl_ms", "-5"]),
        ({"ttl_ms": 1.5}, ["Duplicates.ttl_ms", "1.5"]),
        ({"ttl_ms": True}, ["Duplicates.ttl_ms", "True"]),
        ({"ttlMs": 5}, ["'ttlMs'", "ttl_ms"]),
        ({"by_class": "warn"}, ["by_class", "str"]),
        ({"by_class": {"payment": "warn"}}, ["'payment'", "'transactional'"]),
        ({"by_class": {"delete": "ask"}}, ["by_class['delete']", "'ask'"]),
        ({"by_class": {"delete": {"ttl": 4}}}, ["by_class['delete']", "'ttl'"]),
        ({"by_class": {}, "default": "ask"}, ["default", "'ask'"]),
        ({"by_class": {}, "other": 1}, ["'other'", "default"]),
        ({"semantic": object()}, ["Duplicates.semantic", "object", "SemanticGate"]),
        ({"semantic": Finder(), "scope": "thread", "action": "warn"}, ["action='suspend'", "'warn'"]),
        ({"semantic": Finder()}, ["scope='thread'", "'request'"]),
        ({"by_class": {"delete": "warn"}, "default": "off", "semantic": Finder()}, ["nothing to serve"]),
        (
            {"by_class": {"delete": Duplicates(scope="thread")}, "default": "suspend", "semantic": Finder()},
            ["scope='thread'", "the default included"],
        ),
        (
            {"by_class": {"delete": Duplicates(scope="thread", semantic=Finder())}},
            ["a semantic finder of its own"],
        ),
        ({"by_class": {}, "semantic": 5}, ["DuplicatesByClass.semantic", "int"]),
    ],
)
def test_what_cannot_work_is_refused_by_name(rule, words):
    with pytest.raises(ConfigError) as refused:
        RunLimits(side_effect_duplicates=rule)
    for word in words:
        assert word in str(refused.value)


def test_an_effect_class_is_one_of_five():
    with pytest.raises(ToolDeclarationError, match="'transactional'"):
        tool(name="pay", effect_class="payment")(lambda: None)


# Frozen --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        *FORMS,
        Duplicates(scope="thread", ttl_ms=5),
        Duplicates(scope="thread", semantic=Inactive({"top_k": 3})),
        DuplicatesByClass(
            by_class={"delete": Duplicates(scope="thread")}, default="off", semantic=Inactive({"top_k": 3})
        ),
    ],
    ids=str,
)
def test_a_rule_survives_its_frozen_form(rule):
    limits = RunLimits(side_effect_duplicates=rule)
    assert read_limits(json.loads(json.dumps(limits.to_json()))) == limits


def test_what_is_not_set_is_not_frozen():
    assert "side_effect_duplicates" not in RunLimits().to_json()


@pytest.mark.parametrize(
    "frozen",
    [
        "warn",
        {"action": "ask", "scope": "request"},
        {"action": "suspend", "scope": "thread", "semantic": {"inactive": False, "settings": {}}},
        {"action": "suspend", "scope": "thread", "semantic": {"settings": {}}},
        {"action": "suspend", "scope": "request", "other": 1},
        {"by_class": {"delete": "warn"}},
        [],
        [["action", "off"]],
        5,
    ],
    ids=str,
)
def test_a_damaged_frozen_rule_is_an_error_and_no_other_rule(frozen):
    with pytest.raises(ValueError, match=r"."):
        read_limits({**RunLimits().to_json(), "side_effect_duplicates": frozen})


async def test_a_resume_without_its_finder_goes_on_and_says_so(journal, effects, caplog):
    charge = charging(effects, semantic_identity=SemanticIdentity(keys=("amount",)))
    rule = Duplicates(scope="thread", semantic=Finder())
    first = await drive(journal, [charge], TWICE, rule=rule, thread_id="t", max_steps=1)
    assert "look here" in first.warnings
    result = await resume_run(run_id="r", journal=journal, model=ScriptedModel(TWICE), tools=[charge])
    assert [one.question for one in result.interrupts] == ["r/s1p0/duplicate/0"], "the rest of the rule holds"
    (said,) = [one for one in result.warnings if "semantic gate" in one]
    assert "inactive" in said
    assert "pass limits" in said
    again = await drive(journal, [charge], TWICE, rule=rule, thread_id="t")
    assert not [one for one in again.warnings if "inactive" in one]


# What a caller should read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "dead"), [(None, True), ("warn", True), ({"by_class": {"delete": "block"}}, False)])
async def test_an_effect_class_without_by_class_is_said_to_decide_nothing(journal, effects, rule, dead):
    charge = charging(effects, effect_class="transactional")
    result = await drive(journal, [charge], [CHARGE, "done"], rule=rule)
    said = [one for one in result.warnings if "effect_class" in one]
    assert len(said) == (1 if dead else 0)
    assert all("charge" in one and "by_class" in one for one in said)


async def test_a_resume_is_warned_by_the_rule_that_holds_and_not_by_the_default(journal, effects):
    charge = charging(effects, effect_class="transactional")
    await drive(journal, [charge], rule={"by_class": {"transactional": "warn"}}, max_steps=1)
    result = await resume_run(run_id="r", journal=journal, model=ScriptedModel(TWICE), tools=[charge])
    assert not [one for one in result.warnings if "effect_class" in one]


ORDER = {"idempotency_key": lambda args: args["amount"]}


@pytest.mark.parametrize(
    ("options", "rule", "unseen"),
    [
        (ORDER, Duplicates(action="suspend", scope="thread"), True),
        ({"idempotency": "args"}, Duplicates(action="warn", scope="thread"), True),
        ({**ORDER, "semantic_identity": SemanticIdentity(keys=("amount",))}, None, True),
        (ORDER, None, False),
        (ORDER, Duplicates(action="off", scope="thread"), False),
        ({**ORDER, "window": "thread"}, Duplicates(action="suspend", scope="thread"), False),
        ({**ORDER, "window": "cross-run"}, Duplicates(action="suspend", scope="thread"), False),
        ({}, Duplicates(action="suspend", scope="thread"), False),
        ({**ORDER, "side_effect": False}, Duplicates(action="suspend", scope="thread"), False),
    ],
)
async def test_a_key_of_one_run_that_keeps_questions_away_is_said(journal, effects, options, rule, unseen):
    told = []
    for run in ("r", "r2"):
        tools, turns = [charging(effects, **options)], [CHARGE, "done"]
        result = await drive(journal, tools, turns, run_id=run, rule=rule, thread_id="t", resource_id="ann")
        told.append(sum("no question is asked about it" in warning for warning in result.warnings))
    assert told == [unseen, unseen]
    if unseen:  # what it says is so
        assert (effects.count("charge"), result.interrupts) == (2, ())


async def test_a_finder_without_a_tool_for_it_is_said_to_look_at_nothing(journal, effects):
    result = await drive(journal, [charging(effects)], rule=Duplicates(scope="thread", semantic=Finder()))
    assert [one for one in result.warnings if "semantic_identity" in one]


async def test_the_thread_scope_without_a_thread_says_so_and_looks_at_the_request(journal, rows, effects, caplog):
    rule = Duplicates(scope="thread")
    with caplog.at_level(logging.WARNING):
        result = await drive(journal, [charging(effects)], [*TWICE[:2], *TWICE], rule=rule)
    (said,) = [one for one in result.warnings if "thread_id" in one]
    assert "charge" in said
    assert said in caplog.text
    assert [one.question for one in result.interrupts] == ["r/s1p0/duplicate/0"]
    assert not [key for key in await rows.values() if key.startswith("xthr/")]
    assert (await drive(journal, [charging(effects)], [CHARGE, "done"], run_id="q", rule=rule)).text == "done"


# Where nobody can be asked -------------------------------------------------------------------------------------------


async def own_calls(journal, tools, *, rule=None, approvals=True, **options):
    limits = RunLimits(side_effect_duplicates=rule)
    async with durable_context(run_id="own", journal=journal, limits=limits, **options) as ctx:
        durable = durable_tools(tools, ctx, approvals=approvals)
        for number in range(2):
            await durable["charge"].call({"amount": 1}, tool_call_id=f"s{number}p0")
        return ctx.warnings


async def test_a_loop_of_one_s_own_that_shows_questions_asks(journal, effects):
    with pytest.raises(ApprovalRequiredError) as asked:
        await own_calls(journal, [charging(effects)])
    assert [one.question for one in asked.value.interrupts] == ["own/s1p0/duplicate/0"]
    assert effects.count() == 1


async def test_one_that_shows_none_blocks_by_default_and_says_so(journal, effects, caplog):
    with pytest.raises(DuplicateSideEffectError), caplog.at_level(logging.WARNING):
        await own_calls(journal, [charging(effects)], approvals=False)
    assert effects.count() == 1
    assert "repeated side effects are blocked here" in caplog.text


async def test_no_word_is_lost_where_nothing_could_repeat(journal, effects, caplog):
    with caplog.at_level(logging.WARNING):
        await own_calls(journal, [charging(effects, side_effect=False)], approvals=False)
    assert "blocked here" not in caplog.text


@pytest.mark.parametrize(
    "rule",
    ["suspend", {"scope": "thread"}, {"by_class": {"transactional": "suspend"}, "default": "block"}],
    ids=str,
)
async def test_asking_on_purpose_is_refused_where_nobody_can_be_asked(journal, effects, rule):
    charge = charging(effects, effect_class="transactional")
    with pytest.raises(ConfigError, match="no approvals channel") as refused:
        await own_calls(journal, [charge], rule=rule, approvals=False)
    assert "'reflect'" in str(refused.value)
    assert "'block'" in str(refused.value)
    assert effects.count() == 0


async def test_the_semantic_gate_is_refused_where_nobody_can_be_asked(journal, effects):
    with pytest.raises(ConfigError, match="semantic gate"):
        await own_calls(
            journal,
            [charging(effects)],
            rule=Duplicates(scope="thread", semantic=Finder()),
            approvals=False,
            thread_id="t",
        )
    assert effects.count() == 0


@pytest.mark.parametrize("rule", ["warn", "off", {"by_class": {"delete": "suspend"}, "default": "warn"}], ids=str)
async def test_a_rule_that_asks_nobody_is_allowed_there(journal, effects, rule):
    await own_calls(journal, [charging(effects)], rule=rule, approvals=False)
    assert effects.count() == 2


async def test_a_loop_of_one_s_own_is_told_of_its_finder_once(journal, effects):
    charge = charging(effects, semantic_identity=SemanticIdentity(keys=("amount",)))
    limits = RunLimits(side_effect_duplicates=Duplicates(scope="thread", semantic=Finder()))
    async with durable_context(run_id="own", journal=journal, limits=limits, thread_id="t") as ctx:
        durable_tools([charge], ctx)
        assert ctx.warnings == ("look here",)


async def test_with_idempotency_knows_no_ladder(journal, rows, effects):
    charge = with_idempotency(charging(effects), journal)
    assert [await charge(amount=1), await charge(amount=1)] == ["receipt 1"] * 2
    assert effects.count() == 1
    assert await read_incidents(journal) == []
    assert not [key for key in await rows.values() if "dup" in key.split("/")]
