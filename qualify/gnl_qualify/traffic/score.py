"""What a playing came to. It takes three facts of a call: its label, whether it was asked about, and which rung asked.

Asked about a repeat: as it should be. Asked about anything else by equal arguments: the model has made an earlier call
again although the user wanted other work. Asked about anything else by another rung: a false alarm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_args

from gnl_core.prior import Origin
from gnl_qualify.stats import rate
from gnl_qualify.traffic.played import PlayedCall, PlayedConversation
from gnl_qualify.traffic.suite import Playing
from gnl_semantic.rate import Rate

ORIGINS: tuple[Origin, ...] = get_args(Origin)
"""The rungs, in the order in which they look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Counts of one playing; calls are named '<run>/<call>'.

    Attributes:
        model: Which model played.
        setting: Which rungs were on.
        conversations: How many were played whole.
        expected: How many there are.
        turns: Turns that were played to their end.
        silent_turns: Turns among them without a tool call; nothing else counts them.
        calls: Calls that reached the gates.
        refused_calls: Calls of no tool, or with arguments that fit none; nothing else counts them.
        repeats: Calls that a repeat was wanted of.
        asked: Repeats that a person was asked about, by rung.
        beside_other: Repeats among these that were shown beside other work than what they repeat.
        missed: Repeats that nobody was asked about.
        reasons: Why nobody was asked about a missed repeat, by its name, as far as the gates wrote it down.
        reissued: Calls for other work that equal an earlier call, which a person was asked about.
        false_alarms: Calls for other work that a person was asked about for another reason, by rung.
        executions: What the tools did, by the ledger.
        unasked: Calls that were executed more than once, or never although they ended well: there must be none.
        guarded: Calls that the finder of similar work looked at.
        gray: Calls among these with a pair that neither identity nor a rule settled.
        judged: Calls of the judge.
        judge_hits: Verdicts that were known already.
    """

    model: str
    setting: str
    conversations: int
    expected: int
    turns: int
    silent_turns: int
    calls: int
    refused_calls: int
    repeats: int
    asked: dict[str, tuple[str, ...]]
    beside_other: tuple[str, ...]
    missed: tuple[str, ...]
    reasons: dict[str, str]
    reissued: tuple[str, ...]
    false_alarms: dict[str, tuple[str, ...]]
    executions: int
    unasked: tuple[str, ...]
    guarded: int
    gray: int
    judged: int
    judge_hits: int

    @property
    def repeat_rate(self) -> Rate:
        """Repeats that a person was asked about, of all repeats."""
        return rate(self.repeats - len(self.missed), self.repeats)

    @property
    def false_alarm_rate(self) -> Rate:
        """False alarms, of all calls for other work."""
        return rate(sum(map(len, self.false_alarms.values())), self.calls - self.repeats)

    @property
    def reissued_rate(self) -> Rate:
        """Earlier calls made again, of all calls for other work."""
        return rate(len(self.reissued), self.calls - self.repeats)

    @property
    def judge_rate(self) -> Rate:
        """Calls of the judge, of all calls that the finder looked at."""
        return rate(self.judged, self.guarded)

    def to_json(self) -> dict[str, Any]:
        """Return counts, lists and rates for programs."""
        rates = {
            name: {"k": one.k, "n": one.n, "value": one.value, "low": one.low, "high": one.high}
            for name, one in (
                ("repeats_asked_about", self.repeat_rate),
                ("false_alarms", self.false_alarm_rate),
                ("reissued", self.reissued_rate),
                ("judge_calls_per_guarded_call", self.judge_rate),
            )
        }
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()} | {"rates": rates}


@dataclass(slots=True)
class _Tally:
    asked: dict[str, list[str]] = field(default_factory=lambda: {origin: [] for origin in ORIGINS})
    false_alarms: dict[str, list[str]] = field(default_factory=lambda: {o: [] for o in ORIGINS if o != "exact"})
    beside_other: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    reissued: list[str] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)
    calls: int = 0
    repeats: int = 0
    refused: int = 0

    def take(self, call: PlayedCall, played: PlayedConversation) -> None:
        """Count one call."""
        name = f"{call.run_id}/{call.call}"
        if not call.guarded:
            self.refused += 1
            return
        self.calls += 1
        if call.executed != (call.status == "succeeded"):
            self.unasked.append(name)
        origin = call.asked[0].origin if call.asked else ""
        if call.label.repeat:
            self.repeats += 1
            if origin:
                self.asked[origin].append(name)
                if not _shows_its_work(call, played):
                    self.beside_other.append(name)
            else:
                self.missed.append(name)
                self.reasons[name] = reason_of(call) if _was_done(call, played) else "its first work was never done"
        elif origin == "exact":
            self.reissued.append(name)
        elif origin:
            self.false_alarms[origin].append(name)


def reason_of(call: PlayedCall) -> str:
    """Return why nobody was asked about a call, by what the gates wrote down about it."""
    details = {note["source"]: note["detail"] for note in call.notes if note["action"] == "warn"}
    if "semantic-judge" in details:
        return f"judge: {details['semantic-judge']['outcome']}"
    scan = details.get("semantic-guard", {})
    for name, reason in _REASONS.items():
        if scan.get(name):
            return reason
    return "nothing alike"


_REASONS = {
    "gray_calls": "gray",
    "dropped_by_rule": "a rule told them apart",
    "dropped_discriminator": "a discriminator differs",
    "reason": "no usable identity",
    "no_scan": "the store could not be read",
    "embedder_outage": "the embedder was out",
}


def score(playing: Playing) -> Score:
    """Return what a playing came to. A turn that was not played to its end is not counted."""
    tally, counts = _Tally(), Counter[str]()
    turns = silent = 0
    for played in playing.conversations:
        for turn in (turn for turn in played.turns if not turn.fault):
            turns += 1
            silent += not turn.calls
            counts.update(turn.counts)
            for call in turn.calls:
                tally.take(call, played)
    return Score(
        model=playing.model,
        setting=playing.setting,
        conversations=sum(played.whole for played in playing.conversations),
        expected=playing.expected,
        turns=turns,
        silent_turns=silent,
        calls=tally.calls,
        refused_calls=tally.refused,
        repeats=tally.repeats,
        asked=_frozen(tally.asked),
        beside_other=tuple(tally.beside_other),
        missed=tuple(tally.missed),
        reasons=tally.reasons,
        reissued=tuple(tally.reissued),
        false_alarms=_frozen(tally.false_alarms),
        executions=sum(played.executions for played in playing.conversations),
        unasked=tuple(tally.unasked),
        guarded=counts["guarded"],
        gray=counts["gray"],
        judged=counts["judged"],
        judge_hits=counts["judge_hits"],
    )


def score_all(playings: Iterable[Playing]) -> tuple[Score, ...]:
    """Return what each playing came to, in order."""
    return tuple(map(score, playings))


def _was_done(call: PlayedCall, played: PlayedConversation) -> bool:
    """Whether the turn that a repeat points to has done work of its own with the same tool."""
    first = next((turn for turn in played.turns if turn.number == call.label.of), None)
    return first is not None and any(
        one.tool == call.tool and one.executed and not (one.asked and one.asked[0].origin == "exact")
        for one in first.calls
        if one is not call
    )


def _shows_its_work(call: PlayedCall, played: PlayedConversation) -> bool:
    """Whether the question showed a call of the turn that asked first, or of another repeat of it."""
    first = call.asked[0].first
    shown = [(turn, one) for turn in played.turns for one in turn.calls if f"{one.run_id}/{one.call}" == first]
    return any(turn.number == call.label.of or one.label == call.label for turn, one in shown)


def _frozen(lists: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {origin: tuple(names) for origin, names in lists.items()}
