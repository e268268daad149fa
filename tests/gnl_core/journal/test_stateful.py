"""Any sequence of calls: each store answers as the store in memory does, and both as a dictionary would."""

import asyncio
import tempfile
from dataclasses import is_dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gnl_core.journal.memory import InMemoryStorage
from gnl_core.journal.port import Add, Applied, Create, Delete, Expect, Put, Replace, new_batch
from gnl_core.journal.postgres import PostgresStorage
from gnl_core.journal.redis import RedisStorage
from gnl_core.journal.sqlite import SqliteStorage

SEGMENTS = ["a", "b", "a-", "a.", "A", "%", "_", "ü", "~", "a/b", "\U0001f4b8", "0"]
KEYS = st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3).map(tuple)
PREFIXES = st.one_of(st.just(()), KEYS)
ORGS = st.sampled_from(["", "", "org", "öd"])
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=6)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT)
VALUES = st.one_of(
    st.dictionaries(st.sampled_from(["n", "m"]), st.integers(), max_size=2),  # what may be a counter
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)),
)
BLOBS = st.one_of(st.none(), st.binary(max_size=8))
VERSIONS = st.integers(1, 12)
OPS = st.one_of(
    st.builds(Create, KEYS, VALUES, BLOBS, st.sampled_from(["abort", "keep"])),
    st.builds(Replace, KEYS, VERSIONS, VALUES, BLOBS),
    st.builds(Put, KEYS, VALUES, BLOBS),
    st.builds(Delete, KEYS, st.one_of(st.none(), VERSIONS)),
    st.builds(Add, KEYS, st.dictionaries(st.sampled_from(["n", "m", "ü"]), st.integers(-5, 5), max_size=2)),
    st.builds(Expect, KEYS, st.one_of(VERSIONS, st.sampled_from(["absent", "present"]))),
)
BATCHES = st.lists(OPS, max_size=5, unique_by=lambda op: (op.key, type(op) is Expect))


