"""The same work again is the same run: busy, replayed, or gone on with, whoever asks for it."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    Context,
    Gnl,
    RunLimits,
    derived_run_id,
    keys,
    read_idem_ledger,
    resume_run,
    tool,
)
from gnl_core.errors import (
    ConfigError,
    IdInvalidError,
    ModelUnavailableError,
    RunAgentMismatchError,
    RunBusyError,
    RunInputMismatchError,
    RunLimitExceededError,
    RunNotFoundError,
    RunOwnerMismatchError,
    RunSweptError,
    SyncInsideLoopError,
    ToolDeclarationError,
)
from gnl_core.ledger import LedgerEntry
from gnl_core.retention import sweep_runs
from gnl_core.testing.scripted import ScriptedModel
from gnl_core.work import work_key_hash

ONE = [[("charge", {"order": 1})], "Done."]
APRIL = {"work_key": "invoice 2026-04 / 7742", "resource_id": "ann", "prompt": "Issue the April invoice."}
NOBODY = [AssertionError("asked")]


def charging(effects, **options):
    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


def firm(journal, tools=(), turns=ONE, *, model=None, **options):
    model = model or ScriptedModel(turns)
    agents = {
        "billing": {"model": model, "tools": tools},
        "support": {"model": model, "tools": tools, "work_scope": "resource"},
        "reconcile": {"model": model, "tools": tools, "work_scope": "org"},
    }
    return Gnl(journal, agents=agents, **options)


# The same work -----------------------------------------------------------------------------------------------------


async def test_l64_work_that_is_being_done_is_busy(journal, effects):
    model = ScriptedModel(ONE, gate=(gate := asyncio.Event()))
    task = asyncio.ensure_future(firm(journal, [charging(effects)], model=model).run("billing", **APRIL))
    await model.entered.wait()
    with pytest.raises(RunBusyError) as busy:
        await firm(journal, [charging(effects)], NOBODY).run("billing", **APRIL)
    assert 1 <= busy.value.retry_after <= 300
    with pytest.raises(RunBusyError):
        await firm(journal, [charging(effects)], NOBODY).stream("billing", **APRIL)
    gate.set()
    assert ((await task).text, effects.count()) == ("Done.", 1)


async def test_l64_work_that_was_done_is_answered_from_its_record(journal, effects):
    first = await firm(journal, [charging(effects)]).run("billing", **APRIL)
    assert first.run_id == derived_run_id("agent:billing", "resource", "ann", APRIL["work_key"])
    gnl = firm(journal, [charging(effects)], NOBODY)
    second = await gnl.run("billing", **APRIL)
    assert (second.run_id, second.text, effects.count()) == (first.run_id, "Done.", 1)
    by_id = await gnl.run("billing", run_id=first.run_id, prompt=APRIL["prompt"])
    assert by_id.text == "Done."
    async with await gnl.stream("billing", **APRIL) as stream:
        assert (stream.run_id, await stream.text) == (first.run_id, "Done.")
    assert gnl.run_id_of("billing", APRIL["work_key"], resource_id="ann") == first.run_id


async def test_l64_work_that_failed_goes_on(journal, effects):
    broken = [ONE[0], ModelUnavailableError("down")]
    with pytest.raises(ModelUnavailableError):
        await firm(journal, [charging(effects)], broken).run("billing", **APRIL)
    model = ScriptedModel(ONE)
    result = await firm(journal, [charging(effects)], model=model).run("billing", **APRIL)
    assert (result.text, effects.count(), model.calls) == ("Done.", 1, 1)


async def test_work_that_waits_for_a_person_is_asked_about_again_and_answered(journal, effects):
    charge = charging(effects, confirm=True)
    (asked,) = (await firm(journal, [charge]).run("billing", **APRIL)).interrupts
    gnl = firm(journal, [charge])
    (again,) = (await gnl.run("billing", **APRIL)).interrupts
    assert again.question == asked.question
    assert (await gnl.run("billing", **APRIL, approvals={asked.question: True})).text == "Done."
    assert effects.count() == 1


async def test_two_peoples_work_of_one_name_is_two_jobs(journal, effects):
    gnl = firm(journal, [charging(effects)])
    runs = [await gnl.run("billing", **{**APRIL, "resource_id": person}) for person in ("ann", "bob", "ann")]
    assert [run.run_id == runs[0].run_id for run in runs] == [True, False, True]
    assert effects.count() == 2


async def test_two_agents_work_of_one_name_is_two_jobs(journal, effects):
    gnl = firm(journal, [charging(effects)])
    assert (await gnl.run("billing", **APRIL)).run_id != (await gnl.run("support", **APRIL)).run_id
    assert effects.count() == 2


async def test_an_organisations_work_is_one_job_whoever_asks(storage, effects):
    nightly = {"work_key": "reconcile-2026-04-30", "prompt": "Reconcile."}
    journals = (storage.runs, storage.runs, storage.runs.scoped("acme"), storage.runs.scoped("umbrella"))
    ids = [(await firm(one, [charging(effects)]).run("reconcile", **nightly)).run_id for one in journals]
    expected = [
        derived_run_id("agent:reconcile", "org", org, nightly["work_key"]) for org in ("", "", "acme", "umbrella")
    ]
    assert ids == expected
    assert effects.count() == 3


async def test_s12_two_processes_with_one_work_key_do_one_job(common, effects):
    program = f"""
        import asyncio, gnl_core, sys, time
        from gnl_core import Gnl, tool
        from gnl_core.errors import RunBusyError
        from gnl_core.testing.effects import EffectLog
        from gnl_core.testing.scripted import ScriptedModel

        @tool
        def charge(order: int) -> dict:
            time.sleep(0.05)
            return EffectLog({str(effects.path)!r}).fire("charge", f"order-{{order}}", {{"receipt": order}})

        async def main():
            async with {common.spelled} as storage:
                agent = {{"model": ScriptedModel({ONE!r}), "tools": [charge], "work_scope": "org"}}
                gnl = Gnl(storage.runs, agents={{"reconcile": agent}})
                print("ready", flush=True)
                sys.stdin.readline()
                while True:
                    try:
                        result = await gnl.run("reconcile", work_key="tonight", prompt="Reconcile.")
                    except RunBusyError:
                        await asyncio.sleep(0.01)
                    else:
                        print(result.run_id, result.text)
                        return

        asyncio.run(main())
    """
    async with common.open() as storage:
        await storage.runs.now()
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", textwrap.dedent(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for child in children:
        assert await child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"\n")
    answers = {(await child.communicate())[0] for child in children}
    assert answers == {f"{derived_run_id('agent:reconcile', 'org', None, 'tonight')} Done.\n".encode()}
    assert effects.count() == 1


# Other work under the same name ------------------------------------------------------------------------------------


async def test_l65_a_work_key_with_other_content_is_refused_with_no_way_around(journal, rows, effects):
    gnl = firm(journal, [charging(effects)], NOBODY, strict_input=False)
    run_id = (await firm(journal, [charging(effects)]).run("billing", **APRIL)).run_id
    before = await rows.all()
    other = {**APRIL, "prompt": "Issue the May invoice.", "strict_input": False}
    for attempt in (
        gnl.run("billing", **other),
        gnl.stream("billing", **other),
        gnl.run("billing", run_id=run_id, prompt="Issue the May invoice."),
        gnl.run("billing", **{**APRIL, "system": "Be rude."}),
    ):
        with pytest.raises(RunInputMismatchError, match="work_key"):
            await attempt
    assert await rows.all() == before


async def test_an_agents_own_prompt_may_change_while_its_work_is_under_way(journal, effects):
    charge = charging(effects, confirm=True)

    def told(system):
        return Gnl(journal, agents={"billing": {"model": ScriptedModel(ONE), "tools": [charge], "system": system}})

    (asked,) = (await told("Be brief.").run("billing", **APRIL)).interrupts
    assert (await told("Be kind.").run("billing", **APRIL)).interrupts == (asked,)
    result = await told("Be kind.").run("billing", **APRIL, approvals={"s0p0": True})
    assert (result.text, effects.count()) == ("Done.", 1)


async def test_s11_an_id_that_another_agent_has_used(journal, rows, effects):
    charge = charging(effects, confirm=True)
    gnl = firm(journal, [charge])
    run_id = (await gnl.run("billing", **APRIL)).run_id
    await gnl.run("billing", run_id="mine", prompt="Go.")
    before = await rows.all()
    for attempt in (
        gnl.run("support", run_id=run_id, prompt=APRIL["prompt"]),
        gnl.resume("support", run_id=run_id, approvals={"s0p0": True}),
        gnl.run("support", run_id="mine", prompt="Go."),
    ):
        with pytest.raises(RunAgentMismatchError):
            await attempt
    assert await rows.all() == before
    assert (await gnl.resume("billing", run_id=run_id, approvals={"s0p0": True})).text == "Done."


async def test_a_guessed_id_of_another_persons_work_opens_nothing(journal, rows, effects):
    gnl = firm(journal, [charging(effects)])
    run_id = (await gnl.run("billing", **APRIL)).run_id
    before = await rows.all()
    for attempt in (
        gnl.run("billing", run_id=run_id, resource_id="bob", prompt=APRIL["prompt"]),
        gnl.resume("billing", run_id=run_id, resource_id="bob"),
    ):
        with pytest.raises(RunOwnerMismatchError):
            await attempt
    assert await rows.all() == before


async def test_s76_work_whose_run_was_swept_is_not_done_again(journal, rows, effects):
    gnl = firm(journal, [charging(effects)], conflict_ledger=True)
    run_id = gnl.run_id_of("billing", APRIL["work_key"], resource_id="ann")
    await rows.put(keys.swept(run_id), {"f": 1, "at": 1})
    with pytest.raises(RunSweptError):
        await gnl.run("billing", **APRIL, actor="clerk")
    assert effects.count() == 0
    (noted,) = await read_idem_ledger(journal)
    digest = work_key_hash(APRIL["work_key"])
    assert noted == LedgerEntry(run_id=run_id, code="run_swept", at=noted.at, actor="clerk", work_key_hash=digest)


async def test_s76_a_sweep_that_leaves_tombstones_is_the_end_of_its_work(journal, rows, effects):
    gnl = firm(journal, [charging(effects)], preset="critical", tool_policy=None)
    names = {"mine": {"run_id": "mine", "prompt": "Go."}, "april": APRIL}
    for name in names.values():
        await gnl.run("billing", **name)
    async with asyncio.timeout(30):
        while await rows.all(("run",)):  # until the store's clock has moved on
            await sweep_runs(journal, older_than_ms=0, tombstones=True)
    for name in names.values():
        for door in (gnl.run, gnl.stream):
            with pytest.raises(RunSweptError):
                await door("billing", **name)
    assert effects.count() == 2
    assert await rows.all(("run",)) == {}


async def test_the_key_is_frozen_with_the_run_and_survives_it_nowhere(journal, rows, effects):
    run_id = (await firm(journal, [charging(effects)]).run("billing", **APRIL)).run_id
    frozen = (await rows.values())[keys.encode(keys.input_of(run_id))][0]
    assert frozen["work"] == {"key": APRIL["work_key"], "scope": ["resource", "ann"]}
    assert (await resume_run(run_id=run_id, journal=journal, model=ScriptedModel(NOBODY))).text == "Done."


async def test_an_organisations_work_that_began_for_a_person_is_that_persons(journal, rows, effects):
    gnl = firm(journal, [charging(effects)])
    nightly = {"work_key": "tonight", "prompt": "Reconcile."}
    await gnl.run("reconcile", **nightly, resource_id="ann")
    before = await rows.all()
    with pytest.raises(RunOwnerMismatchError, match=r"use another work_key$"):
        await gnl.run("reconcile", **nightly, resource_id="bob")
    assert await rows.all() == before
    assert (await gnl.run("reconcile", **nightly)).text == "Done.", "who names nobody goes on as that person's"
    assert effects.count() == 1


# Names and doors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "named", "error", "words"),
    [
        ("billing", {"work_key": "k", "run_id": "r", "resource_id": "ann"}, ConfigError, "both"),
        ("billing", {"resource_id": "ann"}, ConfigError, "no work_key"),
        ("billing", {"work_key": "k"}, ConfigError, "resource_id"),
        ("billing", {"work_key": "", "resource_id": "ann"}, IdInvalidError, "work_key"),
        ("billing", {"work_key": 7, "resource_id": "ann"}, IdInvalidError, "work_key"),
        ("billing", {"work_key": "k" * 2_049, "resource_id": "ann"}, IdInvalidError, "2,048"),
        ("billing", {"work_key": "k", "resource_id": "two words"}, IdInvalidError, "resource_id"),
        ("billing", {"run_id": "run1_abc"}, IdInvalidError, "run1_"),
        ("billing", {"run_id": ""}, IdInvalidError, "run_id"),
        ("billing", {"run_id": "wf:pay"}, IdInvalidError, "keeps for itself"),
        ("pay", {"run_id": "r"}, ConfigError, "'billing', 'support', 'reconcile'"),
        (None, {"run_id": "r"}, ConfigError, "no agent"),
        ([], {"run_id": "r"}, ConfigError, "no agent"),
    ],
)
async def test_l63_a_call_that_names_no_work_writes_nothing(journal, rows, agent, named, error, words):
    gnl = firm(journal)
    for door in (gnl.run, gnl.stream, gnl.resume):
        prompt = {} if door == gnl.resume else {"prompt": "Go."}
        with pytest.raises(error, match=words):
            await door(agent, **named, **prompt)
    assert await rows.all() == {}


async def test_a_resume_goes_on_with_what_is_there(journal, rows, effects):
    gnl = firm(journal, [charging(effects, confirm=True)])
    named = {"work_key": APRIL["work_key"], "resource_id": "ann"}
    with pytest.raises(RunNotFoundError):
        await gnl.resume("billing", **named)
    assert await rows.all() == {}
    await gnl.run("billing", **APRIL)
    with pytest.raises(ConfigError, match="resume takes no prompt"):
        await gnl.resume("billing", **APRIL)
    assert (await gnl.resume("billing", **named, approvals={"s0p0": True})).text == "Done."


@pytest.mark.parametrize(
    ("agents", "error", "words"),
    [
        ({}, ConfigError, "agents"),
        (["billing"], ConfigError, "agents"),
        ({"billing": {}}, ConfigError, "'billing'"),
        ({"billing": {"tools": []}}, ConfigError, "has no model"),
        ({"billing": ScriptedModel(["Hi."])}, ConfigError, "'billing'"),
        ({"billing": {"model": ScriptedModel(["Hi."]), "work_scope": "person"}}, ConfigError, "work_scope"),
        ({"billing": {"model": ScriptedModel(["Hi."]), "modle": 1}}, ConfigError, "'modle'"),
        ({"billing": {"model": ScriptedModel(["Hi."]), "actor": "op"}}, ConfigError, "'actor'"),
        ({"billing": {"model": ScriptedModel(["Hi."]), "limits": {"max_tokens": 5}}}, ConfigError, "limits"),
        ({"billing": {"model": ScriptedModel(["Hi."]), "replay": "exact"}}, ConfigError, "replay"),
        ({"billing": {"model": ScriptedModel(["Hi."]), "audit_on_reject": "require"}}, ConfigError, "conflict_ledger"),
        ({"two words": {"model": ScriptedModel(["Hi."])}}, IdInvalidError, "agent"),
    ],
)
def test_agents_that_cannot_be(journal, agents, error, words):
    with pytest.raises(error, match=words):
        Gnl(journal, agents=agents)


async def test_options_of_every_level_reach_the_run_and_the_later_wins(journal):
    seen = []

    @tool(side_effect=False)
    def look(ctx: Context) -> str:
        """Look."""
        seen.append((ctx.deps, ctx.channel, ctx.thread_id, ctx.actor))
        return "ok"

    agents = {
        "a": {"model": ScriptedModel([[("look", {})], "Done."]), "tools": [look]},
        "b": {"model": ScriptedModel([[("look", {})], "Done."]), "tools": [look], "context": "agent"},
    }
    gnl = Gnl(journal, agents=agents, context="shared")
    named = {"prompt": "Go.", "channel": "chat", "thread_id": "t", "actor": "op"}
    await gnl.run("a", run_id="1", **named)
    await gnl.run("b", run_id="2", **named)
    await gnl.run("b", run_id="3", **named, context="call")
    assert seen == [(deps, "chat", "t", "op") for deps in ("shared", "agent", "call")]


async def test_a_run_keeps_the_limits_it_began_under_until_a_call_passes_others(journal, effects):
    turns = [[("charge", {"order": 1})], [("charge", {"order": 2})], "Done."]
    charge = charging(effects, confirm=True)
    loose = firm(journal, [charge], turns)
    await loose.run("billing", **APRIL, limits=RunLimits(max_tool_calls=1))
    free = firm(journal, [charging(effects)], turns, limits=RunLimits(max_tool_calls=9))
    with pytest.raises(RunLimitExceededError):
        await free.run("billing", **APRIL, approvals={"s0p0": True})
    assert effects.count() == 1
    result = await free.resume(
        "billing", work_key=APRIL["work_key"], resource_id="ann", limits=RunLimits(max_tool_calls=2)
    )
    assert (result.text, effects.count()) == ("Done.", 2)


def test_without_await(common, effects):
    with common.open() as storage:
        gnl = firm(storage.runs, [charging(effects)])
        assert [gnl.run_sync("billing", **APRIL).text for _ in range(2)] == ["Done.", "Done."]
    assert effects.count() == 1


def test_a_resume_and_a_stream_without_await(common, effects):
    named = {name: APRIL[name] for name in ("work_key", "resource_id")}
    with common.open() as storage:
        gnl = firm(storage.runs, [charging(effects, confirm=True)])
        run_id = gnl.run_id_of("billing", APRIL["work_key"], resource_id="ann")
        with gnl.stream_sync("billing", **APRIL) as stream:
            assert [event.kind for event in stream][-1] == "finished"
            assert [one.tool_call_id for one in stream.result.interrupts] == ["s0p0"]
        assert gnl.resume_sync("billing", **named, approvals={"s0p0": True}).run_id == run_id
        with gnl.stream_sync("billing", **APRIL) as stream:
            assert stream.text == "Done."
    assert effects.count() == 1


async def test_without_await_inside_a_loop(journal):
    gnl = firm(journal)
    for name in ("run", "resume", "stream"):
        with pytest.raises(SyncInsideLoopError, match=f"await {name}"):
            getattr(gnl, f"{name}_sync")("billing", **APRIL)


def test_a_tool_policy_is_held_when_the_agents_are_named(journal, effects):
    with pytest.raises(ToolDeclarationError, match="charge"):
        firm(journal, [charging(effects)], tool_policy="strict")
