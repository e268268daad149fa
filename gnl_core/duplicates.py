"""What happens to a side effect that was done before: the declaration, its frozen form, and the rule for one tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from gnl_core.errors import ConfigError
from gnl_core.journal.port import JsonValue
from gnl_core.prior import Inactive, Similar

if TYPE_CHECKING:
    from gnl_core.tools import Tool

DuplicateAction = Literal["off", "warn", "reflect", "block", "suspend", "skip"]
"""In the order of their hardness, but for 'skip', which tells the model that its call was left out."""

DuplicateScope = Literal["request", "thread"]

EffectClass = Literal["transactional", "notification", "delete", "external-api", "idempotent-write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """What happens to a side effect with the arguments of an earlier one.

    Attributes:
        action: 'off' looks for nothing, but a question that is asked anyway still shows earlier work. 'warn' runs it
            and notes an incident. 'reflect' asks the model once to reconsider, then blocks. 'block' stops the run with
            an error. 'suspend' asks a person. 'skip' leaves the call out and tells the model.
        scope: 'request': the root run and every sub-agent below it. 'thread': the whole conversation.
        ttl_ms: Age beyond which earlier work counts no more, in milliseconds by the store's clock, above 0. None: it
            counts as long as it is recorded, since a question too many costs less than an effect too many.
        semantic: Finder of work that looks the same though its arguments differ, `gnl_semantic.SemanticGate` for
            instance; needs 'suspend' and the scope 'thread'.

    Raises:
        ConfigError: A field is out of range, or `semantic` beside another action or scope.
    """

    action: DuplicateAction = "suspend"
    scope: DuplicateScope = "request"
    ttl_ms: int | None = None
    semantic: Similar | None = None

    def __post_init__(self) -> None:
        _choice("Duplicates.action", self.action, DuplicateAction)
        _choice("Duplicates.scope", self.scope, DuplicateScope)
        if self.ttl_ms is not None and (type(self.ttl_ms) is not int or self.ttl_ms < 1):
            raise ConfigError(f"Duplicates.ttl_ms is {self.ttl_ms!r}, must be whole milliseconds above 0, or None")
        if self.semantic is None:
            return
        _check_finder("Duplicates.semantic", self.semantic)
        if self.action != "suspend":
            raise ConfigError(
                f"Duplicates.semantic needs action='suspend', not {self.action!r}: what only looks the same may put a "
                "question to a person, and nothing else"
            )
        if self.scope != "thread":
            raise ConfigError(
                f"Duplicates.semantic needs scope='thread', not {self.scope!r}: it looks at a whole conversation"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicatesByClass:
    """The same by what a tool does, as its `effect_class` says.

    Attributes:
        by_class: An action, or `Duplicates`, by effect class.
        default: For tools of any other class, or none.
        semantic: The finder for every class whose action is 'suspend'; each of those needs the scope 'thread'.

    Raises:
        ConfigError: No such class, or `semantic` without a class to serve, or with one whose scope is not 'thread'.
    """

    by_class: Mapping[EffectClass, DuplicateAction | Duplicates] = field(hash=False)
    default: DuplicateAction | Duplicates = "suspend"
    semantic: Similar | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.by_class, Mapping):
            raise ConfigError(
                f"DuplicatesByClass.by_class is {type(self.by_class).__name__}, must map classes to actions"
            )
        rules = {name: _rule(f"DuplicatesByClass.by_class[{name!r}]", rule) for name, rule in self.by_class.items()}
        for name in rules:
            _choice("a class of DuplicatesByClass.by_class", name, EffectClass)
        default = _rule("DuplicatesByClass.default", self.default)
        object.__setattr__(self, "by_class", rules)
        object.__setattr__(self, "default", default)
        every = [*rules.values(), default]
        if any(rule.semantic is not None for rule in every):
            raise ConfigError(
                "a class of DuplicatesByClass has a semantic finder of its own: name it once, beside by_class"
            )
        if self.semantic is None:
            return
        _check_finder("DuplicatesByClass.semantic", self.semantic)
        asking = [rule for rule in every if rule.action == "suspend"]
        if not asking:
            raise ConfigError("DuplicatesByClass.semantic has nothing to serve: no class has the action 'suspend'")
        if any(rule.scope != "thread" for rule in asking):
            raise ConfigError(
                "DuplicatesByClass.semantic needs Duplicates(action='suspend', scope='thread') for every class that "
                "asks, the default included"
            )


SideEffectDuplicates: TypeAlias = DuplicateAction | Duplicates | DuplicatesByClass


def read_declaration(value: object) -> Duplicates | DuplicatesByClass | None:
    """Return what a caller gave for `side_effect_duplicates`: an action, one of the classes here, or their mapping.

    Raises:
        ConfigError: It is none of them.
    """
    match value:
        case None | Duplicates() | DuplicatesByClass():
            return value
        case str():
            _choice("RunLimits.side_effect_duplicates", value, DuplicateAction)
            return Duplicates(action=cast("DuplicateAction", value))
        case Mapping():
            made: type[Duplicates | DuplicatesByClass] = DuplicatesByClass if "by_class" in value else Duplicates
            try:
                return made(**value)
            except TypeError:
                fields = ", ".join(made.__dataclass_fields__)
                raise ConfigError(
                    f"RunLimits.side_effect_duplicates has {', '.join(map(repr, value))}; its members are {fields}"
                ) from None
        case _:
            raise ConfigError(
                f"RunLimits.side_effect_duplicates is {type(value).__name__}, must be an action, Duplicates(…) or "
                "DuplicatesByClass(…)"
            )


def rule_for(declared: Duplicates | DuplicatesByClass | None, tool: Tool, *, asks: bool = True) -> Duplicates:
    """Return the rule for a tool's calls.

    Args:
        declared: What the limits say; None: the default.
        tool: The tool.
        asks: Whether a person can be asked: where not, the default blocks.
    """
    match declared:
        case None:
            return ASK if asks else BLOCK
        case Duplicates():
            return declared
        case DuplicatesByClass():
            rule = declared.by_class.get(cast("EffectClass", tool.effect_class), declared.default)
            return cast("Duplicates", rule)


def finder_of(declared: Duplicates | DuplicatesByClass | None) -> Similar | None:
    """Return the finder of similar work that was configured, if any."""
    return declared.semantic if declared is not None else None


def check_duplicates(
    declared: Duplicates | DuplicatesByClass | None, tools: Mapping[str, Tool], *, asks: bool
) -> tuple[str, ...]:
    """Refuse what cannot work before a run starts, and return what its caller should read.

    Raises:
        ConfigError: A person is to be asked where nobody can be.
    """
    warnings: list[str] = []
    finder = finder_of(declared)
    rules = [rule_for(declared, tool, asks=asks) for tool in tools.values() if tool.side_effect]
    if not asks:
        way_out = "choose 'reflect' or 'block', or drive the run where its questions reach a person"
        if finder is not None:
            raise ConfigError(f"the semantic gate asks a person, and no approvals channel exists here: {way_out}")
        if declared is not None and any(rule.action == "suspend" for rule in rules):
            raise ConfigError(
                f"side_effect_duplicates='suspend' asks a person, and no approvals channel exists here: {way_out}"
            )
        if declared is None and rules:
            warnings.append(
                "repeated side effects are blocked here, since no approvals channel exists in which a person could be "
                "asked; set limits.side_effect_duplicates to say so yourself"
            )
    if not isinstance(declared, DuplicatesByClass):
        dead = sorted(tool.name for tool in tools.values() if tool.effect_class is not None)
        if dead:
            warnings.append(
                f"the effect_class of {', '.join(dead)} decides nothing, since limits.side_effect_duplicates has no "
                "by_class"
            )
    unseen = sorted(tool.name for tool in tools.values() if _is_out_of_sight(tool, rule_for(declared, tool, asks=asks)))
    if unseen:
        warnings.append(
            f"{', '.join(unseen)}: work that is named by a key (idempotency='args', idempotency_key=) is recognised "
            "within its window, which is one run here, and no question is asked about it: the same work in another run "
            "runs again. Say window='thread' or 'cross-run', or leave the key out to have a person asked"
        )
    if finder is not None:
        warnings += finder.check()
        if tools and not any(tool.semantic_identity or tool.drives_run for tool in tools.values()):
            warnings.append("the semantic gate looks at nothing: no tool declares a semantic_identity")
    return tuple(warnings)


def _is_out_of_sight(tool: Tool, rule: Duplicates) -> bool:
    """Whether a tool's repeats in other runs are meant to be asked about, and its key keeps every question away."""
    keyed = tool.side_effect and tool.args_mode and tool.window == "run"
    return keyed and rule.action != "off" and (rule.scope == "thread" or tool.semantic_identity is not None)


