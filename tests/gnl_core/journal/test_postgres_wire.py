"""Exchanges with a server: what a batch sends, what comes back of it, and how errors leave the connection."""

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from gnl_core.journal import postgres_write
from gnl_core.journal.port import Add, Applied, Create, Delete, Expect, Put, Replace, new_batch
from gnl_core.journal.postgres import PostgresStorage
from gnl_core.journal.postgres_wire import blobs, exchange, flags, integer, texts


@pytest.fixture
async def connection(postgres_dsn):
    """A connection as the pool lends them."""
    opened = await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True, prepare_threshold=None)
    yield opened
    await opened.close()


@pytest.fixture
async def storage(postgres_dsn, new_schema):
    """A store of the test's own."""
    async with PostgresStorage(postgres_dsn, schema=new_schema()) as storage:
        yield storage


@pytest.fixture
def sent(monkeypatch):
    """The statements of each exchange, as they are sent; the first word of each."""
    seen = []
    real = postgres_write.exchange

    async def spy(line, calls):
        seen.append([statement.split()[0].decode() for statement, _ in calls])
        return await real(line, calls)

    monkeypatch.setattr(postgres_write, "exchange", spy)
    return seen


async def apply(storage, *ops):
    applied = await storage.runs.apply(ops, batch=new_batch())
    assert isinstance(applied, Applied)
    return applied


# What a batch costs --------------------------------------------------------------------------------------------------

LOCK = ["BEGIN", "SELECT", "SELECT"]


async def test_a_steps_batch_is_two_exchanges_of_seven_statements(storage, sent):
    """One that claims a call, as the engine does: the run's lock holds, its head goes on, a record comes."""
    first = await apply(storage, Create(("lock",), 1), Create(("head",), 1))
    sent.clear()
    await apply(
        storage, Expect(("lock",), first.version), Replace(("head",), first.version, 2), Create(("tool", "s0p0"), 1)
    )
    assert sent == [LOCK, ["SELECT", "INSERT", "UPDATE", "COMMIT"]]


@pytest.mark.parametrize("count", [3, 300])
async def test_a_batch_of_many_rows_is_no_more_statements(storage, sent, count):
    names = [f"{number:04}" for number in range(count)]
    await apply(storage, *(Create(("over", name), 1) for name in names), *(Create(("gone", name), 1) for name in names))
    sent.clear()
    await apply(
        storage,
        *(Create(("new", name), 1) for name in reversed(names)),
        *(Put(("over", name), 2) for name in names),
        *(Delete(("gone", name)) for name in names),
        *(Expect(("absent", name), "absent") for name in names),
    )
    assert sent == [LOCK, ["SELECT", "INSERT", "UPDATE", "DELETE", "COMMIT"]]
    found = (await storage.runs.scan((), limit=1000)).entries
    assert [entry.key for entry in found] == sorted([(part, name) for part in ("new", "over") for name in names])


async def test_a_batch_that_meets_no_row_asks_for_the_time_besides(storage, sent):
    await storage.runs.now()
    await apply(storage, Create(("a",), 1))
    assert sent == [LOCK, ["SELECT"], ["SELECT", "INSERT", "COMMIT"]]


async def test_values_and_blobs_of_many_rows_stay_apart(storage):
    """In one statement for all: with a blob and without, a counter beside, text that an array would have to quote."""
    values = ['{"a\\,"}', "NULL", "", "\0", "日本 💸", None]
    for number in range(6):
        await apply(storage, Put(("v", str(number)), 0, b"old"))
    await apply(storage, Create(("n",), {"n": 1}, b"kept"))
    for prefix in ("v", "w"):  # written over, then inserted
        ops = [
            Put((prefix, str(number)), value, bytes([number, 0, 255]) if number % 2 else None)
            for number, value in enumerate(values)
        ]
        await apply(storage, *ops, Add(("n",), {"n": 1}))
        found = (await storage.runs.scan((prefix,), blobs=True)).entries
        assert [entry.value for entry in found] == values
        assert [entry.blob for entry in found] == [
            bytes([number, 0, 255]) if number % 2 else None for number in range(6)
        ]
        assert len({(entry.version, entry.batch, entry.updated_at) for entry in found}) == 1
    (counter,) = (await storage.runs.get_many([("n",)])).entries
    assert (counter.value, counter.blob) == ({"n": 3}, b"kept")


