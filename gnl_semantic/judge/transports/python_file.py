"""A judge in Python code of the caller's own: a file, or `module:attribute`.

What is named may be a function `complete(system, user) -> str`, sync or async, or an object or a class (built without
arguments) with such a method and, if it likes, `aclose()`. Both texts are passed by keyword.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import importlib
import inspect
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.message import Message
from pathlib import Path
from types import ModuleType

from gnl_semantic.errors import JudgeConfigError, JudgeError, JudgeUnreachableError
from gnl_semantic.judge.transport import JudgeInfo, Reply, within
from gnl_semantic.judge.transports.faults import brief, status_error

_log = logging.getLogger(__name__)


class PythonJudge:
    """Calls a Python function; a sync one in a thread a call, so that it never holds up the loop."""

    def __init__(
        self, complete: Callable[..., object], info: JudgeInfo, *, timeout_s: float, close: object = None
    ) -> None:
        self._complete = complete
        self._info = info
        self._timeout_s = timeout_s
        self._close = close

    @property
    def info(self) -> JudgeInfo:
        """Who the judge is."""
        return self._info

    async def complete(self, system: str, user: str) -> Reply:
        """Return the function's answer.

        Raises:
            JudgeTimeoutError: It took longer than the limit. A sync function runs on unheard: no thread can be stopped.
            JudgeError: It raised, or returned anything but a str. An error with an HTTP status, as HTTP clients raise
                it, becomes the leaf of that status; a JudgeError passes as it is.
        """
        who = f"judge '{self._info.model_id}'"
        try:
            text = await within(self._timeout_s, self._call(system, user), judge=self._info.model_id)
        except (JudgeError, KeyboardInterrupt):
            raise
        except BaseException as error:
            # Cancelled by itself, say by a client that gave up: of the caller's own task that is no cancellation.
            if _by_caller(error):
                raise
            message = f"{who}: complete() raised {type(error).__name__}: {brief(error)}"
            raise _leaf(error, message) from error
        if not isinstance(text, str):
            raise JudgeError(f"{who}: complete() returned {type(text).__name__}, must return str")
        return Reply(text)

    async def _call(self, system: str, user: str) -> object:
        if inspect.iscoroutinefunction(self._complete):
            # In a task of its own, so that what it cancels is not the caller.
            return await asyncio.create_task(self._await(system, user))
        answer = await _in_thread(lambda: self._complete(system=system, user=user))
        return await answer if inspect.isawaitable(answer) else answer

    async def _await(self, system: str, user: str) -> object:
        try:
            return await self._complete(system=system, user=user)  # type: ignore[misc]
        except SystemExit as error:  # a task lets it through to the event loop, which ends with it
            raise JudgeError(f"judge '{self._info.model_id}': complete() raised SystemExit: {error}") from None

    async def aclose(self) -> None:
        """Call the object's own `aclose`, once. What it raises is logged: it must not cost the answers."""
        close, self._close = self._close, None
        if not callable(close):
            return
        try:
            done = close()
            if inspect.isawaitable(done):
                await within(self._timeout_s, done, judge=self._info.model_id)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if _by_caller(error):
                raise
            _log.warning("judge '%s': aclose() raised %s: %s", self._info.model_id, type(error).__name__, brief(error))


