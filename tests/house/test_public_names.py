"""The public names of the runtime are a promise: they change only by addition, and each can be imported first."""

import subprocess
import sys

import pytest

import gnl_core
import gnl_core.testing

NAMES = [
    "AgentOptions",
    "Gnl",
    "LedgerEntry",
    "read_idem_ledger",
    "RunActorMismatchError",
    "RunAgentMismatchError",
    "RunInputMismatchError",
    "RunOwnerMismatchError",
    "RunSweptError",
    "RunThreadMismatchError",
    "Purged",
    "RetentionSweeper",
    "RunDrivenError",
    "SweptLog",
    "SweptRuns",
    "SweptThreads",
    "ThreadState",
    "create_retention_sweeper",
    "list_orphan_thread_state",
    "purge_cross_run",
    "purge_organization",
    "purge_resource",
    "purge_run",
    "purge_thread",
    "sweep_log",
    "sweep_runs",
    "sweep_threads",
    "ToolSpec",
    "ModelResponse",
    "ModelRequest",
    "read_run",
    "list_runs",
    "open_storage",
    "count_runs_by_status",
    "RunView",
    "RunSummary",
    "Allow",
    "AlreadyDecidedError",
    "Answer",
    "Approval",
    "ApprovalRequiredError",
    "CanceledError",
    "ChatModel",
    "CompensatedRunError",
    "ConfigError",
    "Context",
    "Deny",
    "DivergenceError",
    "DoubtError",
    "DuplicateSideEffectError",
    "Duplicates",
    "DuplicatesByClass",
    "DurableContext",
    "DurableResult",
    "DurableStream",
    "EffectNotRecordedError",
    "Event",
    "GnlError",
    "GuardCall",
    "Identity",
    "IdentityDeclarationError",
    "InMemoryStorage",
    "Incident",
    "Interrupt",
    "JournalError",
    "LoopDetection",
    "Message",
    "MissingExtraError",
    "ModelError",
    "ModelSettings",
    "NotCanonicalError",
    "NotPerformedError",
    "PostgresStorage",
    "Price",
    "RedisStorage",
    "RefusedError",
    "ReplayedCall",
    "RequireApproval",
    "ResultNotRepresentableError",
    "RetryLimitExceededError",
    "RunBusyError",
    "RunLimitExceededError",
    "RunLimits",
    "RunNotFoundError",
    "SemanticIdentity",
    "SideEffectRetryBlockedError",
    "ThreadOwnerMismatchError",
    "StepRetryBlockedError",
    "NotAnAgentRunError",
    "BatchPlanMismatchError",
    "SqliteStorage",
    "Step",
    "StepTimeoutError",
    "TaintedSideEffectError",
    "TextPart",
    "Timeouts",
    "Tool",
    "ToolArgumentsError",
    "ToolError",
    "ToolLoopDetectedError",
    "ToolOutcome",
    "UnknownQuestionError",
    "Unusable",
    "Usage",
    "WaitReplicas",
    "agent_tool",
    "args_hash",
    "cancel_run",
    "canonical_json",
    "compensate_run",
    "composite",
    "current_context",
    "decide",
    "decode",
    "derived_run_id",
    "durable_context",
    "durable_tools",
    "encode",
    "fork_run",
    "rollover_run",
    "rollover_run_sync",
    "RolloverRefusedError",
    "RunFollowedError",
    "fork_run_sync",
    "list_interrupts",
    "normalize_identity_value",
    "read_incidents",
    "register_model_provider",
    "release_failed_claim",
    "resolve_model",
    "resume_run",
    "resume_run_sync",
    "run_durable",
    "run_durable_sync",
    "stream_durable",
    "stream_durable_sync",
    "tool",
    "with_durable_model",
    "with_idempotency",
]
TESTING = [
    "Call",
    "CrashReport",
    "EffectLog",
    "Fault",
    "FaultyJournal",
    "JournalConformance",
    "PointResult",
    "RaiseOnce",
    "ScriptedModel",
    "by_witness",
    "crashtest",
    "nobody",
    "nobody_in_doubt",
    "raise_once",
    "refuse",
]


def test_the_names_are_pinned():
    assert gnl_core.__all__ == sorted(NAMES)
    assert gnl_core.testing.__all__ == sorted(TESTING)


@pytest.mark.parametrize("package", ["gnl_core", "gnl_core.testing"])
def test_each_home_can_be_imported_first(package):
    """A circle of imports shows only in the process that enters it at the wrong place."""
    homes = sys.modules[package]._HOMES
    started = {
        home: subprocess.Popen(
            [sys.executable, "-c", f"from {package} import {names[0]}"], stderr=subprocess.PIPE, text=True
        )
        for home, names in homes.items()
    }
    failed = {home: done.communicate()[1] for home, done in started.items()}
    assert {home: text for home, text in failed.items() if text} == {}


def test_a_name_that_is_none_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        gnl_core.no_such_name  # noqa: B018
