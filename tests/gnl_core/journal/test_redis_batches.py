"""What a Redis store's scripts work out themselves: counters of any size, pages, and what a damaged store holds."""

import asyncio
import json

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from gnl_core.errors import (
    ConfigError,
    JournalFormatError,
    StoreCorruptError,
    StoreUnavailableError,
)
from gnl_core.journal import redis_rows
from gnl_core.journal.memory import InMemoryStorage
from gnl_core.journal.port import Add, Applied, Create, Delete, Put, Refused, new_batch
from gnl_core.journal.redis import RedisStorage

INTEGERS = st.one_of(st.integers(-20, 20), st.integers(-(10**17), 10**17), st.integers(-(10**60), 10**60))
FIELDS = st.sampled_from(["n", "ü", "💸", '"', "\\", 'a":1,"b', "{", "}", "", "\u0000", "\ud800", "日", "\u2028"])


@pytest.fixture
def store(redis_url, new_prefix):
    prefix = new_prefix()
    with RedisStorage(redis_url, accept_async_replication=True, prefix=prefix) as storage:
        storage.prefix = prefix
        yield storage


@pytest.fixture
def server(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def part(store):
    """Name the key of a part of the unscoped rows."""
    return lambda name: f"{{{store.prefix}}}:{name}"


def test_counters_add_as_python_does_whatever_their_size_and_names(store):
    with asyncio.Runner() as runner:

        @settings(deadline=None, max_examples=150)
        @given(st.lists(st.dictionaries(FIELDS, INTEGERS, max_size=3), min_size=1, max_size=4))
        def check(additions):
            runner.run(store.runs.delete_prefix(("c",)))
            total = {}
            for by in additions:
                answer = runner.run(store.runs.apply([Add(("c",), by)], batch=new_batch()))
                for name, number in by.items():
                    total[name] = total.get(name, 0) + number
                assert answer.counters == {("c",): total}
            (entry,) = runner.run(store.runs.get_many([("c",)])).entries
            assert entry.value == total
            assert list(entry.value) == list(total)

        check()


async def test_sums_are_exact_where_doubles_are_not(store):
    edges = [0, 1, 5, 10**15 - 1, 10**15, 2**53 + 1, 10**16 - 1, 10**16 + 1, 10**17 + 3, 2**63, 10**18 - 1, 10**30 + 1]
    numbers = [sign * edge for edge in edges for sign in (1, -1)]
    fields = {f"{left} {right}": (left, right) for left in numbers for right in numbers}
    for side in (0, 1):
        by = {name: pair[side] for name, pair in fields.items()}
        answer = await store.runs.apply([Add(("c",), by)], batch=new_batch())
    assert answer.counters[("c",)] == {name: sum(pair) for name, pair in fields.items()}


async def test_a_field_is_found_however_its_row_was_spelt(store):
    # A lone surrogate has the whole value written in ASCII.
    await store.runs.apply([Put(("c",), {"ü": 1, "\ud800": 2})], batch=new_batch())
    answer = await store.runs.apply([Add(("c",), {"ü": 10, "\ud800": 20, "n": 5})], batch=new_batch())
    assert answer.counters == {("c",): {"ü": 11, "\ud800": 22, "n": 5}}


async def test_what_is_deleted_is_gone_from_every_index(store):
    rows = [Put(("p", f"{row:03d}"), row) for row in range(200)]
    mark = (await store.runs.apply(rows, batch=new_batch())).version
    new = [Put(("p", name), 1) for name in ("a", "b", "c")]
    await store.runs.apply(new, batch=new_batch())
    await store.runs.apply([Delete(("p", "a"))], batch=new_batch())
    await store.runs.delete_prefix(("p", "b"))
    assert [entry.key for entry in (await store.runs.scan(("p",), newer_than=mark)).entries] == [("p", "c")]
    scoped = store.runs.scoped("org")
    await scoped.apply([Put(("a",), 1), Put(("b",), 1)], batch=new_batch())
    await scoped.apply([Delete(("a",))], batch=new_batch())
    assert await store.runs.scopes() == ["", "org"]
    await scoped.apply([Delete(("b",))], batch=new_batch())
    assert await store.runs.scopes() == [""]


def test_what_is_no_counter_refuses_as_it_does_in_memory(store):
    values = st.recursive(
        st.one_of(st.none(), st.booleans(), INTEGERS, st.floats(allow_nan=False, allow_infinity=False), FIELDS),
        lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(FIELDS, inner, max_size=3)),
        max_leaves=6,
    )
    with asyncio.Runner() as runner:

        @settings(deadline=None, max_examples=200)
        @given(values, FIELDS)
        def check(value, name):
            answers = []
            for journal in (store.runs, InMemoryStorage().runs):
                runner.run(journal.apply([Put(("c",), value)], batch=new_batch()))
                answer = runner.run(journal.apply([Add(("c",), {name: 7})], batch=new_batch()))
                answers.append(answer.counters if isinstance(answer, Applied) else answer.found.value)
            assert repr(answers[0]) == repr(answers[1])

        check()


