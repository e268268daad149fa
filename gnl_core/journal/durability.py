"""What a store's settings mean for a journal: one finding a setting, in words for an operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnl_core.journal.port import JsonValue

DurabilityLevel = Literal["ok", "note", "fault"]
"""'ok': keeps what was acknowledged. 'note': costs something that may be accepted. 'fault': may lose what was
acknowledged, so that an effect may happen twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DurabilityFinding:
    """One setting of a store, and what it means.

    Attributes:
        setting: Its name as the store's server, or SQLite, knows it.
        value: What the store answered; '' where it did not say.
        level: How it stands.
        meaning: What follows from it, and the way out; one or two sentences.
    """

    setting: str
    value: str
    level: DurabilityLevel
    meaning: str

    def to_json(self) -> dict[str, JsonValue]:
        """Return the finding for programs; every member is there."""
        return {"setting": self.setting, "value": self.value, "level": self.level, "meaning": self.meaning}