async def test_rows_too_large_for_one_statement_are_several_of_one_version(storage, sent, monkeypatch):
    monkeypatch.setattr(postgres_write, "_MOST_BYTES", 1000)
    ops = [Create(("a", str(number)), number, bytes(400)) for number in range(5)]
    applied = await apply(storage, *ops)
    assert sent[-1] == ["SELECT", "INSERT", "INSERT", "INSERT", "COMMIT"]
    found = (await storage.runs.scan(("a",), blobs=True)).entries
    assert [(entry.value, entry.blob, entry.version) for entry in found] == [
        (number, bytes(400), applied.version) for number in range(5)
    ]


@pytest.mark.parametrize("count", [32, 33, 2000])
async def test_however_many_keys_are_asked_for_rows_come_in_their_order(storage, count):
    journal = storage.runs.scoped("org")
    absent = await journal.get_many([("k", str(number)) for number in range(count)])
    assert absent.entries == (None,) * count
    ops = [Create(("k", str(number)), number, b"%d" % number if number % 3 else None) for number in range(0, count, 2)]
    await journal.apply(ops, batch=new_batch())
    asked = [("k", str(number)) for number in reversed(range(count))]
    found = (await journal.get_many([*asked, asked[-1]])).entries
    assert [(entry.key, entry.value, entry.blob) if entry else None for entry in found[:-1]] == [
        None if number % 2 else (("k", str(number)), number, b"%d" % number if number % 3 else None)
        for number in reversed(range(count))
    ]
    assert found[-1] == found[-2]


# What comes back -----------------------------------------------------------------------------------------------------


async def test_arrays_arrive_as_they_were(connection):
    words = ['"', "\\", "NULL", "", "{,}", "日本 💸", "é" * 300]
    (result,) = await exchange(
        connection,
        [
            (
                b"SELECT t.*, count(*) OVER () FROM unnest(%(a)b::text[], %(b)b::bytea[], %(c)b::boolean[]) t",
                {
                    "a": texts(words),
                    "b": blobs([b"", None, b"\0\xff"] + [None] * 4),
                    "c": flags([True, False] * 3 + [True]),
                },
            )
        ],
    )
    rows = [[result.get_value(row, column) for column in range(3)] for row in range(result.ntuples)]
    assert [row[0].decode() for row in rows] == words
    assert [row[1] for row in rows] == [b"", None, b"\0\xff", None, None, None, None]
    assert [row[2] for row in rows] == [b"\1", b"\0"] * 3 + [b"\1"]
    assert integer(result.get_value(0, 3)) == 7
    (result,) = await exchange(
        connection, [(b"SELECT cardinality(%(a)b::text[]) + %(n)s::bigint", {"a": texts([]), "n": -(2**62)})]
    )
    assert integer(result.get_value(0, 0)) == -(2**62)


async def test_more_than_both_sockets_hold_goes_through_in_both_directions(connection):
    large = "x" * 8_000_000
    results = await exchange(connection, [(b"SELECT %(a)s::text", {"a": large})] * 4)
    assert [len(result.get_value(0, 0)) for result in results] == [len(large)] * 4
    assert connection.info.transaction_status == TransactionStatus.IDLE


@pytest.mark.parametrize(
    ("statement", "state"),
    [(b"SELECT 1/0", "22012"), (b"DO $$BEGIN RAISE EXCEPTION 'own' USING ERRCODE = 'ZZ999'; END$$", "ZZ999")],
)
async def test_the_first_error_is_raised_and_the_connection_can_be_used(connection, statement, state):
    with pytest.raises(psycopg.Error) as caught:
        await exchange(connection, [(b"BEGIN", {}), (statement, {}), (b"SELECT nonsense", {}), (b"COMMIT", {})])
    assert caught.value.sqlstate == state
    assert connection.info.transaction_status == TransactionStatus.INERROR
    await connection.execute("ROLLBACK")
    assert (await (await connection.execute("SELECT 1")).fetchone()) == (1,)


async def test_who_is_thrown_out_leaves_a_closed_connection(connection, postgres_dsn):
    with pytest.raises(psycopg.Error) as caught:
        await exchange(connection, [(b"SELECT pg_terminate_backend(pg_backend_pid())", {}), (b"SELECT 1", {})])
    assert caught.value.sqlstate in ("57P01", None)
    assert connection.closed
    with pytest.raises(psycopg.OperationalError):
        await exchange(connection, [(b"SELECT 1", {})])


async def test_a_value_that_is_missing_leaves_a_closed_connection(connection):
    with pytest.raises(KeyError):
        await exchange(connection, [(b"BEGIN", {}), (b"SELECT %(a)s", {})])
    assert connection.closed
