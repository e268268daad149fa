"""The report of a sitting as lines for a terminal, a pipe or a log."""

from __future__ import annotations

from collections.abc import Iterator

from gnl_qualify.terminal import plain
from gnl_reports.model import Bar, Baseline, Clustered, ExamReport, Flips, Group, Paired, WrongPair
from gnl_reports.text import ordinal, p_value
from gnl_semantic.rate import Rate

LISTED = 20
"""Pairs listed unless the caller says otherwise; the HTML and JSON reports hold all of them."""
MAX_TEXT = 100
"""Characters of one text that are listed."""

CAVEAT = (
    "These figures say how this judge did on {pairs}, not how it will do on your traffic:\n"
    "watch precision@suspend there, the share of its questions that your own people confirm."
)


def render_text(report: ExamReport, *, listed: int = LISTED) -> str:
    """Return the report as text without a final line break; every stranger's text in it is harmless.

    Args:
        report: The sitting.
        listed: Pairs shown of each list.
    """
    return "\n".join(_lines(report, listed))


def _lines(report: ExamReport, listed: int) -> Iterator[str]:
    fixtures, origin = report.fixtures, report.provenance
    sample = f" (a sample of {fixtures.sampled_from})" if fixtures.sampled_from else ""
    yield (
        f"judge {plain(report.judge.model_id)}, prompt version {plain(origin.prompt_version)}, "
        f"set {plain(fixtures.name)} {fixtures.set_id}{sample}, {fixtures.pairs} pairs"
    )
    yield ""
    yield report.status.upper()
    for reason in report.reasons:
        yield f"  - {plain(reason)}"
    yield ""
    for group in report.groups["label"]:
        yield f"{group.name:<16}{percent(group.right)}{_kinds(group)}"
    yield ""
    for bar in report.bars:
        yield _bar(bar)
        if bar.by_domain is not None:
            yield f"  bootstrap by domain: {clusters(bar.by_domain, 'domains')}"
    yield ""
    for base in report.baselines:
        yield (f"baseline {base.name:<18}recall {percent(base.recall):<18}false alarms {percent(base.false_alarms)}")
        yield from _against(base)
    yield ""
    for part in report.capacity:
        yield f"this set: {part.sentence}"
    yield ""
    yield from _rest(report, listed)
    if report.status == "failed" and report.wrong:
        yield ""
        yield f"answered wrong ({len(report.wrong)}):"
        for pair in report.wrong[:listed]:
            yield _wrong(pair)
        if len(report.wrong) > listed:
            yield f"  ... and {len(report.wrong) - listed} more (all of them with --html or --json)"
    yield ""
    yield CAVEAT.format(pairs="pairs of your own" if fixtures.private else "published pairs that were made up")


def percent(rate: Rate) -> str:
    """Return a rate as '93.3 % (70/75)'."""
    return "not measured (0/0)" if rate.value is None else f"{100 * rate.value:.1f} % ({rate.k}/{rate.n})"


def _kinds(group: Group) -> str:
    """Name the answers that were no answer."""
    counts = group.counts
    silent = [
        f"{n} {kind}"
        for kind, n in (
            ("unsure", counts.unsure),
            ("unparsed", counts.unparsed),
            ("failed", counts.error),
            ("timed out", counts.timeout),
        )
        if n
    ]
    return f"; {', '.join(silent)}" if silent else ""


def _bar(bar: Bar) -> str:
    word = "at least" if bar.direction == "at-least" else "at most"
    measured = percent(bar.rate)
    if bar.rate.n:
        measured = f"{100 * bar.rate.k / bar.rate.n:.1f} % over {bar.rate.n} pairs ({bar.rate.k}/{bar.rate.n})"
    bound = "" if bar.bound is None else f", one-sided bound {100 * bar.bound:.1f} %"
    return (
        f"{bar.name}: {measured}, 95 % interval [{100 * bar.rate.low:.1f}, {100 * bar.rate.high:.1f}] %{bound}; "
        f"required {word} {100 * bar.limit:.0f} %: {'holds' if bar.passed else 'does not hold'}"
    )


