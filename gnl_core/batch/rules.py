"""What a batch is declared to be: its options read once, and what cannot work refused before an item is looked at."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gnl_core.batch.items import ItemKey, Resource
from gnl_core.duplicates import Duplicates, check_duplicates, finder_of, rule_for
from gnl_core.errors import ConfigError, ToolDeclarationError
from gnl_core.journal.port import JsonValue
from gnl_core.limits import RunLimits
from gnl_core.presets import Preset, expand_preset, layered
from gnl_core.run_options import HoldOptions
from gnl_core.tools import Tool, check_tool_policy

OnDuplicate: TypeAlias = Literal["suspend-item", "skip", "fail-batch"]

MAX_CONCURRENCY = 1_000
"""Most items at once."""

_ACTIONS: Mapping[str, Any] = {"suspend-item": "suspend", "skip": "skip", "fail-batch": "block"}


class BatchOptions(HoldOptions, total=False):
    """What a batch takes beside its journal, its tool and its items' key; `approvals` is refused."""

    on_duplicate: OnDuplicate | None
    channel: str
    resource_id: Resource
    thread_id: str | None
    preset: Preset | None
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a batch goes by.

    Attributes:
        item_key: How an item is named.
        resource: Whose an item is.
        fails: Whether repeats fail the batch.
        concurrency: How many items run at once.
        options: Those of every item's run, the limits among them.
        policy: What of it a plan's token stands for.
        warnings: What the caller should read.
    """

    item_key: ItemKey
    resource: Resource
    fails: bool
    concurrency: int
    options: Mapping[str, Any]
    policy: Mapping[str, JsonValue]
    warnings: tuple[str, ...]


def read_rules(tool: Tool, item_key: ItemKey, base: Mapping[str, Any], given: Mapping[str, Any]) -> Rules:
    """Return the rules of a batch.

    Args:
        tool: What does an item.
        item_key: How an item is named.
        base: Options that its own preset wins over.
        given: Its own options, a preset among them.

    Raises:
        ToolDeclarationError: A tool that a batch cannot use.
        ConfigError: An option that cannot be.
    """
    _check_tool(tool)
    _check_names(given)
    namer: object = item_key
    if not callable(namer) and (not isinstance(namer, str) or not namer):
        raise ConfigError(
            "item_key is to name each item: the name of a field, or a function of the item", option="item_key"
        )
    own = dict(given)
    resource, asked = own.pop("resource_id", None), own.pop("on_duplicate", None)
    concurrency = _count(own.pop("concurrency", 8))
    if not (resource is None or isinstance(resource, str) or callable(resource)):
        raise ConfigError("resource_id is no str and no function of an item that returns one", option="resource_id")
    if callable(resource) and own.get("thread_id") and not own.get("shared_thread"):
        raise ConfigError(
            "thread_id puts the items of several persons into one conversation, which is its first person's alone: "
            "say shared_thread=True if that is meant, or leave thread_id out",
            option="thread_id",
        )
    if tool.window == "thread" and not own.get("thread_id"):
        raise ConfigError(
            f"tool '{tool.name}' remembers its work within a conversation, and the batch names none: give it thread_id",
            option="thread_id",
        )
    levels = [layered(base, expand_preset(own.pop("preset", None)))]
    if asked is not None or getattr(levels[0].get("limits"), "duplicates", None) is None:
        levels.append({"limits": _limits_of(asked or "suspend-item", own.get("thread_id"))})
    merged = layered(*levels, {"channel": "batch"}, own)
    check_tool_policy({tool.name: tool}, merged.get("tool_policy"))
    known = {*HoldOptions.__annotations__, "channel", "thread_id"} - {"approvals"}
    options = {name: value for name, value in merged.items() if name in known}
    limits, warnings = _read_limits(tool, options)
    rule = rule_for(limits.duplicates, tool)
    fails = asked == "fail-batch" and rule.action == _ACTIONS["fail-batch"]  # limits that are given win
    if rule.action != "off" and not _sees_repeats(tool, resource, options):
        warnings = (
            *warnings,
            f"nothing tells a repeat of {tool.name} but this batch's own ids: another batch does its items again. Name "
            "a thread_id (equal arguments in a conversation), a semantic_identity of the tool beside resource_id (the "
            "person's earlier work), or a key whose window is 'thread' or 'cross-run'",
        )
    return Rules(
        item_key=item_key,
        resource=resource,
        fails=fails,
        concurrency=concurrency,
        # Whatever an id is said to stand for, an item is what it began as: its record answers for no other one. And
        # nobody chooses its id for a second time: one that a sweep removed, and left a tombstone of, ran.
        options={**options, "limits": limits, "strict_input": True, "tombstone_policy": "reject"},
        policy={
            "tool": tool.name,
            "action": rule.action,
            "fails": fails,
            "scope": rule.scope,
            "ttl_ms": rule.ttl_ms,
            "channel": options["channel"],
            "thread": options.get("thread_id"),
        },
        warnings=warnings,
    )


def _sees_repeats(tool: Tool, resource: object, options: Mapping[str, Any]) -> bool:
    if not tool.side_effect:
        return True  # there is none to see
    if tool.args_mode:
        return tool.window != "run"
    return bool(options.get("thread_id")) or (tool.semantic_identity is not None and resource is not None)


def _check_names(given: Mapping[str, Any]) -> None:
    unknown = sorted(given.keys() - BatchOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(sorted(BatchOptions.__annotations__.keys() - {"approvals"}))
        raise ConfigError(f"a batch has no option {unknown[0]!r}; there are: {known}", option=unknown[0])
    if "approvals" in given:
        raise ConfigError(
            "a batch takes no approvals: answer its questions by decide(…) or gnl approvals, then run it again",
            option="approvals",
        )


def _count(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MAX_CONCURRENCY:
        raise ConfigError(
            f"concurrency is {value!r}, must be a whole number from 1 to {MAX_CONCURRENCY}", option="concurrency"
        )
    return value


def _limits_of(on_duplicate: object, thread: object) -> RunLimits:
    if on_duplicate not in list(_ACTIONS):
        names = ", ".join(map(repr, _ACTIONS))
        raise ConfigError(f"on_duplicate is {on_duplicate!r}, must be one of {names}", option="on_duplicate")
    action = _ACTIONS[str(on_duplicate)]
    return RunLimits(side_effect_duplicates=Duplicates(action=action, scope="thread" if thread else "request"))


def _read_limits(tool: Tool, options: Mapping[str, Any]) -> tuple[RunLimits, tuple[str, ...]]:
    limits = options["limits"]
    if not isinstance(limits, RunLimits):
        raise ConfigError(f"limits is {type(limits).__name__}, must be RunLimits(…)", option="limits")
    rule = rule_for(limits.duplicates, tool)
    if rule.action == "reflect":
        raise ConfigError(
            "side_effect_duplicates='reflect' asks a model to reconsider, and a batch has none; choose 'suspend', "
            "'skip' or 'block'",
            option="limits",
        )
    if tool.side_effect and limits.tainted_side_effects == "reflect":
        raise ConfigError(
            "tainted_side_effects='reflect' asks a model to reconsider, and a batch has none; choose 'suspend' or "
            "'block'",
            option="limits",
        )
    warnings = check_duplicates(limits.duplicates, {tool.name: tool}, asks=True)
    finder = finder_of(limits.duplicates)
    if not options.get("thread_id") and (rule.scope == "thread" or finder is not None):
        # Said once for the batch, and not by each of its runs.
        alone = dataclasses.replace(rule, scope="request", semantic=None)
        limits = dataclasses.replace(limits, side_effect_duplicates=alone)
        what = "equal arguments, and work that looks like it," if finder is not None else "equal arguments"
        note = f"{what} of {tool.name} are looked for in no conversation: the batch names no thread_id"
        warnings = (*warnings, note)
    return limits, warnings


def _check_tool(tool: object) -> None:
    if not isinstance(tool, Tool):
        raise ToolDeclarationError(f"tool is {type(tool).__name__}, must be made by @tool")
    if tool.drives_run:
        raise ToolDeclarationError(
            f"tool '{tool.name}' drives a run of its own, which an item of a batch cannot; run its agent for each item",
            tool=tool.name,
        )
    if not (tool.declared or tool.semantic_identity is not None or tool.args_mode or tool.lookup is not None):
        raise ToolDeclarationError(
            f"tool '{tool.name}' says nothing of its work, so that no plan could say what would be repeated: declare "
            "semantic_identity=SemanticIdentity(keys=(…)), idempotency_key=, recover=, or at least side_effect=",
            tool=tool.name,
        )
