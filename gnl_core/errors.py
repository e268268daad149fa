"""Every error of the runtime: one tree, each leaf with a stable code.

    GnlError
    ├── ConfigError                      what was asked for cannot work; nothing has been done
    │   ├── IdentityDeclarationError     a SemanticIdentity that can identify nothing
    │   ├── MissingExtraError            an optional dependency is not installed
    │   ├── ToolDeclarationError         a tool whose declaration cannot be used
    │   ├── ModelSpecError               a model name that resolves to no model
    │   ├── IdInvalidError               an id that may not become part of a key
    │   └── SyncInsideLoopError          a `_sync` function was called inside a running event loop
    ├── NotCanonicalError                a value that has no canonical JSON form
    ├── RefusedError                     not now, or not so; nothing has been done by this call
    │   ├── RunBusyError                 somebody else is driving this run
    │   ├── RunDrivenError               what was to be erased is being worked on
    │   ├── RunFencedError               this worker lost the run to another one
    │   ├── RunNotFoundError             no such run
    │   ├── RunExistsError               the id of a fork is taken
    │   ├── ChildRunError                a sub-agent's run is driven through its root
    │   ├── RunOwnerMismatchError        the run belongs to another person
    │   ├── RunAgentMismatchError        the run is another agent's
    │   ├── RunThreadMismatchError       the run belongs to another conversation
    │   ├── ThreadOwnerMismatchError     the conversation belongs to another person
    │   ├── RunActorMismatchError        the run is bound to another actor
    │   ├── RunInputMismatchError        the run began with other content
    │   ├── RunSweptError                the run was removed by a retention sweep
    │   ├── NotAnAgentRunError           a workflow's run, or a batch's item, at an agent's door
    │   ├── BatchPlanMismatchError       a batch other than the one whose plan was looked at
    │   ├── CanceledError                the run was canceled
    │   ├── CompensatedRunError          the run is being undone, so nothing new starts in it
    │   ├── RolloverRefusedError         what a run did is not settled, so its work is not begun anew
    │   ├── RunFollowedError             the work of the run was begun anew under another id
    │   ├── ForkRefusedError             a call in doubt, or none to fork at
    │   ├── IdempotencyOwnerMismatchError  the recorded work belongs to another person
    │   ├── ApprovalRequiredError        the call waits for a person (loops of one's own)
    │   ├── UnknownQuestionError         an answer to a question that is not open
    │   ├── AlreadyDecidedError          the question has another answer already
    │   ├── GuardFailedError             the guard raised, so the call was not run
    │   ├── DivergenceError              strict replay met another request than was recorded
    │   └── LimitError
    │       ├── RunLimitExceededError    tokens, cost or calls
    │       ├── ToolLoopDetectedError    one call repeated
    │       ├── TaintedSideEffectError   a side effect after untrusted content
    │       ├── DuplicateSideEffectError a side effect that was done before
    │       └── RetryLimitExceededError  a call began as often as it may
    ├── DoubtError                       an effect may have happened
    │   ├── SideEffectRetryBlockedError  a call began and nobody knows how it ended
    │   ├── StepRetryBlockedError        a workflow's step began and nobody knows how it ended
    │   ├── StepTimeoutError             a model step or a tool took too long
    │   ├── EffectNotRecordedError       the effect happened; its record could not be written
    │   └── ResultNotRepresentableError  the effect happened; its result cannot be stored
    ├── ModelError                       the model's provider did not answer as it should
    │   ├── ModelRateLimitedError
    │   ├── ModelUnauthorizedError
    │   ├── ModelUnavailableError
    │   ├── ModelTimeoutError
    │   └── ModelResponseError           an answer that is cut off or cannot be read
    ├── JournalError                     the store
    │   ├── StoreBusyError               locked for longer than the store waits
    │   ├── StoreUnavailableError        nothing happened
    │   ├── StoreUnknownError            the write may or may not have happened
    │   ├── StoreCorruptError            a row that cannot be read
    │   ├── JournalFormatError           a record of a newer release
    │   └── JournalGapError              a record is missing between others
    └── ToolError                        what a model is told, and what a recorded failure comes back as
        ├── ToolArgumentsError           arguments that do not fit the tool's schema
        └── NotPerformedError            raised by a tool to say: nothing has happened

Codes are API: they are pinned by a test and never change their meaning. A message says what is wrong, where, and the
way out. The packages above this one derive their own errors from `GnlError` (or `ConfigError`) in their `errors.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from gnl_core.approvals import Interrupt


class GnlError(Exception):
    """Base of all errors of this distribution.

    Attributes:
        code: Stable, lower-case, snake-case name of the error.
        http_status: The status a server in front of the runtime would answer with.
        resumable: Whether the same call may be made again without a change, once the cause has passed.
        detail: Facts for programs, JSON-representable; names and numbers, never contents of a caller's data.
    """

    code: ClassVar[str] = "gnl_error"
    http_status: ClassVar[int] = 500
    resumable: ClassVar[bool] = False

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(message)
        self.detail: dict[str, object] = detail


def describe(error: BaseException) -> tuple[str, str]:
    """Return (code, message) of any exception: of a foreign one its class, and of one that cannot be worded nothing."""
    try:
        message = str(error)
    except Exception as unworded:
        message = f"(its text cannot be had: {type(unworded).__name__})"
    return (error.code if isinstance(error, GnlError) else type(error).__name__), message


# What was asked for cannot work ------------------------------------------------------------------------------------


class ConfigError(GnlError):
    """What was asked for cannot work; raised before anything is done."""

    code = "config_invalid"
    http_status = 400


class IdentityDeclarationError(ConfigError):
    """A `SemanticIdentity` whose declaration can identify no call at all."""

    code = "identity_declaration_invalid"


class MissingExtraError(ConfigError, ImportError):
    """An optional dependency is not installed; the message names the pip command that brings it."""

    code = "missing_extra"

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the extra [{extra}]: pip install 'gnl-semantic[{extra}]'", feature=feature, extra=extra
        )


class ToolDeclarationError(ConfigError):
    """A tool that cannot be offered to a model as it is declared: its name, its hints, or its options."""

    code = "tool_declaration_invalid"


class ModelSpecError(ConfigError):
    """A model name of the form 'provider/model' that is malformed or names an unknown provider."""

    code = "model_spec_invalid"


class IdInvalidError(ConfigError):
    """A run, thread, resource or tool id that may not become part of a journal key."""

    code = "id_invalid"


class SyncInsideLoopError(ConfigError):
    """A `_sync` function was called where an event loop runs; await its async twin there."""

    code = "sync_inside_loop"


class NotCanonicalError(GnlError, ValueError):
    """A value that has no canonical JSON form; the message names its path."""

    code = "not_canonical"
    http_status = 422


# Refused: nothing has been done by this call -----------------------------------------------------------------------


class RefusedError(GnlError):
    """Not now, or not so; nothing has been done by this call.

    Attributes:
        interrupts: Questions of the same step that wait for a person; they are recorded and can be answered.
    """

    code = "refused"
    http_status = 409

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(message, **detail)
        self.interrupts: Sequence[Interrupt] = ()


class RunBusyError(RefusedError):
    """Somebody else is driving this run, or executing this very call.

    Attributes:
        retry_after: Seconds until the other's claim ends at the latest, at least 1.
    """

    code = "run_busy"
    resumable = True

    def __init__(self, message: str, *, retry_after: int, **detail: object) -> None:
        super().__init__(message, retry_after=retry_after, **detail)
        self.retry_after = retry_after


class RunDrivenError(RefusedError):
    """What was to be erased is being worked on; `detail` names the runs, or the key of the claim."""

    code = "run_driven"
    resumable = True


class RunFencedError(RefusedError):
    """This worker lost the run to another one, which took it for dead; it writes nothing more."""

    code = "run_fenced"
    resumable = True


class RunNotFoundError(RefusedError):
    """No run of this id in this journal."""

    code = "run_not_found"
    http_status = 404


class RunExistsError(RefusedError):
    """A fork's new id names a run that exists."""

    code = "run_exists"


