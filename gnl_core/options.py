"""How a run is driven: what the root run and its sub-agents have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from gnl_core.errors import ConfigError
from gnl_core.events import Listener
from gnl_core.limits import RunLimits, Timeouts
from gnl_core.policy import Guard

ReplayPolicy: TypeAlias = Literal["lenient", "strict"]
Disclosure: TypeAlias = Literal["envelope", "explain"]
ApprovalScope: TypeAlias = Literal["question", "call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run is driven.

    Attributes:
        guard: Policy that sees each call before it runs.
        limits: Budgets, loops, taint.
        timeouts: Bounds on model steps and tools.
        replay: 'lenient' warns of a recorded request that differs from the present one, 'strict' raises.
        replay_disclosure: 'envelope' lists replayed calls on the result; 'explain' also tells the model, in the next
            step only and outside of what is recorded.
        approval_scope: 'question': an answer is spent by the claim it allows. 'call': it stands for the call's life.
        exclusive_model_step: Claim each live model step, so that no two workers pay for it.
        deps: What tools see as `Context.deps`.
        actor: Who drives the run.
        resource_id: Person on whose behalf it works.
        thread_id: Conversation it belongs to.
        channel: Where the request came from, for instance 'chat' or 'batch'.
        listener: Told what happens.
        asks: Whether questions reach a person.
    """

    guard: Guard | None = None
    limits: RunLimits = field(default_factory=RunLimits)
    timeouts: Timeouts = field(default_factory=Timeouts)
    replay: ReplayPolicy = "lenient"
    replay_disclosure: Disclosure = "envelope"
    approval_scope: ApprovalScope = "question"
    exclusive_model_step: bool = False
    deps: Any = None
    actor: str | None = None
    resource_id: str | None = None
    thread_id: str | None = None
    channel: str | None = None
    listener: Listener | None = None
    asks: bool = True

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("replay", self.replay, ("lenient", "strict")),
            ("replay_disclosure", self.replay_disclosure, ("envelope", "explain")),
            ("approval_scope", self.approval_scope, ("question", "call")),
        ):
            if value not in allowed:
                raise ConfigError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}", option=name)
