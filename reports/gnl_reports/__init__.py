"""Reports that a person reads: one self-contained HTML file each."""

from gnl_reports.calibration import render_calibration_html
from gnl_reports.calibration_model import CalibrationReport
from gnl_reports.comparison import redacted_comparison, render_comparison_html
from gnl_reports.comparison_model import ComparisonReport, comparison_to_json
from gnl_reports.exam import render_exam_html
from gnl_reports.live import redacted_live, render_live_html
from gnl_reports.model import ExamReport, to_json

__all__ = [
    "CalibrationReport",
    "ComparisonReport",
    "ExamReport",
    "comparison_to_json",
    "redacted_comparison",
    "redacted_live",
    "render_calibration_html",
    "render_comparison_html",
    "render_exam_html",
    "render_live_html",
    "to_json",
]
