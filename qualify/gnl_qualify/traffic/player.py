"""Play one conversation through the engine: a run a turn, every question answered yes and written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gnl_core import InMemoryStorage, Message, RunLimits, TextPart, Tool, decide, keys, read_incidents, run_durable
from gnl_core.approvals import Interrupt
from gnl_core.canonical import args_hash
from gnl_core.errors import GnlError, NotCanonicalError
from gnl_core.identity import Identity
from gnl_core.journal import get
from gnl_core.journal.port import Journal
from gnl_core.limits import Timeouts
from gnl_core.model.port import ChatModel
from gnl_core.results import DurableResult
from gnl_fixtures.conversations import Conversation, Label, Turn
from gnl_qualify.traffic.played import Asked, PlayedCall, PlayedConversation, PlayedTurn
from gnl_qualify.traffic.tools import Ledger, make_tools

MAX_STEPS = 4
"""Most model steps of a turn: a live model may call again and again."""

_ROUNDS = 40
"""Most times that a turn is driven: more questions than any turn can ask."""

_COUNTED = ("guarded", "gray", "judged", "judge_hits")
"""Of the finder's counters those that are the same whenever the same is played: no times, nothing of a warm cache."""

_TIMES = ("latency_ms", "embed_ms", "judge_ms")

ModelOf = Callable[[Turn, int], ChatModel]
"""Makes the model of a turn; told how many assistant messages the conversation holds already."""

LabelOf = Callable[[Turn, int, int], Label]
"""Says what the user wanted of a call, by turn, model step and place in the step."""


async def play(
    conversation: Conversation,
    *,
    model_of: ModelOf,
    label_of: LabelOf,
    limits: RunLimits,
    system: str | None = None,
    step_seconds: float | None = None,
) -> PlayedConversation:
    """Play a conversation to its end, or to the first turn that cannot be played: what follows would lack its past.

    Args:
        conversation: The conversation.
        model_of: See `ModelOf`.
        label_of: See `LabelOf`.
        limits: Which rungs are on.
        system: What the model is told beforehand.
        step_seconds: How long one answer of the model may take; None sets no bound.
    """
    ledger = Ledger()
    with InMemoryStorage() as storage:
        stage = _Stage(conversation, storage.runs, make_tools(ledger), ledger, label_of)
        told: dict[str, Sequence[Message]] = {}
        turns: list[PlayedTurn] = []
        for turn in conversation.turns:
            history = told.get(turn.channel, ())
            spoken = sum(message.role == "assistant" for message in history)
            options: dict[str, Any] = {
                "model": model_of(turn, spoken),
                "messages": [*history, Message("user", (TextPart(turn.says),))],
                "system": system,
                "limits": limits,
                "timeouts": Timeouts(model_step=step_seconds),
            }
            played, messages = await stage.play(turn, options)
            turns.append(played)
            if played.fault:
                break
            told[turn.channel] = messages
    return PlayedConversation(
        id=conversation.id, turns=tuple(turns), expected=len(conversation.turns), executions=len(ledger.done)
    )


