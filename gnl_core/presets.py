"""Bundles of options by name, and how several levels of options become one.

=============  ======================================================================================================
preset         what it sets
=============  ======================================================================================================
critical       tool_policy 'strict-critical', exclusive_model_step, lock_ttl 300 s, strict_input, bind_actor,
               conflict_ledger, tombstone_policy 'reject'; repeated side effects in one conversation: a person is asked,
               whatever class of effect they are
assistant      replay_disclosure 'explain'; repeated side effects in one request: deletions are left out, idempotent
               writes and external APIs run, for everything else a person is asked
headless       nobody can answer: deletions and notifications that repeat are left out, idempotent writes and external
               APIs run, everything else stops the run with an error
=============  ======================================================================================================

A preset covers `Gnl.run`, `Gnl.stream`, `Gnl.resume` and `Gnl.run_workflow`, `run_workflow` itself, and the items of
`Gnl.create_batch` and `create_batch`; `run_durable` takes the same options one by one. A batch leaves out what only
models read, and its on_duplicate, where given, wins over what a preset says of repeats; without a
thread_id they are looked for by identity alone. A workflow leaves out what only models read (replay_disclosure). Under
'critical' its run needs a name (work_key or run_id), and each step that acts on the world `recover`. What is given
beside a preset wins, option by option.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from gnl_core.duplicates import ASK, Duplicates, DuplicatesByClass
from gnl_core.errors import ConfigError
from gnl_core.limits import RunLimits

Preset: TypeAlias = Literal["critical", "assistant", "headless"]

_NO_LIMITS = RunLimits()
_ASK_IN_THREAD = Duplicates(action="suspend", scope="thread")

_PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "critical": {
            "tool_policy": "strict-critical",
            "exclusive_model_step": True,
            "lock_ttl": 300.0,
            "strict_input": True,
            "bind_actor": True,
            "conflict_ledger": True,
            "tombstone_policy": "reject",
            # By class though all are alike: a rule that is given for one class beside it drops none for the others.
            "limits": RunLimits(side_effect_duplicates=DuplicatesByClass(by_class={}, default=_ASK_IN_THREAD)),
        },
        "assistant": {
            "replay_disclosure": "explain",
            "limits": RunLimits(
                side_effect_duplicates=DuplicatesByClass(
                    by_class={
                        "transactional": "suspend",
                        "notification": "suspend",
                        "idempotent-write": "off",
                        "delete": "skip",
                        "external-api": "off",
                    },
                    default="suspend",
                )
            ),
        },
        "headless": {
            "limits": RunLimits(
                side_effect_duplicates=DuplicatesByClass(
                    by_class={
                        "transactional": "block",
                        "notification": "skip",
                        "delete": "skip",
                        "idempotent-write": "off",
                        "external-api": "off",
                    },
                    default="block",
                )
            ),
        },
    }
)


def expand_preset(preset: Preset | None) -> dict[str, Any]:
    """Return the options that a preset sets, by name; none for None.

    Raises:
        ConfigError: There is no such preset.
    """
    if preset is None:
        return {}
    if preset not in list(_PRESETS):  # a list: what cannot be hashed is refused by its name, too
        raise ConfigError(f"preset is {preset!r}, must be one of {', '.join(map(repr, _PRESETS))}", option="preset")
    return dict(_PRESETS[preset])


def layered(*levels: Mapping[str, Any]) -> dict[str, Any]:
    """Return one set of options out of several; a later level wins, and limits are merged field by field."""
    merged: dict[str, Any] = {}
    for level in levels:
        for name, value in level.items():
            if name == "limits" and isinstance(merged.get(name), RunLimits):
                if isinstance(value, RunLimits):
                    merged[name] = merge_limits(merged[name], value)
                elif value is not None:
                    merged[name] = value  # no limits at all: refused where it is read, by its name
            else:
                merged[name] = value
    return merged


def merge_limits(base: RunLimits, over: RunLimits) -> RunLimits:
    """Return limits in which `over` wins; a field that it leaves at its default is the base's.

    Two declarations by class are merged class by class, so that a rule for one class drops none for the others.
    """
    names = [field.name for field in dataclasses.fields(RunLimits)]
    changes = {name: getattr(over, name) for name in names if getattr(over, name) != getattr(_NO_LIMITS, name)}
    low, high = base.duplicates, over.duplicates
    if isinstance(low, DuplicatesByClass) and isinstance(high, DuplicatesByClass):
        changes["side_effect_duplicates"] = DuplicatesByClass(
            by_class={**low.by_class, **high.by_class},
            default=low.default if high.default == ASK else high.default,
            semantic=high.semantic or low.semantic,
        )
    return dataclasses.replace(base, **changes)
