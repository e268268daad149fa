"""What a question about earlier work says of the two."""

import pytest

from gnl_core import tool
from gnl_core.prior import Prior
from gnl_core.repeats import question_about


@tool(side_effect=True)
async def order(item: str) -> str:
    """Order."""
    return item


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (("sku",), "identity fields (sku) differ;"),
        (("subject", "customer"), "identity fields (subject, customer) are not all equal;"),
    ],
)
def test_a_judges_question_claims_of_no_single_field_among_several_that_it_differs(fields, said):
    prior = Prior(origin="judge", run_id="r", tool_call_id="s0p0", at=1, sentence="order: tv", identity_keys=fields)
    assert said in question_about(prior, order, 2)
