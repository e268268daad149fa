"""Many runs over one store: they wait for each other, and none for ever."""

import asyncio

from gnl_core import Context, run_durable, tool
from gnl_core.testing import ScriptedModel


async def test_s71_fifty_runs_at_once_over_one_writer_and_one_reader_all_finish(journal, effects):
    together = asyncio.Barrier(50)

    @tool
    async def charge(ctx: Context, order: int) -> str:
        """Charge."""
        await together.wait()  # all fifty hold their lock and their claim before the first goes on
        return effects.fire("charge", ctx, f"r-{order}")

    async def drive(number):
        model = ScriptedModel([[("charge", {"order": number})], f"done {number}"])
        return await run_durable(run_id=f"r-{number}", journal=journal, model=model, tools=[charge], prompt="go")

    async with asyncio.timeout(60):
        results = await asyncio.gather(*(drive(number) for number in range(50)))
    assert [result.text for result in results] == [f"done {number}" for number in range(50)]
    assert effects.count() == 50
    assert set(effects.counts().values()) == {1}
