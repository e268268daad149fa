"""Type hints that are text, as `from __future__ import annotations` makes them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Optional

import pytest
from pydantic import BaseModel

from gnl_core.context import Context, current_context
from gnl_core.errors import ToolDeclarationError
from gnl_core.tools import tool

if TYPE_CHECKING:
    from decimal import Decimal

CONTEXT = Context(run_id="r-1", tool_call_id="s0p0", tool_name="t", idempotency_key="r-1:s0p0")


@tool
def plain(a: int, context: Context) -> tuple[int, Context]:
    return a, context


@tool
def optional(a: int, context: Context | None = None) -> tuple[int, Context | None]:
    return a, context


@tool
def old_style(a: int, context: Optional[Context] = None) -> tuple[int, Context | None]:  # noqa: UP045 - people write it
    return a, context


@pytest.mark.parametrize("made", [plain, optional, old_style], ids=lambda made: made.name)
def test_the_context_is_found_and_filled_in(made):
    assert list(made.parameters["properties"]) == ["a"]
    assert made.invoke(made.validate({"a": 1}), CONTEXT) == (1, CONTEXT)


def test_a_class_of_the_declaring_function_is_found():
    class Local(BaseModel):
        n: int

    @tool
    def take(local: Local) -> int:
        return local.n

    @tool(side_effect=False)
    def take_too(local: Local) -> int:
        return local.n

    for made in (take, take_too):
        assert made.invoke(made.validate({"local": {"n": 3}}), None) == 3


def test_a_return_hint_that_only_the_type_checker_knows_is_not_needed():
    @tool
    def price(sku: str) -> Decimal: ...

    assert price.parameters["required"] == ["sku"]


def test_a_parameters_hint_that_only_the_type_checker_knows_is_refused_by_name():
    with pytest.raises(ToolDeclarationError, match=r"'amount'.*Decimal.*TYPE_CHECKING"):

        @tool
        def pay(amount: Decimal) -> None: ...


def test_a_wrapped_function_shows_its_own_signature():
    def logged(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return ["logged", function(*args, **kwargs)]

        return inner

    @tool
    @logged
    def double(n: int, context: Context) -> int:
        """Double a number."""
        assert context is current_context()
        return 2 * n

    assert double.description == "Double a number."
    assert double.parameters["properties"] == {"n": {"type": "integer"}}
    assert double.invoke({"n": 2}, CONTEXT) == ["logged", 4]
