"""The schema that a model reads, and what becomes of the arguments that it writes."""

import enum
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field
from typing_extensions import TypedDict  # pydantic's need below Python 3.12

from gnl_core.context import Context
from gnl_core.errors import ToolArgumentsError, ToolDeclarationError
from gnl_core.tools import tool

# Schema ------------------------------------------------------------------------------------------------------------


class Line(BaseModel):
    """One line of an order."""

    sku: str
    qty: int = 1


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    name: str
    children: "list[Node]" = []


@dataclass
class Address:
    city: str
    zip: str | None = None


class Filter(TypedDict):
    field: str
    value: NotRequired[int]


def test_the_schema_is_an_object_with_types_defaults_and_descriptions():
    @tool
    def charge(
        amount: Decimal,
        customer: Annotated[str, Field(description="Number of the customer.", min_length=1)],
        currency: Literal["EUR", "TRY"] = "EUR",
        note: str = None,  # noqa: RUF013 - a default of None lets a model pass null
        tags: list[str] = ["a"],  # noqa: B006
        due: Annotated[date | None, "Day of the payment."] = None,
    ) -> str:
        """Charge a customer's card
        with an amount.

        The second paragraph is for people.

        Args:
            amount: How much, in the currency;
                two decimals: no more.
            customer (str): Not read, the annotation says more.
            *currency*: Not an item.
            note: Text for the receipt.

        Returns:
            note: Not an item either.
        """
        return "ok"

    assert charge.spec.name == "charge"
    assert charge.spec.description == "Charge a customer's card with an amount."
    assert charge.spec.parameters is charge.parameters
    schema = charge.parameters
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["amount", "customer"]
    assert list(schema["properties"]) == ["amount", "customer", "currency", "note", "tags", "due"]
    assert schema["properties"]["amount"]["description"].startswith("How much, in the currency; two decimals: no more.")
    assert schema["properties"]["customer"] == {
        "type": "string",
        "minLength": 1,
        "description": "Number of the customer.",
    }
    assert schema["properties"]["currency"] == {"type": "string", "enum": ["EUR", "TRY"], "default": "EUR"}
    assert schema["properties"]["note"]["description"] == "Text for the receipt."
    assert {"type": "null"} in schema["properties"]["note"]["anyOf"]
    assert schema["properties"]["tags"] == {"type": "array", "items": {"type": "string"}, "default": ["a"]}
    assert schema["properties"]["due"]["description"] == "Day of the payment."
    json.dumps(schema, allow_nan=False)


def test_a_tool_without_parameters_has_an_empty_object():
    @tool
    def ping() -> str:
        return "pong"

    assert ping.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert ping.description == ""
    assert ping.validate({}) == {}


def test_nested_types_stand_in_defs_and_every_ref_resolves():
    @tool
    def order(lines: list[Line], color: Color, tree: Node, address: Address, filters: dict[str, Filter]) -> None: ...

    schema = order.parameters
    refs = [part.split('"')[0] for part in json.dumps(schema).split('"$ref": "')[1:]]
    assert refs
    for ref in refs:
        assert ref.removeprefix("#/$defs/") in schema["$defs"]
    assert schema["$defs"]["Line"]["description"] == "One line of an order."
    assert schema["$defs"]["Color"]["enum"] == ["red", "blue"]
    typed = order.validate(
        {
            "lines": [{"sku": "a"}],
            "color": "blue",
            "tree": {"name": "root", "children": [{"name": "leaf"}]},
            "address": {"city": "İzmir"},
            "filters": {"x": {"field": "f"}},
        }
    )
    assert typed == {
        "lines": [Line(sku="a", qty=1)],
        "color": Color.BLUE,
        "tree": Node(name="root", children=[Node(name="leaf")]),
        "address": Address("İzmir"),
        "filters": {"x": {"field": "f"}},
    }


def test_parameters_may_have_names_that_pydantic_uses_itself():
    @tool
    def odd(json: str, copy: int, model_config: str, _private: int, schema: bool, a0: int, a1: str = "x") -> None: ...

    args = {"json": "j", "copy": 1, "model_config": "m", "_private": 2, "schema": True, "a0": 7}
    assert list(odd.parameters["properties"]) == [*args, "a1"]
    assert odd.validate(args) == {**args, "a1": "x"}
    with pytest.raises(ToolArgumentsError, match="a2: is no argument"):
        odd.validate({**args, "a2": 1})