class ChildRunError(RefusedError):
    """A sub-agent's run was addressed by its own id; drive the root run named in the message."""

    code = "child_run"


class RunOwnerMismatchError(RefusedError):
    """The run belongs to another person than the call names; neither is named."""

    code = "run_owner_mismatch"


class RunAgentMismatchError(RefusedError):
    """The run was begun by another agent than the call names."""

    code = "run_agent_mismatch"


class RunThreadMismatchError(RefusedError):
    """The run belongs to another conversation than the call names."""

    code = "run_thread_mismatch"


class ThreadOwnerMismatchError(RefusedError):
    """The conversation belongs to another person than the run is for; neither is named."""

    code = "thread_owner_mismatch"


class RunActorMismatchError(RefusedError):
    """The run is bound to its first actor, and the call names another."""

    code = "run_actor_mismatch"


class RunInputMismatchError(RefusedError):
    """The run began with other content than was passed now: one name, one request."""

    code = "run_input_mismatch"


class RunSweptError(RefusedError):
    """The run was here and a retention sweep removed it; it is not begun again under the same name."""

    code = "run_swept"


class NotAnAgentRunError(RefusedError):
    """The run is a workflow's or an item's of a batch, and was addressed through an agent's door."""

    code = "not_an_agent_run"


class BatchPlanMismatchError(RefusedError):
    """The batch is another one than its plan token was given for: what a person looked at is not what would run."""

    code = "batch_plan_mismatch"


