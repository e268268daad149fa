"""Reports that a person reads: one self-contained HTML file each."""

from gnl_reports.comparison import redacted_comparison, render_comparison_html
from gnl_reports.comparison_model import ComparisonReport, comparison_to_json
from gnl_reports.exam import render_exam_html
from gnl_reports.model import ExamReport, to_json

__all__ = [
    "ComparisonReport",
    "ExamReport",
    "comparison_to_json",
    "redacted_comparison",
    "render_comparison_html",
    "render_exam_html",
    "to_json",
]
