"""Which rungs are on: three settings of one and the same gate."""

from __future__ import annotations

from functools import cache
from typing import Literal, get_args

from gnl_core import RunLimits
from gnl_core.duplicates import Duplicates

Setting = Literal["exact", "rules", "judge"]
"""'exact': equal arguments, and a person's equal identity in another conversation. 'rules': work that looks the same
too, by equal identity fields and the rule ladder. 'judge': a judge beside them."""

SETTINGS: tuple[Setting, ...] = get_args(Setting)


@cache
def limits_of(setting: Setting) -> RunLimits:
    """Return the limits of a setting; the embedder is loaded once a process.

    Raises:
        GnlError: The built-in embedder or judge cannot be loaded.
    """
    if setting == "exact":
        return RunLimits(side_effect_duplicates=Duplicates(action="suspend", scope="thread"))
    from gnl_semantic import Judge, SemanticGate  # noqa: PLC0415 - they load the model

    judge = Judge("builtin:local") if setting == "judge" else None
    gate = SemanticGate(embed="local", rules=True, judge=judge)
    return RunLimits(side_effect_duplicates=Duplicates(action="suspend", scope="thread", semantic=gate))
