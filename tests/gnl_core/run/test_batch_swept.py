"""Items whose runs a sweep has taken: what their batch did is not done again, however the batch was broken off."""

import asyncio

import pytest

from gnl_core import Allow, create_batch, purge_batch, read_batch, sweep_runs, tool

ITEMS = [{"order": name} for name in "abcd"]


class Work:
    """A batch, and the same one under a guard that stops at its third item for good."""

    def __init__(self, journal, effects):
        self.at_it = asyncio.Event()

        @tool(side_effect=True)
        async def ship(order: str) -> str:
            return effects.fire("ship", order, "shipped")

        async def guard(call):
            if call.args["order"] == "c":
                self.at_it.set()
                await asyncio.Event().wait()
            return Allow()

        options = {"journal": journal, "tool": ship, "item_key": "order", "concurrency": 1}
        self.batch, self.broken = create_batch(**options), create_batch(**options, guard=guard)

    async def break_off(self):
        """Let the batch go no further than to its third item, and keep no report."""
        token = (await self.broken.preflight("march", ITEMS)).token
        running = asyncio.ensure_future(self.broken.run("march", ITEMS, plan_token=token))
        await self.at_it.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def go(self):
        return await self.batch.run("march", ITEMS, plan_token=(await self.batch.preflight("march", ITEMS)).token)


@pytest.fixture
def work(journal, effects):
    return Work(journal, effects)


async def swept(journal, **options):
    before = await journal.now()
    async with asyncio.timeout(30):
        while await journal.now() <= before + 1:  # noqa: ASYNC110 - it is the store's clock that is waited for
            await asyncio.sleep(0.001)
    return await sweep_runs(journal, older_than_ms=0, **options)


async def test_what_a_batch_did_before_it_was_broken_off_waits_for_its_report(journal, work, effects):
    await work.break_off()
    kept = await swept(journal)
    assert (kept.purged, kept.kept_suspended) == (1, 2), "the third has come to nothing"
    assert "for their batch to be run to its report" in " ".join(kept.why)
    assert (await work.go()).counts == {"replayed": 2, "done": 2}
    assert (await swept(journal)).purged == 4, "now the report says it"
    assert {(one.outcome, one.code) for one in (await work.go()).items} == {("not-run", "run_swept")}
    assert effects.counts() == {f"ship {name}": 1 for name in "abcd"}


async def test_an_item_that_was_found_done_is_done_for_the_report_too(journal, work, effects):
    """The run that did it was killed; the one that reported only read it."""
    await work.break_off()
    await work.go()
    await work.go()
    view = await read_batch(journal, "march")
    assert {outcome for outcome, _ in view.outcomes.values()} == {"replayed", "done"}
    await swept(journal)
    await work.go()
    assert effects.counts() == {f"ship {name}": 1 for name in "abcd"}


async def test_the_ttl_of_what_waits_ends_that_too(journal, work):
    await work.break_off()
    assert (await swept(journal, suspended_ttl_ms=0)).purged == 3


async def test_a_batch_that_was_purged_keeps_no_item(journal, work):
    await work.break_off()
    await work.go()
    await purge_batch(journal, "march")
    assert (await swept(journal)).scanned == 0
    assert (await work.go()).counts == {"done": 4}
