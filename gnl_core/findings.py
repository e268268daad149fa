"""What may be found of prior work for one call. A finder finds; it has no verdict to return.

The probabilistic layer enters here and nowhere else. By its type it can add a question about a call and do nothing
more: it cannot skip a call, block it, or tell the model that the work was done. The gate that puts the question is
small and deterministic, and not built yet; neither is a finder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gnl_core.verdicts import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class LooksAlike:
    """Work that looks like what a call is about to do.

    Attributes:
        run_id: The run that did it.
        tool_call_id: Our id of the call that did it.
        at: When it was done, in milliseconds of the store's clock.
        sentence: Its canonical sentence: what a person is shown beside the present one.
        because: Why it is taken for alike: names of the rules, or of the judge, for the journal.
    """

    run_id: str
    tool_call_id: str
    at: int
    sentence: str
    because: str


class Similar(Protocol):
    """Looks for past work of one conversation that looks the same as what a call is about to do."""

    async def find(self, call: Call, *, now: int) -> Sequence[LooksAlike]:
        """Return what looks alike, the likeliest first; empty where nothing does, or where it cannot be told.

        Best-effort: a finder that fails or takes too long finds nothing, says so in an incident, and the call goes on.

        Args:
            call: The call.
            now: Milliseconds of the store's clock.
        """
        ...
