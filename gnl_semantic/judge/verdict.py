"""The three words a judge may say, and the parser that accepts nothing else."""

from __future__ import annotations

from enum import StrEnum

PARSER_VERSION = "1"


class Verdict(StrEnum):
    """A judge's answer. `SAME` buys one question to a person; the other two buy nothing."""

    SAME = "same"
    DIFFERENT = "different"
    UNSURE = "unsure"


def parse_verdict(answer: str) -> Verdict | None:
    r"""Return the verdict of a whole answer, or None when it is anything but one of the three words.

    Only surrounding white space and letter case are forgiven: 'SAME.' or 'Answer: SAME' is no verdict.

    >>> parse_verdict(" same\n")
    <Verdict.SAME: 'same'>
    """
    word = answer.strip().upper()
    return next((verdict for verdict in Verdict if verdict.name == word), None)
