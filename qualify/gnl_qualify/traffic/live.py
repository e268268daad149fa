"""Play the conversations with a live model: the users' words are the suite's, the arguments are the model's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from gnl_core.errors import ConfigError
from gnl_core.model.port import ChatModel
from gnl_fixtures.conversations import Conversation, Label, Turn
from gnl_qualify.traffic.played import PlayedConversation
from gnl_qualify.traffic.player import play
from gnl_qualify.traffic.settings import Setting, limits_of

SYSTEM = (
    "You work in the back office of a trading company. Do what the user asks for with the tools you have: create "
    "orders, pay invoices, open tickets, create customers, adjust the stock. Call a tool only where the user asks for "
    "such work, fill its arguments from the conversation, and ask nothing back. Then say in one sentence, in the "
    "user's language, what you did."
)
"""What a live model is told. It says nothing of repeats, nor of how arguments are to be spelt."""

MOST_FAILURES = 3
"""Conversations in a row that broke off at the server, after which the rest is not tried."""


def open_model(model_id: str, *, base_url: str, api_key: str | None, timeout_s: float, retries: int = 2) -> ChatModel:
    """Return a model behind a server that speaks OpenAI's chat completions.

    Args:
        model_id: The model's id as the server spells it.
        base_url: For instance 'http://127.0.0.1:8080/v1'.
        api_key: The server's key; None where it wants none.
        timeout_s: Seconds without a byte from the server, over 0.
        retries: How often one request is repeated, at least 0.

    Raises:
        MissingExtraError: The SDK is not installed.
        ConfigError: The address is none.
    """
    from gnl_core.model.providers.openai import OpenAIModel  # noqa: PLC0415 - a scripted playing needs no SDK

    if not base_url.startswith(("http://", "https://")):
        raise ConfigError(f"the server's address is {base_url!r}, must begin with http:// or https://")
    key = api_key or "none"  # the SDK wants one, a server of one's own seldom does
    return OpenAIModel(model_id, base_url=base_url, api_key=key, timeout=timeout_s, max_retries=retries)


async def play_live(
    conversations: Sequence[Conversation], model: ChatModel, *, setting: Setting = "judge", step_seconds: float = 120.0
) -> AsyncIterator[PlayedConversation]:
    """Yield each conversation once it is played, as far as it could be.

    A conversation ends at the first turn that fails. After `MOST_FAILURES` conversations in a row that failed, nothing
    more is tried: what was yielded is all there is.

    Args:
        conversations: What is played, in order.
        model: The live model.
        setting: Which rungs are on.
        step_seconds: How long one answer of the model may take, over 0.

    Raises:
        GnlError: The built-in embedder or judge cannot be loaded.
    """
    limits = limits_of(setting)
    failures = 0
    for conversation in conversations:
        played = await play(
            conversation,
            model_of=lambda turn, spoken: model,  # noqa: ARG005 - a live model reads the conversation by itself
            label_of=_of_the_turn,
            limits=limits,
            system=SYSTEM,
            step_seconds=step_seconds,
        )
        yield played
        failures = 0 if played.whole else failures + 1
        if failures == MOST_FAILURES:
            return


def _of_the_turn(turn: Turn, step: int, place: int) -> Label:  # noqa: ARG001 - what the user wanted holds for every call
    return turn.label
