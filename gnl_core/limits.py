"""What a run may use and how long its parts may take: declarations, their frozen form, and the rules as functions.

Money is summed in whole micro-USD. A price in USD per million tokens is the same number in micro-USD per token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal, cast, get_args

from gnl_core.duplicates import (
    Duplicates,
    DuplicatesByClass,
    SideEffectDuplicates,
    from_json,
    read_declaration,
    to_json,
)
from gnl_core.errors import ConfigError, RunLimitExceededError
from gnl_core.journal.port import JsonValue
from gnl_core.model.messages import Usage

OnRepeat = Literal["block", "reflect"]
TaintAction = Literal["off", "warn", "reflect", "block", "suspend"]
TaintScope = Literal["run", "thread"]

_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs.

    Attributes:
        input_per_million: USD for a million input tokens, at least 0.
        output_per_million: USD for a million output tokens, at least 0.

    Raises:
        ConfigError: A price that is no finite number of at least 0.
    """

    input_per_million: float
    output_per_million: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_per_million", _money("Price.input_per_million", self.input_per_million))
        object.__setattr__(self, "output_per_million", _money("Price.output_per_million", self.output_per_million))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDetection:
    """When one call is repeated too often.

    Attributes:
        max_repeats: How often in a row one tool may succeed with the same arguments, at least 1; the next such call is
            stopped.
        on_repeat: 'block' ends the drive with an error, 'reflect' asks the model once to reconsider.

    Raises:
        ConfigError: A field is out of range.
    """

    max_repeats: int
    on_repeat: OnRepeat = "block"

    def __post_init__(self) -> None:
        _count("LoopDetection.max_repeats", self.max_repeats, least=1)
        _choice("LoopDetection.on_repeat", self.on_repeat, OnRepeat)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """What a request may use: the root run and every sub-agent below it. None sets no limit.

    Attributes:
        max_tool_calls: Calls that may begin: those that succeeded, and side effects that failed, at least 0.
        max_tokens: Input and output tokens together, at least 0. Checked after a step, so it may be passed by one step.
        max_cost_usd: USD, at least 0; needs `prices`. Checked after a step likewise.
        prices: What each model costs, by 'provider/model'. A model that is missing here counts as free, with a warning.
        loop_detection: When one call is repeated too often.
        tainted_side_effects: What happens to a side effect after untrusted content entered.
        taint_scope: Whether untrusted content taints the request, or every later one of the conversation too.
        side_effect_duplicates: What happens to a side effect with the arguments of an earlier one: an action ('off',
            'warn', 'reflect', 'block', 'suspend', 'skip'), `Duplicates(…)` or `DuplicatesByClass(…)`, or their mapping.
            None asks a person ('suspend') within the request, and blocks where nobody can be asked.

    Raises:
        ConfigError: A field is out of range.
    """

    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict, hash=False)
    loop_detection: LoopDetection | None = None
    tainted_side_effects: TaintAction = "warn"
    taint_scope: TaintScope = "run"
    side_effect_duplicates: SideEffectDuplicates | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("max_tool_calls", "max_tokens"):
            value = getattr(self, name)
            if value is not None:
                _count(f"RunLimits.{name}", value, least=0)
        if not isinstance(self.prices, Mapping):
            raise ConfigError(f"RunLimits.prices is {type(self.prices).__name__}, must map 'provider/model' to a Price")
        for model, price in self.prices.items():
            if not isinstance(price, Price):
                raise ConfigError(f"RunLimits.prices[{model!r}] is {type(price).__name__}, must be a Price")
        object.__setattr__(self, "prices", dict(self.prices))
        if self.max_cost_usd is not None:
            object.__setattr__(self, "max_cost_usd", _money("RunLimits.max_cost_usd", self.max_cost_usd))
            if not self.prices:
                raise ConfigError(
                    "RunLimits.max_cost_usd needs RunLimits.prices, for instance "
                    "prices={'openai/gpt-4o': Price(2.5, 10)}: without prices every model counts as free"
                )
        if self.loop_detection is not None and not isinstance(self.loop_detection, LoopDetection):
            raise ConfigError(
                f"RunLimits.loop_detection is {type(self.loop_detection).__name__}, "
                "must be LoopDetection(max_repeats=…)"
            )
        _choice("RunLimits.tainted_side_effects", self.tainted_side_effects, TaintAction)
        _choice("RunLimits.taint_scope", self.taint_scope, TaintScope)
        object.__setattr__(self, "side_effect_duplicates", read_declaration(self.side_effect_duplicates))

    @property
    def duplicates(self) -> Duplicates | DuplicatesByClass | None:
        """`side_effect_duplicates` as it was read."""
        return cast("Duplicates | DuplicatesByClass | None", self.side_effect_duplicates)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the limits' JSON form, to be frozen with a run's input; limits that are not set are left out."""
        value: dict[str, JsonValue] = {
            "tainted_side_effects": self.tainted_side_effects,
            "taint_scope": self.taint_scope,
        }
        for name in ("max_tool_calls", "max_tokens", "max_cost_usd"):
            if (limit := getattr(self, name)) is not None:
                value[name] = limit
        if self.prices:
            value["prices"] = {
                model: [price.input_per_million, price.output_per_million] for model, price in self.prices.items()
            }
        if self.loop_detection is not None:
            value["loop_detection"] = {
                "max_repeats": self.loop_detection.max_repeats,
                "on_repeat": self.loop_detection.on_repeat,
            }
        if self.duplicates is not None:
            value["side_effect_duplicates"] = to_json(self.duplicates)
        return value


def read_limits(value: Any) -> RunLimits:
    """Return the limits of their JSON form; they come from disk, and nothing is trusted.

    Raises:
        ValueError: The value holds no limits; the text says what is wrong.
    """
    try:
        loop = value.get("loop_detection")
        return RunLimits(
            prices={model: Price(*price) for model, price in value.get("prices", {}).items()},
            loop_detection=None if loop is None else LoopDetection(**loop),
            side_effect_duplicates=from_json(value.get("side_effect_duplicates")),
            **{name: member for name, member in value.items() if name not in _NESTED},
        )
    except (AttributeError, KeyError, TypeError, ValueError, ConfigError) as error:
        raise ValueError(f"not the limits of a run: {error}") from None


def revived(frozen: RunLimits, given: RunLimits) -> RunLimits:
    """Return a run's frozen limits with the finder of similar work that is given now: a frozen one cannot look."""
    old, now = frozen.duplicates, given.duplicates
    if old is None or old.semantic is None or now is None or now.semantic is None:
        return frozen
    return replace(frozen, side_effect_duplicates=replace(old, semantic=now.semantic))


