"""What stands of a store outside of itself: its files' bytes, and dumps of it, as a thief of the disk would read them.

Each kind has `look()`, which returns all that can be read by parts, `{part: bytes}`, and `forget()`, what the pages on
retention name as the way to have deleted rows gone from there too.
"""

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import redis

_READ = (
    "import pathlib, sqlite3, sys\n"
    "if sys.argv[2] == 'checkpoint':\n"
    "    connection = sqlite3.connect(sys.argv[1])\n"
    "    assert connection.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone()[0] == 0\n"
    "    connection.close()\n"
    "for one in sorted(pathlib.Path(sys.argv[1]).parent.iterdir()):\n"
    "    sys.stdout.buffer.write(one.read_bytes())\n"
)


class Sqlite:
    """The file, its write-ahead log and its index; read by another process, since closing a file drops its locks."""

    def __init__(self, path):
        self.path = path

    def look(self, what=""):
        done = subprocess.run([sys.executable, "-c", _READ, self.path, what], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return {"files": done.stdout}

    def forget(self):
        self.look("checkpoint")


class Postgres:
    """A dump of the schema's tables by pg_dump, and the server's files of tables and indexes, without its log."""

    def __init__(self, cluster, schema):
        self.cluster, self.schema = cluster, schema

    def look(self):
        command = [self.cluster.programs / "pg_dump", "--dbname", self.cluster.dsn, "--schema", self.schema]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        with psycopg.connect(self.cluster.dsn, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        files = [path for path in (self.cluster.data / "base").rglob("*") if path.is_file()]
        return {"dump": done.stdout, "files": b"".join(map(Path.read_bytes, files))}

    def forget(self):
        with psycopg.connect(self.cluster.dsn, autocommit=True) as connection:
            for (table,) in connection.execute(
                "SELECT format('%%I.%%I', schemaname, tablename) FROM pg_tables WHERE schemaname = %s", (self.schema,)
            ).fetchall():
                connection.execute(f"VACUUM FULL {table}")


class Redis:
    """Every key as DUMP gives it, and the append-only files."""

    OPTIONS = ("--rdbcompression", "no", "--aof-use-rdb-preamble", "no")
    """What a server needs for its bytes to be looked through as they are."""

    def __init__(self, server):
        self.server = server

    def look(self):
        with redis.Redis.from_url(self.server.url) as client:
            dumps = [client.dump(key) or b"" for key in client.scan_iter(count=10_000)]
        files = [path for path in self.server.folder.rglob("*") if path.is_file()]
        return {"dump": b"".join(dumps), "files": b"".join(map(Path.read_bytes, files))}

    def forget(self):
        with redis.Redis.from_url(self.server.url) as client:
            client.bgrewriteaof()
            give_up = time.monotonic() + 30
            while any(
                (said := client.info("persistence"))[f"aof_rewrite_{one}"] for one in ("in_progress", "scheduled")
            ):
                assert time.monotonic() < give_up, said
            assert said["aof_last_bgrewrite_status"] == "ok"


def has(seen, needle):
    """Return the parts in which some bytes stand, plainly or, as dumps write bytes, in hexadecimal."""
    return {part for part, found in seen.items() if needle in found or needle.hex().encode() in found}
