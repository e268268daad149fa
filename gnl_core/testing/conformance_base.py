"""What the parts of the conformance suite share: the hook, and a few short words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from gnl_core.journal.port import Applied, Entry, Journal, JsonValue, Key, Op, Page, Refused, new_batch


class JournalCase:
    """Base of the suite's parts."""

    async def make_journal(self) -> Journal:
        """Return a new, empty, unscoped journal. Its `aclose` must release everything, after each test."""
        raise NotImplementedError("a conformance suite needs make_journal()")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Journal]:
        """Open a journal for one test."""
        journal = await self.make_journal()
        try:
            yield journal
        finally:
            await journal.aclose()


async def write(journal: Journal, *ops: Op, batch: int | None = None) -> Applied:
    """Apply a batch that must not be refused."""
    result = await journal.apply(ops, batch=new_batch() if batch is None else batch)
    assert isinstance(result, Applied), f"refused: {result}"
    return result


async def refused(journal: Journal, *ops: Op) -> Refused:
    """Apply a batch that must be refused."""
    result = await journal.apply(ops, batch=new_batch())
    assert isinstance(result, Refused), f"not refused: {result}"
    return result


async def row(journal: Journal, *key: str) -> Entry:
    """Read a row that must be there."""
    (entry,) = (await journal.get_many([key])).entries
    assert entry is not None, f"no row {key}"
    return entry


async def value(journal: Journal, *key: str) -> JsonValue:
    """Read the value of a row that must be there."""
    return (await row(journal, *key)).value


async def absent(journal: Journal, *key: str) -> bool:
    """Tell whether there is no such row."""
    return (await journal.get_many([key])).entries[0] is None


async def everything(journal: Journal) -> dict[Key, JsonValue]:
    """Read all rows."""
    page = await journal.scan((), limit=100_000, max_bytes=1 << 40)
    assert page.after is None
    return {entry.key: entry.value for entry in page.entries}


def keys_of(page: Page) -> Sequence[Key]:
    """Return the keys of a page, in its order."""
    return [entry.key for entry in page.entries]


@contextmanager
def raises(*errors: type[BaseException], naming: str = "") -> Iterator[None]:
    """Demand one of these errors; its message must hold `naming`."""
    message: str | None = None
    try:
        yield
    except errors as error:
        message = str(error)
    assert message is not None, f"no {' or '.join(error.__name__ for error in errors)} was raised"
    assert naming in message, f"{naming!r} is not in the message {message}"
