"""The model port: one generate and one stream over our messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from gnl_core.model.messages import ModelEvent, ModelRequest, ModelResponse


@runtime_checkable
class ChatModel(Protocol):
    """A chat model.

    Errors are `ModelError` and its kinds; an SDK's own exception never leaves an adapter, and an adapter's SDK retries
    at most as its owner configured it (the runtime itself never retries a model call). Tool calls of a response carry
    `id=""`, the provider's id in `provider_id`, and arguments parsed where they are a JSON object.
    """

    @property
    def spec(self) -> str:
        """'provider/model', as messages and records name it."""
        ...

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return one whole answer.

        Raises:
            ModelError: No whole answer came.
        """
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer as it comes; the last event of a whole one is `ResponseDone`.

        Raises:
            ModelError: While iterating: the answer broke off.
        """
        ...
