"""What a tool says of itself, how it is called, and which declarations are refused."""

import asyncio
import dataclasses
import threading
from decimal import Decimal

import pytest

from gnl_core.approvals import MISSING
from gnl_core.canonical import args_hash
from gnl_core.context import Context, current_context
from gnl_core.errors import ConfigError, NotCanonicalError, ToolArgumentsError, ToolDeclarationError
from gnl_core.identity import SemanticIdentity
from gnl_core.tools import Settled, Tool, check_tool_policy, check_tools, parse_settlement, tool

CONTEXT = Context(run_id="r-1", tool_call_id="s0p0", tool_name="charge", idempotency_key="r-1:s0p0", attempt=2)


def charge(order_id: str, amount: Decimal = Decimal(1)) -> str:
    """Charge a card."""
    return f"{order_id}:{amount}"


async def charge_later(order_id: str) -> str:
    await asyncio.sleep(0)
    return order_id


# Declarations ------------------------------------------------------------------------------------------------------


def test_a_tool_with_and_without_parentheses():
    bare, empty, named = tool(charge), tool()(charge), tool(charge, name="pay", description="Pay.\n\nNow.")
    assert (bare.name, bare.description) == (empty.name, empty.description) == ("charge", "Charge a card.")
    assert (named.name, named.description) == ("pay", "Pay.\n\nNow.")
    assert all(isinstance(made, Tool) and made.function is charge for made in (bare, empty, named))
    with pytest.raises(dataclasses.FrozenInstanceError):
        bare.name = "other"
    assert len({bare, empty}) == 2


def test_calling_a_tool_runs_the_plain_function():
    assert tool(charge)("a", amount=2) == "a:2"
    assert asyncio.run(tool(charge_later)("a")) == "a"


@pytest.mark.parametrize(
    ("options", "side_effect", "declared"),
    [
        ({}, True, False),
        ({"side_effect": True}, True, True),
        ({"side_effect": False}, False, True),
        ({"side_effect": None}, True, False),
        ({"idempotent": True}, False, True),
        ({"idempotent": True, "side_effect": True}, True, True),
        ({"recover": lambda order_id: {"done": False}}, True, True),
        ({"lookup": lambda order_id: {"exists": False}}, True, False),
    ],
)
def test_an_undeclared_tool_is_a_side_effect_and_an_explicit_word_wins(options, side_effect, declared):
    made = tool(**options)(charge)
    assert (made.side_effect, made.declared) == (side_effect, declared)


@pytest.mark.parametrize(
    ("options", "args_mode"),
    [
        ({}, False),
        ({"idempotency": "call"}, False),
        ({"idempotency": "args"}, True),
        ({"idempotency_key": lambda args: args["order_id"]}, True),
        ({"window": "thread"}, True),
        ({"window": "cross-run"}, True),
        ({"window": "run"}, False),
    ],
)
def test_a_window_or_a_key_means_that_equal_arguments_are_the_same_work(options, args_mode):
    assert tool(**options)(charge).args_mode is args_mode


def test_every_option_stands_on_the_tool():
    options = {
        "side_effect": True,
        "idempotent": False,
        "idempotency": "args",
        "idempotency_key": lambda args: args["order_id"],
        "window": "thread",
        "recover": lambda: {"done": False},
        "lookup": lambda: {"exists": False},
        "confirm": lambda args: "big",
        "timeout": 2,
        "claim_ttl": 0.5,
        "max_retries": 1,
        "compensate": lambda output: None,
        "untrusted": True,
        "semantic_identity": SemanticIdentity(keys=("order_id",), amount_fields=("amount",)),
        "effect_class": "transactional",
    }
    made = tool(charge, **options)
    assert {name: getattr(made, name) for name in options} == options
    plain = tool(charge)
    assert (plain.timeout, plain.claim_ttl, plain.max_retries, plain.confirm, plain.untrusted) == (
        None,
        None,
        3,
        False,
        False,
    )
    assert (plain.is_async, tool(charge_later).is_async) == (False, True)
    assert dataclasses.replace(plain, drives_run=True).drives_run