# The frozen form ---------------------------------------------------------------------------------------------------


def to_json(declared: Duplicates | DuplicatesByClass | None) -> JsonValue:
    """Return the JSON form that is frozen with a run's input. What a finder holds open is left out, and marked."""
    if declared is None:
        return None
    match declared:
        case Duplicates():
            value: dict[str, JsonValue] = {"action": declared.action, "scope": declared.scope}
            if declared.ttl_ms is not None:
                value["ttl_ms"] = declared.ttl_ms
        case _:
            value = {
                "by_class": {name: to_json(cast("Duplicates", rule)) for name, rule in declared.by_class.items()},
                "default": to_json(cast("Duplicates", declared.default)),
            }
    if declared.semantic is not None:
        value["semantic"] = {"inactive": True, "settings": declared.semantic.freeze()}
    return value


def from_json(value: Any) -> Duplicates | DuplicatesByClass | None:
    """Return the declaration of its JSON form. A finder comes back inactive: it needs to be passed again.

    Raises:
        ConfigError, TypeError, KeyError: It is none.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError("side_effect_duplicates is no object")
    members = dict(value)
    semantic = members.pop("semantic", None)
    if semantic is not None:
        if semantic["inactive"] is not True:
            raise ConfigError("a frozen finder that claims to be active")
        members["semantic"] = Inactive(dict(semantic["settings"]))
    if "by_class" in members:
        members["by_class"] = {name: Duplicates(**rule) for name, rule in members["by_class"].items()}
        members["default"] = Duplicates(**members["default"])
        return DuplicatesByClass(**members)
    return Duplicates(**members)


def _rule(name: str, value: object) -> Duplicates:
    if isinstance(value, Duplicates):
        return value
    if isinstance(value, Mapping):
        try:
            return Duplicates(**value)
        except TypeError:
            raise ConfigError(f"{name} has the members {', '.join(map(repr, value))}; see Duplicates") from None
    _choice(name, value, DuplicateAction)
    return Duplicates(action=cast("DuplicateAction", value))


def _check_finder(name: str, value: object) -> None:
    if not all(callable(getattr(value, verb, None)) for verb in ("check", "freeze", "find", "remember")):
        raise ConfigError(f"{name} is {type(value).__name__}, must be SemanticGate(…)")


def _choice(name: str, value: object, choices: Any) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}, must be one of {', '.join(map(repr, allowed))}")


ASK = Duplicates()
"""The default: a person is asked about a repeat within the request."""

BLOCK = Duplicates(action="block")
"""The default where nobody can be asked."""