async def test_a_counter_of_too_many_digits_is_refused_before_anything_is_written(store):
    await store.runs.apply([Add(("c",), {"n": 10**4299})], batch=new_batch())
    with pytest.raises(ValueError, match="counter c would have more digits"):
        await store.runs.apply([Put(("a",), 1), Add(("c",), {"n": 9 * 10**4299})], batch=new_batch())
    read = await store.runs.get_many([("a",), ("c",)])
    assert read.entries[0] is None
    assert read.entries[1].value == {"n": 10**4299}


async def test_a_batch_beyond_what_a_server_takes_is_refused_by_name(store, monkeypatch):
    monkeypatch.setattr(redis_rows, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="bytes, most of them of big"):
        await store.runs.apply([Put(("a",), 1), Put(("big",), None, b"x" * 1000)], batch=new_batch())
    assert (await store.runs.scan(())).entries == ()


@pytest.mark.parametrize("reverse", [False, True])
async def test_new_rows_are_found_by_version_and_by_walking_alike(store, reverse):
    journal, other = store.runs, InMemoryStorage().runs
    marks = []
    for batch in range(9):
        ops = [Put(("p", f"{row:05d}"), row, b"b" * (row % 3)) for row in range(batch, 2600, 1 + batch * 111)]
        for each in (journal, other):
            answer = await each.apply(ops, batch=new_batch())
        marks.append(answer.version)
    for prefix in ((), ("p",), ("p", "00111")):
        for mark in (0, *marks):
            # One mark is newer than few rows, one than more than are sorted by the server: both ways are walked.
            for limit, most in ((3, 1 << 20), (1200, 1 << 20), (9000, 30)):
                pages = []
                for each in (journal, other):
                    after, keys = None, []
                    while True:
                        page = await each.scan(
                            prefix, newer_than=mark, reverse=reverse, limit=limit, max_bytes=most, after=after
                        )
                        keys.append([(entry.key, entry.value, entry.version) for entry in page.entries])
                        after = page.after
                        if after is None or len(keys) == 4:
                            break
                    pages.append(keys)
                assert pages[0] == pages[1], (prefix, mark, limit, most)


async def test_a_large_delete_goes_in_small_scripts(store):
    await store.runs.apply([Put(("p", str(row)), row) for row in range(2500)], batch=new_batch())
    assert await store.runs.delete_prefix(("p",), limit=2300) == 2300
    assert await store.runs.delete_prefix(("p",), limit=1 << 40) == 200
    assert await store.runs.delete_prefix(("p",), limit=1 << 40) == 0
    assert await store.runs.scopes() == []


async def test_all_keys_of_a_store_carry_one_hash_tag_and_none_expires(store, server):
    await store.runs.apply([Put(("a",), 1, b"x")], batch=new_batch())
    await store.runs.scoped("org:{x}").apply([Put(("a",), 1, b"x")], batch=new_batch())
    keys = list(server.scan_iter(match=f"*{store.prefix}*", count=10_000))
    assert len(keys) == 2 + 2 * 5
    assert len({server.execute_command("CLUSTER", "KEYSLOT", key) for key in keys} if clustered(server) else {1}) == 1
    assert all(key.startswith(f"{{{store.prefix}}}:".encode()) for key in keys)
    assert {server.ttl(key) for key in keys} == {-1}


def clustered(server):
    return server.info("cluster").get("cluster_enabled") == 1


