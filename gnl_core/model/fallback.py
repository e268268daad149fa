"""A chain of models: the next one is asked where one does not answer, and the first that answers stays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from gnl_core.errors import ModelError, ModelResponseError, ModelSpecError, ModelUnavailableError
from gnl_core.model.messages import ModelEvent, ModelRequest, ModelResponse, ResponseDone
from gnl_core.model.port import ChatModel
from gnl_core.model.router import resolve_model
from gnl_core.model.streams import opened


class FallbackModel:
    """Ask candidates in their order until one answers; from then on ask that one alone.

    Only a `ModelError` moves on to the next candidate, and never after a stream has delivered an event: what a reader
    has seen of one model is not continued by another. The winner belongs to one run: the runtime binds a chain to a run
    with `bind` and records the winner, so that a resumed run asks the model that its history is from.

    Attributes:
        candidates: Names of the candidates: the spec of one given by name, '#<i>' (from 0) of one given as a model.
        errors: What the candidates that were asked in vain by the last call raised: pairs of name and error.
    """

    def __init__(self, models: Sequence[ChatModel | str]) -> None:
        """Resolve the candidates.

        Raises:
            ModelSpecError: None given, or one that cannot be resolved.
            MissingExtraError: The SDK of one of them is not installed.
        """
        if not models:
            raise ModelSpecError("a fallback chain needs one model at least")
        if any(isinstance(model, list | tuple) for model in models):
            raise ModelSpecError("a fallback chain holds models and names, no lists; write its candidates in one list")
        self._models = tuple(resolve_model(model) for model in models)
        self.candidates = tuple(model if isinstance(model, str) else f"#{i}" for i, model in enumerate(models))
        self.errors: tuple[tuple[str, ModelError], ...] = ()
        self._winner: tuple[str, ChatModel] | None = None

    @property
    def winner(self) -> str | None:
        """Name of the candidate that answered, as in `candidates`; None before one did."""
        return self._winner and self._winner[0]

    @property
    def spec(self) -> str:
        """'provider/model' of the winner, and of the first candidate before there is one."""
        return self._winner[1].spec if self._winner else self._models[0].spec

    def bind(self, winner: str | None = None) -> FallbackModel:
        """Return the chain for one run, with a winner of its own.

        Args:
            winner: The candidate that won in this run before; None where none did. One given by name is found even
                where the chain does not hold it any more.

        Raises:
            ModelSpecError: It is '#<i>' and the chain has no model there, or a name that cannot be resolved.
        """
        bound = object.__new__(FallbackModel)
        bound._models = self._models
        bound.candidates = self.candidates
        bound.errors = ()
        bound._winner = None
        if winner is not None:
            bound._winner = (winner, self._find(winner))
        return bound

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the answer of the winner, or of the first candidate that gives one.

        Raises:
            ModelError: No candidate answered; the message holds each one's, `errors` the errors themselves.
        """
        failed: list[tuple[str, ModelError]] = []
        for name, model in self._in_turn():
            try:
                response = await model.generate(request)
            except ModelError as error:
                failed.append((name, error))
                continue
            self._settle(name, model, failed)
            return response
        raise self._all_failed(failed)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer of the winner, or of the first candidate that delivers an event.

        Raises:
            ModelError: While iterating: no candidate delivered anything, or the one that did broke off.
        """
        failed: list[tuple[str, ModelError]] = []
        for name, model in self._in_turn():
            async with opened(model.stream(request)) as events:
                try:
                    event = await anext(events, None)
                    if event is None:
                        raise ModelResponseError(f"the stream of {model.spec} ended before its first event")
                except ModelError as error:
                    failed.append((name, error))
                    continue
                while event is not None:
                    if isinstance(event, ResponseDone):
                        self._settle(name, model, failed)
                    yield event
                    event = await anext(events, None)
            return
        raise self._all_failed(failed)

    def _in_turn(self) -> tuple[tuple[str, ChatModel], ...]:
        self.errors = ()
        return (self._winner,) if self._winner else tuple(zip(self.candidates, self._models, strict=True))

    def _settle(self, name: str, model: ChatModel, failed: list[tuple[str, ModelError]]) -> None:
        self.errors = tuple(failed)
        if self._winner is None:
            self._winner = (name, model)

    def _find(self, winner: str) -> ChatModel:
        if winner in self.candidates:
            return self._models[self.candidates.index(winner)]
        if winner.startswith("#"):
            raise ModelSpecError(
                f"this run was answered by candidate {winner} of its fallback chain, and the chain has "
                f"{', '.join(self.candidates)}; give the chain it began with"
            )
        return resolve_model(winner)

    def _all_failed(self, failed: list[tuple[str, ModelError]]) -> ModelError:
        self.errors = tuple(failed)
        if len(failed) == 1:
            return failed[0][1]
        kinds = {type(error) for _, error in failed}
        kind = kinds.pop() if len(kinds) == 1 else ModelUnavailableError
        waits = [error.retry_after for _, error in failed if error.retry_after is not None]
        return kind(
            "no model of the fallback chain answered: " + "; ".join(f"{name}: {error}" for name, error in failed),
            retry_after=min(waits, default=None),
            candidates={name: error.code for name, error in failed},
        )
