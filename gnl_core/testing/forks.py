"""Run a function in a forked child that may die: with a bound on its time, and its status checked."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnl_core.errors import ConfigError

BROKEN = 70
"""Exit status of a child whose function raised; its traceback is in the child's talk."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended.

    Attributes:
        status: Its exit status, or minus the number of the signal that ended it; None: it hung and was killed.
        answer: What its function returned; None where it did not get that far.
    """

    status: int | None
    answer: Any = None


class Child:
    """A running child; `wait` must be called once."""

    def __init__(self, pid: int, reader: int) -> None:
        self.pid = pid
        self._reader = reader

    def fileno(self) -> int:
        """Return what `select` can wait on: it is readable once the child has ended, or is about to."""
        return self._reader

    def wait(self, timeout: float | None = None) -> Ended:
        """Wait until it has ended, at most `timeout` seconds; then it is killed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        data = bytearray()
        hung = False
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            # The child holds the pipe's other end as long as it lives, so its end needs no polling.
            ready, _, _ = select.select([self._reader], [], [], left)
            if not ready:
                hung = True
                os.kill(self.pid, signal.SIGKILL)
                break
            chunk = os.read(self._reader, 1 << 16)
            if not chunk:
                break
            data += chunk
        os.close(self._reader)
        _, status = os.waitpid(self.pid, 0)
        if hung:
            return Ended(None)
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, json.loads(data) if code == 0 else None)


def check_forkable() -> None:
    """Refuse to fork where a child could inherit a lock that nobody will release.

    Raises:
        ConfigError: The system has no fork, or this process runs threads or an event loop.
    """
    if not hasattr(os, "fork"):
        raise ConfigError("the crash test forks, which this system cannot: run it on Linux or macOS")
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others:
        raise ConfigError(
            f"the crash test forks, which is unsafe beside running threads ({', '.join(others)}): "
            "run it in a process of its own, as `gnl crashtest` does"
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError("the crash test forks, which is unsafe inside a running event loop: call it outside")


def start(function: Callable[[], Any], *, talk: Path) -> Child:
    """Fork a child that runs `function` and ends.

    Args:
        function: Returns what `Ended.answer` is to be: anything that JSON can say.
        talk: File that takes the child's standard output and error.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Child(pid, reader)
    status = BROKEN
    try:
        os.close(reader)
        file = os.open(talk, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        # A test runner may have put objects of its own there, which belong to the parent.
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        answer = memoryview(json.dumps(function()).encode())
        while answer:
            answer = answer[os.write(writer, answer) :]
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)