async def test_organisations_whose_names_look_like_keys_never_meet(store):
    orgs = ["a", "a:names", "names:a", "names", ":a", "a:", "b", "store", "scopes"]
    for number, org in enumerate(orgs):
        await store.runs.scoped(org).apply([Create(("a",), number)], batch=new_batch())
    for number, org in enumerate(orgs):
        assert [entry.value for entry in (await store.runs.scoped(org).scan(())).entries] == [number]
    assert (await store.runs.scan(())).entries == ()
    assert await store.runs.scopes() == sorted(orgs)


async def test_stores_of_two_prefixes_know_nothing_of_each_other(redis_url, new_prefix):
    first = new_prefix()
    async with (
        RedisStorage(redis_url, accept_async_replication=True, prefix=first) as one,
        RedisStorage(redis_url, accept_async_replication=True, prefix=new_prefix()) as two,
        RedisStorage(redis_url, accept_async_replication=True, prefix=first) as again,
    ):
        await one.runs.apply([Create(("a",), 1)], batch=new_batch())
        assert (await two.runs.scan(())).entries == ()
        assert (await again.runs.scan(())).entries[0].value == 1
        assert one.runs.store_id == again.runs.store_id != two.runs.store_id


# Damage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "text", "error", "naming"),
    [
        ("stamps", b"1 0 x 5 1 1", StoreCorruptError, "the row a "),
        ("stamps", b"", StoreCorruptError, "the row a "),
        ("stamps", b"1 0 0 5 1 1", StoreCorruptError, "the row a has version 0"),
        ("stamps", b"1 0 -1 5 1 1", StoreCorruptError, "the row a has"),
        ("stamps", b"2 0 1 5 1 1", JournalFormatError, "format 2"),
        ("stamps", b"1 7 1 5 1 1", JournalFormatError, "codec 7"),
        ("values", b"{broken", StoreCorruptError, "the row a "),
        ("values", b"[-1e999]", StoreCorruptError, "the row a "),
        ("values", b"\xff\xfe", StoreCorruptError, "the row a "),
        ("values", None, StoreCorruptError, "the row a "),
    ],
)
async def test_a_row_that_cannot_be_read_is_named(store, server, part, field, text, error, naming):
    await store.runs.apply([Put(("a",), {"n": 1}), Put(("b",), 1)], batch=new_batch())
    if text is None:
        server.hdel(part(f"{field}:"), "a")
    else:
        server.hset(part(f"{field}:"), "a", text)
    for call in (store.runs.get_many([("b",), ("a",)]), store.runs.scan(()),
                 store.runs.apply([Put(("b",), 2), Create(("a",), 2)], batch=new_batch())):  # fmt: skip
        with pytest.raises(error, match=naming):
            await call
    assert json.loads(server.hget(part("values:"), "b")) == 1
    assert (await store.runs.get_many([("b",)])).entries[0].value == 1


async def test_a_name_without_a_row_is_named(store, server, part):
    await store.runs.apply([Put(("a",), 1)], batch=new_batch())
    server.hdel(part("stamps:"), "a")
    with pytest.raises(StoreCorruptError, match="the row a "):
        await store.runs.scan(())
    server.zadd(part("names:"), {"no key/": 0})
    with pytest.raises(StoreCorruptError, match="no key/"):
        await store.runs.scan((), after=("a",))


@pytest.mark.parametrize("name", ["scopes", "names:", "versions:", "stamps:", "values:", "blobs:"])
async def test_a_key_of_another_type_fails_before_anything_is_written(store, server, part, name):
    await store.runs.apply([Put(("old",), 1, b"x")], batch=new_batch())
    sequence = server.hget(part("store"), "sequence")
    server.rename(part(name), part("kept"))
    server.set(part(name), "foreign")
    for call in (store.runs.apply([Create(("new",), 1, b"x"), Delete(("old",))], batch=new_batch()),
                 store.runs.delete_prefix(("old",))):  # fmt: skip
        with pytest.raises(StoreCorruptError, match="another type"):
            await call
    assert server.hget(part("store"), "sequence") == sequence
    server.rename(part("kept"), part(name))
    (entry,) = (await store.runs.scan((), blobs=True)).entries
    assert (entry.key, entry.value, entry.blob) == (("old",), 1, b"x")


