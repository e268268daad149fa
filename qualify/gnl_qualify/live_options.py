"""Options of the commands that read a journal of live runs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from gnl_core.cli.database import db_option, with_journal
from gnl_core.journal.port import Journal
from gnl_core.opening import Place
from gnl_qualify.terminal import complain, plain

T = TypeVar("T")
_Command = TypeVar("_Command", bound=Callable[..., Any])

_SPAN = re.compile(r"([0-9]{1,6})(m|h|d|w)", re.ASCII)
_UNITS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class Since:
    """From when on to read.

    Attributes:
        at: Milliseconds since the epoch; None: from the beginning, or from so long ago.
        ago: Milliseconds before the store's present.
    """

    at: int | None = None
    ago: int | None = None

    def on(self, now: int) -> int | None:
        """Return the time in milliseconds of the store's clock, which shows `now`."""
        return self.at if self.ago is None else max(0, now - self.ago)


def live_options(command: _Command) -> _Command:
    """Give a command the options that name a store, which is only read, and a time."""
    for option in (
        click.option("--org", metavar="ID", help="Read this organisation's rows. Default: those of no organisation."),
        click.option(
            "--since",
            metavar="DAY|7d",
            callback=_since,
            help="From this day (2026-11-01, UTC), time (2026-11-01T08:30+03:00) or so long ago (30m, 12h, 7d, 4w).",
        ),
        db_option,
    ):
        command = option(command)
    return command


def _since(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Since:
    if value is None:
        return Since()
    span = _SPAN.fullmatch(value.strip())
    if span:
        return Since(ago=int(span[1]) * _UNITS[span[2]])
    try:
        at = datetime.fromisoformat(value.strip())
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        milliseconds = (at if at.tzinfo else at.replace(tzinfo=UTC)) - epoch
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is no day (2026-11-01), time (2026-11-01T08:30) or span (30m, 12h, 7d, 4w)", ctx, parameter
        ) from None
    return Since(at=max(0, milliseconds // timedelta(milliseconds=1)))


def read_live(db: Place, org: str | None, work: Callable[[Journal], Awaitable[T]]) -> T:
    """Do some reading on the journal in a store.

    Raises:
        GnlError: There is no journal, or what the work raised.
    """

    async def read(journal: Journal) -> T:
        if org is None:
            orgs = [one for one in await journal.scopes(limit=_MOST_NAMED) if one]
            if orgs:
                complain(f"this journal has rows of organisations too ({plain(', '.join(orgs))}); --org reads theirs")
        return await work(journal if org is None else journal.scoped(org))

    return with_journal(db, read)
