"""Every option reaches the run through every door; what cannot be is refused by its name before anything happens."""

import inspect
from typing import get_type_hints

import pytest

from gnl_core import (
    Approval,
    RunLimits,
    Timeouts,
    composable,
    resume_run,
    resume_run_sync,
    run,
    run_durable,
    run_durable_sync,
    stream,
    stream_durable,
    stream_durable_sync,
    tool,
)
from gnl_core.errors import ConfigError, IdInvalidError, ModelSpecError, RunNotFoundError, ToolDeclarationError
from gnl_core.model.messages import Message, ModelSettings, TextPart
from gnl_core.run_options import FROZEN, DriveOptions, OwnLoopOptions, RunOptions
from gnl_core.testing.scripted import ScriptedModel


@tool(side_effect=False)
def stock(order: int) -> int:
    """Read."""
    return 3


def guard(call):
    return {"action": "allow"}


def stop_when(steps):
    return False


def on_event(event):
    return None


DEPS = object()
SAID = Message("user", (TextPart("Hi."),))
GIVEN = {
    "tools": ([stock], lambda plan: list(plan.agent.tools.values())),
    "prompt": ("Go.", lambda plan: plan.asked.messages[-1].parts[0].text),
    "messages": ([SAID], lambda plan: list(plan.asked.messages[:1])),
    "system": ("Be brief.", lambda plan: plan.asked.system),
    "settings": (ModelSettings(temperature=0.5), lambda plan: plan.agent.settings),
    "approvals": ({"s0p0": True}, lambda plan: plan.asked.approvals),
    "guard": (guard, lambda plan: plan.asked.options.guard),
    "limits": (RunLimits(max_tool_calls=7), lambda plan: plan.asked.options.limits),
    "timeouts": (Timeouts(tool=7), lambda plan: plan.asked.options.timeouts),
    "max_steps": (7, lambda plan: plan.agent.max_steps),
    "stop_when": (stop_when, lambda plan: plan.agent.stop_when),
    "replay": ("strict", lambda plan: plan.asked.options.replay),
    "replay_disclosure": ("explain", lambda plan: plan.asked.options.replay_disclosure),
    "exclusive_model_step": (True, lambda plan: plan.asked.options.exclusive_model_step),
    "approval_scope": ("call", lambda plan: plan.asked.options.approval_scope),
    "tool_policy": ("strict", lambda plan: "strict"),
    "agent": ("billing", lambda plan: plan.asked.agent),
    "thread_id": ("t", lambda plan: plan.asked.options.thread_id),
    "resource_id": ("ann", lambda plan: plan.asked.options.resource_id),
    "actor": ("op", lambda plan: plan.asked.options.actor),
    "channel": ("chat", lambda plan: plan.asked.options.channel),
    "context": (DEPS, lambda plan: plan.asked.options.deps),
    "lock_ttl": (7.5, lambda plan: plan.asked.lock_ttl),
    "on_event": (on_event, lambda plan: plan.asked.options.listener),
    "strict_input": (True, lambda plan: plan.asked.terms.strict_input),
    "bind_actor": (True, lambda plan: plan.asked.terms.bind_actor),
    "tombstone_policy": ("reject", lambda plan: plan.asked.terms.tombstone_policy),
    "conflict_ledger": (True, lambda plan: plan.asked.terms.conflict_ledger),
    "audit_on_reject": ("best-effort", lambda plan: plan.asked.terms.audit_on_reject),
    "shared_thread": (True, lambda plan: plan.asked.terms.shared_thread),
}


class Planned(Exception):
    def __init__(self, plan):
        self.plan = plan


@pytest.fixture
def planned(monkeypatch):
    """Let every door stop where its plan is made."""
    make_plan = run.make_plan

    def stop(**options):
        raise Planned(make_plan(**options))

    for module in (run, stream, composable):
        monkeypatch.setattr(module, "make_plan", stop)


async def plan_of(door, journal, **options):
    with pytest.raises(Planned) as stopped:
        await door(run_id="r", journal=journal, model=ScriptedModel(["Hi."]), **options)
    return stopped.value.plan


async def own_loop(*, model, **options):
    async with composable.durable_context(**options):
        pass


def names(function):
    return set(inspect.signature(function).parameters) - {"run_id", "journal", "model"}


def test_the_typed_list_is_the_signature_that_people_read():
    assert RunOptions.__annotations__.keys() == names(run_durable) == GIVEN.keys()
    spelt = get_type_hints(run_durable)
    listed = get_type_hints(RunOptions)
    assert listed == {name: spelt[name] for name in listed}