def joined(value):
    """Write two surrogates that follow each other as the character that they spell in JSON."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, list):
        return [joined(item) for item in value]
    if isinstance(value, dict):
        return {joined(name): joined(item) for name, item in value.items()}
    return value


def timeless(answer):
    """Set every time in an answer to 0: a server has a clock of its own."""
    if isinstance(answer, tuple):
        return tuple(map(timeless, answer))
    if not is_dataclass(answer):
        return answer
    times = {name: 0 for name in ("now", "created_at", "updated_at") if hasattr(answer, name)}
    inner = {name: timeless(getattr(answer, name)) for name in ("entries", "found") if hasattr(answer, name)}
    return replace(answer, **times, **inner)


class Stores(RuleBasedStateMachine):
    clock_is_ours = True

    def open_other(self):
        return SqliteStorage(f"{self.folder.name}/journal.db", clock=lambda: self.seconds)

    def __init__(self):
        super().__init__()
        self.seconds = 1000.0
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.memory = InMemoryStorage(clock=lambda: self.seconds)
        self.file = self.open_other()
        self.tag = 0
        self.last = None
        self.rows = {}
        self.move_both(0)

    def move_both(self, seconds):
        self.seconds = max(0.0, self.seconds + seconds)
        if self.clock_is_ours:
            self.both("", lambda journal: journal.now())

    def teardown(self):
        self.runner.run(self.file.aclose())
        self.runner.close()
        self.folder.cleanup()

    def both(self, org, call):
        answers = []
        for storage in (self.memory, self.file):
            journal = storage.runs.scoped(org) if org else storage.runs
            answer = self.runner.run(call(journal))
            answers.append(answer if self.clock_is_ours else timeless(answer))
        assert repr(answers[0]) == repr(answers[1])
        return answers[0]

    @rule(org=ORGS, ops=BATCHES, data=st.data())
    def apply(self, org, ops, data):
        known = {key[1]: entry.version for key, entry in self.rows.items() if key[0] == org}
        for index, op in enumerate(ops):  # mostly ask for versions that are there
            if isinstance(op, Replace) and op.key in known and data.draw(st.booleans()):
                ops[index] = Replace(op.key, known[op.key], op.value, op.blob)
        self.tag += 1
        answer = self.both(org, lambda journal: journal.apply(ops, batch=self.tag))
        if isinstance(answer, Applied):
            if any(not isinstance(op, Expect) for op in ops):
                self.last = (org, ops, self.tag, answer.version)
        else:
            assert answer.found == self.rows.get((org, ops[answer.op].key))
        self.look()

    @rule()
    def send_the_last_batch_again(self):
        if self.last is None:
            return
        org, ops, tag, version = self.last
        marked = any(
            entry.batch == tag and (org, op.key) in self.rows
            for op in ops
            if not isinstance(op, Expect) and (entry := self.rows.get((org, op.key)))
        )
        if not marked:
            return  # nothing in the store tells that it was there: the contract promises nothing
        before = repr(self.rows)
        answer = self.both(org, lambda journal: journal.apply(ops, batch=tag))
        assert isinstance(answer, Applied)
        assert answer.version == version
        self.look()
        assert repr(self.rows) == before

    @rule(org=ORGS, prefix=KEYS, limit=st.integers(1, 4))
    def delete_prefix(self, org, prefix, limit):
        count = self.both(org, lambda journal: journal.delete_prefix(prefix, limit=limit))
        there = [key for scope, key in self.rows if scope == org and key[: len(prefix)] == prefix]
        assert count == min(limit, len(there))
        self.look()

    @rule(
        org=ORGS,
        prefix=PREFIXES,
        after=st.one_of(st.none(), KEYS),
        newer_than=st.integers(0, 8),
        reverse=st.booleans(),
        limit=st.integers(1, 4),
        max_bytes=st.integers(1, 40),
        blobs=st.booleans(),
    )
    def scan(self, org, prefix, **options):
        page = self.both(org, lambda journal: journal.scan(prefix, **options))
        assert all(entry.key[: len(prefix)] == prefix for entry in page.entries)
        assert all(entry.version > options["newer_than"] for entry in page.entries)

    @rule(keys=st.lists(KEYS, max_size=4), org=ORGS)
    def get_many(self, org, keys):
        self.both(org, lambda journal: journal.get_many(keys))

    @rule(seconds=st.floats(-5, 5))
    def move_the_clock(self, seconds):
        self.move_both(seconds)

    @rule()
    def open_the_file_again(self):
        self.runner.run(self.file.aclose())
        self.file = self.open_other()
        if self.clock_is_ours:  # a new object knows the times that were written, not those that were only told
            self.memory._store._last = self.runner.run(self.file.runs.now())

    @invariant()
    def scopes(self):
        assert self.both("", lambda journal: journal.scopes()) == sorted({org for org, _ in self.rows})

    def look(self):
        self.rows = {}
        for org in ("", "org", "öd"):
            page = self.both(org, lambda journal: journal.scan((), blobs=True, max_bytes=1 << 30))
            self.rows.update({(org, entry.key): entry for entry in page.entries})


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_a_redis_server_answers_as_the_memory_does(redis_url, new_prefix):
    class RedisStores(Stores):
        clock_is_ours = False

        def __init__(self):
            self.prefix = new_prefix()
            super().__init__()

        def open_other(self):
            return RedisStorage(redis_url, accept_async_replication=True, prefix=self.prefix)

    run_state_machine_as_test(RedisStores, settings=TestStores.settings)


def test_a_postgres_server_answers_as_the_memory_does(postgres_dsn, new_schema):
    class PostgresStores(Stores):
        clock_is_ours = False

        def __init__(self):
            self.schema = new_schema()
            super().__init__()

        def open_other(self):
            return PostgresStorage(postgres_dsn, schema=self.schema)

    run_state_machine_as_test(PostgresStores, settings=TestStores.settings)


def test_a_value_comes_back_whatever_its_text(tmp_path):
    with SqliteStorage(tmp_path / "journal.db") as storage, asyncio.Runner() as runner:

        @given(VALUES)
        @settings(deadline=None, max_examples=200)
        def check(value):
            runner.run(storage.runs.apply([Put(("a",), value)], batch=new_batch()))
            (entry,) = runner.run(storage.runs.get_many([("a",)])).entries
            assert repr(entry.value) == repr(joined(value))

        check()