class _Stage:
    """Where one conversation is played: a store of its own, and the tools."""

    def __init__(
        self, conversation: Conversation, journal: Journal, tools: Sequence[Tool], ledger: Ledger, label_of: LabelOf
    ) -> None:
        self._conversation = conversation
        self._journal = journal
        self._tools = {tool.name: tool for tool in tools}
        self._ledger = ledger
        self._label_of = label_of

    async def play(self, turn: Turn, options: Mapping[str, Any]) -> tuple[PlayedTurn, Sequence[Message]]:
        """Play one turn; returns what it came to, and the conversation after it."""
        run_id = f"{self._conversation.id}-t{turn.number}"
        asked: list[Interrupt] = []
        try:
            result = await self._drive(run_id, turn, options, asked)
        except GnlError as error:
            # Calls that were made before it are in the ledger and count as executions; the turn is not scored.
            return PlayedTurn(number=turn.number, label=turn.label, fault=f"{error.code}: {error}"), ()
        if result.interrupts:
            return PlayedTurn(number=turn.number, label=turn.label, fault=f"waits after {len(asked)} answers"), ()
        calls = await self._calls(run_id, turn, result, asked)
        entry = await get(self._journal, keys.semantic_counts(run_id))
        counts = entry.value if entry is not None and isinstance(entry.value, dict) else {}
        figures = {name: number for name in _COUNTED if isinstance(number := counts.get(name), int)}
        return PlayedTurn(number=turn.number, label=turn.label, calls=calls, counts=figures), result.messages

    async def _drive(
        self, run_id: str, turn: Turn, options: Mapping[str, Any], asked: list[Interrupt]
    ) -> DurableResult:
        conversation = self._conversation
        # Another door of the same system has a thread of its own: only the person is the same.
        thread = conversation.id if turn.channel == "chat" else f"{conversation.id}-{turn.channel}"
        run = partial(
            run_durable,
            run_id=run_id,
            journal=self._journal,
            tools=list(self._tools.values()),
            thread_id=thread,
            channel=turn.channel,
            resource_id=conversation.person or None,
            max_steps=MAX_STEPS,
            **options,
        )
        result = await run()
        for _ in range(_ROUNDS):
            if not result.interrupts:
                break
            for interrupt in result.interrupts:
                asked.append(interrupt)
                repeat = self._label(turn, interrupt.tool_call_id).repeat
                relation = "deliberate_repeat" if repeat else "different_work"
                await decide(
                    self._journal,
                    interrupt.question,
                    True,
                    actor="traffic-suite",
                    relation=relation if interrupt.prior is not None else None,  # type: ignore[arg-type] # one of two
                )
            result = await run()
        return result

    async def _calls(
        self, run_id: str, turn: Turn, result: DurableResult, asked: Sequence[Interrupt]
    ) -> tuple[PlayedCall, ...]:
        noted = await read_incidents(self._journal, run_id)
        # Ids count from s0p0 in every run: of equal ones the last is this turn's.
        written = {part.id: part.args for message in result.messages for part in message.tool_calls}
        calls: list[PlayedCall] = []
        for step in result.steps:
            for outcome in step.calls:
                call, args = outcome.tool_call_id, written.get(outcome.tool_call_id)
                calls.append(
                    PlayedCall(
                        run_id=run_id,
                        call=call,
                        tool=outcome.tool_name,
                        args=args,
                        args_hash=_hash(args),
                        identity=self._identity(outcome.tool_name, args),
                        label=self._label(turn, call),
                        status=outcome.status,
                        executed=self._ledger.count(run_id, call),
                        asked=tuple(_asked(one) for one in asked if one.tool_call_id == call),
                        notes=tuple(
                            {"source": one.source, "action": one.action, "detail": _timeless(one.detail)}
                            for one in noted
                            if one.tool_call_id == call
                        ),
                    )
                )
        return tuple(calls)

    def _label(self, turn: Turn, call: str) -> Label:
        place = keys.parse_call_id(call)
        return self._label_of(turn, *place) if place is not None else turn.label

    def _identity(self, name: str, args: Mapping[str, Any] | None) -> Mapping[str, str]:
        tool = self._tools.get(name)
        if tool is None or args is None or tool.semantic_identity is None:
            return {}
        built = tool.semantic_identity.build(name, args)
        return dict(built.values) if isinstance(built, Identity) else {}


def _asked(interrupt: Interrupt) -> Asked:
    prior: Mapping[str, Any] = interrupt.prior or {}
    return Asked(
        kind=interrupt.kind,
        origin=str(prior.get("origin", "")),
        first=f"{prior['run_id']}/{prior['tool_call_id']}" if prior else "",
        score=prior.get("score"),
        rules=tuple(dict.fromkeys(str(trace["rule"]) for trace in prior.get("traces", ()))),
        amounts_differ=tuple(prior.get("amounts_differ", ())),
    )


def _hash(args: Mapping[str, Any] | None) -> str:
    try:
        return args_hash(args) if args is not None else ""
    except NotCanonicalError:  # a live model may write half a character
        return ""


def _timeless(value: Any) -> Any:
    """Return a detail without what differs from one playing to the next."""
    if isinstance(value, dict):
        return {name: _timeless(member) for name, member in value.items() if name not in _TIMES}
    return value
