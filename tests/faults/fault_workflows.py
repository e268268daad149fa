"""A workflow that gets killed: called with the expression of a store and a folder, it dies at each point there is.

This process opens no store itself: it forks one child to be killed and others to go on, and writes what became of each
point as a line of JSON.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import gnl_core
from gnl_core import Context, NotPerformedError, decide, read_run, run_workflow, tool
from gnl_core.errors import EffectNotRecordedError, JournalError, StepRetryBlockedError, ToolError
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.faulty import Fault, FaultyJournal, die
from gnl_core.workflow.check import check_names


def workflow(effects, *, recovers):
    """The work: one step that reads, two effects side by side, one that is refused, a wait, one more effect."""

    def found(ctx: Context) -> dict:
        effect = effects.find(ctx)
        return {"done": False} if effect is None else {"done": True, "output": effect.output}

    hook = {"recover": found} if recovers else {}

    @tool(side_effect=False)
    async def look() -> int:
        return 7

    @tool(side_effect=True, **hook)
    async def charge(ctx: Context, card: str) -> str:
        return effects.fire("charge", ctx, f"charged {card}")

    @tool(side_effect=True, **hook)
    def ship(ctx: Context) -> str:
        return effects.fire("ship", ctx, "shipped")

    @tool(side_effect=True, **hook)
    async def refuses(ctx: Context) -> str:
        raise NotPerformedError("card refused")

    async def pay(flow):
        left = await flow.step("stock", look)
        par = flow.under("par")
        charged = await asyncio.gather(par.step("a", charge, card="a"), par.step("b", charge, card="b"))
        extra = await flow.attempt("extra", refuses)
        told = await flow.wait("bank", reason="the bank must say so")
        shipped = await flow.step("ship", ship)
        return {"left": left, "charged": charged, "extra": extra.ok, "told": told, "shipped": shipped}

    return pay


def hooks(fault):
    """The hooks of the log of effects that let a fault strike there."""
    if fault is None or fault.at != "effect":
        return {}
    return {fault.when: lambda number: die() if fault.hits(number) else None}


async def drive(spelled, folder, run_id, fault, *, recovers, send):
    """Drive the workflow once; return what it came to."""
    effects = EffectLog(folder / f"{run_id}.jsonl", **hooks(fault))
    async with eval(spelled, {"gnl_core": gnl_core}) as storage:
        journal = FaultyJournal(storage.runs, fault=fault)
        pay = workflow(effects, recovers=recovers)
        try:
            result = await run_workflow(pay, journal=journal, run_id=run_id, send=send)
        except (StepRetryBlockedError, ToolError) as error:
            state = getattr(error, "detail", {}).get("state")
            return {"error": error.code, "state": state, "asked": [one.question for one in error.interrupts]}
        waits = [wait.name for wait in result.waits]
        return {"status": result.status, "output": result.output, "waits": waits, "writes": journal.writes}


async def settle(spelled, folder, run_id, questions):
    """Answer as a person would who has looked: it happened, and came to this; or it did not, run it."""
    effects = EffectLog(folder / f"{run_id}.jsonl")
    async with eval(spelled, {"gnl_core": gnl_core}) as storage:
        for question in questions:
            effect = effects.find("/".join(question.split("/")[:2]))
            if effect is None:
                await decide(storage.runs, question, True)
            else:
                await decide(storage.runs, question, False, output=effect.output)


async def look_at(spelled, folder, run_id):
    """Return what stands of the run in the end."""
    async with eval(spelled, {"gnl_core": gnl_core}) as storage:
        view = await read_run(storage.runs, run_id)
    calls = {call.id: call.tool for call in view.calls}
    return {
        "parted": list(check_names(view)),
        "steps": {step.name: calls.get(step.call) for step in view.workflow.steps},
        "problems": list(view.problems),
        "effects": EffectLog(folder / f"{run_id}.jsonl").counts(),
    }


def forked(do):
    """Run a coroutine in a child; return its exit status, and what it returned."""
    ear, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            os.close(ear)
            answer = json.dumps(asyncio.run(do()))
            os.write(mouth, answer.encode())
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(mouth)
    with os.fdopen(ear, "rb") as file:
        answer = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, json.loads(answer) if answer else None


def point(spelled, folder, run_id, fault, *, recovers, sent_at_once):
    """Kill one drive, and drive on until the work is done."""
    told = {"run": run_id, "fault": str(fault), "drives": []}
    options = {"recovers": recovers}
    send = {"bank": "yes"} if sent_at_once else None
    told["killed"], told["first"] = forked(lambda: drive(spelled, folder, run_id, fault, send=send, **options))
    for _ in range(6):
        sent = dict(options, send=send)
        status, answer = forked(lambda: drive(spelled, folder, run_id, None, **sent))  # noqa: B023 - called in this round
        told["drives"].append(answer if status == 0 else {"status": f"exit {status}"})
        if status or answer.get("status") == "completed":
            break
        if answer.get("waits"):
            send = {"bank": "yes"}
        if answer.get("asked"):
            asked = answer["asked"]
            forked(lambda: settle(spelled, folder, run_id, asked))  # noqa: B023 - called in this round
    _, told["end"] = forked(lambda: look_at(spelled, folder, run_id))
    return told


async def break_off(folder, action, when):
    """Let a store in memory break off for good at every other write, and drive on; yield what became of each."""
    number, hit = -1, True
    while hit:
        number += 2
        effects = EffectLog(folder / f"{action}-{when}-{number}.jsonl")
        pay = workflow(effects, recovers=True)
        async with gnl_core.InMemoryStorage() as storage:
            faulty = FaultyJournal(storage.runs, fault=Fault(number=number, when=when, action=action, times=50))
            broken = ""
            try:
                await run_workflow(pay, journal=faulty, run_id="r", send={"bank": "yes"})
            except (JournalError, EffectNotRecordedError, StepRetryBlockedError) as error:
                broken = error.code
            result = await run_workflow(pay, journal=storage.runs, run_id="r", send={"bank": "yes"})
            hit = bool(faulty.hit)
        yield {"number": number, "broken": broken, "output": result.output, "effects": effects.counts()}


async def break_off_everywhere(folder, action, when):
    """Write what became of each write at which the store broke off."""
    async for told in break_off(folder, action, when):
        sys.stdout.write(json.dumps(told) + "\n")


def main():
    """Go through every point."""
    for name in gnl_core.__all__:
        getattr(gnl_core, name)  # loaded once, here
    workflow(None, recovers=True)
    spelled, folder, mode = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    if mode.startswith("store "):
        asyncio.run(break_off_everywhere(folder, *mode.split()[1:]))
        return
    recovers, sent_at_once = mode in ("recover", "told"), mode != "waits"
    whole = point(spelled, folder, "whole", None, recovers=recovers, sent_at_once=sent_at_once)
    writes = whole["first"]["writes"]
    faults = [Fault(number=number, when=when) for number in range(1, writes + 1) for when in ("before", "after")]
    effects = [Fault(at="effect", number=number, when=when) for number in (1, 2, 3) for when in ("before", "after")]
    points = {
        "recover": faults + effects,
        "told": [one for one in faults + effects if one.when == "after"],
        "person": effects,
        "waits": faults[-4:],
    }[mode]
    for number, fault in enumerate(points):
        told = point(spelled, folder, f"r-{number}", fault, recovers=recovers, sent_at_once=sent_at_once)
        sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
