"""The run lock: one driver a request, a fence that its every batch expects, and a beat that says it is alive.

Two rows. `lock` names the holder and changes its version only when it is acquired, taken over or released: that version
is the fence. `beat` is written while the holder lives, by a batch that expects the fence; so a renewal that lands after
the release, or after a takeover, is refused by itself and needs no care anywhere. A holder that is known to be dead is
taken over at once; any other once its own time to live has passed without a beat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from gnl_core import keys
from gnl_core.errors import ConfigError, JournalError, RunBusyError, StoreCorruptError
from gnl_core.journal.port import Create, Entry, Expect, Journal, JsonValue, Op, Put, Refused, Replace, new_batch
from gnl_core.owner import Owner, is_dead, new_owner, read_owner
from gnl_core.records import FORMAT, stamped

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Held:
    """A lock row that is not released."""

    owner: Owner
    ttl_ms: int
    alive_at: int  # ms of the store's clock: the last sign of life


def acquire_ops(
    root: str, lock: Entry | None, beat: Entry | None, *, now: int, owner: Owner, ttl_ms: int
) -> tuple[Op, ...]:
    """Return the operations that take the lock, if nobody has it; the version they are applied at is the fence.

    They are refused where the lock, or the beat of a holder to be taken over, has changed since both were read.
    Register the owner (`gnl_core.owner.register`) before applying them.

    Args:
        root: Id of the root run.
        lock: The row `keys.lock(root)` as read.
        beat: The row `keys.beat(root)`, read in the same `get_many`.
        now: The store's clock of that read, in milliseconds.
        owner: Who takes it.
        ttl_ms: How long after its last beat this hold may be taken over, in milliseconds, at least 1. Of a holder that
            is there already its own decides, not this one.

    Raises:
        RunBusyError: Somebody holds it who is not known to be dead; `retry_after` says when its time has passed.
        StoreCorruptError: The lock row cannot be read.
        JournalFormatError: It was written by a newer release.
        ConfigError: `ttl_ms` is below 1.
    """
    if ttl_ms < 1:
        raise ConfigError(f"the run lock's ttl is {ttl_ms} ms, must be at least 1 ms")
    value: dict[str, JsonValue] = {"f": FORMAT, "owner": owner.to_json(), "ttl_ms": ttl_ms, "released": False}
    if lock is None:
        return (Create(keys.lock(root), value),)
    held = _read(lock, beat)
    if held is None:
        return (Replace(keys.lock(root), lock.version, value),)
    if not _free(held, now):
        raise _busy(root, held, now)
    # A beat that came in since the read shows that the holder lives after all.
    seen = Expect(keys.beat(root), beat.version if beat is not None else "absent")
    return seen, Replace(keys.lock(root), lock.version, value)


def fence_check(root: str, fence: int) -> Expect:
    """Return the condition that every batch of a driver begins with: it still holds the lock."""
    return Expect(keys.lock(root), fence)


def renew_ops(root: str, fence: int) -> tuple[Op, ...]:
    """Return the operations of one sign of life; refused once the lock is released or taken over."""
    return fence_check(root, fence), Put(keys.beat(root), {"f": FORMAT, "fence": fence})


def release_op(root: str, fence: int, owner: Owner | None = None) -> Replace:
    """Return the operation that gives the lock back; `owner` is kept in the row, to say who had it last."""
    value: dict[str, JsonValue] = {"f": FORMAT, "released": True}
    if owner is not None:
        value["owner"] = owner.to_json()
    return Replace(keys.lock(root), fence, value)


def holder(lock: Entry | None, beat: Entry | None, now: int) -> Owner | None:
    """Return who drives the request now; None where nobody does, or whoever did could be taken over.

    Raises:
        StoreCorruptError: The lock row cannot be read.
        JournalFormatError: It was written by a newer release.
    """
    held = _read(lock, beat) if lock is not None else None
    return None if held is None or _free(held, now) else held.owner


def _read(lock: Entry, beat: Entry | None) -> _Held | None:
    value = stamped(lock)
    released = value.get("released")
    if released is True:
        return None
    owner = read_owner(value.get("owner"))
    ttl_ms = value.get("ttl_ms")
    if released is not False or owner is None or not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or ttl_ms < 1:
        key = keys.encode(lock.key)
        raise StoreCorruptError(f"the row {key} holds no run lock that can be read; run `gnl doctor`", key=key)
    alive_at = lock.updated_at
    # A beat of another fence is an earlier holder's. One that cannot be read only lets the lock age from its start.
    if beat is not None and isinstance(beat.value, dict) and beat.value.get("fence") == lock.version:
        alive_at = max(alive_at, beat.updated_at)
    return _Held(owner, ttl_ms, alive_at)


def _free(held: _Held, now: int) -> bool:
    return now - held.alive_at > held.ttl_ms or is_dead(held.owner)


def _busy(root: str, held: _Held, now: int) -> RunBusyError:
    owner = held.owner
    here = new_owner()
    way = "try again then, or end that process"
    if owner.pid == here.pid and owner.started == here.started and _same_machine(owner, here):
        who = f"this very process (pid {owner.pid}), in another task or thread"
        way = "wait until that one has ended, and try again"
    elif _same_machine(owner, here):
        who = f"process {owner.pid} of this host"
    else:
        who = f"process {owner.pid} of " + (f"host {owner.host[:64]!r}" if owner.host else "another host")
    left = max(1, -(-(held.alive_at + held.ttl_ms - now) // 1000))
    silent = now - held.alive_at
    life = (
        f"its last sign of life is {silent // 1000} s old"
        if silent >= 0
        else f"the store's clock was set back by {-silent // 1000} s or more"
    )
    return RunBusyError(
        f"run {root!r} is driven by {who}; {life}. Without another one it can be taken over in {left} s: {way}",
        retry_after=left,
        run_id=root,
        host=owner.host,
        pid=owner.pid,
    )


def _same_machine(one: Owner, other: Owner) -> bool:
    if one.boot:
        return one.boot == other.boot and one.namespace == other.namespace
    return not other.boot and one.host == other.host


class Heartbeat:
    """Writes a holder's signs of life while its event loop runs.

    A renewal every half ttl, measured by the loop's monotonic clock. A store that fails is tried again after an eighth
    of the ttl, so that one lost write does not cost the lock. It keeps no process alive.

    Attributes:
        fenced: Whether a renewal was refused: the lock belongs to somebody else by now, or was released.
    """

    def __init__(
        self, journal: Journal, root: str, fence: int, ttl_ms: int, on_fenced: Callable[[], object] | None = None
    ) -> None:
        """Prepare a heartbeat.

        Args:
            journal: Where the lock is held.
            root: Id of the root run.
            fence: Version of the lock row since it was acquired.
            ttl_ms: The ttl it was acquired with, in milliseconds.
            on_fenced: Called once, in the event loop, when a renewal is refused.
        """
        self._journal = journal
        self._root = root
        self._fence = fence
        self._ttl = ttl_ms / 1000
        self._on_fenced = on_fenced
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.fenced = False

    async def start(self) -> None:
        """Begin; a second call does nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._beat(), name=f"heartbeat of {self._root}")

    async def stop(self) -> None:
        """End it, after the renewal that is under way; a second call does nothing.

        A cancellation of the caller is raised only then, so that no renewal of this hold is left behind in the store's
        queue while the lock is given back.
        """
        self._stopping.set()
        task = self._task
        if task is not None and task.get_loop() is not asyncio.get_running_loop():
            return  # its loop is another one, closed by now: it renews nothing any more
        cancelled: asyncio.CancelledError | None = None
        while task is not None and not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._ttl / 2
        while not await self._stopped_before(due):
            began = loop.time()
            renewed = await self._renew()
            if self.fenced:
                self._tell()
                return
            due = began + self._ttl / (2 if renewed else 8)

    async def _stopped_before(self, due: float) -> bool:
        try:
            async with asyncio.timeout_at(due):
                await self._stopping.wait()
        except TimeoutError:
            return self._stopping.is_set()
        return True

    async def _renew(self) -> bool:
        try:
            result = await self._journal.apply(renew_ops(self._root, self._fence), batch=new_batch())
        except Exception as error:  # whatever it is: a heartbeat that ended unseen would cost the lock
            logger.warning(
                "the lock of run %r was not renewed (%s); trying again in %.3g s",
                self._root,
                error,
                self._ttl / 8,
                exc_info=not isinstance(error, JournalError),
            )
            return False
        self.fenced = isinstance(result, Refused)
        return True

    def _tell(self) -> None:
        logger.warning(
            "run %r was taken over by another process, or released: this one writes nothing more", self._root
        )
        if self._on_fenced is None:
            return
        try:
            self._on_fenced()
        except Exception:
            logger.exception("what was to happen when run %r was taken over failed", self._root)
