"""Many runs over one store: they wait for each other, and none for ever."""

import asyncio

from gnl_core import Context, run_durable, tool
from gnl_core.testing import ScriptedModel


async def test_s71_fifty_runs_at_once_over_one_writer_and_one_reader_all_finish(journal, effects):
    gate = asyncio.Event()

    @tool
    async def charge(ctx: Context, order: int) -> str:
        """Charge."""
        await gate.wait()  # all fifty hold their lock and their claim before the first goes on
        return effects.fire("charge", ctx, f"r-{order}")

    async def drive(number):
        model = ScriptedModel([[("charge", {"order": number})], f"done {number}"])
        return await run_durable(run_id=f"r-{number}", journal=journal, model=model, tools=[charge], prompt="go")

    drives = [asyncio.ensure_future(drive(number)) for number in range(50)]
    while sum(1 for task in asyncio.all_tasks() if task.get_name().startswith("heartbeat of r-")) < 50:
        await asyncio.sleep(0)
    gate.set()
    async with asyncio.timeout(60):
        results = await asyncio.gather(*drives)
    assert [result.text for result in results] == [f"done {number}" for number in range(50)]
    assert effects.count() == 50
    assert set(effects.counts().values()) == {1}
