"""What a statement costs the server: indexes used, rows and bytes left where they are."""

import psycopg
import pytest

from gnl_core.journal.port import Create, new_batch
from gnl_core.journal.postgres import PostgresStorage
from gnl_core.journal.postgres_sql import statements
from gnl_core.journal.postgres_target import target_of

LIMIT = 500


@pytest.fixture
async def filled(postgres_dsn, new_schema):
    """A store of 12,000 rows in two organisations; its connection for plans, and its statements."""
    schema = new_schema()
    async with PostgresStorage(postgres_dsn, schema=schema) as storage:
        await storage.runs.scoped("org").apply([Create(("seed",), 1)], batch=new_batch())
        with psycopg.connect(postgres_dsn, autocommit=True, prepare_threshold=None) as connection:
            connection.execute(
                f"INSERT INTO {schema}.gnl_rows SELECT n % 2, 'run/r' || (n / 100) || '/' || lpad(n::text, 6, '0'),"
                f" nextval('{schema}.gnl_versions'), n, 0, 0, 1, 0, '1' FROM generate_series(1, 12000) n"
            )
            connection.execute(f"ANALYZE {schema}.gnl_rows")
            yield storage, connection, statements(target_of(postgres_dsn, schema))


def explain(connection, sql, parameters):
    rows = connection.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, parameters).fetchone()[0]
    return list(nodes(rows[0]["Plan"]))


def nodes(plan):
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def on_rows(plan):
    """The nodes that read the journal's rows, as (kind, index, rows that were looked at)."""
    return [
        (
            node["Node Type"],
            node.get("Index Name"),
            node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0),
        )
        for node in plan
        if node.get("Relation Name") == "gnl_rows" or node.get("Index Name", "").startswith("gnl_rows")
    ]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("own", [False, True])
async def test_a_page_is_read_off_the_index_of_keys(filled, own, reverse):
    _, connection, sql = filled
    page = sql.page(own=own, newer=False, reverse=reverse, blobs=True)
    part = ["", "run/r1"] if own else []
    plan = explain(connection, page, (LIMIT, 1 << 20, "", "run/", "run0", LIMIT + 1, *part, LIMIT + 1))
    read = on_rows(plan)
    assert {(kind, index) for kind, index, _ in read} == {("Index Scan", "gnl_rows_pkey")}
    assert sum(rows for _, _, rows in read) <= LIMIT + 2
    for node in plan:
        assert node["Node Type"] != "Sort" or node["Actual Rows"] <= LIMIT + 2


async def test_what_is_newer_is_found_by_its_version(filled):
    _, connection, sql = filled
    page = sql.page(own=True, newer=True, reverse=False, blobs=True)
    newest = connection.execute(b"SELECT m.version FROM (" + sql.opened + b") o, LATERAL (SELECT 11990 AS version) m")
    mark = newest.fetchone()[0]
    plan = explain(connection, page, (LIMIT, 1 << 20, "", "run/", "run0", mark, LIMIT + 1, "", "run", mark, LIMIT + 1))
    read = on_rows(plan)
    assert "gnl_rows_newer" in {index for _, index, _ in read}
    assert sum(rows for _, _, rows in read) < 50


async def test_rows_asked_by_key_and_locked_by_key_are_found_by_key(filled):
    _, connection, sql = filled
    names = [f"run/r{n // 100}/{n:06d}" for n in range(200, 240, 2)]
    for statement, parameters in (
        (sql.get_many, ("", " ".join(names))),
        (sql.get_more, ("", " ".join(names))),
        (sql.lock, {"sums": [], "org": "", "names": names}),
    ):
        read = on_rows(explain(connection, statement, parameters))
        assert read
        assert {index for kind, index, _ in read if kind != "Bitmap Heap Scan"} == {"gnl_rows_pkey"}
        assert max(rows for _, _, rows in read) == len(names)


