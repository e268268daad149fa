"""The guard: a policy of the caller's that sees each call before it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gnl_core.journal.port import JsonValue


@dataclass(frozen=True, slots=True)
class GuardCall:
    """What a guard sees of a call; the arguments are the model's and may be anything.

    Attributes:
        tool_name: Name of the tool.
        args: Arguments as the model wrote them.
        tool_call_id: Our id of the call.
        run_id: The run whose call it is.
        tainted: Whether untrusted content has entered the run.
    """

    tool_name: str
    args: Mapping[str, JsonValue]
    tool_call_id: str
    run_id: str
    tainted: bool


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call does not run; the model reads the reason."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class RequireApproval:
    """A person decides; the reason is what they read."""

    reason: str = ""


GuardVerdict: TypeAlias = Allow | Deny | RequireApproval
Guard: TypeAlias = Callable[[GuardCall], GuardVerdict | Mapping[str, Any] | Awaitable[GuardVerdict | Mapping[str, Any]]]


def read_verdict(value: object) -> GuardVerdict:
    """Return a guard's answer.

    Raises:
        ValueError: It is none: the call is then not executed.
    """
    if isinstance(value, Allow | Deny | RequireApproval):
        return value
    if isinstance(value, Mapping):
        reason = value.get("reason")
        text = reason if isinstance(reason, str) else ""
        match value.get("action"):
            case "allow":
                return Allow()
            case "deny":
                return Deny(text)
            case "require-approval":
                return RequireApproval(text)
    raise ValueError(
        f"the guard answered {value!r}; it must answer Allow(), Deny(reason) or RequireApproval(reason), or an "
        "object whose 'action' is 'allow', 'deny' or 'require-approval'"
    )
