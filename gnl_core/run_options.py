"""The options of a run: one typed list for every function that takes them, and the checks that name what cannot be.

`run_durable` spells them out for people, with their defaults and what each means; the others take the same by name.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from gnl_core import keys
from gnl_core.approvals import Approval
from gnl_core.drive import StopWhen
from gnl_core.errors import ConfigError
from gnl_core.events import Listener
from gnl_core.limits import RunLimits, Timeouts
from gnl_core.model.messages import Message, ModelSettings
from gnl_core.options import ApprovalScope, Disclosure, ReplayPolicy
from gnl_core.passed import Approvals
from gnl_core.policy import Guard
from gnl_core.terms import AuditOnReject, TombstonePolicy
from gnl_core.tools import ToolPolicy

Messages = Sequence[Message | Mapping[str, Any]]

MAX_LOCK_TTL_S = 31_536_000.0
"""Longest time to live of a run lock: a year."""


class HoldOptions(TypedDict, total=False):
    """How a run is held and its calls are ruled on, whoever drives it."""

    approvals: Approvals | None
    guard: Guard | None
    limits: RunLimits | None
    timeouts: Timeouts | None
    replay: ReplayPolicy
    exclusive_model_step: bool
    approval_scope: ApprovalScope
    actor: str | None
    context: Any
    lock_ttl: float
    on_event: Listener | None
    strict_input: bool
    bind_actor: bool
    tombstone_policy: TombstonePolicy | None
    conflict_ledger: bool
    audit_on_reject: AuditOnReject
    shared_thread: bool


class BelongingOptions(TypedDict, total=False):
    """What a run belongs to, frozen when it begins."""

    agent: str | None
    thread_id: str | None
    resource_id: str | None
    channel: str | None


class OwnLoopOptions(HoldOptions, BelongingOptions, total=False):
    """What `durable_context` takes: the loop holds the rest."""


class DriveOptions(HoldOptions, total=False):
    """What `resume_run` takes: everything but what the run began with."""

    tools: Sequence[Any] | Mapping[str, Any]
    system: str | None
    settings: ModelSettings | None
    max_steps: int
    stop_when: StopWhen | None
    replay_disclosure: Disclosure
    tool_policy: ToolPolicy | None


class RunOptions(DriveOptions, BelongingOptions, total=False):
    """What `run_durable` takes beside the run's id, its journal and its model."""

    prompt: str | None
    messages: Messages | None


FROZEN = tuple(sorted(RunOptions.__annotations__.keys() - DriveOptions.__annotations__.keys()))
"""Options that say what a run begins with."""


def check_run_options(given: Mapping[str, Any]) -> None:
    """Refuse options of the wrong kind before anything is read or written.

    Raises:
        ConfigError: Naming the option.
        IdInvalidError: An id that may not become part of a key.
    """
    for name, (words, fits) in _EXPECTED.items():
        value = given[name]
        if (value is not None or name in ("exclusive_model_step", "lock_ttl")) and not fits(value):
            raise ConfigError(f"{name} is {_shown(value)}, must be {words}", option=name)
    for name in (*BelongingOptions.__annotations__, "actor"):
        if given[name] is not None:
            keys.check_id(name, given[name])
    for name, value in (given["approvals"] or {}).items():
        if not isinstance(name, str) or not isinstance(value, bool | Approval):
            raise ConfigError(
                f"approvals[{_shown(name)}] is {_shown(value)}, must be True, False or an Approval by a question's "
                "name or a call's id",
                option="approvals",
            )


def check_listener(name: str, value: object) -> None:
    """Refuse what cannot be called from where things happen, which waits for nobody.

    Raises:
        ConfigError: Naming the option.
    """
    if value is not None and not _listens(value):
        raise ConfigError(f"{name} is {_shown(value)}, must be {_PLAIN}", option=name)


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _listens(value: object) -> bool:
    return callable(value) and not inspect.iscoroutinefunction(value)


def _lasts(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return number and 0 < value <= MAX_LOCK_TTL_S  # type: ignore[operator] # a number by then


def _lists(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


_PLAIN = "a plain function, not an async one"
_EXPECTED: dict[str, tuple[str, Callable[[object], bool]]] = {
    "prompt": ("a str", _is(str)),
    "messages": ("a list of Message or {'role': …, 'content': …}", _lists),
    "system": ("a str", _is(str)),
    "settings": ("ModelSettings(…)", _is(ModelSettings)),
    "approvals": ("a mapping of question or call to True, False or an Approval", _is(Mapping)),
    "guard": ("a function of one GuardCall", callable),
    "limits": ("RunLimits(…)", _is(RunLimits)),
    "timeouts": ("Timeouts(…)", _is(Timeouts)),
    "stop_when": ("a function of the steps so far", callable),
    "exclusive_model_step": ("True or False", _is(bool)),
    "on_event": (_PLAIN, _listens),
    "lock_ttl": (f"a number of seconds above 0, at most {MAX_LOCK_TTL_S:.0f}", _lasts),
}