def test_the_context_is_not_shown_to_a_model():
    @tool
    def act(a: int, context: Context, maybe: Context | None = None, noted: Annotated[Context, "x"] = None) -> None: ...

    assert list(act.parameters["properties"]) == ["a"]
    with pytest.raises(ToolArgumentsError, match="context: is no argument"):
        act.validate({"a": 1, "context": {}})


def test_importing_the_tools_loads_no_pydantic_before_the_first_tool():
    program = (
        "import sys, gnl_core.tools, gnl_core.context, gnl_core.codec, gnl_core.canonical\n"
        "gnl_core.canonical.args_hash({'a': {1}}); gnl_core.codec.encode([object.__doc__, (1,)])\n"
        "assert 'pydantic' not in sys.modules\n"
        "def f(a: int): pass\n"
        "gnl_core.tools.tool(f)\n"
        "assert 'pydantic' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# Refused declarations ----------------------------------------------------------------------------------------------


class Opaque:
    pass


def no_hint(amount): ...
def positional(a: int, /, b: int): ...
def star(*values: int): ...
def stars(**values: int): ...
def opaque(fine: int, thing: Opaque): ...
def nested(fine: int, things: dict[str, list[Opaque]]): ...
def callback(fine: int, then: Callable[[], int]): ...
def unresolved(fine: int, thing: "Missing"): ...  # noqa: F821
def field_default(a: int = Field(default=1)): ...
def numbers(n: int):
    yield n


async def letters(n: int):
    yield n


class Shop:
    def buy(self, sku: str) -> str:
        return f"bought {sku}"

    @classmethod
    def open(cls, day: str) -> str:
        return f"{cls.__name__} opens {day}"

    @staticmethod
    def greet(name: str) -> str:
        return f"hello {name}"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_hint, ["'no_hint'", "'amount'", "type hint"]),
        (Shop.buy, ["'buy'", "'self'", "bound method"]),
        (positional, ["'positional'", "'a'", "positional-only"]),
        (star, ["'star'", "*values"]),
        (stars, ["'stars'", "**kwargs"]),
        (opaque, ["'opaque'", "'thing'"]),
        (nested, ["'nested'", "'things'"]),
        (callback, ["'callback'", "'then'"]),
        (unresolved, ["'unresolved'", "'thing'", "Missing", "TYPE_CHECKING"]),
        (field_default, ["'field_default'", "'a'", "Annotated"]),
        (numbers, ["'numbers'", "generator"]),
        (letters, ["'letters'", "generator"]),
        (lambda: 0, ["<lambda>", "name="]),
        (print, ["'print'", "wrap it in a def"]),
        (Shop(), ["'Shop'", "wrap it in a def"]),
        (Shop, ["'Shop'", "wrap it in a def"]),
    ],
)
def test_a_function_that_makes_no_tool_is_refused_by_name_and_parameter(function, words):
    with pytest.raises(ToolDeclarationError) as error:
        tool(function)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_methods_and_static_functions_make_tools():
    shop = Shop()
    assert tool(shop.buy).invoke({"sku": "a"}, None) == "bought a"
    assert tool(Shop.open).invoke({"day": "Monday"}, None) == "Shop opens Monday"
    assert tool(Shop.greet).invoke({"name": "Ada"}, None) == "hello Ada"
    assert tool(shop.buy).parameters["required"] == ["sku"]


# Validation --------------------------------------------------------------------------------------------------------


@tool
def pay(amount: Decimal, count: int, at: datetime, ref: UUID, ratio: float = 1.0, extra: Any = None) -> None: ...


GOOD = {"amount": "1.10", "count": 2, "at": "2026-01-31T12:00:00Z", "ref": "12345678-1234-5678-1234-567812345678"}


def test_json_becomes_the_types_of_the_hints_and_defaults_are_filled_in():
    typed = pay.validate({**GOOD, "count": 2.0})
    assert typed == {
        "amount": Decimal("1.10"),
        "count": 2,
        "at": datetime.fromisoformat("2026-01-31T12:00:00+00:00"),
        "ref": UUID("12345678-1234-5678-1234-567812345678"),
        "ratio": 1.0,
        "extra": None,
    }
    assert type(typed["count"]) is int


