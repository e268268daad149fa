"""Nothing of an erased person is left to grep, on whatever store: rows, dumps, and files that were brought up to date.

One list of what a person leaves behind, and one of what is looked for, hold for every store.
"""

import importlib.util
import math
from pathlib import Path

import pytest

from gnl_core import Context, Gnl, agent_tool, decide, keys, purge_resource, sweep_runs, tool
from gnl_core.errors import RefusedError
from gnl_core.journal import scan_all
from gnl_core.testing import ScriptedModel

MARK, OTHER = "ibantr55marker", "othermarker77"
DAY = 86_400_000

ARTEFACTS = {
    "run": {"head", "input", "model", "tool", "answer", "question", "incident", "evidence", "args", "slot"},
    "xthr": {"args", "dup", "sem", "semfold", "semgen", "semjudge", "semtomb", "semvec"},
    "thread": {"taint"},
    "xrun": {"args"},
}
"""What a person's work must have left before it is erased: rows by family, and the part that tells them apart."""
FAMILIES = {*ARTEFACTS, "ix", "xid", "mem", "idem"}
KEPT = {"idem", "swept"}
"""What outlives a person: refusals and tombstones, without content."""


@pytest.fixture(scope="session")
def raw_stores():
    spec = importlib.util.spec_from_file_location("raw_stores", Path(__file__).parents[2] / "raw_stores.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cluster(new_cluster):
    """A server whose files are looked through, and that holds nothing else."""
    return new_cluster().start()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def place_and_raw(request, new_store, raw_stores):
    """A store, and what can be read of it from outside."""
    if request.param == "sqlite":
        store = new_store("sqlite")
        return store, raw_stores.Sqlite(*store.arguments)
    if request.param == "postgres":
        cluster = request.getfixturevalue("cluster")
        schema = f"raw_{request.node.callspec.params['order'].replace(' ', '_').replace(',', '')}"
        store = type(new_store("memory"))("postgres", "PostgresStorage", (cluster.dsn,), {"schema": schema})
        return store, raw_stores.Postgres(cluster, schema)
    server = request.getfixturevalue("new_redis")(*raw_stores.Redis.OPTIONS)
    options = {"accept_async_replication": True}
    return type(new_store("memory"))("redis", "RedisStorage", (server.url,), options), raw_stores.Redis(server)


async def embed(texts):
    """Turn each person's texts into a direction of its own."""
    angles = [next(number for number, mark in enumerate((MARK, OTHER, ""), 1) if mark in text) for text in texts]
    return [[2 * math.cos(angle / 7), 2 * math.sin(angle / 7)] for angle in angles]


async def live(shop, judge_that, mark, *, person, thread, run):
    """Do all that leaves something of a person behind; each row that can hold content holds the mark."""
    shop.gate = shop.gated(embed=embed, rules=True, judge=judge_that("SAME"))
    describe = lambda args: f"made {args['sku']} for {mark}"  # noqa: E731 - it is declared with the tool
    made = shop.tool(declared={"keys": ("sku",), "amount_fields": ("price",), "describe": describe})

    @tool(idempotency="args", window="cross-run")
    async def charge(card: str, ctx: Context) -> str:
        return shop.effects.fire("charge", ctx, f"charged {card}")

    @tool(idempotency="args", window="thread")
    async def book(room: str) -> str:
        return f"booked {room}"

    @tool(confirm=True)
    async def wire(iban: str) -> str:
        return f"wired {iban}"

    @tool(idempotency="args")
    async def note(text: str) -> str:
        return text

    helper = agent_tool(
        name="ask", description="d", model=ScriptedModel([[("note", {"text": mark})], mark]), tools=[note]
    )
    tools = [made, charge, book, wire, note, helper]
    who = {"thread_id": thread, "resource_id": person}
    first = [("createProduct", {"sku": f"Samsung 42 {mark} TV", "note": mark}), ("charge", {"card": mark})]
    first += [("book", {"room": mark}), ("note", {"text": mark}), ("ask", {"task": mark})]
    await shop.run(*first, run=f"{run}-1", prompt=mark, tools=tools, **who)
    # Asked about, let pass by a person, and done; then asked about again, and left open.
    alike = {"sku": f"SMSNG TV42 {mark}", "note": mark}
    (question,) = (await shop.run(alike, run=f"{run}-2", prompt=mark, tools=tools, **who)).interrupts
    assert question.prior["run_id"] == f"{run}-1"
    reason = f"let {mark} have two"
    await decide(shop.journal, question.question, True, actor="deniz", reason=reason, relation="deliberate_repeat")
    assert (await shop.run(alike, run=f"{run}-2", prompt=mark, tools=tools, **who)).text == "done"
    assert (await shop.run(alike | {"note": f"again {mark}"}, run=f"{run}-3", tools=tools, **who)).interrupts
    (question,) = (await shop.run(("wire", {"iban": mark}), run=f"{run}-4", tools=tools, **who)).interrupts
    await decide(shop.journal, question.question, False, actor="deniz", reason=mark)
    # A name of work, a refusal, what came late, what was not to be trusted.
    agents = Gnl(shop.journal, agents={"clerk": {"model": ScriptedModel([mark])}})
    await agents.run("clerk", work_key=f"job of {mark}", prompt=mark, **who)
    with pytest.raises(RefusedError):
        await shop.run(run=f"{run}-1", prompt=f"not {mark}", strict_input=True, conflict_ledger=True, **who)
    await shop.put(keys.evidence(f"{run}-1", keys.ROOT, "s0p0", 1), {"f": 1, "ok": True, "output": mark})
    await shop.put(keys.thread_taint(thread), {"f": 1, "source": mark})


def families(rows):
    """Return {family: parts that tell its rows apart}."""
    found = {}
    for key in rows:
        at = {"run": 3, "xthr": 2, "thread": 2, "xrun": 1}.get(key[0], 0)
        found.setdefault(key[0], set()).add(key[at] if len(key) > at else "")
    return found


ORDERS = ["retention, then the person", "the person, then retention"]


@pytest.mark.parametrize("order", ORDERS)
async def test_s74_nothing_of_a_person_is_left_to_grep(place_and_raw, raw_stores, shop_of, judge_that, clock, order):
    store, raw = place_and_raw
    async with store.open() as storage:
        shop = shop_of(clock.moved(storage.runs))
        await live(shop, judge_that, MARK, person="ann", thread="t", run="order")
        await live(shop, judge_that, OTHER, person="bob", thread="t2", run="job")
        there = families(await shop.rows())
        assert there.keys() >= FAMILIES
        assert {name: parts - there[name] for name, parts in ARTEFACTS.items() if parts - there[name]} == {}
        records = await shop.rows(*keys.similar_of(keys.thread_scope("t"), "createProduct"))
        others = await shop.rows(*keys.similar_of(keys.thread_scope("t2"), "createProduct"))
        needles = {MARK.encode(), *(entry.blob for entry in records.values())}
        kept = {OTHER.encode(), *(entry.blob for entry in others.values())}
        parts = raw.look()
        for needle in needles | kept:
            assert raw_stores.has(parts, needle) == parts.keys(), "what cannot be found before would prove nothing"

        async def sweep():
            clock.days(10)
            swept = await sweep_runs(shop.journal, older_than_ms=DAY, keep_suspended=False, tombstones=True)
            assert (swept.purged, swept.tombstones) == ((10, 10) if order == ORDERS[0] else (5, 5))

        if order == ORDERS[0]:
            await sweep()
            await purge_resource(shop.journal, "ann")
        else:
            await purge_resource(shop.journal, "ann")
            await sweep()
        rows = await shop.rows()
        left = [key for key, row in rows.items() if {"ann", "t"} & {*key} or MARK in f"{key} {row.value}"]
        assert left == []
        assert {key[0] for key, row in rows.items() if "order" in str(key)} <= KEPT
        # What a dump shows is gone at once; what stood in files, once they are brought up to date.
        seen = raw.look()
        assert all("dump" not in raw_stores.has(seen, needle) for needle in needles)
        raw.forget()
        seen = raw.look()
        for needle in needles:
            assert raw_stores.has(seen, needle) == set(), f"{needle} is left"
        for needle in kept:
            assert raw_stores.has(seen, needle) == seen.keys(), "another person's work stays"
    if store.kind == "sqlite":
        assert not any(raw_stores.has(raw.look(), needle) for needle in needles), "nor when it is closed"


@pytest.mark.stores("memory")
@pytest.mark.parametrize("order", ORDERS)
async def test_s74_nothing_of_a_person_is_left_in_memory(any_store, shop_of, judge_that, clock, order):
    async with any_store.open() as storage:
        shop = shop_of(clock.moved(storage.runs))
        await live(shop, judge_that, MARK, person="ann", thread="t", run="order")
        if order == ORDERS[0]:
            clock.days(10)
            await sweep_runs(shop.journal, older_than_ms=DAY, keep_suspended=False, tombstones=True)
        await purge_resource(shop.journal, "ann")
        rows = [entry async for entry in scan_all(shop.journal, (), blobs=True)]
        assert {entry.key[0] for entry in rows} <= KEPT
        assert MARK not in repr(rows)
