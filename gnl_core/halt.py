"""Cancel a run: nothing new starts in it, for good."""

from __future__ import annotations

from gnl_core import keys
from gnl_core.decisions import load_rows
from gnl_core.errors import ChildRunError, RunBusyError, RunNotFoundError
from gnl_core.journal.port import Applied, Create, Expect, Journal, JsonValue, Op, new_batch
from gnl_core.lock import holder, release_op
from gnl_core.outcome import changed, head_ops, read_head
from gnl_core.records import FORMAT

_TRIES = 20


async def cancel_run(journal: Journal, run_id: str, *, actor: str | None = None, reason: str | None = None) -> bool:
    """Cancel a run and its sub-agents. What is recorded stays, and a run that is over stays as it ended.

    Whoever drives it meets the flag with the next thing that would begin, or with its end, and gets a `CanceledError`.
    A body that runs already is not stopped.

    Args:
        journal: The store.
        run_id: A root run.
        actor: Who cancels.
        reason: Why.

    Returns:
        Whether this call canceled it; False where it was canceled, or over, before.

    Raises:
        RunNotFoundError: No such run.
        ChildRunError: It is a sub-agent's: cancel its root.
        RunBusyError: It is begun and ended by others so fast that no state of it stands long enough; try again.
        JournalError: The store cannot be used.
    """
    root, part = keys.split_run_id(run_id)
    if part != keys.ROOT:
        raise ChildRunError(f"run {run_id!r} is a sub-agent's; cancel its root run {root!r}", run_id=run_id, root=root)
    for _ in range(_TRIES):
        rows, now = await load_rows(journal, root)
        head = read_head(rows.get(keys.head(root)))
        if head is None:
            raise RunNotFoundError(f"there is no run {run_id!r} in this journal", run_id=run_id)
        if keys.halt(root) in rows or head.get("status") == "completed":
            return False
        flag: JsonValue = {"f": FORMAT, "canceled": True, "actor": actor, "reason": reason}
        lock = rows.get(keys.lock(root))
        ops: list[Op] = [Create(keys.halt(root), flag)]
        if holder(lock, rows.get(keys.beat(root)), now) is not None:
            assert lock is not None
            ops.append(Expect(keys.lock(root), lock.version))
        else:
            # Nobody drives it: its head is nobody else's to write. Who is only taken for dead is fenced off by this.
            ops.append(release_op(root, lock.version) if lock is not None else Expect(keys.lock(root), "absent"))
            ops += head_ops(root, keys.ROOT, head, changed(head, "canceled", now))
        if isinstance(await journal.apply(ops, batch=new_batch()), Applied):
            return True
    raise RunBusyError(
        f"run {run_id!r} was changed by others {_TRIES} times while it was to be canceled, and is not; try again",
        retry_after=1,
        run_id=run_id,
    )
