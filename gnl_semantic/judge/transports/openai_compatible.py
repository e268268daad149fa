"""A judge behind OpenAI's chat completions: a provider, or llama.cpp, vLLM, Ollama and others on this machine.

Named on a command line as ``openai:URL``, for instance ``openai:http://127.0.0.1:8080/v1``. The key comes from an
environment variable whose name is given apart (`key_env`); a key in the URL is refused, for the URL goes into reports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gnl_core.errors import MissingExtraError
from gnl_semantic.errors import JudgeConfigError, JudgeError, JudgeTimeoutError, JudgeUnreachableError
from gnl_semantic.judge.transport import JudgeInfo, Reply, within
from gnl_semantic.judge.transports.faults import brief, status_error

if TYPE_CHECKING:
    from openai import Omit
    from openai.types.chat import ChatCompletion

_OURS = frozenset({"model", "messages", "stream", "n", "temperature", "max_tokens"})
"""Fields of a request that a certificate answers for."""
MAX_TOKENS = 200
"""Default length of an answer: one word, and room for a model that thinks apart from it."""
_MOST_TOKENS = 2**53
"""Largest count that every reader of JSON can hold; a server that says more says nothing."""


class OpenAICompatibleJudge:
    """Asks at temperature 0, once: no retries, no redirects, no stream."""

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        timeout_s: float,
        key_env: str | None = None,
        max_tokens: int = MAX_TOKENS,
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        """Open no connection yet.

        Args:
            base_url: http or https, up to and with '/v1'.
            model: The model's name at the server.
            timeout_s: Seconds one call may take, from connecting to the last byte.
            key_env: Name of the environment variable that holds the key; None sends none.
            max_tokens: Longest answer.
            extra_body: Further fields of the request, for instance a grammar or a reasoning budget.

        Raises:
            JudgeConfigError: The URL cannot be used, or the variable is not set.
            MissingExtraError: The package `openai` is not installed.
        """
        self._key = _key(key_env)
        self._timeout_s = timeout_s
        self._extra_body = dict(extra_body or {})
        taken = sorted(_OURS & self._extra_body.keys())
        if taken:
            raise JudgeConfigError(f"extra_body sets {', '.join(taken)}: the exam sets these; leave them out")
        self._info = JudgeInfo(
            model_id=model,
            spec=f"openai:{_checked(base_url)}",
            engine="openai-compatible",
            parameters={
                "temperature": 0,
                "max_tokens": max_tokens,
                "timeout_s": timeout_s,
                "extra_body": self._extra_body,
            },
        )
        self._max_tokens = max_tokens
        try:
            import openai  # noqa: PLC0415
        except ImportError:
            raise MissingExtraError("a judge behind a URL", "openai") from None
        self._openai = openai
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=self._key or "none",
            max_retries=0,
            timeout=timeout_s,
            # A redirect would carry the records to a host that nobody named.
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        # Without a key of its own a server gets none of what the environment holds for another one.
        names = () if self._key else ("Authorization", "OpenAI-Organization", "OpenAI-Project")
        self._headers: dict[str, str | Omit] = {name: openai.Omit() for name in names}
        # A connection that is kept belongs to the event loop that opened it, and a judge may outlive that one.
        self._headers["Connection"] = "close"

    @property
    def info(self) -> JudgeInfo:
        """Who the judge is. The key is no part of it."""
        return self._info

    async def complete(self, system: str, user: str) -> Reply:
        """Return the model's answer.

        Raises:
            JudgeTimeoutError: No whole answer within the limit.
            JudgeUnreachableError: No connection, or it broke.
            JudgeRateLimitedError: 429.
            JudgeServerError: 5xx.
            JudgeRefusedError: Any other status that is no answer.
            JudgeError: An answer that holds no text.
        """
        openai = self._openai
        who = f"judge '{self._info.model_id}' at {self._info.spec.removeprefix('openai:')}"
        try:
            return self._reply(await within(self._timeout_s, self._ask(system, user), judge=self._info.model_id), who)
        except openai.APITimeoutError:
            raise JudgeTimeoutError(f"{who}: no answer within {self._timeout_s:g} s") from None
        except openai.APIConnectionError as error:
            raise JudgeUnreachableError(f"{who}: no connection: {self._safe(error.__cause__ or error)}") from None
        except openai.APIStatusError as error:
            raise status_error(
                error.status_code,
                f"{who}: {self._safe(_said(error.body))}" if _said(error.body) else who,
                retry_after=error.response.headers.get("retry-after"),
            ) from None
        except (openai.OpenAIError, ValueError, RecursionError) as error:  # the last two: a body that claims to be JSON
            raise JudgeError(f"{who}: the answer cannot be read: {self._safe(error)}") from None

    async def _ask(self, system: str, user: str) -> ChatCompletion:
        return await self._client.chat.completions.create(
            model=self._info.model_id,
            messages=[{"role": "system", "content": system}, {"role": "user", "content": user}],
            temperature=0,
            max_tokens=self._max_tokens,
            extra_body=self._extra_body,
            extra_headers=self._headers,
        )

    def _reply(self, completion: object, who: str) -> Reply:
        """Take text and counts out of what came. The client checks no types: any JSON may be in here."""
        try:
            text = completion.choices[0].message.content  # type: ignore[attr-defined]
        except (AttributeError, IndexError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            raise JudgeError(f"{who}: the answer holds no text: is the URL that of a chat completions server?")
        usage = getattr(completion, "usage", None)
        return Reply(text, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))

    def _safe(self, message: object) -> str:
        """Shorten a server's message, and take the key out in case it sends that back."""
        text = str(message)
        return brief(text.replace(self._key, "***") if self._key else text)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def _checked(base_url: str) -> str:
    if any(mark in base_url for mark in "@?#"):
        raise JudgeConfigError(
            "the judge's URL holds a user name, a query or a fragment, and it goes into reports: "
            "give scheme, host and path alone, and the key in an environment variable (key_env)"
        )
    try:
        url = urlsplit(base_url)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise JudgeConfigError(f"'{base_url}' is no http(s) URL: give for instance openai:http://127.0.0.1:8080/v1")
    return base_url


def _key(key_env: str | None) -> str | None:
    if key_env is None:
        return None
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise JudgeConfigError(f"the environment variable '{key_env}' is not set: put the server's key into it")
    return key


def _said(body: object) -> str | None:
    """Find the message in the body of an error; servers wrap it in 'error' or not, and the client unwraps that."""
    message = body.get("message") if isinstance(body, Mapping) else None
    return message if isinstance(message, str) else None


def _count(usage: object, name: str) -> int | None:
    count = getattr(usage, name, None)
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _MOST_TOKENS else None
