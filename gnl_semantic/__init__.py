"""The finder of past work that looks the same. It may put a question to a person, and nothing else.

The rooms: `gnl_semantic.similar` (the gate's finder), `gnl_semantic.embedder` (texts to vectors), `gnl_semantic.ladder`
(the rules), `gnl_semantic.judge`, `gnl_semantic.telemetry` (what it came to). Names that need numpy are loaded when
they are used.
"""

import importlib
from typing import TYPE_CHECKING

from gnl_core.errors import MissingExtraError
from gnl_core.identity import SemanticIdentity
from gnl_semantic.ladder import RULESET_VERSION, LadderResult, Rules, evaluate, ladder_fold
from gnl_semantic.rate import Rate

if TYPE_CHECKING:
    from gnl_semantic.judge.runtime import Judge as Judge
    from gnl_semantic.similar import SemanticGate as SemanticGate
    from gnl_semantic.telemetry import Telemetry as Telemetry
    from gnl_semantic.telemetry import read_telemetry as read_telemetry

_HOMES = {
    "Judge": "gnl_semantic.judge.runtime",
    "SemanticGate": "gnl_semantic.similar",
    "Telemetry": "gnl_semantic.telemetry",
    "read_telemetry": "gnl_semantic.telemetry",
}

__all__ = [
    "RULESET_VERSION",
    "Judge",
    "LadderResult",
    "Rate",
    "Rules",
    "SemanticGate",
    "SemanticIdentity",
    "Telemetry",
    "evaluate",
    "ladder_fold",
    "read_telemetry",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gnl_semantic' has no attribute {name!r}")
    try:
        value: object = getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == __name__:
            raise
        raise MissingExtraError(f"gnl_semantic.{name}", "semantic") from error
    globals()[name] = value
    return value
