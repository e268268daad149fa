"""The score as text: a table in Markdown, and what stands behind its counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnl_qualify.traffic.score import Score
from gnl_semantic.rate import Rate

CAPTION = (
    "A regression suite: conversations and arguments are written by hand for it, so its rates say what this version "
    "does with them, and nothing of how often a live model repeats itself. They are not to be compared with a run "
    "against a live model."
)
LIVE_CAPTION = (
    "The users' words are the suite's, the arguments are the live model's. Labels say what the user wanted of the "
    "turn, not what the model made of it."
)

_HEAD = (
    "model",
    "rungs on",
    "calls",
    "repeats asked about",
    "by rung",
    "made again",
    "false alarms",
    "executed",
    "gray calls",
    "judge calls per guarded call",
)
_RUNGS = {"exact": "equal arguments", "rules": "+ identity and rules", "judge": "+ judge"}


def render_table(scores: Sequence[Score]) -> str:
    """Return one row a playing, as a table in Markdown; rates with their counts and 95 % Wilson intervals."""
    rows = [_HEAD, tuple("---" for _ in _HEAD), *map(_row, scores)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def render_text(scores: Sequence[Score], *, live: bool = False) -> str:
    """Return the table, its caption, and every call that is a miss, a false alarm or no repeat.

    Args:
        scores: One a playing.
        live: Whether a live model wrote the arguments.
    """
    lines = [LIVE_CAPTION if live else CAPTION, "", render_table(scores), ""]
    for score in scores:
        if (score.conversations, score.refused_calls) != (score.expected, 0):
            lines.append(
                f"{_name(score)}: PARTIAL: {score.conversations} of {score.expected} conversations were played whole; "
                f"{score.turns} turns count, {score.refused_calls} calls fitted no tool and do not."
            )
        lines += [f"{_name(score)}: {what}: {', '.join(names)}" for what, names in _lists(score) if names]
    return "\n".join(lines).rstrip() + "\n"


def _lists(score: Score) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("repeats shown beside other work", score.beside_other),
        *((f"repeats nobody was asked about ({why})", names) for why, names in _missed(score).items()),
        ("an earlier call made again for other work", score.reissued),
        *((f"false alarms ({origin})", names) for origin, names in score.false_alarms.items()),
        ("EXECUTED AS OFTEN AS NOBODY ALLOWED", score.unasked),
    ]


def _missed(score: Score) -> dict[str, tuple[str, ...]]:
    """Return missed repeats by the reason, in order of first appearance."""
    reasons = dict.fromkeys(score.reasons.values())
    return {why: tuple(name for name in score.missed if score.reasons[name] == why) for why in reasons}


def _name(score: Score) -> str:
    return f"{score.model}, {_RUNGS[score.setting]}"


def _row(score: Score) -> tuple[str, ...]:
    return (
        score.model,
        _RUNGS[score.setting],
        str(score.calls),
        _rate(score.repeat_rate),
        _by_rung(score.asked),
        _rate(score.reissued_rate),
        _rate(score.false_alarm_rate)
        + (f"; {_by_rung(score.false_alarms)}" if any(score.false_alarms.values()) else ""),
        str(score.executions),
        f"{score.gray} of {score.guarded}" if score.guarded else "-",
        _rate(score.judge_rate) if score.setting == "judge" else "-",
    )


def _rate(rate: Rate) -> str:
    return f"{rate.k}/{rate.n} [{rate.low:.2f}, {rate.high:.2f}]" if rate.n else "-"


def _by_rung(names: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{origin} {len(found)}" for origin, found in names.items() if found) or "-"
