"""Live questions as lines for a terminal, a pipe or a log."""

from __future__ import annotations

from collections.abc import Iterator

from gnl_qualify.terminal import plain
from gnl_reports.live_words import NOTED, TRAPS, headline, moment, period
from gnl_semantic.rate import Rate
from gnl_semantic.telemetry import Decisions, Telemetry

_LISTED = 10
"""Tools and declarations that are listed; the HTML and JSON reports hold all of them."""


def render_live(told: Telemetry) -> str:
    """Return the counts as text without a final line break; every stranger's text in it is harmless."""
    return "\n".join(_lines(told))


def _lines(told: Telemetry) -> Iterator[str]:
    first = headline(told)
    org = f", organisation {plain(told.org)}" if told.org else ""
    yield f"live questions about earlier work, {period(told)}{org}"
    yield ""
    yield plain(first.title)
    yield f"  {plain(first.reason)}"
    for step in first.next_steps:
        yield f"  - {plain(step)}"
    if told.decisions.asked:
        yield ""
        yield from _questions(told)
    if told.declarations:
        yield ""
        yield from _declarations(told)
    yield ""
    yield from _scan(told)
    yield from _judge(told)
    yield from _rest(told)


def _questions(told: Telemetry) -> Iterator[str]:
    rows = (
        ("all questions", told.decisions),
        ("by identity", told.by_origin["identity"]),
        ("  of these, another channel", told.channel),
        ("by a rule", told.by_origin["rule"]),
        ("by a judge", told.by_origin["judge"]),
        ("asked by a gate", told.by_asker["gate"]),
        ("beside a tool's question", told.by_asker["confirm"]),
        ("beside a guard's question", told.by_asker["guard"]),
    )
    for name, one in rows:
        if one.asked:
            yield f"{name:<28}{_decisions(one)}"
    for row in told.tools[:_LISTED]:
        yield f"tool {_short(row.tool)}: {row.suspend} asked, {row.warn} noted; {_rate(row.decisions.precision)}"
    if len(told.tools) > _LISTED:
        yield f"... and {len(told.tools) - _LISTED} more tools"
    if any(row.warn for row in told.tools):
        yield f"  {NOTED}"


def _decisions(one: Decisions) -> str:
    ran = ""
    if one.approved:
        ran = f" (other work {one.different_work}, on purpose {one.deliberate_repeat}, not said {one.unsaid})"
    counts = f"{one.asked} asked: {one.denied} refused, {one.approved} ran anyway{ran}, {one.pending} waiting"
    return f"{counts}; {_rate(one.precision)}"


def _rate(rate: Rate) -> str:
    if rate.value is None:
        return "precision@suspend not measured (0/0)"
    return f"precision@suspend {rate.value:.3f} ({rate.k}/{rate.n}, 95 % [{rate.low:.3f}, {rate.high:.3f}])"


def _declarations(told: Telemetry) -> Iterator[str]:
    yield "declarations whose questions ran anyway most often; suspects, no verdict:"
    for row in told.declarations[:_LISTED]:
        one = row.decisions
        yield (
            f"  {_short(row.tool)} · {_short(', '.join(row.keys))}: {one.approved} of {one.asked} ran anyway, "
            f"{one.denied} refused, {one.pending} waiting"
        )
    if len(told.declarations) > _LISTED:
        yield f"  ... and {len(told.declarations) - _LISTED} more"


def _scan(told: Telemetry) -> Iterator[str]:
    scan, runs = told.scan, told.runs
    gray = runs.share("gray")
    yield (
        f"gray calls, the quote for a judge: {scan.gray_calls} that nothing was asked about; of the guarded calls "
        f"{gray} were gray, those that a judge had a question asked about included"
    )
    yield (
        f"candidates dropped: by identity {scan.dropped_identity}, by a rule {scan.dropped_by_rule}, by a "
        f"discriminator {scan.dropped_discriminator}, under another embedder {scan.dropped_stamp}"
    )
    if scan.dropped_identity:
        yield from (f"  {trap}" for trap in TRAPS)


def _judge(told: Telemetry) -> Iterator[str]:
    judge, runs = told.judge, told.runs
    if judge.asked:
        skipped = ", ".join(f"{_short(cause)} {number}" for cause, number in judge.skipped.items())
        yield (
            f"judge: same {judge.same}, different {judge.different}, unsure {judge.unsure} of {judge.verdicts} "
            f"verdicts ({judge.cached} cached, {judge.stale_replaced} stale ones asked anew); no verdict: "
            f"{skipped or 'none'}"
        )
    if judge.latency_p50 is not None and judge.latency_p95 is not None:
        yield f"judge's calls: median {judge.latency_p50:g} ms, p95 {judge.latency_p95:g} ms, over {judge.timed} calls"
    yield (
        f"guarded calls {runs.count('guarded')} in {runs.with_gate} of {runs.runs} runs with a gate; embeddings "
        f"{runs.count('embedded')} and {runs.count('embed_hits')} cached; calls of the judge {runs.share('judged')}"
    )


def _rest(told: Telemetry) -> Iterator[str]:
    if told.exact.by_action:
        actions = ", ".join(f"{_short(action)} {number}" for action, number in told.exact.by_action.items())
        yield f"equal arguments, no part of precision@suspend: {actions}"
    trouble = told.trouble
    if trouble.any:
        named = {**trouble.unusable, **trouble.build_failed}
        identities = ", ".join(f"{_short(name)} ({number})" for name, number in list(named.items())[:_LISTED])
        yield (
            f"troubles: embedder outages {trouble.embedder_outages}, calls not looked at {trouble.no_scan}, identities "
            f"that could not be used: {identities or 'none'}; the newest {moment(trouble.recent[0][0])}"
        )
    if told.unreadable:
        yield f"unreadable rows, left out: {told.unreadable}; run `gnl doctor`"
    if told.gone:
        yield f"incidents of deleted runs, left out: {told.gone}"
    settings = told.in_force
    if settings is not None:
        others = told.runs.with_gate - settings.runs
        yield (
            f"settings in force: embedder {_short(str(settings.settings.get('embed_model_id', '?')))}, rules "
            f"{'on' if settings.rules else 'off'}, judge {_judge_name(settings.settings.get('judge'))}"
            + (f"; {others} of {told.runs.with_gate} runs began with others" if others else "")
        )


def _judge_name(value: object) -> str:
    if value is None:
        return "none"
    name = value.get("model_id") if isinstance(value, dict) else None
    return _short(name) if isinstance(name, str) else "?"


def _short(text: str) -> str:
    text = plain(text[:101])
    return text if len(text) <= 100 else f"{text[:99]}…"
