"""What a step is called with: the tool that its function makes, and arguments as its record can keep them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gnl_core.codec import encode, plain
from gnl_core.duplicates import rule_for
from gnl_core.errors import ConfigError, NotCanonicalError, ToolArgumentsError, ToolDeclarationError
from gnl_core.tools import Tool, ToolPolicy, check_tool_policy, check_tools

if TYPE_CHECKING:
    from gnl_core.journal.port import JsonValue
    from gnl_core.limits import RunLimits

_JSON = (str, int, float, bool, list, tuple, dict, type(None))


class StepTools:
    """Tools of a workflow's functions; each function is read once a drive."""

    def __init__(self, policy: ToolPolicy | None, limits: RunLimits) -> None:
        self._policy = policy
        self._limits = limits
        self._made: dict[int, tuple[object, Tool]] = {}

    def of(self, function: Tool | Callable[..., Any]) -> Tool:
        """Return the tool that a function makes, undeclared unless it is one already.

        Raises:
            ToolDeclarationError: It makes none, or says too little about itself for the tool policy.
            ConfigError: It drives a run of its own, or a limit would have a model reconsider it.
        """
        known = self._made.get(id(function))
        if known is not None and known[0] is function:
            return known[1]
        (tool,) = check_tools([function]).values()
        if tool.drives_run:
            raise ConfigError(
                f"{tool.name} drives a run of its own, which no step of a workflow can do: call run_durable in a step",
                tool=tool.name,
            )
        check_tool_policy({tool.name: tool}, self._policy)
        if self._policy == "strict-critical" and tool.side_effect and tool.recover is None:
            raise ToolDeclarationError(
                f"tool_policy 'strict-critical': {tool.name} acts on the world, so as a step of a workflow it must "
                "have recover= (or side_effect=False, if it only reads); nothing of it has begun",
                tools=[tool.name],
            )
        self._check_limits(tool)
        self._made[id(function)] = (function, tool)
        return tool

    def _check_limits(self, tool: Tool) -> None:
        """Refuse what only a model could go on from: a step that was told to be made again is made once, and stuck."""
        limits = self._limits
        names = {
            "tainted_side_effects": limits.tainted_side_effects,
            "side_effect_duplicates": rule_for(limits.duplicates, tool).action,
        }
        for option, action in names.items():
            if action == "reflect" and tool.side_effect:
                raise ConfigError(
                    f"{option}='reflect' asks a model to reconsider {tool.name}, and a workflow has none; choose "
                    "'suspend' to let a person decide, or 'block'",
                    option="limits",
                    tool=tool.name,
                )


def to_json(tool: Tool, arguments: Mapping[str, Any], *, check: bool) -> dict[str, JsonValue]:
    """Return arguments as a record keeps them: JSON, from which the tool's types make the same values again.

    Args:
        tool: The tool.
        arguments: Values by name.
        check: Whether they must fit; not where its record is there already, and counts.

    Raises:
        ToolArgumentsError: They do not fit the tool, or would reach it as something else; or no record can keep them.
    """
    try:
        args: Any = plain(encode(dict(arguments)))
    except NotCanonicalError as error:
        raise ToolArgumentsError(f"an argument of {tool.name} cannot be recorded: {error}", tool=tool.name) from None
    if not check:
        return args  # type: ignore[no-any-return] # of a dict
    back = tool.validate(args)
    if tool.args_mode:
        tool.key_of(args)
    for name, value in arguments.items():
        same_kind = type(back.get(name)) is type(value)
        plain_data = type(value) in _JSON and not (isinstance(value, float) and not math.isfinite(value))
        if (same_kind and encode(back[name]) != encode(value)) or (not same_kind and not plain_data):
            raise ToolArgumentsError(
                f"the argument {name} of {tool.name} is {type(value).__name__}, and its record would give the tool "
                f"{type(back.get(name)).__name__} instead: annotate the parameter with a type that JSON can be read "
                "as, or pass plain data",
                tool=tool.name,
            )
    return args  # type: ignore[no-any-return] # of a dict
