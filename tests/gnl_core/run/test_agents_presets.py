"""What each preset sets, and that what is said beside it drops nothing of it unsaid."""

import pytest

from gnl_core import (
    Context,
    Duplicates,
    DuplicatesByClass,
    Gnl,
    RunLimits,
    SemanticIdentity,
    agent_tool,
    read_idem_ledger,
    tool,
)
from gnl_core.agents import AgentOptions
from gnl_core.duplicates import rule_for
from gnl_core.errors import (
    ConfigError,
    DuplicateSideEffectError,
    RunActorMismatchError,
    RunInputMismatchError,
    ToolDeclarationError,
)
from gnl_core.presets import expand_preset, layered, merge_limits
from gnl_core.prior import Found
from gnl_core.run_options import DriveOptions
from gnl_core.testing.scripted import ScriptedModel

CLASSES = ("transactional", "notification", "delete", "external-api", "idempotent-write")
IN_THREAD = Duplicates(action="suspend", scope="thread")
ONE = [[("charge", {"order": 1})], "Done."]
TWO = [[("charge", {"order": 1})], [("charge", {"order": 1})], "Done."]


def charging(effects, effect_class=None, **options):
    @tool(effect_class=effect_class, **options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


def known(order):
    return {"done": False}


def firm(journal, tools, turns, **options):
    return Gnl(journal, agents={"billing": {"model": ScriptedModel(turns), "tools": tools}}, **options)


class Finder:
    """Finds nothing, and says that it was asked."""

    def __init__(self):
        self.asked = 0

    def check(self):
        return ()

    def freeze(self):
        return {}

    async def find(self, subject, *, judge):
        self.asked += 1
        return Found()

    async def remember(self, subject):
        return ()


def rules(limits):
    """Return (action, scope) for a tool of each class, and of none."""
    found = {name: rule_for(limits.duplicates, charging(None, name)) for name in (*CLASSES, None)}
    return {name: (rule.action, rule.scope) for name, rule in found.items()}


def test_critical():
    given = expand_preset("critical")
    limits = given.pop("limits")
    assert given == {
        "tool_policy": "strict-critical",
        "exclusive_model_step": True,
        "lock_ttl": 300.0,
        "strict_input": True,
        "bind_actor": True,
        "conflict_ledger": True,
        "tombstone_policy": "reject",
    }
    assert rules(limits) == dict.fromkeys((*CLASSES, None), ("suspend", "thread"))


@pytest.mark.parametrize(
    ("preset", "rest", "actions"),
    [
        ("assistant", {"replay_disclosure": "explain"}, ("suspend", "suspend", "skip", "off", "off", "suspend")),
        ("headless", {}, ("block", "skip", "skip", "off", "off", "block")),
    ],
)
def test_assistant_and_headless(preset, rest, actions):
    given = expand_preset(preset)
    limits = given.pop("limits")
    assert given == rest
    assert rules(limits) == {name: (action, "request") for name, action in zip((*CLASSES, None), actions, strict=True)}


@pytest.mark.parametrize("preset", ["critical", "assistant", "headless"])
def test_a_preset_sets_only_options_that_there_are(preset):
    assert expand_preset(preset).keys() <= DriveOptions.__annotations__.keys() <= AgentOptions.__annotations__.keys()


@pytest.mark.parametrize("preset", ["strict", "", 5, ["critical"]])
def test_a_preset_that_is_none(journal, preset):
    with pytest.raises(ConfigError, match="'critical', 'assistant', 'headless'"):
        firm(journal, [], ONE, preset=preset)


# Merging -----------------------------------------------------------------------------------------------------------


def test_limits_beside_a_preset_drop_no_rule_of_it():
    base = expand_preset("critical")
    merged = layered(
        base, {"limits": RunLimits(max_tokens=5)}, {"limits": RunLimits(max_tool_calls=3)}, {"limits": None}
    )
    limits = merged["limits"]
    assert (limits.max_tokens, limits.max_tool_calls) == (5, 3)
    assert limits.duplicates == base["limits"].duplicates


def test_a_rule_for_one_class_drops_none_for_the_others():
    base = expand_preset("critical")["limits"]
    over = RunLimits(side_effect_duplicates=DuplicatesByClass(by_class={"notification": "off"}))
    assert rules(merge_limits(base, over)) == {**rules(base), "notification": ("off", "request")}
    milder = expand_preset("assistant")["limits"]
    over = RunLimits(side_effect_duplicates=DuplicatesByClass(by_class={}, default="block"))
    assert rules(merge_limits(milder, over)) == {**rules(milder), None: ("block", "request")}


def test_a_finder_stays_beside_a_rule_for_one_class():
    finder = Finder()
    base = expand_preset("critical")["limits"]
    with_finder = merge_limits(
        base, RunLimits(side_effect_duplicates=DuplicatesByClass(by_class={}, default=IN_THREAD, semantic=finder))
    )
    assert with_finder.duplicates.semantic is finder
    assert rules(with_finder) == rules(base)
    over = RunLimits(side_effect_duplicates=DuplicatesByClass(by_class={"notification": "off"}))
    assert merge_limits(with_finder, over).duplicates.semantic is finder


async def test_a_run_under_frozen_limits_is_given_its_finder_again(journal, effects):
    tools = [charging(effects, recover=known, confirm=True, semantic_identity=SemanticIdentity(keys=("order",)))]
    turns = [[("charge", {"order": 1})], [("charge", {"order": 2})], "Done."]
    finders = [Finder(), Finder()]
    results = []
    for finder, approvals in zip(finders, ({}, {"s0p0": True}), strict=True):
        declared = DuplicatesByClass(by_class={}, default=IN_THREAD, semantic=finder)
        gnl = firm(journal, tools, turns, preset="critical", limits=RunLimits(side_effect_duplicates=declared))
        results.append(await gnl.run("billing", run_id="r", thread_id="t", prompt="Go.", approvals=approvals))
    assert ([one.tool_call_id for one in results[1].interrupts], effects.count()) == (["s1p0"], 1)
    assert finders[1].asked == 1, "of the second call, in the drive that was given the second finder"
    assert not [warning for warning in results[1].warnings if "inactive" in warning]


def test_one_rule_for_all_classes_wins_whole():
    base = expand_preset("critical")["limits"]
    for over in ("off", Duplicates(action="block")):
        merged = merge_limits(base, RunLimits(side_effect_duplicates=over))
        assert merged.duplicates == RunLimits(side_effect_duplicates=over).duplicates


def test_an_option_beside_a_preset_wins_and_none_is_an_option():
    base = expand_preset("critical")
    merged = layered(base, {"strict_input": False, "tombstone_policy": None})
    assert merged == {**base, "strict_input": False, "tombstone_policy": None}


# In force ----------------------------------------------------------------------------------------------------------


def test_critical_refuses_a_side_effect_that_cannot_be_settled(journal, effects):
    with pytest.raises(ToolDeclarationError, match="strict-critical"):
        firm(journal, [charging(effects)], ONE, preset="critical")
    firm(journal, [charging(effects, recover=known)], ONE, preset="critical")


def test_critical_refuses_such_a_tool_in_the_hands_of_a_sub_agent(journal, effects):
    def handing(*tools):
        return agent_tool(name="helper", description="Helps.", model=ScriptedModel(ONE), tools=tools)

    bare, sound = charging(effects), charging(effects, recover=known)
    for given, named in ((handing(bare), "helper/charge"), (handing(handing(bare)), "helper/helper/charge")):
        for policy in ({"preset": "critical"}, {"tool_policy": "strict"}):
            with pytest.raises(ToolDeclarationError, match=f": {named}$"):
                firm(journal, [given], ONE, **policy)
    firm(journal, [handing(handing(sound))], ONE, preset="critical")


@pytest.mark.parametrize("effect_class", [*CLASSES, None])
@pytest.mark.parametrize("door", ["run", "stream"])
async def test_critical_asks_about_a_repeat_in_the_conversation(journal, effects, door, effect_class):
    charge = charging(effects, effect_class, recover=known)
    gnl = firm(journal, [charge], ONE, preset="critical", limits=RunLimits(max_tool_calls=5))

    async def drive(run_id):
        named = {"run_id": run_id, "thread_id": "t", "prompt": "Go."}
        if door == "run":
            return await gnl.run("billing", **named)
        async with await gnl.stream("billing", **named) as stream:
            return await stream.result

    assert (await drive("one")).text == "Done."
    (asked,) = (await drive("two")).interrupts
    assert (asked.kind, effects.count()) == ("duplicate", 1)


async def test_critical_binds_input_and_actor_and_notes_refusals(journal, effects):
    gnl = firm(journal, [charging(effects, recover=known)], ONE, preset="critical")
    begun = {"run_id": "r", "prompt": "Go.", "actor": "ann"}
    await gnl.run("billing", **begun)
    with pytest.raises(RunActorMismatchError):
        await gnl.run("billing", **{**begun, "actor": "eve"})
    with pytest.raises(RunInputMismatchError):
        await gnl.run("billing", **{**begun, "prompt": "Go on."})
    assert [(entry.code, entry.actor) for entry in await read_idem_ledger(journal)] == [
        ("run_input_mismatch", "ann"),
        ("run_actor_mismatch", "eve"),
    ]
    loose = firm(journal, [charging(effects, recover=known)], ONE, preset="critical", strict_input=False)
    result = await loose.run("billing", **{**begun, "prompt": "Go on."})
    assert (result.text, effects.count()) == ("Done.", 1)


@pytest.mark.parametrize(
    ("preset", "effect_class", "count"),
    [
        ("assistant", "delete", 1),
        ("assistant", "external-api", 2),
        ("assistant", "idempotent-write", 2),
        ("headless", "notification", 1),
        ("headless", "delete", 1),
        ("headless", "external-api", 2),
    ],
)
async def test_what_leaves_a_repeat_out_and_what_runs_it(journal, effects, preset, effect_class, count):
    gnl = firm(journal, [charging(effects, effect_class)], TWO, preset=preset)
    result = await gnl.run("billing", run_id="r", prompt="Go.")
    assert (result.text, effects.count()) == ("Done.", count)


@pytest.mark.parametrize("effect_class", ["transactional", None])
async def test_headless_stops_what_nobody_can_answer(journal, effects, effect_class):
    gnl = firm(journal, [charging(effects, effect_class)], TWO, preset="headless")
    with pytest.raises(DuplicateSideEffectError):
        await gnl.run("billing", run_id="r", prompt="Go.")
    assert effects.count() == 1


@pytest.mark.parametrize("effect_class", ["transactional", "notification", None])
async def test_assistant_asks(journal, effects, effect_class):
    gnl = firm(journal, [charging(effects, effect_class)], TWO, preset="assistant")
    (asked,) = (await gnl.run("billing", run_id="r", prompt="Go.")).interrupts
    assert (asked.kind, effects.count()) == ("duplicate", 1)
