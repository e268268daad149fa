"""What a Redis store does with its connections, on its own event loop."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gnl_core.errors import ConfigError, JournalFormatError, StoreCorruptError, StoreUnavailableError
from gnl_core.journal.access import Access, missing
from gnl_core.journal.batches import Span, Step
from gnl_core.journal.durability import DurabilityFinding
from gnl_core.journal.port import Applied, Entry, Key, Page, Read, Refused
from gnl_core.journal.redis_durability import keeps_all, read_settings, report
from gnl_core.journal.redis_errors import is_answer, refusal
from gnl_core.journal.redis_replicas import WaitReplicas, wait_for_replicas
from gnl_core.journal.redis_rows import arguments_of, check_status, entry_of
from gnl_core.journal.redis_scripts import SCHEMA, ScriptName, keys_of, script
from gnl_core.journal.redis_wire import Address, Line, Wire
from gnl_core.journal.state import Clock
from gnl_core.journal.values import from_text, key_of

logger = logging.getLogger("gnl_core.journal.redis_session")

_MOST_DELETES = 1000  # of one script: the server answers nobody else while it runs


@dataclass(slots=True)
class State:
    """What a storage knows for as long as it lives, whichever of its threads found it out.

    Attributes:
        address: The server.
        prefix: Of the store's keys.
        wait: Which replicas are waited for; None once the server said that it cannot.
        access: Whether the store may be made, or written.
        clock: The latest time seen.
        store_id: The store's id; None before it was opened, and where whoever uses it begins anew.
        durable: Whether the server syncs each write before it answers; None before it was opened.
    """

    address: Address
    prefix: str
    wait: WaitReplicas | None
    access: Access = "make"
    clock: Clock = field(default_factory=lambda: Clock(lambda: 0.0))
    store_id: str | None = None
    durable: bool | None = None


class RedisSession:
    """The calls of a journal. Each is one script, and thus one point in time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._wire = Wire(state.address)
        self._opening = asyncio.Lock()
        self._opened = False

    async def close(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    async def opened(self) -> str:
        """Open the store, made if it is missing, unless that was done; return its id.

        Raises:
            ConfigError: The server drops keys when its memory is full.
            JournalFormatError: A newer release wrote the store.
            StoreCorruptError: Its head is missing, or is none.
        """
        state = self._state
        if not self._opened or state.store_id is None:
            async with self._opening:
                if not self._opened or state.store_id is None:
                    async with self._wire.line() as line:
                        await self._check_settings(line)
                        # A store that is known is not made again: the first script tells if it is gone.
                        state.store_id = state.store_id or await self._make(line)
                    self._opened = True
        return state.store_id or ""

    async def _check_settings(self, line: Line) -> None:
        state, where = self._state, self._state.address.where
        settings = await read_settings(line)
        policy = settings.get("maxmemory-policy")
        if policy is None:
            logger.warning(
                "the server %s does not allow CONFIG GET: whether it drops keys when its memory is full "
                "(maxmemory-policy), and whether it syncs each write, is not known. A journal needs noeviction",
                where,
            )
        elif policy != "noeviction":
            raise ConfigError(
                f"the Redis server {where} has maxmemory-policy {policy}: when its memory is full it drops rows, and a "
                "dropped claim lets an effect happen twice. Set noeviction, or keep runs elsewhere",
                server=where,
                policy=policy,
            )
        state.durable = keeps_all(settings)

    async def _make(self, line: Line) -> str:
        keys = keys_of(self._state.prefix, "")
        if self._state.access == "make":
            answer = await line.run(script("open"), keys, (str(uuid.uuid4()), SCHEMA), writes=False)
        else:
            answer = await self._head(line, keys)
        check_status(answer, self._state.address.where)
        _, store_id, schema = answer
        if schema is None or not schema.isdigit():
            raise StoreCorruptError(
                f"the head of the store at {self._state.address.where} names no schema; restore it from a copy",
                server=self._state.address.where,
            )
        if int(schema) > SCHEMA:
            raise JournalFormatError(
                f"the store at {self._state.address.where} has schema {int(schema)}, this release knows {SCHEMA}: "
                "update gnl-semantic",
                format=int(schema),
            )
        return str(store_id.decode(errors="replace"))

    async def _head(self, line: Line, keys: Sequence[str]) -> Sequence[Any]:
        """Return what the script `open` does of a store that is there; by plain reads, so that none can be made."""
        where = self._state.address.where
        try:
            found = await line.ask("HMGET", keys[0], "store_id", "schema")
            if found[0] is None and await line.ask("EXISTS", keys[1]):
                return (b"corrupt", b"")
        except Exception as error:
            if is_answer(error):
                raise refusal(error, where, writes=False) from error
            raise
        if found[0] is None:
            raise missing(f"the Redis server {where} under the prefix {self._state.prefix!r}")
        return (b"ok", *found)

    async def get_many(self, org: str, names: list[str], asked: Sequence[Key]) -> Read:
        """Read rows in the order asked."""
        _, now, stamps, values, blobs = await self._read("read", org, names)
        entries = tuple(
            None if stamp is None else entry_of(name, key, stamp, value, blob)
            for name, key, stamp, value, blob in zip(names, asked, stamps, values, blobs, strict=True)
        )
        return Read(entries, self._now(now, entries))

    async def scan(self, org: str, part: Span) -> Page:
        """Read one page."""
        arguments = (
            part.own or "",
            part.low,
            part.high,
            part.newer_than or -1,  # who asks for all rows is told of those whose version cannot be
            int(part.reverse),
            part.limit,
            part.max_bytes,
            int(part.blobs),
        )
        _, now, more, rows = await self._read("scan", org, arguments)
        entries = []
        for name, stamp, value, blob in zip(*[iter(rows)] * 4, strict=True):
            text = name.decode(errors="replace")
            entries.append(entry_of(text, key_of(text), stamp, value, blob))
        return Page(tuple(entries), entries[-1].key if more else None, self._now(now, entries))

    async def now(self) -> int:
        """Return the server's clock."""
        _, now, *_ = await self._read("read", "", ())
        return self._now(now, ())

    async def scopes(self, after: str | None, limit: int) -> list[str]:
        """List organisations that have rows."""
        start = "-" if after is None else f"({after}"
        _, _, names = await self._read("scopes", "", (start, min(limit, 1 << 62)))
        return [name.decode(errors="replace") for name in names]

    async def apply(self, org: str, steps: Sequence[Step], batch: int) -> Applied | Refused:
        """Write a batch, all or nothing, and wait for replicas if so agreed."""
        rest = arguments_of(steps)
        async with self._wire.line() as line:
            arguments = (str(batch), org, "0" if self._state.wait is None else "1", *rest)
            answer = await self._run(line, "apply", org, arguments, writes=True)
            if answer[0] == b"refused":
                return self._refused(answer, steps)
            _, now, version, kept, counters = answer
            if any(step.kind != "expect" for step in steps):
                await self._wait(line)
        sums: dict[Key, Any] = {}
        for index, text in zip(*[iter(counters)] * 2, strict=True):
            sums[steps[index].key] = from_text(steps[index].name, text.decode())
        return Applied(int(version), self._now(now, ()), sums, tuple(kept))

    def _refused(self, answer: Sequence[Any], steps: Sequence[Step]) -> Refused:
        _, now, index, stamp, value, blob = answer
        step = steps[index]
        found = None if stamp is None else entry_of(step.name, step.key, stamp, value, blob)
        return Refused(index, found, self._now(now, (found,)))

    async def delete_prefix(self, org: str, part: Span) -> int:
        """Delete the first rows of a prefix, few at a time."""
        total = 0
        while total < part.limit:
            most = min(part.limit - total, _MOST_DELETES)
            async with self._wire.line() as line:
                arguments = (org, part.own or "", part.low, part.high, most)
                _, _, count = await self._run(line, "remove", org, arguments, writes=True)
                if count:
                    await self._wait(line)
            total += count
            if count < most:
                break
        return total

    async def durability(self) -> tuple[DurabilityFinding, ...]:
        """Read the settings that a journal's safety depends on."""
        async with self._wire.line() as line:
            return await report(line, self._state.address.where, self._state.wait)

    # Beneath ---------------------------------------------------------------------------------------------------------

    async def _read(self, name: ScriptName, org: str, arguments: Sequence[str | int]) -> Sequence[Any]:
        try:
            async with self._wire.line() as line:
                return await self._run(line, name, org, arguments, writes=False)
        except StoreUnavailableError as error:
            if not error.detail.get("broke_off"):
                raise
        # A read that was cut off, for instance by a server that was started anew, is asked again once.
        async with self._wire.line() as line:
            return await self._run(line, name, org, arguments, writes=False)

    async def _run(
        self, line: Line, name: ScriptName, org: str, arguments: Sequence[str | bytes | int], *, writes: bool
    ) -> Sequence[Any]:
        state = self._state
        answer: Sequence[Any] = await line.run(
            script(name), keys_of(state.prefix, org), (state.store_id or "", *arguments), writes=writes
        )
        check_status(answer, state.address.where)
        return answer

    async def _wait(self, line: Line) -> None:
        state = self._state
        if state.wait is not None and not await wait_for_replicas(line, state.wait, state.address.where):
            state.wait = None

    def _now(self, now: int, entries: Sequence[Entry | None]) -> int:
        latest = max((entry.updated_at for entry in entries if entry is not None), default=0)
        return self._state.clock.read(max(now, latest))
