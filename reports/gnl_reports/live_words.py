"""What the counts of live questions come to in words; the page and the terminal say the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gnl_semantic.telemetry import Telemetry

GRAY_IS = (
    "The unit is the call: one call can leave several gray candidates, and a judge speaks at most once a call. So this "
    "many calls of a judge would have been bought in this time, less what a cache of verdicts saves."
)
TRAPS = (
    "Dropped by identity is no second quote: it counts the same candidates from the other side, so adding the two "
    "counts them twice.",
    "Its meaning shifts when rules go on: what a rule holds apart moves to dropped by a rule, so the same traffic "
    "reports a smaller number afterwards, and counts from before and after cannot be compared.",
)
SUSPECTS = (
    "A ranking of suspects, not a verdict: a repeat that somebody approved on purpose lands in the same column. "
    "Questions that all rest on the same one or two fields usually mean that the call never carried what tells the "
    "jobs apart: that is mended in the tool's arguments first, and in its semantic_identity after that."
)
CONFIRM = (
    "Questions of tools that ask before every call, and of a caller's guard, would have been asked anyway: a person "
    "may refuse such a call for any reason, so their rate says less about the finding than the gates' own."
)
NOTED = (
    "Noted: incidents that no question came of, such as candidates that were dropped or left gray, a judge's answer "
    "that asks nobody, or a trouble; the call went on."
)


@dataclass(frozen=True, slots=True)
class Headline:
    """What stands first.

    Attributes:
        title: One line.
        reason: One sentence with the figures behind it.
        next_steps: What to do about it, a sentence each; may be none.
    """

    title: str
    reason: str
    next_steps: tuple[str, ...]


def headline(told: Telemetry) -> Headline:
    """Return what stands first: a figure, or the reason why there is none yet."""
    decisions, guarded = told.decisions, told.runs.count("guarded")
    if decisions.decided:
        rate = decisions.precision
        title = f"precision@suspend {rate.value:.3f}"
        reason = (
            f"A person refused {rate.k:,} of {rate.n:,} answered {_plural('call', rate.n)} as the same job again, 95 % "
            f"interval [{rate.low:.3f}, {rate.high:.3f}]; {decisions.pending:,} "
            f"{'question waits' if decisions.pending == 1 else 'questions wait'} for an answer."
        )
        return Headline(title, reason, _steps(told))
    if decisions.asked:
        title = f"{decisions.asked:,} {_plural('question', decisions.asked)}, no decision yet"
        reason = "precision@suspend needs answers: the share of answered questions where a person refused the call."
        return Headline(title, reason, ("Answer them with `gnl approvals`, or with decide().", *_steps(told)))
    if told.configured:
        title = "No questions yet"
        reason = (
            f"{told.runs.with_gate:,} of {told.runs.runs:,} {_plural('run', told.runs.runs)} began with a semantic "
            f"gate, which looked at {guarded:,} guarded {_plural('call', guarded)} and found nothing to ask about."
        )
        return Headline(title, reason, _steps(told))
    if told.runs.runs:
        title = "The semantic gate was never configured"
        reason = f"None of the {told.runs.runs:,} {_plural('run', told.runs.runs)} read here began with one."
        step = (
            "Drive runs with RunLimits(side_effect_duplicates=Duplicates(action='suspend', scope='thread', "
            "semantic=SemanticGate(…))) and a thread_id, and declare a semantic_identity on the tools that act."
        )
        return Headline(title, reason, (step,))
    where = "in this time" if told.since is not None else "in this journal"
    org = f" of the organisation {told.org}" if told.org else ""
    return Headline("Nothing to show yet", f"There are no runs{org} {where}.", ())


def _steps(told: Telemetry) -> tuple[str, ...]:
    steps: list[str] = []
    settings = told.in_force
    if settings is not None and not settings.rules:
        steps.append(
            "The rules are off: every candidate whose identity differs stays gray. Turn them on before a judge "
            "is bought."
        )
    elif settings is not None and not settings.judge:
        gray = told.scan.gray_calls
        steps.append(
            f"Rules are on and no judge is: the quote for one is {gray:,} gray {_plural('call', gray)} in this time. "
            "Read that first, then decide."
        )
    worst = next((row for row in told.declarations if row.decisions.approved), None)
    if worst is not None:
        steps.append(
            f"{worst.tool} · {', '.join(worst.keys)}: {worst.decisions.approved:,} of {worst.decisions.asked:,} "
            f"{_plural('question', worst.decisions.asked)} ran anyway."
        )
    if told.trouble.any:
        steps.append("At times the layer looked at nothing: see the troubles.")
    return tuple(steps)


def _plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def moment(milliseconds: int) -> str:
    """Return a time of the store's clock as 'YYYY-MM-DD HH:MM UTC'; one beyond the calendar as its number."""
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return f"{at:%Y-%m-%d %H:%M} UTC"


def period(told: Telemetry) -> str:
    """Return what time the counts cover."""
    return f"{'from the beginning' if told.since is None else f'from {moment(told.since)}'} to {moment(told.now)}"
