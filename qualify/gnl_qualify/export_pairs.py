"""From answered questions to pairs in the fixtures' form: what people said of live traffic, as far as they said it.

Only what a describe(), or the identity fields, made of a call leaves the journal this way: never its arguments.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gnl_core.identity import normalize_identity_value
from gnl_fixtures import SAME_JOB, Draft, Label
from gnl_fixtures.loader import FORMAT_VERSION, MAX_TEXT, parse_drafts
from gnl_semantic.telemetry import Asked

NO_ANSWER = "nobody has answered the question"
EQUAL_ARGUMENTS = "found by equal arguments, which teach a judge nothing"
EQUAL_TEXTS = "the two texts are equal, so they do not hold what tells the jobs apart, or together"
NO_TEXT = "the question's row shows no two texts"
UNFIT = "a text or name does not fit the fixtures' form"
AGAIN = "the same two texts stand in an earlier pair"

SOURCE = "questions that people answered, from a journal"
"""What an export says of itself, and is known by."""
BOTH_WAYS = "people called it one job in one question and two in another; look at both texts and write a label"
"""Note of a pair that was answered both ways."""

_MOST_NAME = 200
_WHO = {"gate": "asked by a gate", "confirm": "asked by the tool itself", "guard": "asked by a guard"}


@dataclass(frozen=True, slots=True)
class Exported:
    """What questions came to.

    Attributes:
        pairs: Oldest first; the label is None where people did not say it.
        left_out: Questions that became no pair, by reason.
    """

    pairs: tuple[Draft, ...]
    left_out: Mapping[str, int]

    @property
    def unlabelled(self) -> int:
        """Pairs that need a label before an exam takes them."""
        return sum(pair.label is None for pair in self.pairs)

    def to_text(self) -> str:
        """Return the fixtures file. What it holds has been read back by the fixtures' own loader.

        Raises:
            FixtureError: There are no pairs.
        """
        pairs = [
            {
                "id": pair.id,
                "domain": pair.domain,
                "lang": pair.lang,
                "tool_name": pair.tool_name,
                "a": pair.a,
                "b": pair.b,
                "label": pair.label,
                **({"phenomena": list(pair.phenomena)} if pair.phenomena else {}),
                "note": pair.note,
            }
            for pair in self.pairs
        ]
        content = {"v": FORMAT_VERSION, "source": SOURCE, "pairs": pairs}
        # In ASCII: what a record holds, half a character for instance, cannot make the file another one.
        text = json.dumps(content, indent=1) + "\n"
        parse_drafts(text.encode(), "the export")
        return text


class Exporter:
    """Collects pairs, one question at a time."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, frozenset[str]], Draft] = {}
        self._left_out: Counter[str] = Counter()

    def add(self, asked: Asked) -> None:
        """Take in one question."""
        reason = self._take(asked)
        if reason:
            self._left_out[reason] += 1

    def done(self) -> Exported:
        """Return what was collected."""
        return Exported(tuple(self._pairs.values()), dict(self._left_out))

    def _take(self, asked: Asked) -> str:
        """Add the question's pair; return why there is none, or ''."""
        if asked.origin == "exact":
            return EQUAL_ARGUMENTS
        if asked.decision == "pending":
            return NO_ANSWER
        a, b = (_bare(text, asked.tool) for text in (asked.sentence, asked.present))
        if not a or not b:
            return NO_TEXT
        if not all(map(_fits, (a, b))) or not _fits(asked.tool, _MOST_NAME) or not asked.tool:
            return UNFIT
        if normalize_identity_value(a) == normalize_identity_value(b):
            return EQUAL_TEXTS
        draft = Draft(
            id=f"live-{hashlib.sha256(asked.question.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}",
            domain=asked.tool,
            lang="und",
            tool_name=asked.tool,
            a=a,
            b=b,
            label=_label(asked),
            note=_note(asked),
        )
        place = (asked.tool, frozenset((a, b)))
        known = self._pairs.setdefault(place, draft)
        if known is draft:
            return ""
        self._pairs[place] = _merged(known, draft)
        return AGAIN


def _merged(known: Draft, other: Draft) -> Draft:
    """Return one pair for two questions about the same texts."""
    if other.label is None or known.note == BOTH_WAYS:
        return known
    if known.label is None:
        return replace(known, label=other.label, note=other.note)
    if (known.label in SAME_JOB) != (other.label in SAME_JOB):
        return replace(known, label=None, note=BOTH_WAYS)
    return known


def _label(asked: Asked) -> Label | None:
    """Return what a person said of a pair, None where they did not say it."""
    match asked.decision, asked.relation:
        case "approved", "different_work":
            return "near-miss"
        case "approved", "deliberate_repeat":
            return "dup-paraphrase"
        case "denied", _ if asked.asked_by == "gate":
            return "dup-paraphrase"
    return None  # a call that would have been asked about anyway may be refused for any reason


def _note(asked: Asked) -> str:
    said = "refused" if asked.decision == "denied" else "approved"
    relation = f", {asked.relation.replace('_', ' ')}" if asked.relation else ""
    return f"{said}{relation}; {_WHO[asked.asked_by]}, found by {asked.origin}; question {asked.question}"


def _bare(text: str, tool: str) -> str:
    """Return a canonical sentence without the tool's name, which a fixture tells in a field of its own."""
    return text.removeprefix(f"{tool}: ").strip()


def _fits(text: str, most: int = MAX_TEXT - 1) -> bool:
    # A text as long as the longest may be the beginning of a longer one.
    if len(text) > most or "\0" in text or "\x01" in text:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in text)
