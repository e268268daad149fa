"""What the tool's schema lacks, no declaration can separate."""

import pytest

from gnl_core import Context, Duplicates, RunLimits, SemanticIdentity, run_durable, tool
from gnl_core.testing import ScriptedModel
from gnl_semantic import SemanticGate

ORDERS = ({"sku": "TV-42", "warehouse": "İzmir"}, {"sku": "tv-42", "warehouse": "Ankara"})


@pytest.mark.parametrize("has_warehouse", [True, False])
async def test_two_orders_for_two_warehouses_are_one_to_a_tool_that_has_no_warehouse(
    journal, effects, embed, has_warehouse
):
    if has_warehouse:

        @tool(semantic_identity=SemanticIdentity(keys=("sku", "warehouse")))
        def create_order(ctx: Context, sku: str, warehouse: str) -> str:
            return str(effects.fire("create_order", ctx, sku + warehouse))
    else:

        @tool(semantic_identity=SemanticIdentity(keys=("sku",)))
        def create_order(ctx: Context, sku: str) -> str:
            return str(effects.fire("create_order", ctx, sku))

    gate = SemanticGate(embed=embed, embed_model_id="fake@1", rules=True)
    limits = RunLimits(side_effect_duplicates=Duplicates(scope="thread", semantic=gate))
    asked = []
    for number, order in enumerate(ORDERS):
        args = order if has_warehouse else {"sku": order["sku"]}
        result = await run_durable(
            run_id=f"run-{number}",
            journal=journal,
            model=ScriptedModel([[("create_order", args)], "done"]),
            tools=[create_order],
            prompt="One more, for the other warehouse.",
            thread_id="t",
            limits=limits,
        )
        asked += result.interrupts
    assert (len(asked), effects.count()) == ((0, 2) if has_warehouse else (1, 1))
