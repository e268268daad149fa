"""Play every conversation with scripted models: two kinds of model, three settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnl_core.testing import ScriptedModel
from gnl_fixtures.conversations import STYLES, Conversation, Label, Style, Turn
from gnl_qualify.traffic.played import PlayedConversation
from gnl_qualify.traffic.player import LabelOf, ModelOf, play
from gnl_qualify.traffic.settings import SETTINGS, Setting, limits_of
from gnl_qualify.traffic.tools import check_arguments

Progress = Callable[[str, int, int], None]
"""Told what is played, how much of it is done, and all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Playing:
    """All conversations, played by one model under one setting.

    Attributes:
        model: 'careful' or 'careless' for the scripted models, else what a live model is called.
        setting: Which rungs were on.
        conversations: As far as they were played.
        expected: How many there are.
    """

    model: str
    setting: Setting
    conversations: tuple[PlayedConversation, ...]
    expected: int

    @property
    def whole(self) -> bool:
        """Whether every turn of every conversation was played to its end."""
        return len(self.conversations) == self.expected and all(one.whole for one in self.conversations)

    def to_json(self) -> dict[str, Any]:
        """Return everything that was recorded, for programs."""
        return {
            "model": self.model,
            "setting": self.setting,
            "whole": self.whole,
            "expected_conversations": self.expected,
            "conversations": [one.to_json() for one in self.conversations],
        }


async def play_suite(
    conversations: Sequence[Conversation],
    *,
    styles: Sequence[Style] = STYLES,
    settings: Sequence[Setting] = SETTINGS,
    progress: Progress | None = None,
) -> tuple[Playing, ...]:
    """Play the conversations with scripted models, one after the other: the same script always plays the same.

    Args:
        conversations: What is played.
        styles: Kinds of model.
        settings: Which rungs are on.
        progress: See `Progress`.

    Raises:
        FixtureError: A scripted call that its tool would refuse.
        GnlError: The built-in embedder or judge cannot be loaded.
    """
    check_arguments(tuple(conversations))
    playings: list[Playing] = []
    for setting in settings:
        limits = limits_of(setting)
        for style in styles:
            played: list[PlayedConversation] = []
            for conversation in conversations:
                model_of, label_of = scripted(style)
                played.append(await play(conversation, model_of=model_of, label_of=label_of, limits=limits))
                if progress is not None:
                    done = len(playings) * len(conversations) + len(played)
                    progress("conversations", done, len(conversations) * len(settings) * len(styles))
            playings.append(
                Playing(model=style, setting=setting, conversations=tuple(played), expected=len(conversations))
            )
    return tuple(playings)


def scripted(style: Style) -> tuple[ModelOf, LabelOf]:
    """Return how a turn is answered by a scripted model of this kind, and how its calls are labelled."""

    def model_of(turn: Turn, spoken: int) -> ScriptedModel:
        calls: list[tuple[str, Mapping[str, Any]]] = [(call.tool, call.args) for call in turn.calls(style)]
        return ScriptedModel([calls, "Done."] if calls else ["You are welcome."], history=spoken)

    def label_of(turn: Turn, step: int, place: int) -> Label:  # noqa: ARG001 - a scripted model calls in one step only
        return turn.calls(style)[place].label

    return model_of, label_of
