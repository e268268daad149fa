"""A run in progress is listed and read by others; `benchmarks/watch.py` measures what that costs it."""

import asyncio

from gnl_core import list_runs, read_run, run_durable, tool
from gnl_core.errors import RunNotFoundError
from gnl_core.testing import ScriptedModel

STEPS = 6


class Watcher:
    """Looks without pause, and lets the run go on only after it has looked once more."""

    def __init__(self, journal):
        self.journal = journal
        self.looked = asyncio.Condition()
        self.looks = []

    async def look_on(self):
        while True:
            listed = await list_runs(self.journal)
            assert listed.problems == ()
            try:
                view = await read_run(self.journal, "r")
            except RunNotFoundError:
                view = None
            async with self.looked:
                self.looks.append(([run.status for run in listed.runs], view))
                self.looked.notify_all()

    async def one_more(self):
        async with self.looked:
            # The look that is under way may have read before; the next one has not.
            until = len(self.looks) + 2
            await self.looked.wait_for(lambda: len(self.looks) >= until)


async def test_s89_a_run_is_listed_and_shown_at_every_moment_of_its_drive(common):
    async with common.open() as mine, common.open() as others:
        watcher = Watcher(others.runs)
        booked = []

        @tool(side_effect=True)
        async def book(order: int) -> int:
            """Book."""
            await watcher.one_more()
            booked.append(order)
            return order

        def answer(number):
            async def turn(_request):
                await watcher.one_more()
                return [("book", {"order": number})] if number < STEPS else "Done."

            return turn

        looking = asyncio.create_task(watcher.look_on())
        driving = asyncio.create_task(
            run_durable(
                run_id="r",
                journal=mine.runs,
                model=ScriptedModel([answer(number) for number in range(STEPS + 1)]),
                tools=[book],
                prompt="Book them all.",
            )
        )
        try:
            await asyncio.wait({looking, driving}, return_when=asyncio.FIRST_COMPLETED)
            assert not looking.done(), looking.exception()
            assert driving.result().text == "Done."
            await watcher.one_more()
        finally:
            driving.cancel()
            looking.cancel()
            await asyncio.gather(driving, looking, return_exceptions=True)

    assert booked == list(range(STEPS))
    views = [view for _, view in watcher.looks if view is not None]
    assert [view.problems for view in views] == [()] * len(views)
    seen = [len(view.steps) for view in views]
    assert seen == sorted(seen)
    assert set(seen) == set(range(STEPS + 2))
    during = [(statuses, view) for statuses, view in watcher.looks if view is not None and view.run.status == "running"]
    assert {status for statuses, _ in during for status in statuses} <= {"running", "completed"}
    begun = {call.id for _, view in during for step in view.steps for call in step.calls if call.status == "running"}
    assert begun == {f"s{number}p0" for number in range(STEPS)}
    assert views[-1].run.status == "completed"
    assert watcher.looks[-1][0] == ["completed"]
