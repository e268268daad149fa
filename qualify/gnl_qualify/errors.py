"""Every error of the exam room, derived from the runtime's tree.

GnlError
└── ConfigError
    ├── PairUnusableError          a pair whose value identifies no job
    ├── CalibrationSetError        a set that lacks a label, so that nothing can be compared
    ├── OutputPathError            an output that cannot be written; raised before the exam is sat
    ├── ReportInvalidError         a file that is no JSON report of an exam
    └── TranscriptError            a transcript that cannot be read
        └── TranscriptMismatchError    it records another exam than the one asked for
"""

from __future__ import annotations

from gnl_core.errors import ConfigError


class PairUnusableError(ConfigError):
    """A pair whose `a` or `b` identifies no job, so that the runtime would never ask a judge about it."""

    code = "pair_unusable"


class CalibrationSetError(ConfigError):
    """A set that lacks pairs of a label, so that a calibration has nothing to compare."""

    code = "calibration_set_incomplete"


class OutputPathError(ConfigError):
    """An output that cannot be written; raised before the exam is sat."""

    code = "output_unwritable"


class ReportInvalidError(ConfigError):
    """A file that is no JSON report of an exam."""

    code = "report_invalid"


class TranscriptError(ConfigError):
    """A transcript that cannot be read; the message names file and line."""

    code = "transcript_invalid"


class TranscriptMismatchError(TranscriptError):
    """A transcript that records another exam than the one asked for."""

    code = "transcript_mismatch"
