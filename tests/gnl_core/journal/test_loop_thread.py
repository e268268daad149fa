"""The thread of a server's store, by itself: what it is told at its end."""

import asyncio
import threading

from gnl_core.journal.loop_thread import LoopThread
from gnl_core.journal.waiting import ask


class Slow:
    """Something to serve that closes when the test lets it."""

    def __init__(self, may_close):
        self.loop, self.may_close = asyncio.get_running_loop(), may_close
        self.closed = 0

    async def close(self):
        await asyncio.to_thread(self.may_close.wait, 30)
        self.closed += 1


async def itself(served):
    return served


def test_a_thread_that_was_told_to_end_is_not_told_again():
    """Its loop may close at any moment then: who closes a store a second time must not meet that."""
    may_close = threading.Event()
    thread = LoopThread("s", lambda: Slow(may_close))
    served = ask(thread, itself)
    ending = thread.stop()
    told = []
    call, served.loop.call_soon_threadsafe = served.loop.call_soon_threadsafe, told.append
    try:
        assert thread.stop() is ending
        assert told == []
    finally:
        served.loop.call_soon_threadsafe = call
        may_close.set()
    ending.join(30)
    assert (served.closed, served.loop.is_closed()) == (1, True)
    assert thread.stop() is ending
