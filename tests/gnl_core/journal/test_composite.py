"""Two stores as one journal: the contract where its keys have one home, and what is refused where they have two."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import InMemoryStorage, PostgresStorage, RedisStorage, SqliteStorage, composite, keys
from gnl_core.errors import ConfigError, IdInvalidError, StoreUnavailableError
from gnl_core.journal import Add, Applied, Create, Delete, Expect, Put, Refused, Replace, new_batch, scan_all
from gnl_core.journal.homes import by_home, home_of, homes_of
from gnl_core.segments import segments_of
from gnl_core.testing.conformance import JournalConformance

SCOPE = keys.thread_scope("t")
VERDICT = keys.judged(SCOPE, "order", "a" * 16, "b" * 16)
MARKER = keys.marker(SCOPE, "order", "a" * 16)
LATE = ("xthr", "t", "zzz")


class _Over(JournalConformance):
    @pytest.fixture(autouse=True)
    def _servers(self, redis_url, new_prefix, tmp_path, request):
        self.url, self.new_prefix, self.folder, self.request = redis_url, new_prefix, tmp_path, request
        self.made = 0

    def cache(self):
        return RedisStorage(self.url, accept_async_replication=True, prefix=self.new_prefix()).runs

    async def make_journal(self):
        return composite(runs=self.runs(), cache=self.cache())

    async def test_bounds_of_a_scan_are_checked(self):
        """As of one store, save that versions are asked of one home only."""
        async with self.opened() as journal:
            for limit, max_bytes in ((0, 1), (-1, 1), (1, 0)):
                for prefix in ((), ("run",), VERDICT[:3]):
                    with pytest.raises(ValueError, match="at least 1"):
                        await journal.scan(prefix, limit=limit, max_bytes=max_bytes)
            with pytest.raises(IdInvalidError):
                await journal.scan(("a", ""))
            huge = 1 << 70
            assert (await journal.scan((), limit=huge, max_bytes=huge, newer_than=-huge)).entries == ()
            for prefix in ((), ("xthr",), SCOPE):
                with pytest.raises(ConfigError, match="not comparable"):
                    await journal.scan(prefix, newer_than=huge)
                for bad in (0, -1):
                    with pytest.raises(ValueError, match="at least 1"):
                        await journal.delete_prefix(prefix or ("run",), limit=bad)
            assert (await journal.scan(VERDICT[:3], newer_than=huge)).entries == ()
            assert list(await journal.scopes(limit=huge)) == []


class TestSqliteAndRedis(_Over):
    def runs(self):
        self.made += 1
        return SqliteStorage(self.folder / f"{self.made}.db").runs


class TestPostgresAndRedis(_Over):
    def runs(self):
        schema = self.request.getfixturevalue("new_schema")()
        return PostgresStorage(self.request.getfixturevalue("postgres_dsn"), schema=schema).runs


@pytest.fixture
async def stores():
    """The journal, and the two beneath it."""
    runs, cache = InMemoryStorage().runs, InMemoryStorage().runs
    journal = composite(runs=runs, cache=cache)
    yield journal, runs, cache
    await journal.aclose()


async def write(journal, *ops):
    outcome = await journal.apply(ops, batch=new_batch())
    assert isinstance(outcome, Applied), outcome
    return outcome


async def found(journal, prefix=(), **options):
    return [entry.key async for entry in scan_all(journal, prefix, **options)]


# Homes ---------------------------------------------------------------------------------------------------------------


def test_only_verdicts_live_in_the_cache():
    assert (home_of(VERDICT), homes_of(VERDICT[:3]), homes_of(VERDICT[:5])) == ("cache", ("cache",), ("cache",))
    for part in keys.THREAD_PARTS:
        home = "cache" if part == "semjudge" else "runs"
        assert home_of((*SCOPE, part, "x")) == home
        assert homes_of((*SCOPE, part)) == (home,)
    for prefix in ((), ("xthr",), SCOPE):
        assert homes_of(prefix) == ("runs", "cache")
    # A run, a person or a tool that is called like the family is no danger.
    for key in (
        keys.head("semjudge", "semjudge"),
        ("xid", "r", "semjudge", "d"),
        ("mem", "xthr", "semjudge"),
        keys.marker(SCOPE, "semjudge", "d"),
        keys.thread_scope("semjudge"),
    ):
        assert home_of(key) == "runs"
    assert homes_of(("run",)) == homes_of(("xthr2",)) == ("runs",)
    assert by_home([MARKER, VERDICT, LATE]) == ([MARKER, LATE], [VERDICT])


async def test_a_row_stands_in_its_home_alone(stores):
    journal, runs, cache = stores
    await write(journal, Put(MARKER, 1), Add(keys.generation(SCOPE, "order"), {"n": 1}))
    verdict = await write(journal, Create(VERDICT, "same", b"blob"))
    assert await found(runs) == [MARKER, keys.generation(SCOPE, "order")]
    assert await found(cache) == [VERDICT]
    read = await journal.get_many([LATE, VERDICT, MARKER, VERDICT])
    assert [entry and entry.value for entry in read.entries] == [None, "same", 1, "same"]
    assert read.entries[1].blob == b"blob"
    again = await journal.apply([Create(VERDICT, "different")], batch=new_batch())
    assert (type(again), again.found.value) == (Refused, "same")
    await write(journal, Replace(VERDICT, verdict.version, "different"), Expect(VERDICT, "present"))
    await write(journal, Delete(VERDICT))
    assert await found(cache) == []


@pytest.mark.parametrize(
    "ops",
    [
        [Put(MARKER, 1), Put(VERDICT, 1)],
        [Create(VERDICT, 1), Expect(keys.lock("r"), "absent")],
        [Put(MARKER, 1), Expect(keys.lock("r"), "absent"), Create(VERDICT, 1)],
        [Delete(VERDICT), Delete(LATE)],
    ],
)
async def test_a_batch_of_two_homes_is_refused_and_never_split(stores, ops):
    journal, runs, cache = stores
    await runs.apply([Put(LATE, 1)], batch=new_batch())
    with pytest.raises(ConfigError, match=r"xthr/t/semjudge/order/.*Write two batches"):
        await journal.apply(ops, batch=new_batch())
    assert (await found(runs), await found(cache)) == ([LATE], [])


async def test_what_is_written_to_the_cache_may_expect_something_of_the_runs_first(stores):
    journal, runs, cache = stores
    fence = Expect(keys.lock("r"), "present")
    refused = await journal.apply([fence, Create(VERDICT, 1)], batch=new_batch())
    assert ((type(refused), refused.op), await found(cache)) == ((Refused, 0), [])
    await runs.apply([Put(keys.lock("r"), {})], batch=new_batch())
    assert isinstance(await journal.apply([fence, Create(VERDICT, 1)], batch=new_batch()), Applied)
    again = await journal.apply([fence, Create(VERDICT, 2)], batch=new_batch())
    assert (again.op, again.found.value) == (1, 1)
    kept = await journal.apply([fence, Create(VERDICT, 2, if_present="keep")], batch=new_batch())
    assert kept.kept == (1,)


# Both homes ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def filled(stores):
    """Rows of both homes that interleave; their keys in order."""
    journal, *_ = stores
    wanted = []
    for thread in ("t", "t-1", "u"):
        scope = keys.thread_scope(thread)
        for part in ("args", "semgen", "semtomb"):
            wanted += [(*scope, part, f"{number}") for number in range(2)]
        wanted += [(*scope, "semjudge", "order", f"{number}") for number in range(3)]
    wanted += [("run", "r", "~", "head"), ("zz",), ("xthr", "t")]
    for key in wanted:
        await write(journal, Put(key, "x" * 98, b"y" * 100))
    return sorted(wanted, key=keys.encode)


@pytest.mark.parametrize("prefix", [(), ("xthr",), SCOPE, ("xthr", "none")])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
async def test_scans_merge_both_homes_in_order(stores, filled, prefix, limit):
    journal, *_ = stores
    wanted = [key for key in filled if key[: len(prefix)] == prefix]
    assert await found(journal, prefix, limit=limit) == wanted
    seen, after = [], None
    while True:
        page = await journal.scan(prefix, after=after, limit=limit, reverse=True)
        seen += [entry.key for entry in page.entries]
        after = page.after
        assert len(page.entries) == limit or after is None
        if after is None:
            break
    assert seen == wanted[::-1]


async def test_a_merged_page_ends_by_its_bytes(stores, filled):
    journal, *_ = stores
    for options, rows in (({"max_bytes": 250}, 3), ({"max_bytes": 401, "blobs": True}, 3), ({"max_bytes": 1}, 1)):
        page = await journal.scan((), **options)
        assert ([entry.key for entry in page.entries], page.after) == (filled[:rows], filled[rows - 1])
    assert [entry.blob async for entry in scan_all(journal, (), blobs=True)] == [b"y" * 100] * len(filled)


async def test_what_walks_a_prefix_sees_both(stores, filled):
    journal, *_ = stores
    await write(journal, Put(keys.judged(keys.thread_scope("only"), "order", "a", "b"), 1))
    await write(journal, Delete(SCOPE))
    assert [thread async for thread in segments_of(journal, ("xthr",))] == ["only", "t-1", "t", "u"]
    assert [part async for part in segments_of(journal, SCOPE)] == ["args", "semgen", "semjudge", "semtomb"]


@pytest.mark.parametrize("limit", [1, 4, 1000])
async def test_delete_prefix_empties_both_and_nothing_beside(stores, filled, limit):
    journal, runs, cache = stores
    total = 0
    while count := await journal.delete_prefix(SCOPE, limit=limit):
        assert count <= limit
        total += count
    assert total == sum(key[:2] == SCOPE for key in filled)
    assert await found(runs, SCOPE) == await found(cache, SCOPE) == []
    assert await found(journal) == [key for key in filled if key[:2] != SCOPE]


async def test_rows_that_stood_in_the_wrong_store_are_not_seen_and_go_with_their_prefix(stores):
    journal, runs, cache = stores
    await write(runs, Put(VERDICT, "old"), Put(MARKER, 1))
    await write(cache, Put(MARKER, "foreign"), Put((*SCOPE, "args", "x"), "foreign"), Put(VERDICT, "new"))
    for limit in (1, 2, 10):
        assert await found(journal, limit=limit) == [MARKER, VERDICT]
        assert await found(journal, SCOPE, limit=limit) == [MARKER, VERDICT]
    assert [entry.value async for entry in scan_all(journal, SCOPE)] == [1, "new"]
    assert await journal.delete_prefix(VERDICT[:3]) == 2
    assert await found(runs) == [MARKER]
    while await journal.delete_prefix(SCOPE):
        pass
    assert await found(runs) == await found(cache) == []


async def test_organisations_of_either_store(stores):
    journal, runs, cache = stores
    one, two = journal.scoped("one"), journal.scoped("two")
    await write(one, Put(MARKER, 1))
    await write(two, Put(VERDICT, 1))
    await write(journal, Put(VERDICT, 0))
    assert (list(await runs.scopes()), list(await cache.scopes())) == (["one"], ["", "two"])
    assert await journal.scopes() == ["", "one", "two"]
    assert await journal.scopes(after="", limit=1) == ["one"]
    assert (await found(one), await found(two)) == ([MARKER], [VERDICT])
    assert (one.org, one.store_id, journal.store_id) == ("one", runs.store_id, runs.store_id)
    for ask in (lambda: one.scoped("x"), lambda: journal.scoped("a b")):
        with pytest.raises(ConfigError):
            ask()
    with pytest.raises(ConfigError, match="scoped already"):
        await one.scopes()


async def test_closing_it_closes_both(stores):
    journal, runs, cache = stores
    await journal.scoped("org").aclose()
    await write(journal, Put(VERDICT, 1))
    await journal.aclose()
    await journal.aclose()
    for each in (runs, cache):
        with pytest.raises(StoreUnavailableError, match="closed"):
            await each.now()


async def test_what_cannot_be_composed_is_refused(stores):
    journal, runs, cache = stores
    for bad, reason in (
        ({"runs": runs, "cache": runs}, "one store"),
        ({"runs": runs.scoped("a"), "cache": runs.scoped("a")}, "one store"),
        ({"runs": journal, "cache": cache}, "runs is a composite"),
        ({"runs": InMemoryStorage().runs, "cache": journal.scoped("a")}, "cache is a composite"),
        ({"runs": runs.scoped("a"), "cache": cache}, "scoped to 'a'"),
        ({"runs": runs.scoped("a"), "cache": cache.scoped("b")}, "'b'"),
        ({"runs": runs, "cache": InMemoryStorage()}, "must be a journal"),
    ):
        with pytest.raises(ConfigError, match=reason):
            composite(**bad)
    inside = composite(runs=runs.scoped("a"), cache=cache.scoped("a"))
    await write(inside, Put(VERDICT, 1))
    assert await found(journal.scoped("a")) == [VERDICT]


SEGMENTS = st.sampled_from(["t", "t-1", "semjudge", "semgen", "~", "ü"])
KEYS = st.one_of(
    st.tuples(st.just("xthr"), SEGMENTS),
    st.tuples(st.just("xthr"), SEGMENTS, SEGMENTS),
    st.tuples(st.just("xthr"), SEGMENTS, st.just("semjudge"), SEGMENTS),
    st.tuples(SEGMENTS, SEGMENTS),
)


@given(
    st.sets(KEYS, max_size=12),
    st.integers(0, 3),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([1, 20, 60, 1 << 20]),
)
def test_scans_are_those_of_one_store(rows, depth, limit, reverse, max_bytes):
    async def check():
        plain = InMemoryStorage().runs
        both = composite(runs=InMemoryStorage().runs, cache=InMemoryStorage().runs)
        for number, key in enumerate(sorted(rows)):
            for journal in (plain, both):
                await write(journal, Put(key, "x" * number))
        for prefix in {key[:depth] for key in rows}:
            after = None
            while True:
                options = {"after": after, "limit": limit, "reverse": reverse, "max_bytes": max_bytes}
                one, other = await plain.scan(prefix, **options), await both.scan(prefix, **options)
                assert [(row.key, row.value) for row in other.entries] == [(row.key, row.value) for row in one.entries]
                assert other.after == one.after
                after = one.after
                if after is None:
                    break

    asyncio.run(check())


# A cache that is away ------------------------------------------------------------------------------------------------


async def test_rows_of_a_cache_that_is_away_are_absent_and_the_log_says_so_once(tmp_path, new_redis, caplog):
    server = new_redis()
    async with (
        SqliteStorage(tmp_path / "runs.db") as runs,
        RedisStorage(server.url, accept_async_replication=True) as cache,
    ):
        journal = composite(runs=runs.runs, cache=cache.runs)
        for each in (journal, journal.scoped("org")):
            await write(each, Put(MARKER, "kept"))
            await write(each, Put(VERDICT, "same"))
        server.kill()
        with caplog.at_level(logging.INFO, "gnl_core.journal.composite"):
            for each in (journal, journal.scoped("org"), journal):
                before = await journal.now()
                read = await each.get_many([VERDICT, MARKER, VERDICT])
                assert [entry and entry.value for entry in read.entries] == [None, "kept", None]
                alone = await each.get_many([VERDICT, VERDICT])
                assert (alone.entries, alone.now >= before) == ((None, None), True)
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            for call in (
                journal.apply([Put(VERDICT, "other")], batch=new_batch()),
                journal.scan(SCOPE),
                journal.scan(VERDICT[:3]),
                journal.delete_prefix(SCOPE),
                journal.scopes(),
            ):
                with pytest.raises(StoreUnavailableError):
                    await call
            await write(journal, Put(MARKER, "still written"))
            assert await found(journal, ("run",)) == []
            with pytest.raises(IdInvalidError):
                await journal.get_many([(*VERDICT[:3], "")])
            server.start()
            assert [entry and entry.value for entry in (await journal.get_many([VERDICT])).entries] == ["same"]
            server.kill()
            await journal.get_many([VERDICT])
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


@pytest.mark.parametrize(
    "call",
    [
        lambda journal: journal.get_many([VERDICT]),
        lambda journal: journal.scan(SCOPE),
        lambda journal: journal.scan(VERDICT[:3]),
        lambda journal: journal.apply([Put(VERDICT, "newer")], batch=new_batch()),
        lambda journal: journal.delete_prefix(SCOPE),
        lambda journal: journal.scopes(),
    ],
    ids=["read", "scan", "scan of the cache", "write", "delete", "scopes"],
)
async def test_a_cache_that_was_emptied_is_begun_anew_by_whoever_knew_it(tmp_path, new_redis, caplog, call):
    server = new_redis()
    async with (
        SqliteStorage(tmp_path / "runs.db") as runs,
        RedisStorage(server.url, accept_async_replication=True) as cache,
        RedisStorage(server.url, accept_async_replication=True) as other_cache,
    ):
        journal, other = composite(runs=runs.runs, cache=cache.runs), composite(runs=runs.runs, cache=other_cache.runs)
        for each in (journal, other):
            await write(each, Put(MARKER, "kept"))
            await write(each, Put(VERDICT, "same"))
        server.ask("FLUSHALL")
        with caplog.at_level(logging.INFO, "gnl_core.journal.composite"):
            await call(journal)
            await write(journal, Put(MARKER, "kept"))
            await write(journal, Put(VERDICT, "judged anew"))
            for each in (other, journal):
                read = await each.get_many([VERDICT, MARKER])
                assert [entry.value for entry in read.entries] == ["judged anew", "kept"]
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"], "one of each that knew it"


async def test_a_cache_that_refuses_its_server_stops_nobody(tmp_path, new_redis, caplog):
    server = new_redis("--maxmemory-policy", "allkeys-lru")
    async with (
        SqliteStorage(tmp_path / "runs.db") as runs,
        RedisStorage(server.url, accept_async_replication=True) as cache,
    ):
        journal = composite(runs=runs.runs, cache=cache.runs)
        assert (await journal.get_many([VERDICT])).entries == (None,)
        assert "allkeys-lru" in caplog.text
        with pytest.raises(ConfigError, match="allkeys-lru"):
            await journal.apply([Put(VERDICT, 1)], batch=new_batch())
        assert journal.capabilities == {"ordered", "blobs", "durable"}