def _rest(report: ExamReport, listed: int) -> Iterator[str]:
    for group in report.groups["language"]:
        yield f"language {plain(group.name):<18}{percent(group.right)}"
    if report.worst_domain is not None:
        worst = next(group for group in report.groups["domain"] if group.name == report.worst_domain)
        yield f"worst domain: {plain(worst.name)}, {percent(worst.right)}"
    for flips in (report.repeat, report.order):
        if flips is not None:
            yield from _flips(flips, listed)
    latency = report.latency
    if latency.p50 is not None and latency.p95 is not None and latency.max is not None:
        yield (
            f"latency: p50 {latency.p50:.3g} ms, p95 {latency.p95:.3g} ms, max {latency.max:.3g} ms, "
            f"limit {latency.limit:.0f} ms"
        )
    tokens = "" if report.tokens_in is None else f", tokens {report.tokens_in} in, {report.tokens_out or 0} out"
    yield f"calls: {report.calls}{tokens}"
    if report.fixtures.sitting is not None:
        yield f"this was the {ordinal(report.fixtures.sitting)} sitting on this set that could be found when it began"
    if report.fixtures.sittings is not None:
        yield f"recorded sittings of built-in judges on this set: {report.fixtures.sittings}"


def clusters(rate: Clustered, what: str) -> str:
    """Return an interval by clusters in words, or why there is none."""
    if rate.low is None or rate.high is None:
        return f"no interval, {rate.k} of {rate.n} in {rate.clusters} {what} leave nothing to resample"
    return f"95 % interval [{100 * rate.low:.1f}, {100 * rate.high:.1f}] %, {rate.clusters} {what}"


def difference(pairs: Paired) -> str:
    """Return a paired difference in words, with its interval, its discordant pairs and its p value."""
    if pairs.difference is None:
        return "not measured (0 pairs)"
    return (
        f"{100 * pairs.difference:+.1f} points, 95 % interval [{100 * pairs.low:+.1f}, {100 * pairs.high:+.1f}], "
        f"{pairs.first_only} against {pairs.second_only} of {pairs.n} pairs, McNemar p {p_value(pairs.p)}"
    )


def _against(base: Baseline) -> Iterator[str]:
    for name, pairs in (("recall", base.recall_difference), ("false alarms", base.false_alarm_difference)):
        if pairs is not None and pairs.n:
            yield f"  the judge's {name} less this: {difference(pairs)}"


def _flips(flips: Flips, listed: int) -> Iterator[str]:
    yield (
        f"{flips.what}: {percent(flips.flips)} changed their answer, 95 % interval "
        f"[{100 * flips.flips.low:.1f}, {100 * flips.flips.high:.1f}] %, {flips.pairs} pairs asked {flips.runs} times"
    )
    if flips.agreement is not None and flips.runs > 2:
        share = f"{flips.agreement.k}/{flips.agreement.n} couples of answers to one pair"
        yield f"  agreement: {share}, {clusters(flips.agreement, 'pairs')}"
    for pair in flips.changed[:listed]:
        yield f"  {short(pair.id)} [{pair.label}, {short(pair.domain)}]: {', '.join(pair.answers)}"
    if len(flips.changed) > listed:
        yield f"  ... and {len(flips.changed) - listed} more"


def _wrong(pair: WrongPair) -> str:
    return (
        f"  {short(pair.id)} [{pair.label}, {short(pair.domain)}, {short(pair.lang)}] "
        f"{short(pair.a)} | {short(pair.b)}: expected {pair.expected}, answered {pair.answered}"
        + (f" {short(pair.raw)!r}" if pair.answered == "unparsed" else "")
    )


def short(text: str) -> str:
    """Return a stranger's text harmless and cut to `MAX_TEXT` characters."""
    text = plain(text[: MAX_TEXT + 1])
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
