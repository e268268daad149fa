"""The calls of a judge that one request may pay for: each is a row, claimed before the call and never given back.

A crash between claim and verdict costs the call, so that a crash loop cannot buy the budget again; and since one row
has one creator, no two calls share one.
"""

from __future__ import annotations

import logging

from gnl_core import keys
from gnl_core.journal.port import Applied, Create, JsonValue, new_batch
from gnl_core.lock import fence_check
from gnl_core.prior import Subject
from gnl_core.records import FORMAT

logger = logging.getLogger(__name__)


async def take_slot(subject: Subject, limit: int) -> int | None:
    """Claim one of the request's calls, the first that is free, and return its number from 0; None where none is.

    Args:
        subject: The call that a judge is about to be asked for.
        limit: Calls of the whole request, at least 1.

    Raises:
        JournalError: The store could not be asked. Whether a call was claimed may then be unknown; it is not used.
    """
    slots = [keys.judge_slot(subject.root, number) for number in range(limit)]
    value: JsonValue = {"f": FORMAT, "call": f"{subject.run}/{subject.call}"}
    read = await subject.journal.get_many(slots)
    for number, entry in enumerate(read.entries):
        if entry is not None:
            continue
        ops = (fence_check(subject.root, subject.fence), Create(slots[number], value))
        result = await subject.journal.apply(ops, batch=new_batch())
        if isinstance(result, Applied):
            return number
        if result.op == 0:
            logger.warning("run %s is driven by somebody else by now: no judge is asked for it here", subject.root)
            return None
    return None