_NESTED = ("prices", "loop_detection", "side_effect_duplicates")


# Timeouts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long the parts of a run may take, in seconds above 0; None sets no limit, or the runtime's default.

    Attributes:
        model_step: One model step.
        tool: One body of a tool that sets no timeout itself.
        claim_ttl: How long after its claim a body on another host must be taken for alive; above `tool`.

    Raises:
        ConfigError: A field is out of range, or a claim would end before its body's timeout.
    """

    model_step: float | None = None
    tool: float | None = None
    claim_ttl: float | None = None

    def __post_init__(self) -> None:
        for name in ("model_step", "tool", "claim_ttl"):
            value = getattr(self, name)
            if value is not None and (_finite(value) or 0) <= 0:
                raise ConfigError(f"Timeouts.{name} is {value!r}, must be a finite number of seconds above 0")
        if self.tool is not None and self.claim_ttl is not None and self.claim_ttl <= self.tool:
            raise ConfigError(
                f"Timeouts.claim_ttl is {self.claim_ttl} s, must be above Timeouts.tool ({self.tool} s): a body that "
                "still runs would be taken for dead"
            )


# What was used -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a request has used so far.

    Attributes:
        tokens: Input and output tokens.
        cost_micro_usd: Millionths of a USD; each step is rounded up.
        tool_calls: Calls that succeeded, and side effects that failed.
        unpriced: Models that were used and have no price, ascending.
    """

    tokens: int = 0
    cost_micro_usd: int = 0
    tool_calls: int = 0
    unpriced: tuple[str, ...] = ()

    def with_step(self, limits: RunLimits, model: str, usage: Usage) -> Spent:
        """Return what is spent after one more step of `model` ('provider/model')."""
        tokens = self.tokens + usage.total_tokens
        price = limits.prices.get(model)
        cost, unpriced = self.cost_micro_usd, self.unpriced
        if price is not None:
            cost += _cost(price, usage)
        elif model not in unpriced:
            unpriced = tuple(sorted({*unpriced, model}))
        return Spent(tokens=tokens, cost_micro_usd=cost, tool_calls=self.tool_calls, unpriced=unpriced)

    def with_call(self) -> Spent:
        """Return what is spent after one more call that succeeded, or side effect that failed."""
        return Spent(
            tokens=self.tokens,
            cost_micro_usd=self.cost_micro_usd,
            tool_calls=self.tool_calls + 1,
            unpriced=self.unpriced,
        )

    def check(self, limits: RunLimits, *, calling: bool) -> RunLimitExceededError | None:
        """Return the error of the first limit that is passed, None where all hold.

        Args:
            limits: The limits.
            calling: Whether one more tool call is about to begin: only then `max_tool_calls` is looked at, since a run
                that has made all its calls may still say its last word.
        """
        if limits.max_tokens is not None and self.tokens > limits.max_tokens:
            return _exceeded("max_tokens", self.tokens, limits.max_tokens, "tokens")
        if limits.max_cost_usd is not None and self.cost_micro_usd > Decimal(str(limits.max_cost_usd)) * _MICRO:
            return _exceeded("max_cost_usd", self.cost_micro_usd / _MICRO, limits.max_cost_usd, "USD")
        if calling and limits.max_tool_calls is not None and self.tool_calls >= limits.max_tool_calls:
            return _exceeded(
                "max_tool_calls", self.tool_calls, limits.max_tool_calls, "tool calls, and asks for another"
            )
        return None

    def warnings(self, limits: RunLimits) -> tuple[str, ...]:
        """Return what a result must say: one sentence where money is limited and a model used has no price."""
        if limits.max_cost_usd is None or not self.unpriced:
            return ()
        names = ", ".join(map(repr, self.unpriced))
        return (f"RunLimits.max_cost_usd counts {names} as free: add to RunLimits.prices",)