async def async_key(args):
    return args["order_id"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "pay card"}, ["'pay card'", "A-Z"]),
        ({"name": "a:b"}, ["'a:b'"]),
        ({"name": "é"}, ["'é'"]),
        ({"name": "a" * 65}, ["1 to 64"]),
        ({"name": "a\n"}, ["1 to 64"]),
        ({"name": ""}, ["name", "not empty"]),
        ({"description": 7}, ["description", "text"]),
        ({"side_effect": "no"}, ["side_effect", "'no'"]),
        ({"idempotent": 1}, ["idempotent", "True or False"]),
        ({"idempotency": "key"}, ["idempotency", "'call' or 'args'"]),
        ({"idempotency": ["call"]}, ["idempotency", "'call' or 'args'"]),
        ({"idempotency_key": "order_id"}, ["idempotency_key", "a function"]),
        ({"idempotency_key": async_key}, ["idempotency_key", "async"]),
        ({"confirm": async_key}, ["confirm", "async"]),
        ({"confirm": "yes"}, ["confirm"]),
        ({"window": "forever"}, ["window", "'cross-run'"]),
        ({"timeout": 0}, ["timeout", "seconds over 0"]),
        ({"timeout": float("inf")}, ["timeout"]),
        ({"timeout": float("nan")}, ["timeout"]),
        ({"timeout": True}, ["timeout"]),
        ({"timeout": "30"}, ["timeout"]),
        ({"claim_ttl": -1}, ["claim_ttl"]),
        ({"max_retries": 0}, ["max_retries", "from 1"]),
        ({"max_retries": 2.0}, ["max_retries"]),
        ({"max_retries": True}, ["max_retries"]),
        ({"recover": True}, ["recover", "a function"]),
        ({"recover": lambda order: {}}, ["recover", "'order'", "amount, order_id"]),
        ({"lookup": lambda output: {}}, ["lookup", "'output'"]),
        ({"compensate": lambda result: {}}, ["compensate", "'result'", "output"]),
        ({"recover": lambda *values: {}}, ["recover of tool", "*values"]),
        ({"semantic_identity": ("order_id",)}, ["semantic_identity", "SemanticIdentity"]),
        (
            {"semantic_identity": SemanticIdentity(keys=("order",))},
            ["semantic_identity", "'order'", "keys", "order_id"],
        ),
        (
            {"semantic_identity": SemanticIdentity(keys=("order_id",), amount_fields=("sum",))},
            ["'sum'", "amount_fields"],
        ),
        ({"effect_class": ""}, ["effect_class", "'transactional'", "'notification'", "'delete'", "'external-api'"]),
        ({"effect_class": "payment"}, ["effect_class", "'payment'", "'idempotent-write'"]),
        ({"untrusted": None}, ["untrusted"]),
        ({"sideeffect": False}, ["sideeffect", "no option", "side_effect"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_an_option_that_cannot_mean_what_it_says_is_refused_by_name(options, words):
    with pytest.raises(ToolDeclarationError) as error:
        tool(charge, **options)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert isinstance(error.value, ConfigError)


def test_compensate_may_not_be_unsure_which_output_it_is_given():
    def write(output: str) -> None: ...

    with pytest.raises(ToolDeclarationError, match="rename the argument"):
        tool(write, compensate=lambda output: None)
    assert tool(write, compensate=lambda: None).compensate


def test_a_tool_of_a_tool_is_refused():
    with pytest.raises(ToolDeclarationError, match="a tool already"):
        tool(tool(charge))


# The name of the work ----------------------------------------------------------------------------------------------


def test_s18_s19_the_key_is_the_hash_of_the_arguments_as_written():
    made = tool(charge, idempotency="args")
    assert made.key_of({"order_id": "a", "amount": 100}) == args_hash({"amount": 100.0, "order_id": "a"})
    assert made.key_of({"order_id": "a", "amount": "100"}) != made.key_of({"order_id": "a", "amount": 100})


def test_the_idempotency_key_gets_typed_arguments_with_defaults():
    seen = []

    def key(args):
        seen.append(args)
        return args["order_id"], args["amount"]

    made = tool(charge, idempotency_key=key)
    same = {made.key_of({"order_id": "a", "amount": amount}) for amount in ("0.10", "0.1", "1E-1")}
    assert len(same) == 1
    made.key_of({"order_id": "a"})
    assert seen[-1] == {"order_id": "a", "amount": Decimal(1)}
    with pytest.raises(ToolArgumentsError, match="order_id: is missing"):
        made.key_of({})


@pytest.mark.parametrize("value", [None, "", ()])
def test_a_key_that_names_nothing_is_no_key(value):
    with pytest.raises(ToolArgumentsError, match="do not name the work"):
        tool(charge, idempotency_key=lambda args: value).key_of({"order_id": "a"})


def test_zero_and_false_are_keys():
    keys = {tool(charge, idempotency_key=lambda args, v=v: v).key_of({"order_id": "a"}) for v in (0, False, [], {})}
    assert len(keys) == 4


def test_s21_a_key_without_a_value_of_its_own_is_refused():
    made = tool(charge, idempotency_key=lambda args: object())
    with pytest.raises(NotCanonicalError, match="idempotency_key of tool 'charge'") as error:
        made.key_of({"order_id": "a"})
    assert "0x" not in str(error.value)


def test_a_key_function_that_fails_is_a_typed_error():
    made = tool(charge, idempotency_key=lambda args: args["order"])
    with pytest.raises(ToolArgumentsError, match="failed with KeyError"):
        made.key_of({"order_id": "a"})


# Calls -------------------------------------------------------------------------------------------------------------


def test_a_sync_body_gets_its_context_by_annotation_and_as_the_current_one():
    @tool
    def act(a: int, why: Context) -> tuple[int, Context, Context | None]:
        return a, why, current_context()

    assert act.invoke({"a": 1}, CONTEXT) == (1, CONTEXT, CONTEXT)
    assert current_context() is None


async def test_the_current_context_of_concurrent_bodies_is_their_own():
    barrier = asyncio.Barrier(2)

    @tool
    async def act() -> str:
        await barrier.wait()
        inside = current_context()
        await barrier.wait()
        assert current_context() is inside
        return inside.tool_call_id

    contexts = [dataclasses.replace(CONTEXT, tool_call_id=f"s0p{n}") for n in range(2)]
    assert await asyncio.gather(*(act.invoke({}, context) for context in contexts)) == ["s0p0", "s0p1"]
    assert current_context() is None


async def test_the_context_is_gone_after_a_body_that_raised():
    @tool
    async def act() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await act.invoke({}, CONTEXT)
    assert current_context() is None


async def test_a_sync_function_that_returns_an_awaitable_can_be_awaited():
    @tool
    def act(order_id: str):
        return charge_later(order_id)

    assert not act.is_async
    assert await act.invoke({"order_id": "a"}, None) == "a"


def test_a_context_has_a_flag_of_its_own():
    one, other = (Context(run_id="r", tool_call_id="c", tool_name="t", idempotency_key="k") for _ in "ab")
    one.cancelled.set()
    assert isinstance(other.cancelled, threading.Event)
    assert not other.cancelled.is_set()


ARGS = {"order_id": "a", "amount": Decimal(2)}


@pytest.mark.parametrize(
    ("hook", "result"),
    [
        (lambda: "none", "none"),
        (lambda order_id: order_id, "a"),
        (lambda amount, order_id: (order_id, amount), ("a", Decimal(2))),
        (lambda order_id, other=7: other, 7),
        (lambda **args: args, ARGS),
    ],
)
def test_a_hook_takes_as_many_arguments_as_its_signature_has(hook, result):
    made = tool(charge, recover=hook)
    assert made.call_hook(hook, ARGS, CONTEXT) == result


def test_a_hook_may_ask_for_the_context():
    def recover(order_id, ctx: Context):
        return order_id, ctx.idempotency_key, current_context()

    made = tool(charge, recover=recover)
    assert made.call_hook(recover, ARGS, CONTEXT) == ("a", "r-1:s0p0", CONTEXT)


async def test_a_hook_may_be_async_and_a_method():
    class Shop:
        async def find(self, order_id, context: "Context | None" = None):
            await asyncio.sleep(0)
            return {"exists": True, "output": (order_id, context.run_id, current_context().run_id)}

    shop = Shop()
    made = tool(charge, lookup=shop.find)
    answer = await made.call_hook(made.lookup, ARGS, CONTEXT)
    assert parse_settlement(answer) == Settled(True, ("a", "r-1", "r-1"))


def test_compensate_gets_the_output_if_it_asks_for_it():
    made = tool(charge, compensate=lambda output, order_id: (output, order_id))
    assert made.call_hook(made.compensate, ARGS, CONTEXT, {"id": 1}) == ({"id": 1}, "a")
    assert made.call_hook(made.compensate, ARGS, CONTEXT, None) == (None, "a")
    optional = tool(charge, compensate=lambda order_id, output="unknown": output)
    assert optional.call_hook(optional.compensate, ARGS, CONTEXT, MISSING) == "unknown"
    everything = tool(charge, compensate=lambda **given: sorted(given))
    assert everything.call_hook(everything.compensate, ARGS, CONTEXT, 1) == ["amount", "order_id", "output"]


# Settlements -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "settled"),
    [
        ({"done": True, "output": {"id": 1}}, Settled(True, {"id": 1})),
        ({"exists": True, "output": None}, Settled(True, None)),
        ({"done": True}, Settled(True, None)),
        ({"done": False}, Settled(False, None)),
        ({"exists": False, "output": "stale"}, Settled(False, None)),
        ({"done": True, "result": 1}, None),
        ({"done": True, "exists": True}, None),
        ({"done": 1, "output": 1}, None),
        ({"done": None}, None),
        ({"ok": True}, None),
        ({"output": 1}, None),
        ({}, None),
        (None, None),
        (True, None),
        ([("done", True)], None),
        ("done", None),
    ],
)
def test_a_settlement_of_any_other_shape_says_nothing(value, settled):
    assert parse_settlement(value) == settled


# Sets of tools -----------------------------------------------------------------------------------------------------


def test_tools_come_as_a_sequence_or_a_mapping_of_tools_and_functions():
    made = tool(charge, name="pay", side_effect=False)
    assert check_tools(()) == {}
    assert check_tools([made, charge])["pay"] is made
    assert list(check_tools((charge, made))) == ["charge", "pay"]
    assert check_tools({"pay": made})["pay"] is made
    renamed = check_tools({"bill": charge})["bill"]
    assert (renamed.name, renamed.side_effect, renamed.declared) == ("bill", True, False)


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([charge, tool(charge)], ["two tools", "'charge'"]),
        ({"pay": tool(charge)}, ["'charge'", "'pay'"]),
        ({"p y": charge}, ["'p y'"]),
        (tool(charge), ["Tool", "a list"]),
        ("charge", ["str", "a list"]),
        (None, ["NoneType"]),
        (["charge"], ["str", "wrap it in a def"]),
        ([None], ["NoneType"]),
    ],
)
def test_a_set_of_tools_that_cannot_be_offered_is_refused(tools, words):
    with pytest.raises(ToolDeclarationError) as error:
        check_tools(tools)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_the_policies_name_every_offender():
    tools = check_tools(
        [
            tool(charge, name="bare"),
            tool(charge, name="effect", side_effect=True),
            tool(charge, name="reads", side_effect=False),
            tool(charge, name="again", idempotent=True),
            tool(charge, name="asks", recover=lambda: {"done": False}),
            tool(charge, name="keyed", side_effect=True, idempotency_key=lambda args: args["order_id"]),
            tool(charge, name="looks", lookup=lambda: {"exists": False}),
        ]
    )
    check_tool_policy(tools, None)
    with pytest.raises(ToolDeclarationError, match=r"'strict'.*: bare, looks$") as strict:
        check_tool_policy(tools, "strict")
    with pytest.raises(ToolDeclarationError, match=r"'strict-critical'.*: bare, effect, looks$") as critical:
        check_tool_policy(tools, "strict-critical")
    assert strict.value.detail["tools"] == ["bare", "looks"]
    assert critical.value.detail["tools"] == ["bare", "effect", "looks"]
    fine = {name: tools[name] for name in ("reads", "again", "asks", "keyed")}
    check_tool_policy(fine, "strict")
    check_tool_policy(fine, "strict-critical")
    with pytest.raises(ConfigError, match="'lax'"):
        check_tool_policy(tools, "lax")
