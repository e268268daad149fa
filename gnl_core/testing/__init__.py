"""Public helpers for tests of agents, stores and models built on the runtime.

Names are loaded when they are first used: none of them is needed at run time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnl_core.testing.conformance import JournalConformance as JournalConformance
    from gnl_core.testing.crash_drive import by_witness as by_witness
    from gnl_core.testing.crash_drive import nobody as nobody
    from gnl_core.testing.crash_drive import nobody_in_doubt as nobody_in_doubt
    from gnl_core.testing.crash_drive import refuse as refuse
    from gnl_core.testing.crash_report import CrashReport as CrashReport
    from gnl_core.testing.crash_report import PointResult as PointResult
    from gnl_core.testing.effects import EffectLog as EffectLog
    from gnl_core.testing.faulty import Fault as Fault
    from gnl_core.testing.faulty import FaultyJournal as FaultyJournal
    from gnl_core.testing.matrix import crashtest as crashtest
    from gnl_core.testing.scripted import Call as Call
    from gnl_core.testing.scripted import RaiseOnce as RaiseOnce
    from gnl_core.testing.scripted import ScriptedModel as ScriptedModel
    from gnl_core.testing.scripted import raise_once as raise_once

_HOMES = {
    "gnl_core.testing.conformance": ("JournalConformance",),
    "gnl_core.testing.crash_drive": ("by_witness", "nobody", "nobody_in_doubt", "refuse"),
    "gnl_core.testing.crash_report": ("CrashReport", "PointResult"),
    "gnl_core.testing.matrix": ("crashtest",),
    "gnl_core.testing.effects": ("EffectLog",),
    "gnl_core.testing.faulty": ("Fault", "FaultyJournal"),
    "gnl_core.testing.scripted": ("Call", "RaiseOnce", "ScriptedModel", "raise_once"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - computed from the one table above


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'gnl_core.testing' has no attribute {name!r}")
    # The module of this name is a submodule too: importing it would put the module where the function belongs.
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
