"""The store behind a real PgBouncer in transaction mode: other sessions at each transaction, fewer than are asked for.

PgBouncer is no Python package: `apt-get install pgbouncer`, or as the system has it.
"""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from gnl_core import (
    Context,
    PostgresStorage,
    SideEffectRetryBlockedError,
    decide,
    list_interrupts,
    run_durable,
    tool,
)
from gnl_core.errors import JournalError, RunBusyError, StoreUnavailableError
from gnl_core.journal import Add, Applied, Put, get, new_batch
from gnl_core.testing import ScriptedModel
from gnl_core.testing.conformance import JournalConformance
from gnl_core.testing.effects import EffectLog

SESSIONS = 2
NAME = "behind-a-pooler"
RUNS = 20
STARTED_S = 30.0


class Bouncer:
    """A pooler before a server, on a port of loopback; it can be killed and started again."""

    def __init__(self, program, server, port, **settings):
        self.program, self.process = program, None
        self.folder = Path(tempfile.mkdtemp(prefix="gnl-pgbouncer-"))
        self.dsn = f"postgresql://anybody@127.0.0.1:{port}/pooled?sslmode=disable&application_name={NAME}"
        behind = " ".join(f"{name}='{server[name]}'" for name in ("host", "port", "user", "password") if name in server)
        (self.folder / "settings.ini").write_text(
            f"[databases]\npooled = dbname='{server['dbname']}' {behind}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = {SESSIONS}\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        self.as_user = {}
        if os.geteuid() == 0:  # it refuses to run as root
            entry = pwd.getpwnam("nobody")
            self.as_user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            self.folder.chmod(0o755)
        self.start()

    def start(self):
        with (self.folder / "log").open("a") as talk:
            self.process = subprocess.Popen(
                [self.program, self.folder / "settings.ini"],
                stdout=talk,
                stderr=talk,
                stdin=subprocess.DEVNULL,
                cwd="/",
                **self.as_user,
            )
        give_up = time.monotonic() + STARTED_S
        while True:
            try:
                psycopg.connect(self.dsn, connect_timeout=10).close()
            except psycopg.OperationalError:
                told = (self.folder / "log").read_text()[-2000:]
                assert self.process.poll() is None, told
                assert time.monotonic() < give_up, told
                time.sleep(0.01)
            else:
                return

    def kill(self):
        self.process.kill()
        self.process.wait()

    def start_again(self):
        self.kill()
        self.start()

    def close(self):
        self.kill()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def program():
    """The pooler's program."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        reason = "there is no pgbouncer on the PATH: apt-get install pgbouncer"
        if os.environ.get("GNL_TEST_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return program


@pytest.fixture(scope="module")
def bouncer(program, postgres_dsn, free_port):
    """A pooler of the tests' own, with two sessions to share."""
    bouncer = Bouncer(program, conninfo_to_dict(postgres_dsn), free_port())
    yield bouncer
    bouncer.close()


@pytest.fixture
async def storage(bouncer, new_schema):
    """A store that would use four times the sessions that the pooler has."""
    async with PostgresStorage(bouncer.dsn, schema=new_schema(), pool_size=4 * SESSIONS) as storage:
        yield storage


@pytest.fixture
def effects(tmp_path):
    """The witness."""
    return EffectLog(tmp_path / "effects.jsonl")


class TestBehindPgBouncer(JournalConformance):
    @pytest.fixture(autouse=True)
    def _server(self, bouncer, new_schema):
        self.dsn, self.new_schema = bouncer.dsn, new_schema

    async def make_journal(self):
        return PostgresStorage(self.dsn, schema=self.new_schema()).runs


def drive(journal, charge, run_id):
    turns = [[("charge", {"order": 1})], [("charge", {"order": 2})], "Done."]
    return run_durable(run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=[charge], prompt="Go.")


def charging(effects, then=None):
    @tool
    async def charge(ctx: Context, order: int) -> int:
        """Charge."""
        effects.fire("charge", ctx)
        if then is not None:
            await then()
        return order

    return charge


ONCE = {f"charge r{run}/s{step}p0": 1 for run in range(RUNS) for step in range(2)}


async def test_twenty_runs_at_once_share_two_sessions(storage, effects, postgres_dsn):
    charge = charging(effects)
    results = await asyncio.gather(*(drive(storage.runs, charge, f"r{run}") for run in range(RUNS)))
    assert {result.text for result in results} == {"Done."}
    assert effects.counts() == ONCE
    with psycopg.connect(postgres_dsn) as server:
        (sessions,) = server.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (NAME,)
        ).fetchone()
    assert 1 <= sessions <= SESSIONS


