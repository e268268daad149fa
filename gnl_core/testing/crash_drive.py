"""One process of a crash test: drive the run as far as it comes, answer what it asks, tell how far it came."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from gnl_core import keys
from gnl_core.approvals import MISSING, Approval, Interrupt
from gnl_core.errors import AlreadyDecidedError, ConfigError, UnknownQuestionError
from gnl_core.journal import get
from gnl_core.journal.port import Journal, Op
from gnl_core.records import read_call
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.faulty import Fault, FaultyJournal, die

Scenario: TypeAlias = Callable[[Journal, EffectLog], Awaitable[object]]
"""Starts the run, or resumes it: it is called again in a new process. What it returns may have `interrupts`."""

Policy: TypeAlias = Callable[[Interrupt, EffectLog], Approval | None]
"""Answers a question; None leaves it open, and a `ConfigError` says that it cannot tell: then nothing is judged."""


class Storage(Protocol):
    """What a storage factory returns."""

    @property
    def runs(self) -> Journal:
        """The journal."""
        ...

    async def aclose(self) -> None:
        """Close it."""
        ...


State: TypeAlias = Literal["completed", "waiting", "failed", "unjudged"]

StorageFactory: TypeAlias = Callable[[Path], Storage]
"""Opens the store that lives in a folder; called once in each process."""


def by_witness(question: Interrupt, effects: EffectLog) -> Approval | None:
    """Answer as a person would who can look the effect up: yes, but what has happened is not done again.

    A doubt is settled by the log: the call's effect is its output, and without one the call may run. An effect that
    names no call could be any call's, so beside one the log proves of no call that it has not happened.

    Raises:
        ConfigError: The log cannot tell whether the call has happened.
    """
    effect = effects.find(question) if question.kind == "in_doubt" else None
    if effect is None:
        if question.kind == "in_doubt" and (strange := next((one for one in effects.read() if not one.call), None)):
            raise ConfigError(
                f"effects.fire({strange.name!r}, {strange.key!r}, …) was called where no tool's body runs, so nobody "
                f"can tell whether {question.tool_name} ({question.run_id}/{question.tool_call_id}), which is in "
                "doubt, has happened: annotate a parameter of the tool with Context and pass that instead of "
                f"{strange.key!r}",
                question=question.question,
            )
        return Approval(approved=True, actor="crashtest", reason="the log holds no effect of it")
    return Approval(approved=False, actor="crashtest", reason="the log holds its effect", output=effect.output)


def nobody(question: Interrupt, effects: EffectLog) -> Approval | None:  # noqa: ARG001 - a policy's signature
    """Answer nothing: the run must then wait under a question that is listed by name."""
    return None


def nobody_in_doubt(question: Interrupt, effects: EffectLog) -> Approval | None:  # noqa: ARG001 - a policy's signature
    """Approve what has not begun, and leave every doubt open."""
    return None if question.kind == "in_doubt" else Approval(approved=True, actor="crashtest")


def refuse(question: Interrupt, effects: EffectLog) -> Approval | None:  # noqa: ARG001 - a policy's signature
    """Say no to everything: no call that asked may have an effect after that."""
    return Approval(approved=False, actor="crashtest", reason="the policy says no to everything")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """How far one process came that lived to tell.

    Attributes:
        state: 'completed'; 'waiting' for a person, under questions that are listed; 'failed'; or 'unjudged', since the
            policy could not tell what had happened.
        writes: Writes of the journal.
        fired: Effects begun.
        hit: Whether its fault struck.
        error: The last error; '' where there was none.
        labels: What each write wrote.
        asked: How many questions it met.
        harmless: Effects ('<name> <key>') of calls whose tool is declared side_effect=False; looked up where the
            process had no fault and the run is completed.
    """

    state: State
    writes: int
    fired: int
    hit: bool
    error: str
    labels: tuple[str, ...]
    asked: int = 0
    harmless: tuple[str, ...] = ()


def drive_from_json(value: dict[str, Any]) -> Drive:
    """Return the `Drive` that a child sent."""
    return Drive(**{**value, "labels": tuple(value["labels"]), "harmless": tuple(value["harmless"])})


async def drive(
    scenario: Scenario, storage_factory: StorageFactory, folder: Path, policy: Policy, fault: Fault | None
) -> Drive:
    """Drive the run of a folder until it is completed, waits for a person, or raises what nobody can answer."""
    labels: list[str] = []
    storage = storage_factory(folder)
    journal = FaultyJournal(storage.runs, fault=fault, on_write=lambda _, ops: labels.append(_label(ops)))
    effects = EffectLog(folder / "effects.jsonl")
    if fault is not None and fault.at == "effect":
        setattr(effects, fault.when, lambda number: die() if fault.hits(number) else None)
    state: State = "failed"
    error, asked = "", 0
    harmless: tuple[str, ...] = ()
    try:
        for _ in range(_ROUNDS):
            try:
                questions: Sequence[Interrupt] = getattr(await scenario(journal, effects), "interrupts", ())
                error = ""
                # A scenario may keep its result, or what it caught, to itself: the run itself says whether it waits.
                questions = questions or await _waiting(storage.runs)
                if not questions:
                    state = "completed"
                    break
            except Exception as raised:  # the scenario is a stranger's code: whatever it raised, a host resumes it
                error = f"{getattr(raised, 'code', type(raised).__name__)}: {raised}"
                questions = getattr(raised, "interrupts", ())
            _note(folder, [question.question for question in questions if question.kind == "in_doubt"])
            if not questions:
                break
            asked += len(questions)
            try:
                answered = await _answer(policy, questions, journal, effects)
            except ConfigError as unclear:
                state, error = "unjudged", str(unclear)
                break
            if not answered:
                missing = await _unlisted(questions, storage.runs)
                state = "failed" if missing else "waiting"
                error = f"it waits for {missing}, which list_interrupts does not list" if missing else error
                break
        if fault is None and state == "completed":
            harmless = await _harmless(effects, storage.runs)
    finally:
        await storage.aclose()
    return Drive(
        state=state,
        writes=journal.writes,
        fired=effects.fired,
        hit=journal.hit > 0,
        error=error,
        labels=tuple(labels),
        asked=asked,
        harmless=harmless,
    )


def doubts(folder: Path) -> tuple[str, ...]:
    """Return the questions of kind 'in_doubt' that were met in a folder's run, by whatever process."""
    try:
        return tuple(dict.fromkeys((folder / "doubts.txt").read_text().splitlines()))
    except FileNotFoundError:
        return ()