def test_the_message_of_a_misfit_names_field_and_problem_for_the_model():
    with pytest.raises(ToolArgumentsError) as error:
        pay.validate({"amount": "much", "count": "2.5", "at": "noon", "surname": "x"})
    text = str(error.value)
    for part in ("'pay'", "amount: ", "count: ", "at: ", "ref: is missing", "surname: is no argument of this tool"):
        assert part in text
    assert text.endswith("It takes: amount, count, at, ref, ratio, extra")
    assert "http" not in text
    assert "much" not in text
    assert error.value.detail["fields"] == ["amount", "count", "at", "ref", "surname"]


def test_a_misfit_deep_inside_names_its_path():
    @tool
    def order(lines: list[Line]) -> None: ...

    with pytest.raises(ToolArgumentsError, match=r"lines\[1\]\.qty: "):
        order.validate({"lines": [{"sku": "a"}, {"sku": "b", "qty": "many"}]})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, json.loads("1e400"), json.loads("NaN")])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [0, v], lambda v: {"a": {"b": [v]}}])
def test_s19_nan_and_infinities_anywhere_are_refused(value, wrap):
    with pytest.raises(ToolArgumentsError, match="finite number") as error:
        pay.validate({**GOOD, "extra": wrap(value)})
    assert "extra" in str(error.value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-inf", "1e400"])
def test_texts_that_spell_a_number_that_is_none_are_refused(text):
    for field in ("ratio", "amount"):
        if (field, text) != ("amount", "1e400"):  # a Decimal holds that number
            with pytest.raises(ToolArgumentsError, match=field):
                pay.validate({**GOOD, field: text})


def test_lone_surrogates_are_refused_in_values_and_keys():
    for extra in ("\ud800", ["a\udfff"], {"\ud800": 1}, {"a": {"b\udc00": 1}}):
        with pytest.raises(ToolArgumentsError, match="surrogate") as error:
            pay.validate({**GOOD, "extra": extra})
        str(error.value).encode()


def test_deep_and_huge_arguments_are_refused_or_taken_but_never_crash():
    deep = 0
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ToolArgumentsError, match="nested more than 100 levels"):
        pay.validate({**GOOD, "extra": deep})
    loop = {}
    loop["again"] = loop
    with pytest.raises(ToolArgumentsError, match="nested"):
        pay.validate({**GOOD, "extra": loop})

    @tool
    def total(values: list[int]) -> None: ...

    assert len(total.validate({"values": list(range(100_000))})["values"]) == 100_000
    with pytest.raises(ToolArgumentsError) as error:
        total.validate({"values": ["x"] * 10_000, "k" * 10_000: 1})
    assert "and 9993 more" in str(error.value)
    assert len(str(error.value)) < 3_000


@pytest.mark.parametrize("args", [None, [], "a", 7, [("amount", 1)]])
def test_arguments_that_are_no_object_are_refused(args):
    with pytest.raises(ToolArgumentsError, match="must be a JSON object"):
        pay.validate(args)


def test_a_validator_of_the_tools_own_may_refuse_and_may_be_broken():
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return 7 // value and value

    @tool
    def halve(n: Annotated[int, AfterValidator(even)]) -> None: ...

    assert halve.validate({"n": 2}) == {"n": 2}
    with pytest.raises(ToolArgumentsError, match="n: Value error, must be even"):
        halve.validate({"n": 3})
    with pytest.raises(ToolArgumentsError, match="could not be checked: ZeroDivisionError"):
        halve.validate({"n": 0})


def test_what_was_written_is_left_as_it_was():
    args = {**GOOD, "extra": {"a": [1.0]}}
    before = json.dumps(args)
    pay.validate(args)["extra"]["a"].append(2)
    assert json.dumps(args) == before


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "ratio", "extra", "more"]), json_values))
def test_whatever_a_model_writes_fits_or_is_a_typed_error(args):
    try:
        typed = pay.validate(args)
    except ToolArgumentsError as error:
        str(error).encode()  # it goes back to the model
    else:
        assert list(typed) == ["amount", "count", "at", "ref", "ratio", "extra"]