async def test_a_run_outlives_a_killed_pooler(storage, effects, bouncer):
    charge = charging(effects, lambda: asyncio.to_thread(bouncer.start_again))
    result = await drive(storage.runs, charge, "r")
    assert (result.text, effects.counts()) == ("Done.", {"charge r/s0p0": 1, "charge r/s1p0": 1})


async def test_no_effect_happens_twice_where_a_pooler_is_killed_under_twenty_runs(storage, effects, bouncer):
    """The others' writes are under way when it is killed: whatever each of them hears, its work is done once."""
    begun = 0

    async def kill():
        nonlocal begun
        begun += 1
        if begun in (RUNS // 2, RUNS + RUNS // 2):
            await asyncio.to_thread(bouncer.start_again)

    charge = charging(effects, kill)
    left = {f"r{run}" for run in range(RUNS)}
    for _ in range(5):
        names = sorted(left)
        ends = await asyncio.gather(*(drive(storage.runs, charge, name) for name in names), return_exceptions=True)
        for name, end in zip(names, ends, strict=True):
            if isinstance(end, SideEffectRetryBlockedError):
                for question in await list_interrupts(storage.runs, name):
                    await decide(storage.runs, question.question, False, output=question.args["order"])
            elif isinstance(end, BaseException):
                assert isinstance(end, JournalError | RunBusyError), end
            else:
                assert end.text == "Done."
                left.remove(name)
        if not left:
            break
    assert not left
    assert effects.counts() == ONCE


async def test_an_addition_under_a_killed_pooler_is_made_once(storage, bouncer):
    """A batch that is sent again under its own tag is found to be done, whichever session did it."""
    tags = [new_batch() for _ in range(50)]
    killing = asyncio.create_task(asyncio.to_thread(bouncer.start_again))
    left = list(tags)
    for _ in range(5):
        batches = [
            storage.runs.apply((Add(("count",), {"n": 1}), Put(("tag", str(tag)), 1)), batch=tag) for tag in left
        ]
        ends = await asyncio.gather(*batches, return_exceptions=True)
        assert all(isinstance(end, Applied | JournalError) for end in ends), ends
        left = [tag for tag, end in zip(left, ends, strict=True) if not isinstance(end, Applied)]
        if not left:
            break
    await killing
    assert not left
    assert (await get(storage.runs, ("count",))).value["n"] == len(tags)


def test_a_server_that_is_away_is_waited_for_where_its_pooler_is_there(program, new_cluster, free_port):
    """The pooler takes each connection, and ends it with a word of its own."""
    cluster = new_cluster().start()
    bouncer = Bouncer(program, conninfo_to_dict(cluster.dsn), free_port(), query_wait_timeout=1, server_login_retry=1)
    try:
        with PostgresStorage(bouncer.dsn, reconnect_wait=30.0) as storage, asyncio.Runner() as runner:
            runner.run(storage.runs.apply([Put(("a",), 1)], batch=new_batch()))
            cluster.stop()

            async def read_while_it_is_away():
                reading = asyncio.create_task(get(storage.runs, ("a",)))
                while storage.statistics.losses < 6 and not reading.done():  # noqa: ASYNC110 - nothing tells of a loss
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(cluster.start)
                return await reading

            assert runner.run(read_while_it_is_away()).value == 1
        with PostgresStorage(bouncer.dsn, reconnect_wait=0.0) as storage, asyncio.Runner() as runner:
            assert runner.run(get(storage.runs, ("a",))).value == 1
            cluster.stop()
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                runner.run(get(storage.runs, ("a",)))
    finally:
        bouncer.close()
        cluster.close()