def test_what_a_resume_takes_is_everything_but_what_a_run_begins_with():
    assert set(FROZEN) == {"prompt", "messages", "agent", "thread_id", "resource_id", "channel"}
    assert DriveOptions.__annotations__.keys() == GIVEN.keys() - set(FROZEN)


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("door", [run_durable, stream_durable])
async def test_every_option_reaches_the_run(planned, journal, door, name):
    value, read = GIVEN[name]
    assert read(await plan_of(door, journal, **{name: value})) == value


@pytest.mark.parametrize("name", DriveOptions.__annotations__)
async def test_l58_every_option_reaches_a_run_that_is_resumed(planned, journal, name):
    value, read = GIVEN[name]
    assert read(await plan_of(resume_run, journal, **{name: value})) == value


@pytest.mark.parametrize("name", OwnLoopOptions.__annotations__)
async def test_every_option_of_ones_own_loop_reaches_it(planned, journal, name):
    value, read = GIVEN[name]
    assert read(await plan_of(own_loop, journal, **{name: value})) == value


async def test_doors_agree_on_what_is_not_given(planned, journal):
    plans = [await plan_of(door, journal) for door in (run_durable, stream_durable, resume_run)]
    for name, (_, read) in GIVEN.items():
        if name not in ("prompt", "messages"):
            first, *others = [read(plan) for plan in plans]
            assert all(other == first for other in others), name
    assert all(plan.asked.messages is None for plan in plans)


@pytest.mark.parametrize("name", FROZEN)
async def test_a_resume_takes_nothing_that_the_run_began_with(journal, rows, name):
    with pytest.raises(ConfigError, match=rf"resume_run takes no {name}:"):
        await resume_run(run_id="r", journal=journal, model=ScriptedModel(["Hi."]), **{name: GIVEN[name][0]})
    assert await rows.all() == {}


@pytest.mark.parametrize("name", [*sorted(GIVEN.keys() - OwnLoopOptions.__annotations__.keys()), "model"])
async def test_ones_own_loop_takes_nothing_that_it_holds_itself(journal, rows, name):
    given = {name: GIVEN[name][0] if name in GIVEN else ScriptedModel(["Hi."])}
    with pytest.raises(ConfigError, match=rf"durable_context takes no {name}"):
        async with composable.durable_context(run_id="r", journal=journal, **given):
            pass
    assert await rows.all() == {}


@pytest.mark.parametrize("door", [run_durable, resume_run, stream_durable])
async def test_a_misspelt_option_is_a_type_error_that_names_it(journal, rows, door):
    with pytest.raises(TypeError, match="max_step'"):
        await door(run_id="r", journal=journal, model=ScriptedModel(["Hi."]), max_step=3)
    assert await rows.all() == {}


@pytest.mark.parametrize("door", [run_durable_sync, resume_run_sync, stream_durable_sync])
def test_a_misspelt_option_of_a_twin_too(door):
    with pytest.raises(TypeError, match="max_step'"):
        door(run_id="r", journal=object(), model=ScriptedModel(["Hi."]), max_step=3)


