"""Repeat a sweep of runs on an interval, as long as a program's event loop runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gnl_core.errors import ConfigError
from gnl_core.journal.port import Journal
from gnl_core.retention import SweepOptions, SweptRuns, check_sweep, sweep_runs

logger = logging.getLogger("gnl_core.sweeper")

HOUR_MS = 3_600_000


class RetentionSweeper:
    """Sweeps once at its start, and again an interval after each pass has ended. Passes never overlap.

    It sweeps runs alone: what is remembered in conversations is deleted by whoever decides to.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        interval_ms: int,
        sweep: SweepOptions,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._journal = journal
        self._interval = interval_ms / 1000
        self._sweep = sweep
        self._on_error = on_error
        self._stopping = asyncio.Event()
        self._pass = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.last: SweptRuns | None = None
        """What the last pass did that came to its end."""

    def start(self) -> None:
        """Begin, in the running event loop; a second call does nothing."""
        if self._task is None:
            self._stopping.clear()
            self._task = asyncio.get_running_loop().create_task(self._repeat(), name="retention sweeper")

    async def stop(self) -> None:
        """End it after the pass that is under way; a second call does nothing."""
        self._stopping.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.shield(task)

    async def run_once(self) -> SweptRuns:
        """Sweep now, after the pass that is under way; return what was done.

        Raises:
            JournalError: The store failed.
        """
        async with self._pass:
            self.last = await sweep_runs(self._journal, **self._sweep)
            return self.last

    async def _repeat(self) -> None:
        while not self._stopping.is_set():
            try:
                await self.run_once()
            except Exception as error:  # whatever it is: the next pass may succeed
                self._tell(error)
            try:
                async with asyncio.timeout(self._interval):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    def _tell(self, error: Exception) -> None:
        if self._on_error is None:
            logger.error("a retention sweep failed: %s", error, exc_info=error)
            return
        try:
            self._on_error(error)
        except Exception:
            logger.exception("on_error of the retention sweeper failed")


def create_retention_sweeper(
    journal: Journal,
    *,
    sweep: SweepOptions,
    interval_ms: int = HOUR_MS,
    on_error: Callable[[Exception], object] | None = None,
) -> RetentionSweeper:
    """Return a sweeper that repeats `sweep_runs`; `start()` begins it, `await stop()` ends it.

    Args:
        journal: The store's journal, or one organisation's: each organisation needs a sweeper of its own, with its age.
        sweep: Options of `sweep_runs`; `older_than_ms` must be among them, since no age is right for everybody.
        interval_ms: Milliseconds between the end of a pass and the next, at least 1.
        on_error: Told the error of a pass that failed, which ends nothing; without it the error is logged.

    Raises:
        ConfigError: The interval is below 1, or the sweep has no `older_than_ms`, or an option that cannot be.
    """
    given: object = interval_ms
    if not isinstance(given, int | float) or not given >= 1:
        raise ConfigError(f"interval_ms is {interval_ms!r}, must be at least 1 millisecond", option="interval_ms")
    if "older_than_ms" not in sweep:
        raise ConfigError("the sweep has no older_than_ms: say how old a run may become, in milliseconds")
    # Told now: of a pass an hour later perhaps nobody reads the log, and nothing is ever deleted.
    unknown = sorted(sweep.keys() - SweepOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(sorted(SweepOptions.__annotations__))
        raise ConfigError(f"a sweep has no option {unknown[0]!r}; there are: {known}", option=unknown[0])
    check_sweep(sweep["older_than_ms"], sweep.get("suspended_ttl_ms"))
    return RetentionSweeper(journal, interval_ms=interval_ms, sweep=sweep, on_error=on_error)
