"""The witness: a file outside the journal that holds one line for each effect that really happened."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from gnl_core import keys
from gnl_core.context import current_context
from gnl_core.errors import StoreCorruptError

T = TypeVar("T")
Hook: TypeAlias = Callable[[int], None]
"""Called with the number of the effect in this process, from 1."""


class CallLike(Protocol):
    """What `fire` reads of a tool's `Context`."""

    @property
    def run_id(self) -> str:
        """The run."""
        ...

    @property
    def tool_call_id(self) -> str:
        """Our id of the call."""
        ...


@dataclass(frozen=True, slots=True)
class Effect:
    """One line of the log.

    Attributes:
        name: What happened, for instance 'charge'.
        key: What was given as its call: the key of one, or a text of one's own.
        pid: Process that did it.
        output: What the tool told of it.
        call: Which call did it, '<run>/<call>'; '' where that is not known.
    """

    name: str
    key: str
    pid: int
    output: Any = None
    call: str = ""


def call_key(call: CallLike | str) -> str:
    """Return the key of a call: '<run>/<call>' of a `Context`, a text as it stands."""
    return call if isinstance(call, str) else f"{call.run_id}/{call.tool_call_id}"


class EffectLog:
    """An append-only file with one synced line an effect; many processes and threads may write it at once.

    A fake tool calls `fire` where a real one would charge, send or ship. The log is no part of the journal, so what
    stands in it is what happened, whatever the journal believes.

    Attributes:
        path: The file; it appears with the first effect.
        before: Called right before a line is written: a process that dies here has done nothing.
        after: Called right after a line is on disk: a process that dies here has done it and told nobody.
    """

    def __init__(self, path: str | os.PathLike[str], *, before: Hook | None = None, after: Hook | None = None) -> None:
        self.path = Path(path)
        self.before = before
        self.after = after
        self._lock = threading.Lock()
        self._fired = 0

    @property
    def fired(self) -> int:
        """Effects that this object began."""
        return self._fired

    def fire(self, name: str, call: CallLike | str, output: T | None = None) -> T | None:
        """Let the effect happen, and return `output`.

        Args:
            name: What happens, for instance 'charge'.
            call: The tool's `Context`, or a key of one's own, for instance an order's number: effects are counted by
                it. Beside such a key the log keeps the call whose body it is fired in, so that the crash test can tell
                whether a call in doubt has happened. In a thread that the body itself starts there is no telling:
                pass the `Context` there.
            output: What the tool returns for it: anything that JSON can say.
        """
        with self._lock:
            self._fired += 1
            number = self._fired
        if self.before is not None:
            self.before(number)
        key = call_key(call)
        doer = current_context() if isinstance(call, str) else call
        whose = call_key(doer) if doer is not None else key if _names_call(key) else ""
        line = json.dumps({"name": name, "key": key, "call": whose, "pid": os.getpid(), "output": output})
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # One write of one line: O_APPEND keeps lines of several processes whole and in order.
            os.write(file, line.encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)
        if self.after is not None:
            self.after(number)
        return output

    def read(self) -> list[Effect]:
        """Return every effect, in the order in which they happened.

        Raises:
            StoreCorruptError: A line of the file is none of ours.
        """
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        effects = []
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
                effects.append(
                    Effect(value["name"], value["key"], value["pid"], value["output"], value.get("call", ""))
                )
            except (ValueError, KeyError, TypeError):
                raise StoreCorruptError(
                    f"line {number} of {self.path} is no effect; give the log a file of its own", line=number
                ) from None
        return effects

    def find(self, call: CallLike | str) -> Effect | None:
        """Return the first effect of a call, or of a key of one's own; None where there is none."""
        key = call_key(call)
        return next((effect for effect in self.read() if key in (effect.call, effect.key)), None)

    def count(self, name: str | None = None, call: CallLike | str | None = None) -> int:
        """Return how many effects there are, of one name or one call where given."""
        key = None if call is None else call_key(call)
        return sum(
            (name is None or effect.name == name) and (key is None or key in (effect.call, effect.key))
            for effect in self.read()
        )

    def counts(self) -> dict[str, int]:
        """Return how many effects each call had, by '<name> <key>'."""
        return dict(Counter(f"{effect.name} {effect.key}" for effect in self.read()))


def _names_call(key: str) -> bool:
    run, _, call = key.rpartition("/")
    return bool(run) and keys.parse_call_id(call) is not None
