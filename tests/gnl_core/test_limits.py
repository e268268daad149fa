"""What a run may use: declarations that say what is wrong with them, and rules at their very edges."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core.errors import ConfigError, RunLimitExceededError
from gnl_core.limits import (
    LoopDetection,
    Price,
    RunLimits,
    Spent,
    Timeouts,
    loop_count,
    read_limits,
)
from gnl_core.model.messages import Usage

PRICES = {"openai/small": Price(0.15, 0.6), "openai/large": Price(2.5, 10)}

counts = st.none() | st.integers(0, 10**9)
money = st.floats(0, 10**6)
price_tables = st.dictionaries(st.text(min_size=1), st.builds(Price, money, money), min_size=1)
all_limits = st.builds(
    RunLimits,
    max_tool_calls=counts,
    max_tokens=counts,
    max_cost_usd=st.none() | money,
    prices=price_tables,
    loop_detection=st.none()
    | st.builds(LoopDetection, max_repeats=st.integers(1, 99), on_repeat=st.sampled_from(["block", "reflect"])),
    tainted_side_effects=st.sampled_from(["off", "warn", "reflect", "block", "suspend"]),
    taint_scope=st.sampled_from(["run", "thread"]),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


# Declarations -------------------------------------------------------------------------------------------------------


def test_limits_limit_nothing_and_warn_of_taint_unless_told_otherwise() -> None:
    assert RunLimits().to_json() == {"tainted_side_effects": "warn", "taint_scope": "run"}


@pytest.mark.parametrize(
    ("declaration", "field"),
    [
        ({"max_tool_calls": -1}, "RunLimits.max_tool_calls is -1"),
        ({"max_tool_calls": 1.5}, "RunLimits.max_tool_calls is 1.5"),
        ({"max_tool_calls": True}, "RunLimits.max_tool_calls is True"),
        ({"max_tokens": "5"}, "RunLimits.max_tokens is '5'"),
        ({"max_cost_usd": -0.01, "prices": PRICES}, "RunLimits.max_cost_usd is -0.01"),
        ({"max_cost_usd": float("nan"), "prices": PRICES}, "RunLimits.max_cost_usd is nan"),
        ({"max_cost_usd": float("inf"), "prices": PRICES}, "RunLimits.max_cost_usd is inf"),
        ({"max_cost_usd": Decimal("sNaN"), "prices": PRICES}, "RunLimits.max_cost_usd"),
        ({"max_cost_usd": 10**400, "prices": PRICES}, "RunLimits.max_cost_usd"),
        ({"max_cost_usd": 1}, "RunLimits.max_cost_usd needs RunLimits.prices"),
        ({"prices": {"m": 3}}, r"RunLimits.prices\['m'\] is int"),
        ({"prices": [1]}, "RunLimits.prices is list"),
        ({"loop_detection": 3}, "RunLimits.loop_detection is int"),
        ({"tainted_side_effects": "ask"}, "RunLimits.tainted_side_effects is 'ask', must be one of 'off'"),
        ({"tainted_side_effects": []}, "RunLimits.tainted_side_effects"),
        ({"taint_scope": "org"}, "RunLimits.taint_scope is 'org'"),
    ],
)
def test_a_limit_out_of_range_names_its_field(declaration: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        RunLimits(**declaration)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: LoopDetection(max_repeats=0), "LoopDetection.max_repeats is 0"),
        (lambda: LoopDetection(max_repeats=1, on_repeat="stop"), "LoopDetection.on_repeat is 'stop'"),  # type: ignore[arg-type]
        (lambda: Price(-1, 0), "Price.input_per_million is -1"),
        (lambda: Price(0, "3"), "Price.output_per_million is '3'"),  # type: ignore[arg-type]
        (lambda: Timeouts(tool=0), "Timeouts.tool is 0"),
        (lambda: Timeouts(model_step=float("inf")), "Timeouts.model_step is inf"),
        (lambda: Timeouts(claim_ttl=float("nan")), "Timeouts.claim_ttl is nan"),
        (lambda: Timeouts(tool=10**400), "Timeouts.tool is 1000"),
        (lambda: Timeouts(tool=True), "Timeouts.tool is True"),
        (lambda: Timeouts(tool=30, claim_ttl=30), "Timeouts.claim_ttl is 30 s, must be above"),
    ],
)
def test_a_part_out_of_range_names_its_field(make: Any, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        make()


def test_limits_do_not_change_with_the_prices_they_were_made_of() -> None:
    prices = dict(PRICES)
    limits = RunLimits(max_cost_usd=1, prices=prices)
    prices.clear()

    assert limits.prices == PRICES


def test_money_may_be_given_as_a_decimal() -> None:
    limits = RunLimits(max_cost_usd=Decimal("0.30"), prices={"m": Price(Decimal("0.1"), 0)})  # type: ignore[arg-type]

    assert read_limits(json.loads(json.dumps(limits.to_json()))) == limits


@given(all_limits)
def test_frozen_limits_come_back_as_they_were(limits: RunLimits) -> None:
    assert read_limits(json.loads(json.dumps(limits.to_json()))) == limits


@given(
    json_values
    | st.dictionaries(
        st.sampled_from(["max_tool_calls", "max_cost_usd", "prices", "loop_detection", "taint_scope", "tool", "x"]),
        json_values | st.dictionaries(st.sampled_from(["max_repeats", "on_repeat", "m"]), json_values),
    )
)
def test_reading_frozen_limits_trusts_nothing(value: object) -> None:
    with suppress(ValueError):  # and no other error
        assert isinstance(read_limits(value), RunLimits)


@pytest.mark.parametrize("value", [None, 3, [1], {"unknown": 1}, {"tool": -1, "max_tokens": -1}])
def test_what_holds_no_limits_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"^not the limits of a run: "):
        read_limits(value)


# Rules --------------------------------------------------------------------------------------------------------------


def limit_of(error: RunLimitExceededError | None) -> object:
    """Return which limit an error is about."""
    return None if error is None else error.detail["kind"]


def test_tokens_may_be_used_up_but_not_passed() -> None:
    limits = RunLimits(max_tokens=100)

    assert Spent(tokens=100).check(limits, calling=True) is None
    error = Spent(tokens=101).check(limits, calling=False)
    assert error is not None
    assert error.detail == {"kind": "max_tokens", "used": 101, "limit": 100}
    assert str(error) == "the run has used 101 tokens; RunLimits.max_tokens is 100. Raise it and drive the run again"


def test_money_may_be_used_up_but_not_passed() -> None:
    limits = RunLimits(max_cost_usd=0.3, prices=PRICES)

    assert Spent(cost_micro_usd=300_000).check(limits, calling=True) is None
    assert limit_of(Spent(cost_micro_usd=300_001).check(limits, calling=False)) == "max_cost_usd"


def test_the_last_allowed_call_may_begin_and_the_run_may_say_its_last_word() -> None:
    limits = RunLimits(max_tool_calls=2)
    one = Spent().with_call()

    assert one.check(limits, calling=True) is None
    assert one.with_call().check(limits, calling=False) is None
    assert limit_of(one.with_call().check(limits, calling=True)) == "max_tool_calls"
    assert limit_of(Spent().check(RunLimits(max_tool_calls=0), calling=True)) == "max_tool_calls"


def test_without_limits_anything_goes() -> None:
    assert Spent(tokens=10**12, cost_micro_usd=10**15, tool_calls=10**6).check(RunLimits(), calling=True) is None


def test_a_step_costs_what_its_model_costs() -> None:
    limits = RunLimits(max_cost_usd=1, prices=PRICES)
    spent = Spent().with_step(limits, "openai/large", Usage(1_000, 200))

    assert spent == Spent(tokens=1_200, cost_micro_usd=4_500)
    # 0.15 * 1 + 0.6 * 1 micro-USD, rounded up: a limit is never passed by rounding
    assert spent.with_step(limits, "openai/small", Usage(1, 1)).cost_micro_usd == 4_501


def test_binary_fractions_add_no_money() -> None:
    limits = RunLimits(max_cost_usd=0.3, prices={"m": Price(0.1, 0.2)})
    spent = Spent().with_step(limits, "m", Usage(1_000_000, 1_000_000))  # 0.1 + 0.2 USD

    assert spent.cost_micro_usd == 300_000
    assert spent.check(limits, calling=False) is None


@given(st.lists(st.tuples(st.sampled_from(list(PRICES)), st.integers(0, 10**7), st.integers(0, 10**7)), max_size=20))
def test_a_sum_of_steps_is_at_most_a_micro_usd_a_step_above_the_exact_one(steps: list[tuple[str, int, int]]) -> None:
    limits = RunLimits(max_cost_usd=1, prices=PRICES)
    spent, exact = Spent(), Decimal(0)
    for model, tokens_in, tokens_out in steps:
        spent = spent.with_step(limits, model, Usage(tokens_in, tokens_out))
        price = PRICES[model]
        exact += Decimal(str(price.input_per_million)) * tokens_in + Decimal(str(price.output_per_million)) * tokens_out

    assert exact <= spent.cost_micro_usd <= exact + len(steps)
    assert spent.tokens == sum(step[1] + step[2] for step in steps)


def test_a_model_without_a_price_counts_as_free_and_yields_one_warning() -> None:
    limits = RunLimits(max_cost_usd=0, prices=PRICES)
    spent = Spent()
    for model in ("b/new", "a/new", "b/new"):
        spent = spent.with_step(limits, model, Usage(10**9, 10**9))

    assert spent.check(limits, calling=True) is None
    assert spent.warnings(limits) == (
        "RunLimits.max_cost_usd counts 'a/new', 'b/new' as free: add to RunLimits.prices",
    )
    assert spent.warnings(RunLimits()) == ()  # nobody asked for a limit on money
    assert Spent().with_step(limits, "openai/small", Usage(0, 0)).warnings(limits) == ()


# Loops --------------------------------------------------------------------------------------------------------------


def test_only_the_same_call_at_the_end_of_the_history_counts() -> None:
    history = [("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"), ("a", "1")]

    assert loop_count(history, "a", "1") == 2
    assert loop_count(history, "a", "2") == 0
    assert loop_count(history, "b", "1") == 0
    assert loop_count([], "a", "1") == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("12"))), st.integers(0, 9))
def test_a_tail_of_one_call_counts_its_length(history: list[tuple[str, str]], length: int) -> None:
    assert loop_count([*history, ("c", "3"), *[("a", "1")] * length], "a", "1") == length
