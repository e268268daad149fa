"""The durable runtime: a completed tool call never runs again, and a call in doubt is settled, never guessed.

Names are loaded when they are first used, so that importing the package stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnl_core.agents import AgentOptions as AgentOptions
    from gnl_core.agents import Gnl as Gnl
    from gnl_core.agents import WorkflowOptions as WorkflowOptions
    from gnl_core.ambient import release_failed_claim as release_failed_claim
    from gnl_core.ambient import with_idempotency as with_idempotency
    from gnl_core.approvals import Answer as Answer
    from gnl_core.approvals import Approval as Approval
    from gnl_core.approvals import Interrupt as Interrupt
    from gnl_core.batch.batch import Batch as Batch
    from gnl_core.batch.batch import create_batch as create_batch
    from gnl_core.batch.plan import BatchPlan as BatchPlan
    from gnl_core.batch.plan import PlanItem as PlanItem
    from gnl_core.batch.report import BatchReport as BatchReport
    from gnl_core.batch.report import BatchView as BatchView
    from gnl_core.batch.report import ItemReport as ItemReport
    from gnl_core.batch.report import read_batch as read_batch
    from gnl_core.canonical import args_hash as args_hash
    from gnl_core.canonical import canonical_json as canonical_json
    from gnl_core.codec import decode as decode
    from gnl_core.codec import encode as encode
    from gnl_core.compensate import compensate_run as compensate_run
    from gnl_core.composable import DurableContext as DurableContext
    from gnl_core.composable import durable_context as durable_context
    from gnl_core.composable import durable_tools as durable_tools
    from gnl_core.composable import with_durable_model as with_durable_model
    from gnl_core.context import Context as Context
    from gnl_core.context import current_context as current_context
    from gnl_core.decisions import decide as decide
    from gnl_core.decisions import list_interrupts as list_interrupts
    from gnl_core.erasure import Purged as Purged
    from gnl_core.erasure import purge_cross_run as purge_cross_run
    from gnl_core.erasure import purge_organization as purge_organization
    from gnl_core.erasure import purge_run as purge_run
    from gnl_core.erasure import purge_thread as purge_thread
    from gnl_core.erasure_batch import purge_batch as purge_batch
    from gnl_core.erasure_person import purge_resource as purge_resource
    from gnl_core.errors import AlreadyDecidedError as AlreadyDecidedError
    from gnl_core.errors import ApprovalRequiredError as ApprovalRequiredError
    from gnl_core.errors import BatchPlanMismatchError as BatchPlanMismatchError
    from gnl_core.errors import CanceledError as CanceledError
    from gnl_core.errors import CompensatedRunError as CompensatedRunError
    from gnl_core.errors import ConfigError as ConfigError
    from gnl_core.errors import DivergenceError as DivergenceError
    from gnl_core.errors import DoubtError as DoubtError
    from gnl_core.errors import EffectNotRecordedError as EffectNotRecordedError
    from gnl_core.errors import GnlError as GnlError
    from gnl_core.errors import IdentityDeclarationError as IdentityDeclarationError
    from gnl_core.errors import JournalError as JournalError
    from gnl_core.errors import MissingExtraError as MissingExtraError
    from gnl_core.errors import ModelError as ModelError
    from gnl_core.errors import NotAnAgentRunError as NotAnAgentRunError
    from gnl_core.errors import NotCanonicalError as NotCanonicalError
    from gnl_core.errors import NotPerformedError as NotPerformedError
    from gnl_core.errors import RefusedError as RefusedError
    from gnl_core.errors import ResultNotRepresentableError as ResultNotRepresentableError
    from gnl_core.errors import RetryLimitExceededError as RetryLimitExceededError
    from gnl_core.errors import RolloverRefusedError as RolloverRefusedError
    from gnl_core.errors import RunActorMismatchError as RunActorMismatchError
    from gnl_core.errors import RunAgentMismatchError as RunAgentMismatchError
    from gnl_core.errors import RunBusyError as RunBusyError
    from gnl_core.errors import RunDrivenError as RunDrivenError
    from gnl_core.errors import RunFollowedError as RunFollowedError
    from gnl_core.errors import RunInputMismatchError as RunInputMismatchError
    from gnl_core.errors import RunLimitExceededError as RunLimitExceededError
    from gnl_core.errors import RunNotFoundError as RunNotFoundError
    from gnl_core.errors import RunOwnerMismatchError as RunOwnerMismatchError
    from gnl_core.errors import RunSweptError as RunSweptError
    from gnl_core.errors import RunThreadMismatchError as RunThreadMismatchError
    from gnl_core.errors import SideEffectRetryBlockedError as SideEffectRetryBlockedError
    from gnl_core.errors import StepRetryBlockedError as StepRetryBlockedError
    from gnl_core.errors import StepTimeoutError as StepTimeoutError
    from gnl_core.errors import TaintedSideEffectError as TaintedSideEffectError
    from gnl_core.errors import ThreadOwnerMismatchError as ThreadOwnerMismatchError
    from gnl_core.errors import ToolArgumentsError as ToolArgumentsError
    from gnl_core.errors import ToolError as ToolError
    from gnl_core.errors import ToolLoopDetectedError as ToolLoopDetectedError
    from gnl_core.errors import UnknownQuestionError as UnknownQuestionError
    from gnl_core.events import Event as Event
    from gnl_core.fork import fork_run as fork_run
    from gnl_core.halt import cancel_run as cancel_run
    from gnl_core.identity import Identity as Identity
    from gnl_core.identity import SemanticIdentity as SemanticIdentity
    from gnl_core.identity import Unusable as Unusable
    from gnl_core.identity import normalize_identity_value as normalize_identity_value
    from gnl_core.incidents import Incident as Incident
    from gnl_core.incidents import read_incidents as read_incidents
    from gnl_core.journal.composite import composite as composite
    from gnl_core.journal.memory import InMemoryStorage as InMemoryStorage
    from gnl_core.journal.postgres import PostgresStorage as PostgresStorage
    from gnl_core.journal.redis import RedisStorage as RedisStorage
    from gnl_core.journal.redis_replicas import WaitReplicas as WaitReplicas
    from gnl_core.journal.sqlite import SqliteStorage as SqliteStorage
    from gnl_core.ledger import LedgerEntry as LedgerEntry
    from gnl_core.ledger import read_idem_ledger as read_idem_ledger
    from gnl_core.limits import LoopDetection as LoopDetection
    from gnl_core.limits import Price as Price
    from gnl_core.limits import RunLimits as RunLimits
    from gnl_core.limits import Timeouts as Timeouts
    from gnl_core.model.messages import Message as Message
    from gnl_core.model.messages import ModelRequest as ModelRequest
    from gnl_core.model.messages import ModelResponse as ModelResponse
    from gnl_core.model.messages import ModelSettings as ModelSettings
    from gnl_core.model.messages import TextPart as TextPart
    from gnl_core.model.messages import ToolSpec as ToolSpec
    from gnl_core.model.messages import Usage as Usage
    from gnl_core.model.port import ChatModel as ChatModel
    from gnl_core.model.router import register_model_provider as register_model_provider
    from gnl_core.model.router import resolve_model as resolve_model
    from gnl_core.opening import open_storage as open_storage
    from gnl_core.policy import Allow as Allow
    from gnl_core.policy import Deny as Deny
    from gnl_core.policy import GuardCall as GuardCall
    from gnl_core.policy import RequireApproval as RequireApproval
    from gnl_core.results import DurableResult as DurableResult
    from gnl_core.results import ReplayedCall as ReplayedCall
    from gnl_core.results import Step as Step
    from gnl_core.results import ToolOutcome as ToolOutcome
    from gnl_core.retention import SweptRuns as SweptRuns
    from gnl_core.retention import sweep_runs as sweep_runs
    from gnl_core.retention_threads import SweptLog as SweptLog
    from gnl_core.retention_threads import SweptThreads as SweptThreads
    from gnl_core.retention_threads import ThreadState as ThreadState
    from gnl_core.retention_threads import list_orphan_thread_state as list_orphan_thread_state
    from gnl_core.retention_threads import sweep_log as sweep_log
    from gnl_core.retention_threads import sweep_threads as sweep_threads
    from gnl_core.rollover import rollover_run as rollover_run
    from gnl_core.run import resume_run as resume_run
    from gnl_core.run import run_durable as run_durable
    from gnl_core.stream import DurableStream as DurableStream
    from gnl_core.stream import stream_durable as stream_durable
    from gnl_core.subagent import agent_tool as agent_tool
    from gnl_core.sweeper import RetentionSweeper as RetentionSweeper
    from gnl_core.sweeper import create_retention_sweeper as create_retention_sweeper
    from gnl_core.sync import fork_run_sync as fork_run_sync
    from gnl_core.sync import resume_run_sync as resume_run_sync
    from gnl_core.sync import rollover_run_sync as rollover_run_sync
    from gnl_core.sync import run_durable_sync as run_durable_sync
    from gnl_core.sync import stream_durable_sync as stream_durable_sync
    from gnl_core.tools import Tool as Tool
    from gnl_core.tools import tool as tool
    from gnl_core.views import RunSummary as RunSummary
    from gnl_core.views import RunView as RunView
    from gnl_core.views import count_runs_by_status as count_runs_by_status
    from gnl_core.views import list_runs as list_runs
    from gnl_core.views import read_run as read_run
    from gnl_core.work import derived_run_id as derived_run_id
    from gnl_core.workflow.flow import Flow as Flow
    from gnl_core.workflow.results import StepOutcome as StepOutcome
    from gnl_core.workflow.results import Wait as Wait
    from gnl_core.workflow.results import WorkflowResult as WorkflowResult
    from gnl_core.workflow.run import run_workflow as run_workflow
    from gnl_core.workflow.run import run_workflow_sync as run_workflow_sync
    from gnl_core.workflow.sending import send_to_workflow as send_to_workflow
    from gnl_core.workflow.sending import send_to_workflow_sync as send_to_workflow_sync

_HOMES = {
    "gnl_core.agents": ("AgentOptions", "Gnl", "WorkflowOptions"),
    "gnl_core.ambient": ("release_failed_claim", "with_idempotency"),
    "gnl_core.approvals": ("Answer", "Approval", "Interrupt"),
    "gnl_core.batch.batch": ("Batch", "create_batch"),
    "gnl_core.batch.plan": ("BatchPlan", "PlanItem"),
    "gnl_core.batch.report": ("BatchReport", "BatchView", "ItemReport", "read_batch"),
    "gnl_core.canonical": ("args_hash", "canonical_json"),
    "gnl_core.codec": ("decode", "encode"),
    "gnl_core.compensate": ("compensate_run",),
    "gnl_core.composable": ("DurableContext", "durable_context", "durable_tools", "with_durable_model"),
    "gnl_core.context": ("Context", "current_context"),
    "gnl_core.decisions": ("decide", "list_interrupts"),
    "gnl_core.erasure": ("Purged", "purge_cross_run", "purge_organization", "purge_run", "purge_thread"),
    "gnl_core.erasure_batch": ("purge_batch",),
    "gnl_core.erasure_person": ("purge_resource",),
    "gnl_core.errors": (
        "AlreadyDecidedError",
        "ApprovalRequiredError",
        "CanceledError",
        "CompensatedRunError",
        "ConfigError",
        "DivergenceError",
        "DoubtError",
        "DuplicateSideEffectError",
        "EffectNotRecordedError",
        "GnlError",
        "IdentityDeclarationError",
        "JournalError",
        "MissingExtraError",
        "ModelError",
        "NotCanonicalError",
        "NotPerformedError",
        "RefusedError",
        "ResultNotRepresentableError",
        "RetryLimitExceededError",
        "RolloverRefusedError",
        "RunFollowedError",
        "RunActorMismatchError",
        "RunAgentMismatchError",
        "RunBusyError",
        "RunDrivenError",
        "RunInputMismatchError",
        "RunLimitExceededError",
        "RunNotFoundError",
        "RunOwnerMismatchError",
        "RunSweptError",
        "RunThreadMismatchError",
        "SideEffectRetryBlockedError",
        "StepTimeoutError",
        "TaintedSideEffectError",
        "ToolArgumentsError",
        "ToolError",
        "ToolLoopDetectedError",
        "UnknownQuestionError",
        "BatchPlanMismatchError",
        "ThreadOwnerMismatchError",
        "StepRetryBlockedError",
        "NotAnAgentRunError",
    ),
    "gnl_core.duplicates": ("Duplicates", "DuplicatesByClass"),
    "gnl_core.events": ("Event",),
    "gnl_core.fork": ("fork_run",),
    "gnl_core.halt": ("cancel_run",),
    "gnl_core.identity": ("Identity", "SemanticIdentity", "Unusable", "normalize_identity_value"),
    "gnl_core.incidents": ("Incident", "read_incidents"),
    "gnl_core.journal.composite": ("composite",),
    "gnl_core.journal.memory": ("InMemoryStorage",),
    "gnl_core.journal.redis": ("RedisStorage",),
    "gnl_core.journal.redis_replicas": ("WaitReplicas",),
    "gnl_core.journal.postgres": ("PostgresStorage",),
    "gnl_core.journal.sqlite": ("SqliteStorage",),
    "gnl_core.ledger": ("LedgerEntry", "read_idem_ledger"),
    "gnl_core.limits": ("LoopDetection", "Price", "RunLimits", "Timeouts"),
    "gnl_core.model.messages": (
        "Message",
        "ModelRequest",
        "ModelResponse",
        "ModelSettings",
        "TextPart",
        "ToolSpec",
        "Usage",
    ),
    "gnl_core.model.port": ("ChatModel",),
    "gnl_core.model.router": ("register_model_provider", "resolve_model"),
    "gnl_core.opening": ("open_storage",),
    "gnl_core.policy": ("Allow", "Deny", "GuardCall", "RequireApproval"),
    "gnl_core.results": ("DurableResult", "ReplayedCall", "Step", "ToolOutcome"),
    "gnl_core.retention": ("SweptRuns", "sweep_runs"),
    "gnl_core.retention_threads": (
        "SweptLog",
        "SweptThreads",
        "ThreadState",
        "list_orphan_thread_state",
        "sweep_log",
        "sweep_threads",
    ),
    "gnl_core.rollover": ("rollover_run",),
    "gnl_core.run": ("resume_run", "run_durable"),
    "gnl_core.stream": ("DurableStream", "stream_durable"),
    "gnl_core.subagent": ("agent_tool",),
    "gnl_core.sweeper": ("RetentionSweeper", "create_retention_sweeper"),
    "gnl_core.sync": (
        "fork_run_sync",
        "resume_run_sync",
        "rollover_run_sync",
        "run_durable_sync",
        "stream_durable_sync",
    ),
    "gnl_core.tools": ("Tool", "tool"),
    "gnl_core.views": ("RunSummary", "RunView", "count_runs_by_status", "list_runs", "read_run"),
    "gnl_core.work": ("derived_run_id",),
    "gnl_core.workflow.flow": ("Flow",),
    "gnl_core.workflow.results": ("StepOutcome", "Wait", "WorkflowResult"),
    "gnl_core.workflow.run": ("run_workflow", "run_workflow_sync"),
    "gnl_core.workflow.sending": ("send_to_workflow", "send_to_workflow_sync"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - computed from the one table above


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'gnl_core' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