class CanceledError(RefusedError):
    """The run was canceled; what is recorded stays, nothing new starts."""

    code = "run_canceled"


class CompensatedRunError(RefusedError):
    """The effects of the run are being undone, so nothing new starts in it."""

    code = "run_compensated"


class ForkRefusedError(RefusedError):
    """The run cannot be forked there: a call is in doubt at the cut, or the run has no such step."""

    code = "fork_refused"


class RolloverRefusedError(RefusedError):
    """The work is not begun anew: the run waits for a person, has a call in doubt, or is no work of its own.

    `detail` has `why`: 'suspended', 'in_doubt', 'undoing', 'erasing', 'forking', 'item' or 'suffix'.
    """

    code = "rollover_refused"


class RunFollowedError(RefusedError):
    """The work of the run was begun anew as the run that `detail` names `next`, so this one does not go on."""

    code = "run_followed"


class IdempotencyOwnerMismatchError(RefusedError):
    """The work recorded under this key belongs to another person."""

    code = "idempotency_owner_mismatch"


class ApprovalRequiredError(RefusedError):
    """The call waits for a person. Raised by tools that are called outside `run_durable`."""

    code = "approval_required"
    resumable = True


class UnknownQuestionError(RefusedError):
    """An answer to a question that is not open; the message lists the open ones."""

    code = "unknown_question"
    http_status = 404


class AlreadyDecidedError(RefusedError):
    """The question has been answered otherwise; the stored decision is in `detail`."""

    code = "already_decided"


class GuardFailedError(RefusedError):
    """The guard raised or answered nonsense; the call it was asked about was not run."""

    code = "guard_failed"
    http_status = 500
    resumable = True


class DivergenceError(RefusedError):
    """Strict replay met another request, or other arguments, than were recorded."""

    code = "divergence"


class LimitError(RefusedError):
    """A limit of the run stopped it; raise the limit and drive the run again."""

    code = "limit"
    http_status = 422
    resumable = True


class RunLimitExceededError(LimitError):
    """The run used more tokens, money or tool calls than its limits allow."""

    code = "run_limit_exceeded"


class ToolLoopDetectedError(LimitError):
    """One call was repeated more often in a row than the limits allow."""

    code = "tool_loop_detected"


class TaintedSideEffectError(LimitError):
    """A side effect was about to run after untrusted content had entered the run."""

    code = "tainted_side_effect"


class DuplicateSideEffectError(LimitError):
    """A side effect with the arguments of an earlier one; `detail` names both calls."""

    code = "duplicate_side_effect"


class RetryLimitExceededError(LimitError):
    """A call began as often as it may; nothing but a higher limit or a person's own result ends it."""

    code = "retry_limit_exceeded"
    resumable = False


# In doubt: an effect may have happened -----------------------------------------------------------------------------


class DoubtError(GnlError):
    """An effect may have happened.

    Attributes:
        interrupts: The questions that are open because of it, and those of the same step.
    """

    code = "doubt"
    http_status = 409
    resumable = True

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(message, **detail)
        self.interrupts: Sequence[Interrupt] = ()


class SideEffectRetryBlockedError(DoubtError):
    """A side-effect call began and nobody knows how it ended; it is neither repeated nor skipped on a guess."""

    code = "side_effect_retry_blocked"