async def later(event): ...


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run_id", ""),
        ("run_id", None),
        ("run_id", 7),
        ("run_id", ["r"]),
        ("run_id", "two words"),
        ("run_id", "line\nbreak"),
        ("run_id", "nul\x00"),
        ("run_id", "\ud800"),
        ("run_id", "x" * 513),
        ("run_id", "İ" * 512),
        ("run_id", "agent:mine"),
        ("run_id", "agent:"),
        ("run_id", "wf:mine"),
        ("run_id", "net:mine"),
        ("run_id", "batch:mine"),
        ("run_id", "xrun:mine"),
        ("run_id", "mem:mine"),
        ("run_id", "idem:mine"),
        ("run_id", "__mine"),
        ("thread_id", ""),
        ("thread_id", "two words"),
        ("thread_id", 7),
        ("resource_id", "tab\t"),
        ("resource_id", {"id": 1}),
        ("agent", "x" * 513),
        ("agent", []),
        ("actor", "\x7f"),
        ("actor", b"op"),
        ("channel", " chat"),
        ("channel", ""),
        ("journal", None),
        ("journal", "runs.db"),
        ("journal", {}),
        ("model", None),
        ("model", 5),
        ("model", "gpt"),
        ("model", []),
        ("model", {"a": 1}),
        ("tools", 5),
        ("tools", "stock"),
        ("tools", [5]),
        ("tools", {"stock": None}),
        ("tools", [stock, stock]),
        ("prompt", 5),
        ("prompt", b"Go."),
        ("prompt", ["Go."]),
        ("strict_input", 1),
        ("strict_input", None),
        ("bind_actor", "yes"),
        ("conflict_ledger", "yes"),
        ("tombstone_policy", "ignore"),
        ("tombstone_policy", True),
        ("audit_on_reject", "require"),
        ("audit_on_reject", None),
        ("shared_thread", 1),
        ("messages", 5),
        ("messages", "Go."),
        ("messages", {"role": "user", "content": "Go."}),
        ("messages", ["Go."]),
        ("messages", [{"role": "wizard", "content": "Go."}]),
        ("messages", [{"role": "user"}]),
        ("messages", [None]),
        ("messages", []),
        ("system", 5),
        ("system", ["Be brief."]),
        ("settings", {"temperature": 1}),
        ("settings", 5),
        ("approvals", True),
        ("approvals", ["s0p0"]),
        ("approvals", {"s0p0": "yes"}),
        ("approvals", {"s0p0": None}),
        ("approvals", {"s0p0": 1}),
        ("approvals", {7: True}),
        ("approvals", {"s0p0": Approval(approved="yes")}),
        ("guard", "allow"),
        ("guard", {}),
        ("limits", {"max_tool_calls": 5}),
        ("limits", 5),
        ("timeouts", 5),
        ("timeouts", {"tool": 5}),
        ("max_steps", 0),
        ("max_steps", -1),
        ("max_steps", True),
        ("max_steps", 2.0),
        ("max_steps", "3"),
        ("max_steps", None),
        ("stop_when", 5),
        ("stop_when", "done"),
        ("replay", "maybe"),
        ("replay", ["strict"]),
        ("replay", None),
        ("replay_disclosure", {"explain"}),
        ("replay_disclosure", ""),
        ("approval_scope", {}),
        ("approval_scope", "attempt"),
        ("exclusive_model_step", 1),
        ("exclusive_model_step", "yes"),
        ("tool_policy", "lax"),
        ("tool_policy", ["strict"]),
        ("tool_policy", 5),
        ("lock_ttl", 0),
        ("lock_ttl", -1),
        ("lock_ttl", True),
        ("lock_ttl", float("nan")),
        ("lock_ttl", float("inf")),
        ("lock_ttl", 1e300),
        ("lock_ttl", "300"),
        ("lock_ttl", None),
        ("on_event", 5),
        ("on_event", []),
        ("on_event", later),
    ],
)
@pytest.mark.parametrize("door", [run_durable, stream_durable])
async def test_l67_what_cannot_be_is_refused_by_name_and_nothing_is_written(journal, rows, door, name, value):
    options = {"run_id": "r", "journal": journal, "model": ScriptedModel(["Hi."]), "prompt": "Go.", name: value}
    if name == "messages":
        del options["prompt"]
    with pytest.raises(ConfigError) as refused:
        await door(**options)
    words = {"model": "model", "messages": "message|begin with nothing", "tools": "tool", "max_steps": "max_steps"}
    assert any(word in str(refused.value) for word in words.get(name, name).split("|")), str(refused.value)
    assert await rows.all() == {}


def test_each_kind_of_refusal_has_its_own_class():
    for kind in (IdInvalidError, ModelSpecError, ToolDeclarationError):
        assert issubclass(kind, ConfigError)


async def test_a_resume_of_nothing(journal, rows):
    with pytest.raises(RunNotFoundError, match="'r'"):
        await resume_run(run_id="r", journal=journal, model=ScriptedModel(["Hi."]))
    assert await rows.all() == {}


@pytest.mark.parametrize(
    "run_id", ["a", "order-1", "a:b", "model", "tool", "x:model", "İş-42", "~", "a/b", "%2F", "..", "mem", "1", "🙂"]
)
async def test_ids_that_may_be(journal, run_id):
    result = await run_durable(run_id=run_id, journal=journal, model=ScriptedModel(["Hi."]), prompt="Go.")
    assert (result.run_id, result.text) == (run_id, "Hi.")
    again = await resume_run(run_id=run_id, journal=journal, model=ScriptedModel([AssertionError("asked")]))
    assert again.text == "Hi."


@pytest.mark.parametrize("prompt", ["", "\x00", "\ud800", "🙂", "x" * 100_000])
async def test_any_text_may_be_a_prompt(journal, prompt):
    model = ScriptedModel(["Hi."])
    await run_durable(run_id="r", journal=journal, model=model, prompt=prompt)
    assert model.requests[0].messages[0].parts[0].text == prompt
    again = await run_durable(
        run_id="r", journal=journal, model=ScriptedModel([AssertionError("asked")]), prompt=prompt
    )
    assert (again.text, again.warnings) == ("Hi.", ())
