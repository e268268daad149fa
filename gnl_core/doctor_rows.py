"""What `gnl doctor` says of a journal's rows one by one, whether a file's SQL or a store's journal reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from gnl_core import keys
from gnl_core.approvals import read_answer
from gnl_core.doctor import Finding
from gnl_core.errors import GnlError, JournalError, JournalFormatError, StoreCorruptError
from gnl_core.journal.port import Entry, Journal, Key
from gnl_core.records import FORMAT, read_call, read_step, stamped
from gnl_core.summary import STATUSES, read_head

_SHOWN = 20
"""Rows named of each kind of fault; the rest are counted."""
_PAGE = 500
_FORKING = "forking"
UPDATE = "update gnl-semantic"
RESTORE = "restore the row from a copy of the journal"
DELETE = "no release wrote it: delete it"


class _Head(NamedTuple):
    status: str
    changed_at: int
    version: int


class RowCheck:
    """Takes rows one by one, and tells at the end what is wrong with them and with the index of statuses."""

    def __init__(self) -> None:
        self.rows = 0
        self._findings: list[Finding] = []
        self._counts: dict[str, int] = {}
        self._formats: dict[int, int] = {}
        self._heads: dict[tuple[str, str], _Head] = {}
        self._indexed: dict[tuple[str, str], tuple[str, Key]] = {}

    def add(self, entry: Entry, org: str) -> None:
        """Look at one row as the runtime would read it."""
        self.rows += 1
        number = entry.value.get("f") if isinstance(entry.value, dict) else None
        if type(number) is int:
            self._formats[number] = self._formats.get(number, 0) + 1
        shown = keys.encode(entry.key)
        try:
            self._read(entry, org)
        except JournalFormatError as error:
            self.fault("rows.values", str(error), shown, org, UPDATE)
        except (StoreCorruptError, ValueError, RecursionError) as error:
            self.fault("rows.values", f"{shown}: {error}", shown, org, RESTORE)

    def fault(self, check: str, text: str, key: str, org: str, advice: str) -> None:
        """Note a fault: the first of a kind by name, the rest by number."""
        self._counts[check] = self._counts.get(check, 0) + 1
        if self._counts[check] <= _SHOWN:
            self._findings.append(Finding(check=check, level="fault", text=text, key=key, org=org, advice=advice))

    def findings(self) -> Iterator[Finding]:
        """Tell of all rows, once each of them was seen."""
        for place in self.disagreeing():
            self._tell_of_index(place)
        yield from self._findings
        for check in ("rows.keys", "rows.values", "rows.indexes"):
            count = self._counts.get(check, 0)
            if count > _SHOWN:
                yield Finding(check=check, level="fault", text=f"{count - _SHOWN} more of these", advice="see above")
            elif not count:
                yield Finding(check=check, level="ok", text=f"nothing wrong in {self.rows} rows")
        known = ", ".join(f"{count} of format {number}" for number, count in sorted(self._formats.items())) or "none"
        yield Finding(check="rows.formats", level="ok", text=f"records: {known}; this release writes {FORMAT}")

    def disagreeing(self) -> list[tuple[str, str]]:
        """Return the organisation and root of each run whose head and index of statuses say two things."""
        return [place for place in sorted({*self._heads, *self._indexed}) if self._head(place) != self._index(place)]

    async def look_again(self, journal: Journal, place: tuple[str, str]) -> None:
        """Take back what was seen of a run's status if it has changed since; read at one moment.

        Args:
            journal: Of the run's organisation.
            place: One of `disagreeing`.
        """
        _, root = place
        head, index = self._heads.get(place), self._indexed.get(place)
        wanted = [keys.head(root)]
        if index is not None:
            wanted.append(index[1])
        elif head is not None and head.status != _FORKING:
            wanted.append(("ix", "status", head.status, f"{head.changed_at:013d}", root))
        found, *indexes = (await journal.get_many(wanted)).entries
        same_head = (found.version if found is not None else None) == (head.version if head is not None else None)
        same_index = not indexes or (indexes[0] is not None) == (index is not None)
        if not (same_head and same_index):
            self._heads.pop(place, None)
            self._indexed.pop(place, None)

    def _head(self, place: tuple[str, str]) -> str | None:
        found = self._heads.get(place)
        return found.status if found is not None else None

    def _index(self, place: tuple[str, str]) -> str | None:
        found = self._indexed.get(place)
        return found[0] if found is not None else None

    def _tell_of_index(self, place: tuple[str, str]) -> None:
        (org, root), head, index = place, self._head(place), self._index(place)
        if head == _FORKING:
            # It is put into the indexes once it is whole.
            self._findings.append(
                Finding(
                    check="runs.forking",
                    level="waits",
                    text=f"run {root!r} is a fork that is still being copied, or whose copying was broken off",
                    run_id=root,
                    org=org,
                    advice="if nobody copies it now: fork once more under another id",
                )
            )
            return
        what = f"run {root!r} is {head or 'missing'} by its head and {index or 'missing'} by the index of statuses"
        self.fault("rows.indexes", what, "", org, "lists may leave it out: restore the journal from a copy")

    def _read(self, entry: Entry, org: str) -> None:
        """Read one row as the runtime would.

        Raises:
            StoreCorruptError: It holds no such record.
            JournalFormatError: A newer release wrote it.
        """
        match entry.key:
            case ("ix", "status", status, _, root):
                if status not in STATUSES:
                    raise StoreCorruptError(f"there is no status {status!r}")
                self._indexed[org, root] = (status, entry.key)
            case ("run", root, part, "head"):
                run = read_head(entry)
                if part == keys.ROOT:
                    status = _FORKING if run.forking else run.status
                    self._heads[org, root] = _Head(status, run.changed_at, entry.version)
            case ("run", _, _, "model", _):
                read_step(entry)
            case ("run", _, _, "tool", _, _) | ("run", _, _, "args", _, _):
                read_call(entry)
            case ("xrun", "args", _, _) | ("xthr", _, "args", _, _):
                read_call(entry)
            case ("run", _, _, "answer", _, _, _):
                if read_answer(entry) is None:
                    raise StoreCorruptError("it holds no answer that can be read: it counts as none")
            case _:
                if _is_stamped(entry.key):
                    stamped(entry)


def _is_stamped(key: Key) -> bool:
    """Whether a row carries a format number: indexes and counters do not."""
    match key:
        case ("run", _, "req", "semantic") | ("xthr", _, "semgen", _):
            return False
        case ("run", _, "req", *_) | ("run", _, _, "input" | "question" | "incident", *_):
            return True
        case _:
            return key[0] in ("xthr", "xid")


# Through the journal -------------------------------------------------------------------------------------------------


async def examine_rows(journal: Journal) -> list[Finding]:
    """Look at every row of every organisation of a store, page by page, through its journal.

    Others may write meanwhile: what seems wrong between two rows is read once more, both at one moment.
    """
    check = RowCheck()
    try:
        for org in await journal.scopes(limit=1_000_000):
            scope = journal.scoped(org) if org else journal
            async for entry in _every(scope, org, check):
                check.add(entry, org)
        for place in check.disagreeing():
            await check.look_again(journal.scoped(place[0]) if place[0] else journal, place)
    except JournalError as error:
        check.fault("store", str(error), "", "", "")
    return list(check.findings())


async def _every(scope: Journal, org: str, check: RowCheck) -> AsyncIterator[Entry]:
    """Yield each row that can be read, and tell of the others.

    No page can begin behind a key that is misspelt: what stands behind the first of them is read from the end.
    """
    first: list[str] = []
    async for entry in _until_misspelt(scope, org, check, first):
        yield entry
    last: list[str] = []
    if first:
        async for entry in _until_misspelt(scope, org, check, last, reverse=True):
            if keys.encode(entry.key) < first[0]:
                break  # it is gone meanwhile
            yield entry
    for name in sorted({*first, *last}):
        between = f"; rows between it and {last[0]!r} were not looked at" if last > first and name in first else ""
        check.fault("rows.keys", f"{name!r} is not the spelling of a key{between}", name, org, DELETE)


async def _until_misspelt(
    scope: Journal, org: str, check: RowCheck, misspelt: list[str], *, reverse: bool = False
) -> AsyncIterator[Entry]:
    """Yield rows up to the first whose key no page can begin behind, whose name `misspelt` then takes."""
    after: Key | None = None
    limit = _PAGE
    while True:
        try:
            page = await scope.scan((), after=after, limit=limit, reverse=reverse)
        except (StoreCorruptError, JournalFormatError) as error:
            if limit > 1:
                limit //= 2  # the bad row is somewhere in the page: come nearer
                continue
            name = str(error.detail.get("key") or "")
            skipped = _key(name)
            if skipped is None or skipped == after:
                misspelt.append(name)
                return
            advice = UPDATE if isinstance(error, JournalFormatError) else RESTORE
            check.fault("rows.values", str(error), name, org, advice)
            after = skipped
            continue
        for entry in page.entries:
            yield entry
        after, limit = page.after, min(_PAGE, limit * 2)
        if after is None:
            return


def _key(name: str) -> Key | None:
    try:
        return keys.decode(name) if name else None
    except (ValueError, GnlError):
        return None