async def test_many_rows_are_found_by_key_where_the_server_has_no_figures_of_the_table(filled, monkeypatch):
    """Until autovacuum comes by: a read of a thousand keys must not read the organisation's every row."""
    storage, connection, sql = filled
    schema = storage._engine.name.rpartition(" ")[2]
    (table,) = connection.execute("SELECT to_regclass(%s)::oid", (f"{schema}.gnl_rows",)).fetchone()
    connection.execute("DELETE FROM pg_statistic WHERE starelid = %s", (table,))
    names = [f"run/r{n // 100}/{n:06d}" for n in range(0, 12_000, 12)]
    read = on_rows(explain(connection, sql.get_more, ("", " ".join(names))))
    assert {(kind, index) for kind, index, _ in read} == {("Index Scan", "gnl_rows_pkey")}
    assert sum(rows for _, _, rows in read) <= len(names)
    absent = " ".join(f"run/r{n // 100}/{n:06d}/x" for n in range(0, 12_000, 12))
    read = on_rows(explain(connection, sql.came, ("", absent)))
    assert [(index, rows) for _, index, rows in read] == [("gnl_rows_pkey", 0)]
    sent = []
    monkeypatch.setattr(psycopg.AsyncCursor, "execute", spied(psycopg.AsyncCursor.execute, sent))
    asked = [tuple(name.split("/")) for name in names]
    assert [entry.key for entry in (await storage.runs.get_many(asked)).entries if entry] == asked[1:]
    assert sent == [sql.get_more]


def spied(real, sent):
    async def execute(cursor, query, *arguments, **options):
        sent.append(query)
        return await real(cursor, query, *arguments, **options)

    return execute


@pytest.mark.parametrize("count", [1, 3, 40])
async def test_rows_that_are_written_over_or_deleted_are_found_by_key(filled, count):
    _, connection, sql = filled
    connection.execute(sql.next_version)
    names = [f"run/r{n // 100}/{n:06d}" for n in range(200, 200 + 2 * count, 2)]
    row = {"scope": 0, "tag": 1, "now": 1, "name": names[0], "text": "2", "blob": None, "adds": False}
    rows = {"names": names, "texts": ["2"] * count, "blobs": [None] * count, "adding": [False] * count}
    for statement, written in ((sql.update, 1), (sql.updates, count), (sql.delete, count)):
        read = [one for one in on_rows(explain(connection, statement, {**row, **rows})) if "Scan" in one[0]]
        assert {index for kind, index, _ in read if kind != "Bitmap Heap Scan"} == {"gnl_rows_pkey"}
        assert max(rows for _, _, rows in read) <= 2 * written  # the versions before may still be there


async def test_a_bounded_delete_looks_at_as_many_rows(filled):
    _, connection, sql = filled
    read = on_rows(explain(connection, sql.delete_below, ("", "run/", "run0", 10)))
    looked = [rows for kind, _, rows in read if "Scan" in kind]
    assert looked
    assert max(looked) <= 10
    assert {index for kind, index, _ in read if "Scan" in kind} == {"gnl_rows_pkey"}


async def test_what_lies_beyond_a_pages_bytes_stays_on_the_server(filled):
    storage, connection, sql = filled
    blob = bytes(range(256)) * 4096  # a megabyte that does not compress
    for number in range(6):
        await storage.runs.apply([Create(("big", str(number)), number, blob)], batch=new_batch())
    page = sql.page(own=False, newer=False, reverse=False, blobs=True)
    rows = connection.execute(page, (LIMIT, 1 << 20, "", "big/", "big0", LIMIT + 1, LIMIT + 1)).fetchall()
    assert [(row[3], len(row[11] or b""), row[12]) for row in rows] == [
        ("big/0", len(blob), True),
        ("big/1", 0, False),
    ]
    page = sql.page(own=False, newer=False, reverse=False, blobs=False)
    plan = explain(connection, page, (LIMIT, 1 << 20, "", "big/", "big0", LIMIT + 1, LIMIT + 1))
    assert plan[0]["Shared Hit Blocks"] + plan[0]["Shared Read Blocks"] < 40, "blobs that nobody asked for were read"


async def test_a_page_of_one_organisation_looks_at_no_row_of_another(filled):
    _, connection, sql = filled
    page = sql.page(own=False, newer=True, reverse=False, blobs=True)
    plan = explain(connection, page, (LIMIT, 1 << 20, "nobody", "", "\x7f", 0, LIMIT + 1, LIMIT + 1))
    assert sum(rows for _, _, rows in on_rows(plan)) == 0