class StepRetryBlockedError(DoubtError):
    """A step of a workflow began and nobody knows how it ended; `detail` says whether it is still executing."""

    code = "step_retry_blocked"


class StepTimeoutError(DoubtError):
    """A model step or a tool took longer than it may. A side effect may still land: its call is in doubt."""

    code = "step_timeout"
    http_status = 504


class EffectNotRecordedError(DoubtError):
    """The effect happened, and the store did not take its record.

    Attributes:
        output: What the tool returned: keep it, it is the only copy.
    """

    code = "effect_not_recorded"
    http_status = 500

    def __init__(self, message: str, *, output: object, **detail: object) -> None:
        super().__init__(message, **detail)
        self.output = output


class ResultNotRepresentableError(DoubtError):
    """The effect happened and is recorded as done; what the tool returned cannot be stored.

    Attributes:
        output: What the tool returned.
    """

    code = "result_not_representable"
    http_status = 500

    def __init__(self, message: str, *, output: object, **detail: object) -> None:
        super().__init__(message, **detail)
        self.output = output


# The model's provider ----------------------------------------------------------------------------------------------


class ModelError(GnlError):
    """The model's provider did not answer as it should; the step is not recorded and may be tried again.

    Attributes:
        retry_after: Seconds the provider asks to wait, where it says so.
    """

    code = "upstream_failed"
    http_status = 502
    resumable = True

    def __init__(self, message: str, *, retry_after: float | None = None, **detail: object) -> None:
        super().__init__(message, **detail)
        self.retry_after = retry_after


class ModelRateLimitedError(ModelError):
    """The provider asks to slow down."""

    code = "upstream_rate_limited"
    http_status = 429


class ModelUnauthorizedError(ModelError):
    """The provider refused the operator's key."""

    code = "upstream_unauthorized"
    resumable = False


class ModelUnavailableError(ModelError):
    """The provider is down, or refused the request."""

    code = "upstream_unavailable"


class ModelTimeoutError(ModelError):
    """The provider did not answer in time."""

    code = "upstream_timeout"
    http_status = 504


class ModelResponseError(ModelError):
    """The provider's answer is cut off or cannot be read; no part of it is taken for an answer."""

    code = "upstream_response_invalid"


# The store ---------------------------------------------------------------------------------------------------------


class JournalError(GnlError):
    """The journal's store cannot be used as it is."""

    code = "journal_failed"
    http_status = 503


class StoreBusyError(JournalError):
    """The store stayed locked for longer than it is waited for; nothing happened."""

    code = "store_busy"
    resumable = True


class StoreUnavailableError(JournalError):
    """The store cannot be reached or written (no file, disk full, read-only, connection refused); nothing happened."""

    code = "store_unavailable"
    resumable = True


class StoreUnknownError(JournalError):
    """The store broke off while it wrote: the batch may or may not be there. The same batch may be sent again."""

    code = "store_unknown"
    resumable = True


class StoreCorruptError(JournalError):
    """A row of the journal, or its file, cannot be read; the message names the key."""

    code = "store_corrupt"
    http_status = 500


class JournalFormatError(JournalError):
    """A record, or the whole store, was written by a newer release; this one refuses to guess what it means."""

    code = "journal_format"
    http_status = 409


class JournalGapError(JournalError):
    """A record is missing between others of its run; nothing is run in its place."""

    code = "journal_gap"
    http_status = 409


# Tools -------------------------------------------------------------------------------------------------------------


class ToolError(GnlError):
    """A tool's failure, as the model is told of it and as a recorded failure comes back.

    Attributes:
        type: Name of the exception's class when it was raised.
    """

    code = "tool_failed"
    http_status = 502

    def __init__(self, message: str, *, type: str = "ToolError", **detail: object) -> None:  # noqa: A002 - JSON's word
        super().__init__(message, **detail)
        self.type = type


class ToolArgumentsError(ToolError):
    """The model's arguments do not fit the tool's schema; the tool was not called."""

    code = "tool_arguments_invalid"
    http_status = 422


class NotPerformedError(ToolError):
    """Raise this in a tool to say that nothing has happened: the call is then failed, and in no doubt.

    A model is told so, and it stays so for its run. A workflow's step, a batch's item, and a call outside of any run or
    of another run by the same key are tried again, up to the tool's `max_retries`.
    """

    code = "not_performed"
    http_status = 422