def load_python_judge(spec: str, *, model: str, timeout_s: float) -> PythonJudge:
    """Load `path.py`, `path.py:attribute` or `module:attribute`; the attribute of a file is `complete` by default.

    A file's folder is not put on the import path. The code is the caller's own and runs as such.

    Raises:
        JudgeConfigError: The file or module is missing or cannot be run, or names nothing that can be called.
    """
    head, colon, attribute = spec.rpartition(":")
    if spec.endswith(".py") or not colon:
        head, attribute = spec, "complete"
    module, source = _from_file(Path(head)) if head.endswith(".py") else _from_module(head)
    try:
        found = _parts(module, attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit(0) of a judge must not look like a passed exam
        raise JudgeConfigError(
            f"{head}: {attribute}() raised {type(error).__name__}: {brief(error)}; it is built without arguments"
        ) from error
    if found is None:
        raise JudgeConfigError(f"{head}: has no '{attribute}': define complete(system, user) -> str, or name another")
    holder, complete = found
    check_callable(complete, f"{head}: '{attribute}'")
    parameters = {"file_sha256": hashlib.sha256(source).hexdigest() if source else None, "timeout_s": timeout_s}
    info = JudgeInfo(model_id=model, spec=spec, engine="python-file", parameters=parameters)
    return PythonJudge(complete, info, timeout_s=timeout_s, close=getattr(holder, "aclose", None))


def _parts(module: ModuleType, attribute: str) -> tuple[object, Callable[..., object]] | None:
    """Return the object that may have an `aclose`, and what is to be called; None where the attribute is missing."""
    target = getattr(module, attribute, None)
    if isinstance(target, type):
        target = target()
    if target is None:
        return None
    return (target, target.complete) if hasattr(target, "complete") else (module, target)


def check_callable(complete: object, where: str) -> None:
    """Refuse what cannot be called as `complete(system=…, user=…)`; `where` opens the message.

    Raises:
        JudgeConfigError: It is no callable, or takes other arguments.
    """
    if not callable(complete):
        raise JudgeConfigError(
            f"{where} is {type(complete).__name__}, must be a function complete(system, user) -> str, "
            "or an object that has one"
        )
    try:
        inspect.signature(complete).bind(system="", user="")
    except TypeError as error:
        raise JudgeConfigError(f"{where} must take the arguments 'system' and 'user': {error}") from None
    except ValueError:  # some builtins have no signature to read
        return


def _from_file(path: Path) -> tuple[ModuleType, bytes]:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise JudgeConfigError(f"{path}: cannot be read: {error.strerror}: give the path of a Python file") from None
    # The bytes that were hashed are the bytes that run: no import system in between that might find others.
    module = ModuleType(f"gnl_judge_{hashlib.sha256(source).hexdigest()[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102
    except BaseException as error:
        del sys.modules[module.__name__]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise JudgeConfigError(f"{path}{_line(error, path)}: {type(error).__name__}: {brief(error)}") from error
    return module, source


def _from_module(name: str) -> tuple[ModuleType, bytes | None]:
    try:
        module = importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise JudgeConfigError(
            f"module '{name}' cannot be imported: {type(error).__name__}: {brief(error)}; "
            "a file is named by its path, for instance ./judge.py"
        ) from error
    try:
        return module, Path(module.__file__ or "").read_bytes()
    except (AttributeError, OSError):  # built in, or inside an archive
        return module, None


def _by_caller(error: BaseException) -> bool:
    """Tell whether an error is the cancellation of the task that asks."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _leaf(error: BaseException, message: str) -> JudgeError:
    """Keep what an HTTP client's error says: without it a rate limit would look like a broken judge."""
    for source in (error, getattr(error, "response", None)):
        status = getattr(source, "status_code", getattr(source, "status", None))
        if isinstance(status, int) and status >= 400:
            headers = getattr(getattr(error, "response", error), "headers", None)
            wait = headers.get("retry-after") if isinstance(headers, Mapping | Message) else None
            return status_error(status, message, retry_after=wait if isinstance(wait, str) else None)
    return JudgeUnreachableError(message) if isinstance(error, ConnectionError) else JudgeError(message)


def _line(error: BaseException, path: Path) -> str:
    """Say in which line of the judge's own file an error arose."""
    if isinstance(error, SyntaxError):
        number = error.lineno
    else:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        number = lines[-1] if lines else None
    return f", line {number}" if number else ""


async def _in_thread(call: Callable[[], object]) -> object:
    """Run `call` in a daemon thread: unlike an executor's it lets the program end while a judge hangs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()

    def settle(value: object, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((value, error))

    def work() -> None:
        value: object = None
        fault: BaseException | None = None
        try:
            value = call()
        except BaseException as error:
            fault = error
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(settle, value, fault)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), name="gnl-judge", daemon=True).start()
    value, fault = await done
    if fault is not None:
        raise fault
    return value