def _note(folder: Path, questions: Sequence[str]) -> None:
    # In a file, since this process may be killed before it can tell.
    if questions:
        with (folder / "doubts.txt").open("a") as file:
            file.writelines(f"{question}\n" for question in questions)


async def _answer(policy: Policy, questions: Sequence[Interrupt], journal: Journal, effects: EffectLog) -> int:
    """Answer what the policy answers; return how many answers there were."""
    from gnl_core import decide  # noqa: PLC0415 - the runtime is loaded when it is used

    answered = 0
    for question in questions:
        answer = policy(question, effects)
        if answer is None:
            continue
        output = {} if answer.output is MISSING else {"output": answer.output}
        # A process that was killed may have answered it already.
        with contextlib.suppress(AlreadyDecidedError, UnknownQuestionError):
            await decide(
                journal, question.question, answer.approved, actor=answer.actor, reason=answer.reason, **output
            )
        answered += 1
    return answered


async def _waiting(journal: Journal) -> list[Interrupt]:
    """Return the open questions of runs that wait for a person."""
    from gnl_core import list_interrupts, list_runs  # noqa: PLC0415 - the runtime is loaded when it is used

    suspended = {run.run_id for run in (await list_runs(journal, status="suspended")).runs}
    found = await list_interrupts(journal)
    return [question for question in found if keys.split_run_id(question.run_id)[0] in suspended]


async def _unlisted(questions: Sequence[Interrupt], journal: Journal) -> str:
    """Name the questions that an operator who lists them would not find."""
    from gnl_core import list_interrupts  # noqa: PLC0415 - the runtime is loaded when it is used

    listed = {question.question for question in await list_interrupts(journal)}
    return ", ".join(question.question for question in questions if question.question not in listed)


async def _harmless(effects: EffectLog, journal: Journal) -> tuple[str, ...]:
    """Name the effects of calls whose tool says that it has none."""
    found: dict[str, None] = {}
    for effect in effects.read():
        run, _, call = effect.call.rpartition("/")
        place = keys.parse_call_id(call)
        entry = await get(journal, keys.tool(*keys.split_run_id(run), *place)) if run and place else None
        if entry is not None and not read_call(entry).side_effect:
            found[f"{effect.name} {effect.key}"] = None
    return tuple(found)


def _label(ops: Sequence[Op]) -> str:
    """Name a write by the rows that it writes."""
    names = [f"{type(op).__name__} {'/'.join(op.key)}" for op in ops if type(op).__name__ != "Expect"]
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "") or "delete_prefix"


_ROUNDS = 50
"""Rounds of questions and answers that one process goes through before it gives up."""
