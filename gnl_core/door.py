"""Through which door a run is entered: an agent's, a workflow's or a batch's; and what it is to do there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gnl_core.journal.port import JsonValue

Kind: TypeAlias = Literal["agent", "workflow", "item"]
"""What does a run: an agent or a loop of one's own, a workflow, or a batch for one of its items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Through which door a run is entered.

    Attributes:
        kind: Whose door it is; frozen with the run, which goes on through the same door only.
        job: What a workflow or an item is to do, frozen when it begins; None: it goes on with what it began with. An
            agent is asked by messages.
    """

    kind: Kind = "agent"
    job: JsonValue = None


AGENT = Door()
"""The door of `run_durable`, and of whatever else asks a model."""
