"""A model behind a provider's SDK: one client per event loop, and one table from failures to our errors."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib.util
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Self, TypeAlias
from urllib.parse import urlsplit

from gnl_core.errors import (
    ConfigError,
    GnlError,
    MissingExtraError,
    ModelError,
    ModelRateLimitedError,
    ModelResponseError,
    ModelTimeoutError,
    ModelUnauthorizedError,
    ModelUnavailableError,
)
from gnl_core.model.messages import ModelEvent, ModelRequest, ModelResponse
from gnl_core.model.providers._shared import clean

_Holder: TypeAlias = AsyncGenerator[None]
_Clients: TypeAlias = dict[asyncio.AbstractEventLoop, tuple[Any, _Holder]]

_MOST_OF_A_MESSAGE = 500
# Keeps the open clients of a forgotten model out of the garbage, which would drop their sockets with a warning.
_open: dict[int, _Clients] = {}
_closing: set[asyncio.Task[None]] = set()


class SdkModel(ABC):
    """What the adapters have in common; a subclass says how its SDK is called and how its messages look.

    A client lives as long as the event loop it was made in: its sockets belong to that loop, and a program may call
    `asyncio.run` many times.
    """

    name: ClassVar[str]
    """The built-in prefix, and the extra that brings the SDK."""

    module: ClassVar[str]
    key_env: ClassVar[tuple[str, ...]]
    url_env: ClassVar[str] = ""

    def __init__(
        self,
        model_id: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str | None = None,
        timeout: float = 600.0,
        max_retries: int = 0,
    ) -> None:
        """Name a model; nothing is loaded or sent before the first request.

        Args:
            model_id: The model's id as the provider spells it.
            api_key: The key; by default what the provider's environment variable holds when a request is made.
            base_url: Where the provider's API is; by default its own.
            provider: The name in specs, messages and records. By default the built-in prefix, or the host of a
                `base_url`: another server is another provider, whose ids and opaque data are its own.
            timeout: Seconds without a byte from the provider, over 0.
            max_retries: How often the SDK repeats a failed request by itself, at least 0.

        Raises:
            MissingExtraError: The SDK is not installed.
        """
        if not _installed(self.module):
            raise MissingExtraError(f"the model provider {self.name!r}", self.name)
        self.model_id = model_id
        self.provider = provider or (_host(base_url) if base_url else self.name)
        self._named = bool(provider)
        self._api_key = api_key
        self._base_url = base_url
        self._timeout = timeout
        self._max_retries = max_retries
        self._own_clients()

    @property
    def spec(self) -> str:
        """'provider/model', as messages and records name it."""
        return f"{self.provider}/{self.model_id}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec!r})"

    def named(self, provider: str) -> Self:
        """Return the model under the prefix it is registered with, unless it was given a name of its own."""
        if self._named:
            return self
        other = copy.copy(self)
        other.provider = provider
        other._own_clients()
        return other

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return one whole answer.

        Raises:
            ModelError: No whole answer came; the text never holds the key.
        """
        call = self._request(request)
        try:
            return await self._send(await self._client(), call)
        except Exception as error:
            failure = self._failure(error)
        # Raised here and not above, so that no SDK exception (whose request holds the key) hangs on it as context.
        raise failure

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer as it comes; the last event of a whole one is `ResponseDone`.

        Raises:
            ModelError: While iterating: the answer broke off; the text never holds the key.
        """
        call = self._request(request)
        try:
            async with contextlib.aclosing(self._events(await self._client(), call)) as events:
                async for event in events:
                    yield event
        except Exception as error:
            failure = self._failure(error)
        else:
            return
        raise failure  # outside, as in `generate`

    async def aclose(self) -> None:
        """Close the client of the running event loop; the end of the loop does it too."""
        held = self._clients.get(asyncio.get_running_loop())
        if held is not None:
            await held[1].aclose()

    # What a provider is ----------------------------------------------------------------------------------------

    @abstractmethod
    def _make_client(self, api_key: str) -> Any:
        """Return the SDK's async client."""

    @staticmethod
    @abstractmethod
    async def _close_client(client: Any) -> None:
        """Close it."""

    @abstractmethod
    def _request(self, request: ModelRequest) -> dict[str, Any]:
        """Return the keyword arguments of the SDK's call."""

    @abstractmethod
    async def _send(self, client: Any, call: dict[str, Any]) -> ModelResponse:
        """Make the call."""

    @abstractmethod
    def _events(self, client: Any, call: dict[str, Any]) -> AsyncGenerator[ModelEvent]:
        """Make the call as a stream, and close it on every way out."""

    # Clients ---------------------------------------------------------------------------------------------------

    def _own_clients(self) -> None:
        self._clients: _Clients = {}
        weakref.finalize(self, _close_soon, self._clients).atexit = False

    async def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        held = self._clients.get(loop)
        if held is None:
            for other in [other for other in list(self._clients) if other.is_closed()]:
                del self._clients[other]  # it ended without closing its generators, and nothing can close them now
            client = self._make_client(self._key())
            holder = _hold(client, self._close_client, self._clients)
            held = self._clients[loop] = (client, holder)
            _open[id(self._clients)] = self._clients
            await anext(holder)
        return held[0]

    def _key(self) -> str:
        key = self._api_key if self._api_key is not None else self._key_of_environment()
        if key:
            return key
        if self._base_url or os.environ.get(self.url_env):
            return "none"  # a server of one's own often asks for no key, and the SDKs insist on one
        raise ModelUnauthorizedError(f"{self.spec} has no key; set {self.key_env[0]}, or give api_key=")

    def _key_of_environment(self) -> str:
        return next((value for name in self.key_env if (value := os.environ.get(name))), "")

    # Failures --------------------------------------------------------------------------------------------------

    def _failure(self, error: Exception) -> GnlError:
        if isinstance(error, GnlError):
            return error
        if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
            return ConfigError(f"the SDK of {self.spec} does not take these settings (check settings.extra): {error}")
        status, headers = _status(error)
        if status is not None and status >= 400:
            return self._refused(status, headers, getattr(error, "message", None) or str(error))
        kinds = _kinds(error)
        said = self._said(f"{type(error).__name__}: {error}")
        if kinds & {"TimeoutException", "TimeoutError", "APITimeoutError"}:
            return ModelTimeoutError(f"{self.spec} did not answer within {self._timeout:g} s ({said})")
        if kinds & {"ConnectError", "ConnectionRefusedError", "UnsupportedProtocol", "ProxyError"}:
            return ModelUnavailableError(f"{self.spec} cannot be reached ({said})")
        if kinds & {"ProtocolError", "NetworkError", "StreamError", "OSError"}:
            return ModelResponseError(f"the answer of {self.spec} broke off ({said})")
        return ModelResponseError(f"the answer of {self.spec} cannot be read ({said})")

    def _refused(self, status: int, headers: Mapping[str, str], message: object) -> ModelError:
        said = f"{self.spec} answered {status}: {self._said(str(message))}"
        wait = _retry_after(headers)
        if status == 429:
            return ModelRateLimitedError(said, retry_after=wait, status=status)
        if status in (401, 403):
            return ModelUnauthorizedError(said, status=status)
        if status == 408:
            return ModelTimeoutError(said, retry_after=wait, status=status)
        return ModelUnavailableError(said, retry_after=wait, status=status)

    def _said(self, text: str) -> str:
        """Return a provider's or SDK's words without the key, and not too many of them."""
        for key in {self._api_key or "", *(os.environ.get(name, "") for name in self.key_env)}:
            if len(key) > 3:  # shorter ones are no secrets, and would black out words
                text = text.replace(key, "[key]")
        text = clean(text).strip()
        return text if len(text) <= _MOST_OF_A_MESSAGE else text[:_MOST_OF_A_MESSAGE] + "…"


