"""What a crash test found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["completed", "settled", "waiting", "stuck", "unjudged"]
"""'completed': without anybody. 'settled': after a person had answered what was in doubt. 'waiting': a named question
is open and listed. 'stuck': none of these, whatever was tried. 'unjudged': the policy could not tell what had happened;
no report holds one, for the test is refused then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """One point of the matrix.

    Attributes:
        faults: What went wrong, in order: 'kill after write 3'.
        where: What the first of them hit.
        struck: Whether every fault was reached.
        outcome: How the run ended.
        effects: Effects by call, counted in the log outside the journal.
        doubts: Questions of kind 'in_doubt' that were asked.
        processes: How many processes drove the run.
        error: The last error; '' where there was none.
        folder: Where the journal and the log still are, of a result that is a fault; else ''.
    """

    faults: tuple[str, ...]
    where: str
    struck: bool
    outcome: Outcome
    effects: Mapping[str, int]
    doubts: tuple[str, ...] = ()
    processes: int = 0
    error: str = ""
    folder: str = ""

    @property
    def most(self) -> int:
        """Effects of the call that had most of them."""
        return max(self.effects.values(), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """The kill matrix of one scenario.

    Attributes:
        scenario: Its name.
        writes: Writes of the undisturbed run.
        effects: Effects of the undisturbed run, by call.
        results: One result a point.
        seconds: How long it took.
        harmless: Effects of the undisturbed run, by call, whose tool is declared side_effect=False. A run may begin
            such a call again without asking anybody, so a kill there is likely to repeat them.
        witnessed: Whether doubts were settled by the log of effects, which asks for what it lacks: a run so settled has
            every effect of the undisturbed one. A policy that says no may leave some out.
    """

    scenario: str
    writes: int
    effects: Mapping[str, int]
    results: tuple[PointResult, ...]
    seconds: float
    harmless: tuple[str, ...] = ()
    witnessed: bool = False

    @property
    def points(self) -> int:
        """Points tried."""
        return len(self.results)

    @property
    def struck(self) -> int:
        """Points whose every fault was reached. Parallel calls can end a run earlier than its first pass did."""
        return sum(result.struck for result in self.results)

    @property
    def max_effects(self) -> int:
        """The largest number of effects that any one call ever had, the undisturbed run included."""
        return max([*self.effects.values(), *(result.most for result in self.results)], default=0)

    @property
    def min_effects(self) -> int:
        """The smallest number of effects of a call of the undisturbed run, over the runs that came to an end."""
        ended = [result.effects for result in self.results if result.outcome in ("completed", "settled")]
        return min((effects.get(key, 0) for effects in [self.effects, *ended] for key in self.effects), default=0)

    @property
    def ok(self) -> bool:
        """Whether no call had more than one effect or was lost, and no run was left without a way out."""
        return self.max_effects <= 1 and not self.faulty()

    def count(self, outcome: Outcome) -> int:
        """Return how many runs ended so."""
        return sum(result.outcome == outcome for result in self.results)

    def faulty(self) -> tuple[PointResult, ...]:
        """Return the results that are a fault of the runtime or of the scenario."""
        return tuple(one for one in self.results if is_faulty(one, self.effects, witnessed=self.witnessed))

    @property
    def lost(self) -> int:
        """Runs that came to an end without an effect that the undisturbed run had, and nobody had said no to it."""
        return sum(is_lost(result, self.effects, witnessed=self.witnessed) for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            "scenario": self.scenario,
            "ok": self.ok,
            "writes": self.writes,
            "effects": dict(self.effects),
            "points": self.points,
            "struck": self.struck,
            "max_effects": self.max_effects,
            "min_effects": self.min_effects,
            "completed": self.count("completed"),
            "settled": self.count("settled"),
            "waiting": self.count("waiting"),
            "stuck": self.count("stuck"),
            "lost": self.lost,
            "harmless": list(self.harmless),
            "seconds": round(self.seconds, 3),
            "results": [asdict(result) for result in self.results],
        }

    def text(self) -> str:
        """Return the report as a table for a terminal, without a final newline."""
        rows = [
            ("an undisturbed run", f"{self.writes} writes, {sum(self.effects.values())} effects"),
            ("points tried", f"{self.points}, {self.struck} of them reached"),
            ("most effects of one call", str(self.max_effects)),
            ("fewest effects of one call", str(self.min_effects)),
            ("runs that ended by themselves", str(self.count("completed"))),
            ("runs that a person settled", str(self.count("settled"))),
            ("runs that wait for a person", str(self.count("waiting"))),
            ("runs without a way out", str(self.count("stuck"))),
            ("runs that lost an effect", str(self.lost)),
            ("time", f"{self.seconds:.1f} s"),
        ]
        lines = [f"crash test of {self.scenario}: {'passed' if self.ok else 'FAILED'}"]
        lines += [f"  {name:<30} {value}" for name, value in rows]
        for key in self.harmless:
            most = max(result.effects.get(key, 0) for result in self.results)
            lines.append(f"  {key}: declared side_effect=False, but acted; up to {most} times")
        for result in self.faulty()[:_SHOWN]:
            calls = ", ".join(f"{key}: {count}" for key, count in result.effects.items()) or "no effects"
            lines.append(f"  {result.outcome}: {', then '.join(result.faults)} ({result.where}); {calls}")
            if result.error:
                lines.append(f"    {result.error}")
            if result.folder:
                lines.append(f"    kept in {result.folder}")
        if len(self.faulty()) > _SHOWN:
            lines.append(f"  and {len(self.faulty()) - _SHOWN} more")
        return "\n".join(lines)


_SHOWN = 10


def is_lost(result: PointResult, effects: Mapping[str, int], *, witnessed: bool) -> bool:
    """Return whether a run came to an end without one of these effects, though nobody had said no to it.

    Args:
        result: The result.
        effects: Effects of the undisturbed run.
        witnessed: Whether doubts were settled by the log of effects; else a person may have said no to one.
    """
    ended = result.outcome == "completed" or (witnessed and result.outcome == "settled")
    return ended and any(key not in result.effects for key in effects)


def is_faulty(result: PointResult, effects: Mapping[str, int], *, witnessed: bool) -> bool:
    """Return whether a result is a fault, given the effects of the undisturbed run."""
    return result.most > 1 or result.outcome == "stuck" or is_lost(result, effects, witnessed=witnessed)


def result_from_json(value: Mapping[str, Any]) -> PointResult:
    """Return the result that a worker process sent."""
    return PointResult(**{**value, "faults": tuple(value["faults"]), "doubts": tuple(value["doubts"])})