def loop_count(history: Sequence[tuple[str, str]], tool: str, digest: str) -> int:
    """Return how many successes in a row, at the end of the history, were this tool with these arguments.

    Args:
        history: (tool name, digest of the arguments) of each success, oldest first.
        tool: Name of the tool.
        digest: `args_hash` of the arguments.
    """
    count = 0
    for call in reversed(history):
        if call != (tool, digest):
            break
        count += 1
    return count


def _cost(price: Price, usage: Usage) -> int:
    exact = Decimal(str(price.input_per_million)) * usage.input_tokens
    exact += Decimal(str(price.output_per_million)) * usage.output_tokens
    return int(exact.to_integral_value(ROUND_CEILING))


def _exceeded(name: str, used: float, limit: float, what: str) -> RunLimitExceededError:
    return RunLimitExceededError(
        f"the run has used {used:,} {what}; RunLimits.{name} is {limit:,}. Raise it and drive the run again",
        kind=name,
        used=used,
        limit=limit,
    )


# Validation --------------------------------------------------------------------------------------------------------


def _finite(value: object) -> float | None:
    """Return a number as a finite float, None for anything else."""
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):  # an int beyond floats; a signalling NaN
        return None
    return number if math.isfinite(number) else None


def _money(name: str, value: object) -> float:
    number = _finite(value)
    if number is None or number < 0:
        raise ConfigError(f"{name} is {value!r}, must be a finite number of USD, at least 0")
    return number


def _count(name: str, value: object, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} is {value!r}, must be an int of at least {least}")


def _choice(name: str, value: object, choices: Any) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}, must be one of {', '.join(map(repr, allowed))}")
