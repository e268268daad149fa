"""Live questions about earlier work, as a journal holds them: counts, shares, and the answered questions themselves."""

from gnl_semantic.telemetry.model import (
    Asked,
    Asker,
    Bucket,
    Decision,
    Decisions,
    DeclarationRow,
    Exact,
    JudgeTally,
    RunFigures,
    Scan,
    Settings,
    ToolRow,
    Trouble,
    Unit,
)
from gnl_semantic.telemetry.questions import Skipped, asked_questions
from gnl_semantic.telemetry.read import Telemetry, read_telemetry

__all__ = [
    "Asked",
    "Asker",
    "Bucket",
    "Decision",
    "Decisions",
    "DeclarationRow",
    "Exact",
    "JudgeTally",
    "RunFigures",
    "Scan",
    "Settings",
    "Skipped",
    "Telemetry",
    "ToolRow",
    "Trouble",
    "Unit",
    "asked_questions",
    "read_telemetry",
]
