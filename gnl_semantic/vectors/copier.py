"""Writes blocks of copies beside the records, for the next process that has to read a scope."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable

from gnl_core.journal.port import Create, Expect, Refused, new_batch
from gnl_semantic.vectors.blocks import Chain, Due, block_ops, chain_of
from gnl_semantic.vectors.held import Name, Place
from gnl_semantic.vectors.reading import Call

WRITE_SECONDS = 0.5
"""How long a call that has its answer waits at most for the blocks that it writes: they take a millisecond."""

REST_SECONDS = 60.0
"""How long nothing more is tried in a scope where they could not be written."""

_MOST_PLACES = 1_024  # that are remembered

logger = logging.getLogger(__name__)


class Copier:
    """Writes blocks, one call a scope at a time, and knows which scopes' copies are not trusted.

    Args:
        block: Least records of a block.
        clock: Seconds that never run backwards.
    """

    def __init__(self, block: int, clock: Callable[[], float]) -> None:
        self.block = block
        self._clock = clock
        self.start_over()

    def start_over(self) -> None:
        """Know nothing. Made for a forked child, which may have inherited a lock that nobody there will release."""
        self._lock = threading.Lock()
        self._busy: set[Name] = set()
        self._resting: OrderedDict[Name, float] = OrderedDict()
        self._doubted: OrderedDict[Place, None] = OrderedDict()

    @property
    def doubts_any(self) -> bool:
        """Whether there is a place whose copies are not trusted."""
        return bool(self._doubted)

    def doubts(self, place: Place) -> bool:
        """Whether a record was found by its copy in this process, and was gone."""
        return place in self._doubted

    def doubt(self, place: Place) -> None:
        """Trust the copies of a place no more."""
        with self._lock:
            self._doubted[place] = None
            if len(self._doubted) > _MOST_PLACES:
                self._doubted.popitem(last=False)

    def trust(self, place: Place) -> None:
        """Trust the copies of a place again: all that was there is erased."""
        if place in self._doubted:
            with self._lock:
                self._doubted.pop(place, None)

    async def write(self, call: Call, due: Due) -> Chain | None:
        """Write the blocks that are due, and return where they end now; None where that is not known any more.

        Best effort: what fails is tried again after a while, and costs the call nothing but `WRITE_SECONDS`.
        """
        name = call.name
        with self._lock:
            if name in self._busy or self._resting.get(name, 0.0) > self._clock():
                return due.chain
            self._busy.add(name)
        try:
            return await self._write(call, due)
        except Exception as error:  # the answer is there already, and a copy is nothing that anybody waits for
            logger.debug("no copies were written for %s of %s (%s)", name[3], name[2], type(error).__name__)
            with self._lock:
                self._resting[name] = self._clock() + REST_SECONDS
                if len(self._resting) > _MOST_PLACES:
                    self._resting.popitem(last=False)
            return due.chain
        finally:
            with self._lock:
                self._busy.discard(name)

    async def _write(self, call: Call, due: Due) -> Chain | None:
        subject, generation = call.subject, call.generation
        made = block_ops(subject.scope, subject.tool, call.stamp, due, least=self.block)
        if made is None:
            return due.chain
        chain, ops = made
        # An erasure deletes the generation's row, and a record not in the blocks changes it.
        batch = [Expect(generation.key, generation.version), *ops]
        async with asyncio.timeout(WRITE_SECONDS):
            answer = await subject.journal.apply(batch, batch=new_batch())
        if not isinstance(answer, Refused):
            return chain
        if not isinstance(batch[answer.op], Create):
            return due.chain
        return chain_of(answer.found, call.stamp, due.chain)  # somebody else has written it