async def _hold(client: Any, close: Callable[[Any], Awaitable[None]], clients: _Clients) -> _Holder:
    """Close the client when the loop ends: asyncio closes the generators that are still open then."""
    try:
        yield
    finally:
        clients.pop(asyncio.get_running_loop(), None)
        if not clients:
            _open.pop(id(clients), None)
        await close(client)


def _close_soon(clients: _Clients) -> None:
    """Close the clients of a model that is no more, each in its own loop."""
    for loop, (_, holder) in [*clients.items()]:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and has closed the client
            loop.call_soon_threadsafe(_start_closing, loop, holder)


def _start_closing(loop: asyncio.AbstractEventLoop, holder: _Holder) -> None:
    task = loop.create_task(holder.aclose())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _host(base_url: str) -> str:
    return urlsplit(base_url).netloc.rpartition("@")[2].lower().replace(":", "-") or "server"


def _kinds(error: BaseException) -> set[str]:
    """Return the class names of an error and of all that caused it: the SDKs bring HTTP clients of several names."""
    names: set[str] = set()
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            break
        names |= {kind.__name__ for kind in type(seen).__mro__}
        seen = seen.__cause__ or seen.__context__
    return names


def _status(error: Exception) -> tuple[int | None, Mapping[str, str]]:
    response = getattr(error, "response", None) or getattr(error, "raw_response", None)
    headers = getattr(response, "headers", None) or {}
    for name in ("status_code", "code"):
        status = getattr(error, name, None)
        if isinstance(status, int):
            return status, headers
    return None, headers


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, which holds seconds or a date."""
    value = headers.get("retry-after") or headers.get("Retry-After") or ""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if seconds < float("inf") else None
