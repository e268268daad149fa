"""Send one batch until its outcome is known."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from gnl_core.errors import NotCanonicalError, StoreBusyError, StoreUnavailableError, StoreUnknownError
from gnl_core.journal.port import Applied, Journal, Op, Refused, new_batch

logger = logging.getLogger("gnl_core.journal.send")

BEGIN_TRIES = 4
"""How often a batch that begins something is sent while the store is away; nothing has happened yet, so few."""

RECORD_TRIES = 8
"""How often the record of an effect is sent: about six seconds, since losing it makes an avoidable doubt."""

FIRST_PAUSE = 0.05
"""Seconds before a batch is sent again; each further pause is twice as long."""

LONGEST_PAUSE = 1.0
"""Seconds that no pause is longer than, but for a quarter of jitter."""


async def send(
    journal: Journal, ops: Sequence[Op], *, run_id: str, tries: int = BEGIN_TRIES, tag: int | None = None
) -> tuple[Applied | Refused, asyncio.CancelledError | None]:
    """Send a batch until its outcome is known; a cancellation that came meanwhile is returned with it.

    Whoever was cancelled must know what stands: a claim is to be taken back, a record not to be written twice.

    Args:
        journal: The store.
        ops: Operations of the batch.
        run_id: The run whose batch it is, for messages.
        tries: How often it is sent at most, at least 1.
        tag: Its tag, for a caller who looks for its rows later; a new one without.

    Raises:
        NotCanonicalError: A value of it cannot be stored; nothing was written.
        JournalError: The store did not take it.
        asyncio.CancelledError: The caller was cancelled and the outcome is not known.
    """
    batch, cancelled = new_batch() if tag is None else tag, None
    for attempt in range(1, tries + 1):
        try:
            return await journal.apply(ops, batch=batch), cancelled
        except asyncio.CancelledError as error:
            cancelled = error
            if attempt == tries:
                raise
        except (TypeError, ValueError) as error:
            raise NotCanonicalError(f"nothing was written of run {run_id}: {error}", run_id=run_id) from error
        except (StoreUnavailableError, StoreUnknownError, StoreBusyError) as error:
            # The same tag again is safe: rows that this batch wrote already count as written.
            if attempt == tries or error.detail.get("closed"):
                raise (cancelled or error) from None
            pause = min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE) * (0.75 + random.random() / 2)  # noqa: S311 - jitter
            logger.warning("the store did not take a batch of run %s (%s); again in %.2f s", run_id, error, pause)
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError as stop:  # what is to be recorded may have happened: it is sent all the same
                cancelled = stop
    raise AssertionError("unreachable")