async def test_a_store_that_was_emptied_is_not_taken_for_the_old_one(store, server, part):
    await store.runs.apply([Put(("a",), 1)], batch=new_batch())
    server.delete(*server.keys(part("*").replace("{", "[{]").replace("}", "[}]")))
    for call in (store.runs.apply([Create(("a",), 2)], batch=new_batch()), store.runs.get_many([("a",)]),
                 store.runs.scan(()), store.runs.delete_prefix(("a",)),
                 store.runs.scopes(), store.runs.now()):  # fmt: skip
        with pytest.raises(StoreUnavailableError, match="emptied, or replaced"):
            await call


async def test_rows_without_their_sequence_are_no_store(store, server, part, redis_url):
    await store.runs.apply([Put(("a",), 1)], batch=new_batch())
    server.delete(part("store"))
    with (
        RedisStorage(redis_url, accept_async_replication=True, prefix=store.prefix) as other,
        pytest.raises(StoreCorruptError, match="rows and no head"),
    ):
        await other.runs.get_many([("a",)])


async def test_a_store_of_a_newer_release_is_refused(store, server, part, redis_url):
    await store.runs.apply([Put(("a",), 1)], batch=new_batch())
    server.hset(part("store"), "schema", 2)
    with (
        RedisStorage(redis_url, accept_async_replication=True, prefix=store.prefix) as other,
        pytest.raises(JournalFormatError, match="schema 2"),
    ):
        await other.runs.get_many([("a",)])


async def test_a_clock_that_was_set_back_makes_no_age_negative(store, server, part):
    ahead = await store.runs.now() + 3_600_000
    server.hset(part("store"), "clock", ahead)
    applied = await store.runs.apply([Put(("a",), 1)], batch=new_batch())
    (entry,) = (await store.runs.get_many([("a",)])).entries
    assert applied.now == entry.updated_at == ahead
    assert await store.runs.now() == ahead


# What is refused at once ---------------------------------------------------------------------------------------------


def test_a_run_store_without_consent_is_refused_with_its_reason():
    with pytest.raises(ConfigError, match="fail-over can lose an acknowledged claim"):
        RedisStorage("redis://localhost")
    with pytest.raises(ConfigError, match="accept_async_replication=True"):
        RedisStorage("redis://localhost", accept_async_replication="yes")


@pytest.mark.parametrize(
    ("url", "options", "naming"),
    [
        ("http://localhost", {}, "must begin with redis://"),
        ("localhost:6379", {}, "redis://"),
        (5, {}, "URL"),
        ("redis://localhost?health_check_interval=x", {}, "none"),
        ("redis://localhost?max_conections=5", {}, "max_conections"),
        ("redis://localhost", {"prefix": ""}, "prefix"),
        ("redis://localhost", {"prefix": "a{b}"}, "prefix"),
        ("redis://localhost", {"connections": 0}, "connections"),
        ("redis://localhost", {"timeout": 0}, "timeout"),
        ("redis://localhost", {"connect_timeout": float("nan")}, "connect_timeout"),
        ("redis://localhost", {"wait_replicas": 1}, "WaitReplicas"),
    ],
)
def test_what_cannot_name_a_store_is_refused(url, options, naming):
    with pytest.raises(ConfigError, match=naming):
        RedisStorage(url, accept_async_replication=True, **options)


async def test_options_of_the_url_change_nothing_that_the_store_relies_on(redis_url, new_prefix):
    url = f"{redis_url}?protocol=3&decode_responses=True&socket_timeout=0.000001&client_name=mine"
    async with RedisStorage(url, accept_async_replication=True, prefix=new_prefix()) as storage:
        await storage.runs.apply([Put(("a",), "ü", b"\xff")], batch=new_batch())
        (entry,) = (await storage.runs.get_many([("a",)])).entries
        assert (entry.value, entry.blob) == ("ü", b"\xff")
        assert {finding.setting for finding in await storage.durability_report()} >= {"appendonly", "role"}


async def test_a_password_stands_in_no_message():
    async with RedisStorage("redis://:s3cret@127.0.0.1:1/3", accept_async_replication=True) as storage:
        with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1/3 cannot be reached") as away:
            await storage.runs.now()
        assert "s3cret" not in str(away.value) + repr(away.value.detail)


async def test_a_refused_batch_reads_as_one(store):
    await store.runs.apply([Create(("a",), "first", b"blob")], batch=new_batch())
    answer = await store.runs.apply([Create(("a",), "second")], batch=new_batch())
    assert isinstance(answer, Refused)
    assert (answer.found.value, answer.found.blob) == ("first", b"blob")
