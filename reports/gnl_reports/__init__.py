"""Reports that a person reads: one self-contained HTML file each."""

from gnl_reports.exam import render_exam_html
from gnl_reports.model import ExamReport, to_json

__all__ = ["ExamReport", "render_exam_html", "to_json"]
