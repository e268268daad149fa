"""Who holds a lock or claims a call, and whether that process is known to have died.

A holder is dead only where it can be proved from here: it ran under this very kernel and in this very process
namespace, and its process is gone, is another one by now, or has ended and waits to be reaped. Everything else
(another host, another container, a system without /proc) is unknown, and unknown counts as alive: there the time to
live decides.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from gnl_core.journal.port import JsonValue

_MAX_PID = (1 << 31) - 1
_MAX_TEXT = 256
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Owner:
    """One hold of one process.

    Attributes:
        id: 32 hex digits, random for each hold.
        boot: Id of the kernel's boot; '' where the system does not tell.
        pid: Process id, as the process itself sees it.
        started: When the process started, in clock ticks since the boot, as decimal digits; '' where unknown.
        namespace: Which process and time namespace `pid` and `started` are numbers of; '' where unknown.
        host: Name of the host, for messages only: names are not unique.
    """

    id: str
    boot: str
    pid: int
    started: str
    namespace: str
    host: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the owner's JSON form."""
        return {
            "id": self.id,
            "boot": self.boot,
            "pid": self.pid,
            "started": self.started,
            "namespace": self.namespace,
            "host": self.host,
        }


def read_owner(value: object) -> Owner | None:
    """Return the owner of its JSON form, which comes from disk and is not trusted; None where it is no owner."""
    if not isinstance(value, dict):
        return None
    pid = value.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid <= _MAX_PID:
        return None
    texts: list[str] = []
    for name in ("id", "boot", "started", "namespace", "host"):
        text = value.get(name, "" if name == "host" else None)
        if not isinstance(text, str) or len(text) > _MAX_TEXT:
            return None
        texts.append(text)
    identity, boot, started, namespace, host = texts
    if not _ID.fullmatch(identity):
        return None
    return Owner(identity, boot, pid, started, namespace, host)


# This process ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Facts:
    pid: int
    boot: str
    started: str
    namespace: str
    host: str


class _Process:
    """What is known of this process: its facts, and the holds that it really has, each until when."""

    __slots__ = ("facts", "held")

    def __init__(self) -> None:
        self.facts: _Facts | None = None
        self.held: dict[str, float] = {}

    def forget(self) -> None:
        """Start afresh in a forked child: the parent's holds are not its own, and its pid may be one seen before."""
        self.facts = None
        self.held = {}

    def holds(self, identity: str) -> bool:
        """Whether this process has a hold of this id, or may still act for it."""
        return time.monotonic() < self.held.get(identity, 0.0)


_process = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forget)


def new_owner() -> Owner:
    """Return an owner for a new hold of this process; `register` it once the hold is really had."""
    facts = _this_process()
    return Owner(secrets.token_hex(16), facts.boot, facts.pid, facts.started, facts.namespace, facts.host)


def register(owner: Owner) -> None:
    """Say that this process has this hold from now on.

    Register before the hold is written: another task of this process takes an owner that it cannot find for dead.
    """
    _process.held[owner.id] = float("inf")


def unregister(owner: Owner, *, after_s: float = 0.0) -> None:
    """Say that this process no longer has this hold; an unknown one is no error.

    Only once nothing of it can act any more: a tool's thread that outlives its event loop is still the hold's, and
    another task that took it for dead would run the tool beside it.

    Args:
        owner: The hold.
        after_s: Seconds until then, at least 0, where nobody will come back to say it.
    """
    if after_s <= 0 or owner.id not in _process.held:
        _process.held.pop(owner.id, None)
        return
    now = time.monotonic()
    for identity, until in list(_process.held.items()):
        if until <= now:
            _process.held.pop(identity, None)
    _process.held[owner.id] = now + after_s


def is_dead(owner: Owner) -> bool:
    """Whether it is certain that this hold's process, or the part of it that had the hold, is no more.

    False means unknown or alive. A process that is stopped (SIGSTOP) is alive. Never raises. Holds are known to one
    interpreter: sub-interpreters of one process must not share a journal.
    """
    return _lives(owner) is False


def is_alive(owner: Owner) -> bool:
    """Whether it is certain that this hold's process is there, and if it is this one, that it has the hold.

    False means unknown or dead. A process that is stopped (SIGSTOP) is alive. Never raises.
    """
    return _lives(owner) is True


def _lives(owner: Owner) -> bool | None:
    """Return None where nobody can tell from here."""
    here = _this_process()
    if not (here.boot and here.namespace and owner.started):
        return None
    if owner.boot != here.boot or owner.namespace != here.namespace:
        return None
    if owner.pid == here.pid and owner.started == here.started:
        return _process.holds(owner.id)  # a torn-down event loop leaves its holds behind
    try:
        stat = _read_stat(owner.pid)
        if stat is None:
            return False if _no_such_process(owner.pid) else None
    except (OSError, ValueError, OverflowError):
        return None
    state, threads, started = stat
    # A leader that has ended while other threads of it go on is shown as a zombie too.
    return started == owner.started and (state not in ("Z", "X", "x") or threads > 1)


def _this_process() -> _Facts:
    pid = os.getpid()
    facts = _process.facts
    if facts is None or facts.pid != pid:
        facts = _process.facts = _look(pid)
    return facts


def _look(pid: int) -> _Facts:
    host = socket.gethostname()[:_MAX_TEXT]
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:_MAX_TEXT]
        # A /proc of an outer namespace numbers processes otherwise than the pids that are written down here.
        if Path("/proc/self").readlink().name != str(pid):
            return _Facts(pid, "", "", "", host)
        stat = _read_stat(pid)
        if stat is None:
            return _Facts(pid, "", "", "", host)
        return _Facts(pid, boot, stat[2], _namespace(), host)
    except (OSError, ValueError):
        return _Facts(pid, "", "", "", host)


def _namespace() -> str:
    inode = str(Path("/proc/self/ns/pid").stat().st_ino)
    try:
        # Start times are shown shifted by the reader's time namespace (Linux 5.6 and later).
        return f"{inode}.{Path('/proc/self/ns/time').stat().st_ino}"
    except OSError:
        return inode


def _read_stat(pid: int) -> tuple[str, int, str] | None:
    """Return (state, threads, start time) of a process, None where /proc does not show it.

    Raises:
        OSError: It cannot be read for another reason.
        ValueError: It is not what proc(5) says.
    """
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses, and a name may hold blanks and parentheses itself.
    fields = data[data.rindex(b")") + 1 :].split()
    if len(fields) < 20:
        raise ValueError("too few fields")
    return fields[0].decode("ascii"), int(fields[17]), str(int(fields[19]))


def _no_such_process(pid: int) -> bool:
    # /proc may hide the processes of other users (hidepid); the kernel itself answers for all of them.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
