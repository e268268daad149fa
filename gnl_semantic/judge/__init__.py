"""Judges: one question, three words, a certificate."""

from gnl_semantic.judge.certificate import (
    MAX_NEAR_MISS_FALSE_ALARMS,
    MIN_ANSWERED,
    MIN_PARAPHRASE_RECALL,
    Certificate,
    check_certificate,
    read_certificate,
    write_certificate,
)
from gnl_semantic.judge.judged import Judged
from gnl_semantic.judge.load import load_judge
from gnl_semantic.judge.prompt import PROMPT_VERSION, PROMPTS, Prompt, parse_rendered
from gnl_semantic.judge.runtime import Judge
from gnl_semantic.judge.transport import JudgeInfo, JudgeTransport, Reply
from gnl_semantic.judge.verdict import PARSER_VERSION, Verdict, parse_verdict

__all__ = [
    "MAX_NEAR_MISS_FALSE_ALARMS",
    "MIN_ANSWERED",
    "MIN_PARAPHRASE_RECALL",
    "PARSER_VERSION",
    "PROMPTS",
    "PROMPT_VERSION",
    "Certificate",
    "Judge",
    "JudgeInfo",
    "JudgeTransport",
    "Judged",
    "Prompt",
    "Reply",
    "Verdict",
    "check_certificate",
    "load_judge",
    "parse_rendered",
    "parse_verdict",
    "read_certificate",
    "write_certificate",
]
