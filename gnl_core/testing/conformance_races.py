"""Conformance: many tasks, threads and event loops at once; cancellation; the end."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from gnl_core.errors import StoreUnavailableError
from gnl_core.journal.port import Add, Applied, Create, Delete, Expect, Key, Op, Put, Replace, new_batch
from gnl_core.testing.conformance_base import JournalCase, absent, everything, raises, row, value, write


def _in_threads(count: int, work: Callable[[int], Coroutine[Any, Any, None]]) -> list[BaseException]:
    """Run a coroutine in each of some threads, with an event loop of its own. Returns what they raised."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            asyncio.run(work(number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


class RaceCases(JournalCase):
    """Linearizable: as if each batch had happened at one moment between its call and its answer."""

    async def test_one_of_many_tasks_wins_a_claim(self) -> None:
        """Each loser is shown the winner's row."""
        async with self.opened() as journal:
            claims = [Create(("claim",), number) for number in range(50)]
            results = await asyncio.gather(*(journal.apply([claim], batch=new_batch()) for claim in claims))
            winners = [number for number, result in enumerate(results) if isinstance(result, Applied)]
            assert len(winners) == 1
            for result in results:
                if not isinstance(result, Applied):
                    assert result.found is not None
                    assert result.found.value == winners[0]

    async def test_one_of_many_threads_wins_each_claim(self) -> None:
        """Threads with event loops of their own, beside the test's."""
        async with self.opened() as journal:
            won: list[tuple[int, int]] = []

            async def work(number: int) -> None:
                for claim in range(25):
                    op = Create(("claim", str(claim)), number)
                    result = await journal.apply([op], batch=new_batch())
                    won.extend([(claim, number)] * isinstance(result, Applied))

            failures, _ = await asyncio.gather(asyncio.to_thread(_in_threads, 6, work), work(99))
            assert failures == []
            assert sorted(claim for claim, _ in won) == list(range(25))
            assert {(int(key[1]), number) for key, number in (await everything(journal)).items()} == set(won)

    async def test_no_addition_is_lost(self) -> None:
        """Counters and compare-and-set agree under threads."""
        async with self.opened() as journal:
            await write(journal, Create(("cas",), 0))

            async def work(number: int) -> None:
                for _ in range(20):
                    await write(journal, Add(("sum",), {"n": 1, f"of {number}": 1}))
                    while True:
                        entry = await row(journal, "cas")
                        assert isinstance(entry.value, int)
                        op = Replace(("cas",), entry.version, entry.value + 1)
                        if isinstance(await journal.apply([op], batch=new_batch()), Applied):
                            break

            assert await asyncio.to_thread(_in_threads, 4, work) == []
            assert await value(journal, "cas") == 80
            assert await value(journal, "sum") == {"n": 80, **{f"of {number}": 20 for number in range(4)}}

    async def test_what_was_acknowledged_is_read(self) -> None:
        """By any call that begins after the answer, and a batch is seen whole or not at all."""
        async with self.opened() as journal:
            done = asyncio.Event()

            async def look() -> None:
                while not done.is_set():
                    read = await journal.get_many([("x",), ("y",)])
                    values = [entry and entry.value for entry in read.entries]
                    assert values[0] == values[1]
                    page = await journal.scan(())
                    assert len({entry.value for entry in page.entries if isinstance(entry.value, int)}) <= 1

            async def move() -> None:
                try:
                    for number in range(60):
                        await write(journal, Put(("x",), number), Put(("y",), number))
                        assert await value(journal, "y") == number
                finally:
                    done.set()

            await asyncio.gather(move(), look(), look())

    async def test_a_cancelled_call_waits_for_its_outcome(self) -> None:
        """Then it raises `CancelledError`; what is there afterwards is there for good."""
        async with self.opened() as journal:
            for number in range(20):
                task = asyncio.create_task(journal.apply([Create(("c", str(number)), 1)], batch=new_batch()))
                for _ in range(number % 3):
                    await asyncio.sleep(0)
                cancelled = task.cancel()
                outcome = (await asyncio.gather(task, return_exceptions=True))[0]
                assert isinstance(outcome, asyncio.CancelledError if cancelled else Applied)
                present = not await absent(journal, "c", str(number))
                for _ in range(3):
                    await write(journal, Put(("other",), 1))
                    assert present == (not await absent(journal, "c", str(number)))

    async def test_a_closed_journal_says_so(self) -> None:
        """Calls raise `StoreUnavailableError`; a second close does nothing."""
        journal = await self.make_journal()
        await write(journal, Create(("a",), 1))
        scoped = journal.scoped("org")
        await scoped.aclose()
        await write(journal, Create(("b",), 1))
        await journal.aclose()
        await journal.aclose()
        for each in (journal, scoped):
            with raises(StoreUnavailableError, naming="closed"):
                await each.apply([Put(("a",), 2)], batch=new_batch())
            with raises(StoreUnavailableError, naming="closed"):
                await each.get_many([("a",)])
            with raises(StoreUnavailableError, naming="closed"):
                await each.scan(())
            with raises(StoreUnavailableError, naming="closed"):
                await each.now()

    async def test_what_is_known_of_a_store(self) -> None:
        """Its id is its own; its capabilities are among the announced names."""
        async with self.opened() as journal, self.opened() as other:
            assert journal.store_id == journal.store_id
            assert journal.store_id != other.store_id
            assert journal.capabilities <= {"ordered", "blobs", "durable"}

    async def test_random_batches_agree_with_a_simple_model(self) -> None:
        """Two thousand operations on few keys, beside a dictionary."""
        async with self.opened() as journal:
            model = Model()
            rng = random.Random(20)  # noqa: S311 - the same batches each time
            for _ in range(400):
                ops = model.random_batch(rng)
                expected = model.apply(ops)
                result = await journal.apply(ops, batch=new_batch())
                assert (-1 if isinstance(result, Applied) else result.op) == expected, ops
                if isinstance(result, Applied):
                    model.learn(ops, result)
            assert await everything(journal) == {key: value for key, (value, _) in model.rows.items()}


