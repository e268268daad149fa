"""The kill matrix: kill an agent at every write and around every effect, resume it, and count what really happened.

The parent learns from one undisturbed run how many writes and effects there are. Then, for each of them, before it and
after it, a child is forked that runs the agent and dies there; further children resume it until it is completed or
waits for a person. All is forked from one warmed parent, so that a point costs milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import inspect
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gnl_core.errors import ConfigError
from gnl_core.testing.crash_drive import (
    Drive,
    Policy,
    Scenario,
    Storage,
    StorageFactory,
    by_witness,
    doubts,
    drive,
    drive_from_json,
)
from gnl_core.testing.crash_report import CrashReport, Outcome, PointResult, is_faulty, result_from_json
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.faulty import KILLED, Action, Fault
from gnl_core.testing.forks import check_forkable, start


def crashtest(
    scenario: Scenario,
    *,
    storage_factory: StorageFactory | None = None,
    folder: str | os.PathLike[str] | None = None,
    policy: Policy = by_witness,
    actions: Sequence[Action] = ("kill",),
    outage: int = 1,
    kills: int = 1,
    resume_limit: int = 6,
    child_timeout: float = 30.0,
    jobs: int | None = None,
    min_effects: int = 1,
) -> CrashReport:
    """Run an agent's kill matrix, and say what each crash left behind.

    Args:
        scenario: An async function of (journal, effects) that starts the run or resumes it. Its tools call
            `effects.fire("name", context, output)` where a real tool would act on the world; a key of one's own in
            place of the context does in a tool's body. Its run id must not change from call to call.
        storage_factory: Opens the store in a folder; default: `SqliteStorage` on the file journal.sqlite.
        folder: Where journals and logs are made, and removed unless they show a fault; default: a new folder in
            memory (/dev/shm) where there is one, else in the system's temporary folder.
        policy: Answers questions, in the process that met them: `by_witness`, `nobody`, `nobody_in_doubt`, `refuse`,
            or one's own, which may raise a `ConfigError` where it cannot tell.
        actions: What goes wrong at each write; effects are killed around only if 'kill' is one of them.
        outage: Writes in a row that a store is away for; the runtime sends a batch again for some seconds.
        kills: Faults in a row, at least 1: with 2, each resumption is hit at each of its own points too.
        resume_limit: Processes that may resume a run before it counts as stuck, at least 1.
        child_timeout: Seconds after which a child counts as hung.
        jobs: Points tried at the same time; default: one for each processor.
        min_effects: Effects that the undisturbed run must have, unless it asks somebody; 0 for a run that only reads.

    Raises:
        ConfigError: The scenario is no async function, does not come to an end undisturbed, leaves nothing to judge
            (no write to the journal it was given, or no effect), or fires effects of which the policy cannot tell whose
            they are; or this process cannot fork safely (it runs threads or an event loop).
    """
    if not inspect.iscoroutinefunction(scenario):
        raise ConfigError(
            f"the crash test's scenario {_name(scenario)} must be an async function of (journal, effects)"
        )
    if min(kills, resume_limit, outage) < 1:
        raise ConfigError(f"kills {kills}, resume_limit {resume_limit} and outage {outage} must be at least 1")
    check_forkable()
    began = time.monotonic()
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="crashtest-", dir=folder if folder is not None else _memory()))
    lab = _Lab(
        scenario, storage_factory or _sqlite, place, policy, tuple(actions), outage, kills, resume_limit, child_timeout
    )
    first = lab.learn()
    if why := first.missing(min_effects):
        shutil.rmtree(place)
        raise ConfigError(f"nothing to judge: {_name(scenario)} {why}. {_MUST}")
    gc.collect()
    gc.freeze()  # else each child's first collection copies the parent's memory
    try:
        results = _spread(lab, first, jobs or os.cpu_count() or 1)
    finally:
        gc.unfreeze()
    if unjudged := next((result for result in results if result.outcome == "unjudged"), None):
        shutil.rmtree(place)
        raise ConfigError(f"{_name(scenario)} cannot be judged: {unjudged.error}")
    with contextlib.suppress(OSError):
        place.rmdir()  # what shows a fault stays
    return CrashReport(
        scenario=_name(scenario),
        writes=first.drive.writes,
        effects=first.effects,
        results=tuple(results),
        harmless=first.drive.harmless,
        witnessed=lab.witnessed,
        seconds=time.monotonic() - began,
    )


_MUST = (
    "A scenario takes (journal, effects), drives its run with that very journal (run_durable(journal=journal, …)), and "
    'its tools call effects.fire("name", context, output) where they act on the world'
)


def load_scenario(spec: str) -> Scenario:
    """Return the scenario that 'module:function' names.

    Raises:
        ConfigError: It names none.
    """
    module, _, name = spec.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{spec!r} names no scenario ({error}); write module:function") from None
    if not inspect.iscoroutinefunction(found):
        raise ConfigError(f"{spec!r} is no async function; write: async def {name or 'agent'}(journal, effects)")
    scenario: Scenario = found
    return scenario


# One point ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _First:
    """The undisturbed run, and its effects by call."""

    drive: Drive
    effects: dict[str, int]

    def missing(self, min_effects: int) -> str:
        """Say what is missing for a kill to prove anything; '' where nothing is."""
        fired = sum(self.effects.values())
        if not self.drive.writes:
            return "wrote nothing to the journal that it was given"
        if fired < min_effects and not self.drive.asked:
            return f"fired {fired} effects, fewer than {min_effects}" if fired else "fired no effect"
        return ""

    def label(self, fault: Fault) -> str:
        """Say what a fault hits."""
        if fault.at == "effect":
            return "effect"
        labels = self.drive.labels
        return labels[fault.number - 1] if fault.number <= len(labels) else "write"


@dataclass(frozen=True, slots=True)
class _Lab:
    scenario: Scenario
    storage_factory: StorageFactory
    place: Path
    policy: Policy
    actions: tuple[Action, ...]
    outage: int
    kills: int
    resume_limit: int
    child_timeout: float

    @property
    def witnessed(self) -> bool:
        """Whether a settled run must have every effect: the witness says no to nothing that has not happened."""
        return self.policy is by_witness

    def learn(self) -> _First:
        """Run the scenario undisturbed in a child, and import what it needed into this process."""
        folder = self.place / "undisturbed"
        folder.mkdir()
        child = start(lambda: [self._drive(folder, None), list(sys.modules)], talk=folder / "talk.txt")
        ended = child.wait(self.child_timeout)
        if ended.answer is None or ended.answer[0]["state"] in ("failed", "unjudged"):
            why = ended.answer[0]["error"] if ended.answer else f"its process ended with {ended.status}"
            raise ConfigError(
                f"the scenario {_name(self.scenario)} comes to no end even undisturbed: {why}; "
                f"what it wrote stands in {folder}"
            )
        seen, modules = ended.answer
        for module in modules:
            if module not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(module)
        effects = EffectLog(folder / "effects.jsonl").counts()
        shutil.rmtree(folder)
        return _First(drive_from_json(seen), effects)

    def points(self, seen: Drive) -> Iterator[Fault]:
        """Yield every fault that can hit a run with the writes and effects of this one."""
        for number in range(1, seen.writes + 1):
            for action in self.actions:
                yield Fault(number=number, when="before", action=action, times=self.outage)
                if action in ("kill", "unknown"):
                    yield Fault(number=number, when="after", action=action, times=self.outage)
        if "kill" in self.actions:
            for number in range(1, seen.fired + 1):
                yield Fault(at="effect", number=number, when="before")
                yield Fault(at="effect", number=number, when="after")

    def explore(self, first: _First, faults: tuple[Fault, ...], name: str) -> Iterator[PointResult]:
        """Try these faults in a row; then, while there may be more, each point of the process that came after."""
        result, resumed = self._try(first, faults, self.place / name)
        yield result
        if len(faults) < self.kills and result.struck and resumed is not None:
            for number, fault in enumerate(self.points(resumed)):
                yield from self.explore(first, (*faults, fault), f"{name}-{number}")

    def _try(self, first: _First, faults: tuple[Fault, ...], folder: Path) -> tuple[PointResult, Drive | None]:
        folder.mkdir()
        struck, processes, error = 0, 0, ""
        outcome: Outcome = "stuck"
        resumed: Drive | None = None
        for fault in [*faults, *[None] * self.resume_limit]:
            ended = start(partial(self._drive, folder, fault), talk=folder / "talk.txt").wait(self.child_timeout)
            processes += 1
            if ended.status is None:
                error = f"a process hung for {self.child_timeout:g} s"
                break  # the next one would hang as long
            if ended.answer is None:
                if ended.status == KILLED and fault is not None:
                    struck += 1
                else:
                    error = f"a process ended with {ended.status}"
                continue
            seen = drive_from_json(ended.answer)
            struck += seen.hit
            error = seen.error or error
            if fault is None and resumed is None:
                resumed = seen
            if seen.state != "failed":
                outcome = "settled" if seen.state == "completed" and doubts(folder) else seen.state
                break
        result = PointResult(
            faults=tuple(str(fault) for fault in faults),
            where=first.label(faults[0]),
            struck=struck == len(faults),
            outcome=outcome,
            effects=EffectLog(folder / "effects.jsonl").counts(),
            doubts=doubts(folder),
            processes=processes,
            error=error,
            folder=str(folder),
        )
        if not is_faulty(result, first.effects, witnessed=self.witnessed):
            shutil.rmtree(folder)
            result = replace(result, folder="")
        return result, resumed

    def _drive(self, folder: Path, fault: Fault | None) -> dict[str, Any]:
        return asdict(asyncio.run(drive(self.scenario, self.storage_factory, folder, self.policy, fault)))


# All points --------------------------------------------------------------------------------------------------------


def _spread(lab: _Lab, first: _First, jobs: int) -> list[PointResult]:
    """Try all points in several workers; return their results in the order of the points."""
    points = list(enumerate(lab.points(first.drive)))
    shares = [points[number::jobs] for number in range(min(jobs, len(points)))]

    def work(share: Sequence[tuple[int, Fault]]) -> list[tuple[int, list[dict[str, Any]]]]:
        return [
            (number, [asdict(result) for result in lab.explore(first, (fault,), f"{number:04d}")])
            for number, fault in share
        ]

    talk = lab.place / "workers.txt"
    workers = [(share, start(partial(work, share), talk=talk)) for share in shares]
    found: dict[int, list[PointResult]] = {}
    for share, worker in workers:
        ended = worker.wait()
        for number, fault in share:  # a worker that died proved nothing of its points
            found[number] = [
                PointResult(
                    faults=(str(fault),),
                    where=first.label(fault),
                    struck=False,
                    outcome="stuck",
                    effects={},
                    error=f"the worker of this point ended with {ended.status}; see {talk}",
                )
            ]
        for number, results in ended.answer or ():
            found[number] = [result_from_json(result) for result in results]
    if talk.exists() and not talk.stat().st_size:
        talk.unlink()
    return [result for number in sorted(found) for result in found[number]]


def _name(scenario: object) -> str:
    return f"{getattr(scenario, '__module__', '?')}:{getattr(scenario, '__qualname__', repr(scenario))}"


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a folder of its own is made in it


def _sqlite(folder: Path) -> Storage:
    from gnl_core import SqliteStorage  # noqa: PLC0415 - the runtime is loaded when it is used

    return SqliteStorage(folder / "journal.sqlite")
