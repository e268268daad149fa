"""On what terms a run is entered again: what must be the same, and what is noted of those who are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gnl_core.errors import ConfigError
from gnl_core.work import Work

TombstonePolicy: TypeAlias = Literal["reject"]
AuditOnReject: TypeAlias = Literal["best-effort", "require"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms a run is entered.

    Attributes:
        strict_input: Refuse other content than the run began with. Always so for an id that was derived from a work
            key: its caller did not choose the id, and so cannot choose another.
        bind_actor: Refuse another actor than the first, where both are named.
        tombstone_policy: 'reject' refuses a run that a sweep removed, where it left a tombstone; always so for a
            derived id.
        conflict_ledger: Note each refusal to begin or go on with the run, outside of it; what stops a drive that was
            let in is told by its error and its run alone.
        audit_on_reject: 'best-effort': a refusal stands though it could not be noted, with a warning in the log.
            'require': the ledger's error is raised in its place, so that no refusal goes unrecorded.
        shared_thread: Several persons work in the conversation: to be said by each of their runs. Without it the first
            person for whom a run begins there is noted as the conversation's owner, and a run that begins for another
            is refused. A run of nobody is let in, and what is done outside of runs is not looked at; once the
            conversation was purged, it is nobody's.
        work: The work that the run id was derived from, None for an id that the caller chose.
        system_asked: Whether the system prompt is the caller's, and so part of what is asked; an agent's own is not.
    """

    strict_input: bool = False
    bind_actor: bool = False
    tombstone_policy: TombstonePolicy | None = None
    conflict_ledger: bool = False
    audit_on_reject: AuditOnReject = "best-effort"
    shared_thread: bool = False
    work: Work | None = None
    system_asked: bool = True

    def __post_init__(self) -> None:
        for name in ("strict_input", "bind_actor", "conflict_ledger", "shared_thread"):
            value = getattr(self, name)
            if type(value) is not bool:
                raise ConfigError(f"{name} is {value!r}, must be True or False", option=name)
        if self.tombstone_policy not in (None, "reject"):
            raise ConfigError(
                f"tombstone_policy is {self.tombstone_policy!r}, must be 'reject' or None", option="tombstone_policy"
            )
        if self.audit_on_reject not in ("best-effort", "require"):
            raise ConfigError(
                f"audit_on_reject is {self.audit_on_reject!r}, must be 'best-effort' or 'require'",
                option="audit_on_reject",
            )
        if self.audit_on_reject == "require" and not self.conflict_ledger:
            raise ConfigError(
                "audit_on_reject='require' needs conflict_ledger=True: there is nothing to record a refusal in",
                option="audit_on_reject",
            )