class Model:
    """What a journal should do, in the simplest words: a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[Key, tuple[Any, int]] = {}

    def random_batch(self, rng: random.Random) -> list[Op]:
        """Return up to five operations on different keys."""
        return [self._random_op(rng, (str(number),)) for number in rng.sample(range(8), rng.randint(1, 5))]

    def _random_op(self, rng: random.Random, key: Key) -> Op:
        version = self.rows[key][1] if key in self.rows and rng.random() < 0.8 else rng.randint(0, 50)
        kinds: list[Op] = [
            Create(key, rng.randint(0, 9)),
            Create(key, {"n": 1}, if_present="keep"),
            Put(key, {"n": rng.randint(0, 9)}),
            Replace(key, version, [1]),
            Delete(key),
            Delete(key, version),
            Add(key, {"n": 2}),
            Expect(key, rng.choice(["absent", "present", version])),
        ]
        return rng.choice(kinds)

    def apply(self, ops: list[Op]) -> int:
        """Return the index of the operation that refuses the batch, -1 where none does; then it is written."""
        for index, op in enumerate(ops):
            if not self._holds(op, self.rows.get(op.key)):
                return index
        return -1

    def _holds(self, op: Op, old: tuple[Any, int] | None) -> bool:
        if isinstance(op, Create):
            return old is None or op.if_present == "keep"
        if isinstance(op, Replace) or (isinstance(op, Delete) and op.version is not None):
            return old is not None and old[1] == op.version
        if isinstance(op, Add):
            return old is None or isinstance(old[0], dict)
        if isinstance(op, Expect):
            return {"absent": old is None, "present": old is not None}.get(
                str(op.version), old is not None and old[1] == op.version
            )
        return True

    def learn(self, ops: list[Op], result: Applied) -> None:
        """Write a batch that was applied."""
        for op in ops:
            old = self.rows.get(op.key)
            if isinstance(op, Delete):
                self.rows.pop(op.key, None)
            elif isinstance(op, Add):
                total = dict(old[0]) if old else {}
                for name, number in op.by.items():
                    total[name] = total.get(name, 0) + number
                self.rows[op.key] = (total, result.version)
            elif isinstance(op, Create | Replace | Put) and not (
                isinstance(op, Create) and op.if_present == "keep" and old is not None
            ):
                self.rows[op.key] = (op.value, result.version)
