"""Runs and conversations whose time is over: what goes, what is kept and why, and what an erasure still finds."""

import asyncio
import hashlib
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    ConfigError,
    Context,
    Duplicates,
    Gnl,
    InMemoryStorage,
    RunLimits,
    SemanticIdentity,
    create_retention_sweeper,
    decide,
    keys,
    list_orphan_thread_state,
    list_runs,
    purge_resource,
    release_failed_claim,
    run_durable,
    sweep_log,
    sweep_runs,
    sweep_threads,
    tool,
    with_idempotency,
)
from gnl_core.doctor_leftovers import examine_leftovers
from gnl_core.errors import RefusedError, RunSweptError, SideEffectRetryBlockedError, StoreUnavailableError, ToolError
from gnl_core.journal import Delete, Put, new_batch, scan_all
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel
from gnl_core.work import work_key_hash

DAY = 86_400_000
ASK = RunLimits(side_effect_duplicates=Duplicates(action="suspend", scope="thread"))


@pytest.fixture
def journal(storage, clock):
    """The store's journal, with times that a test moves."""
    return clock.moved(storage.runs)


@tool(semantic_identity=SemanticIdentity(keys=("iban",)))
def pay(iban: str) -> str:
    return f"paid {iban}"


@tool(confirm=True)
def wire(iban: str) -> str:
    return f"wired {iban}"


async def drive(journal, run_id, *calls, **options):
    script = [[("pay", {"iban": call}) if isinstance(call, str) else call] for call in calls]
    model = ScriptedModel([*script, "done"])
    options = {"limits": ASK, "tools": [pay, wire]} | options
    return await run_durable(run_id=run_id, journal=journal, model=model, prompt="go", **options)


async def ids(journal):
    return sorted(run.run_id for run in (await list_runs(journal, limit=1_000)).runs)


# Runs ----------------------------------------------------------------------------------------------------------------


async def test_l75_all_of_many_old_runs_go_and_those_with_recent_activity_stay(journal, clock, rows):
    for number in range(120):
        head = {"f": 1, "status": "completed", "steps": 0, "calls": 0, "questions": 0}
        at = await journal.now()
        await rows.put(keys.head(f"old-{number}"), head | {"created_at": at, "changed_at": at})
        await rows.put(keys.index("status", "completed", at, f"old-{number}"), {})
    await drive(journal, "touched", "a")
    clock.days(5)
    await rows.put(keys.message("touched", keys.ROOT, "ab"), {"f": 1})
    await drive(journal, "young", "a")
    clock.days(5)
    would = await sweep_runs(journal, older_than_ms=7 * DAY, dry_run=True)
    swept = await sweep_runs(journal, older_than_ms=7 * DAY)
    assert (swept.scanned, swept.purged, swept.kept_active) == (121, 120, 1)
    assert (would.purged, would.deleted_rows, would.dry_run) == (120, swept.deleted_rows, True)
    assert await ids(journal) == ["touched", "young"]
    assert (await sweep_runs(journal, older_than_ms=0)).purged == 2
    assert {key for key in await rows.all() if key.startswith(("run/", "ix/"))} == set()


async def test_s75_what_waits_for_a_person_is_kept_and_told_until_its_own_ttl(journal, clock):
    result = await drive(journal, "waits", ("wire", {"iban": "x"}))
    await drive(journal, "done", "a")
    clock.days(10)
    swept = await sweep_runs(journal, older_than_ms=DAY)
    assert (swept.scanned, swept.purged, swept.kept_suspended) == (2, 1, 1)
    (why,) = swept.why
    assert why.startswith("1 kept: they wait for a person's answer")
    assert swept.to_json()["why"] == [why]
    assert (await sweep_runs(journal, older_than_ms=DAY, suspended_ttl_ms=11 * DAY)).purged == 0
    await decide(journal, result.interrupts[0].question, True)
    kept = await sweep_runs(journal, older_than_ms=DAY, suspended_ttl_ms=5 * DAY)
    assert (kept.purged, kept.kept_active + kept.kept_suspended) == (0, 1), "an answer is activity"
    clock.days(6)
    assert (await sweep_runs(journal, older_than_ms=DAY, suspended_ttl_ms=5 * DAY)).purged == 1
    assert await ids(journal) == []


async def test_l75_suspended_runs_go_with_the_others_where_that_is_asked_for(journal, clock):
    await drive(journal, "waits", ("wire", {"iban": "x"}))
    clock.days(10)
    assert (await sweep_runs(journal, older_than_ms=DAY, keep_suspended=False)).purged == 1


async def test_a_call_in_doubt_waits_for_a_person_too(journal, clock, rows):
    await drive(journal, "r", "a")
    row = keys.tool("r", keys.ROOT, 0, 0)
    await rows.change(row, status="in_doubt")
    await rows.change(keys.head("r"), status="failed")
    at = (await rows.all(keys.head("r")))[keys.encode(keys.head("r"))].value["changed_at"]
    await journal.apply(
        [Delete(keys.index("status", "completed", at, "r")), Put(keys.index("status", "failed", at, "r"), {})],
        batch=new_batch(),
    )
    clock.days(10)
    swept = await sweep_runs(journal, older_than_ms=DAY)
    assert (swept.purged, swept.kept_in_doubt) == (0, 1)
    assert (await sweep_runs(journal, older_than_ms=DAY, suspended_ttl_ms=DAY)).purged == 1


async def test_l75_what_cannot_be_measured_or_read_is_kept_and_counted(clock, rows):
    class Ageless(FaultyJournal):
        """A store that was filled by hand, without times."""

        async def scan(self, prefix, **options):
            page = await super().scan(prefix, **options)
            entries = tuple(_without_time(entry) if entry.key[1] == "ageless" else entry for entry in page.entries)
            return type(page)(entries, page.after, page.now)

    journal = rows.journal
    await drive(journal, "ageless", "a")
    await drive(journal, "newer", "a")
    await rows.change(keys.model("newer", keys.ROOT, 0), f=99)
    await rows.change(keys.head("newer"), status="failed")
    at = (await rows.all(keys.head("newer")))[keys.encode(keys.head("newer"))].value["changed_at"]
    await rows.put(keys.index("status", "failed", at, "newer"), {})
    await rows.delete(keys.index("status", "completed", at, "newer"))
    await rows.put(keys.index("status", "completed", at, "ghost"), {})
    clock.days(10)
    swept = await sweep_runs(Ageless(journal), older_than_ms=DAY)
    assert (swept.purged, swept.kept_no_ts, swept.skipped_ghosts) == (0, 1, 1)
    assert swept.kept_unreadable == 1
    assert len(swept.why) == 2


def _without_time(entry):
    return type(entry)(entry.key, entry.value, entry.blob, entry.version, entry.batch, 0, 0)


async def test_a_driven_run_is_kept_however_old_its_status_is(journal, clock):
    entered, release = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        entered.set()
        await release.wait()
        return "w"

    task = asyncio.create_task(drive(journal, "r", ("wait", {}), tools=[wait], lock_ttl=31_536_000.0))
    await entered.wait()
    clock.days(10)
    assert (await sweep_runs(journal, older_than_ms=DAY)).kept_driven == 1
    release.set()
    assert (await task).text == "done"


async def test_a_sweep_looks_at_the_journal_it_is_given_and_at_no_organisations(journal, clock):
    for one in (journal, journal.scoped("acme"), journal.scoped("bolt")):
        await drive(one, "r", "a", thread_id="t")
    clock.days(10)
    assert (await sweep_runs(journal, older_than_ms=DAY)).purged == 1
    assert (await sweep_runs(journal.scoped("acme"), older_than_ms=DAY)).purged == 1
    assert (await sweep_threads(journal.scoped("acme"), older_than_ms=DAY)).purged == 1
    assert [await ids(one) for one in (journal, journal.scoped("acme"), journal.scoped("bolt"))] == [[], [], ["r"]]
    assert (await sweep_threads(journal, older_than_ms=DAY)).purged == 1
    assert len(await list_orphan_thread_state(journal.scoped("bolt"))) == 1


# Tombstones, the ledger ----------------------------------------------------------------------------------------------


async def test_l77_s76_a_tombstone_holds_hashes_only(journal, clock, rows):
    await drive(journal, "order-7", "iban-tr55", resource_id="ann", thread_id="t")
    clock.days(10)
    assert (await sweep_runs(journal, older_than_ms=DAY, tombstones=True)).tombstones == 1
    (row,) = (await rows.all(("swept",))).values()
    assert row.key == keys.swept("order-7")
    assert set(row.value) == {"f", "at", "input"}
    assert len(row.value["input"]) == 32
    assert "iban" not in str(row.value)


async def test_l77_a_tombstone_of_named_work_holds_its_hash_and_never_its_name(journal, clock, rows):
    key = "order of ann@example.org, 7"
    agents = Gnl(journal, agents={"clerk": {"model": ScriptedModel(["done"]), "work_scope": "org"}})
    result = await agents.run("clerk", work_key=key, prompt="go")
    assert key in repr(await rows.all()), "a name that nobody could find would prove nothing"
    clock.days(10)
    assert (await sweep_runs(journal, older_than_ms=DAY, tombstones=True)).tombstones == 1
    row = (await rows.all(("swept",)))[keys.encode(keys.swept(result.run_id))]
    assert set(row.value) == {"f", "at", "input", "work_key_hash"}
    assert row.value["work_key_hash"] == work_key_hash(key) == hashlib.sha256(key.encode()).hexdigest()[:16]
    assert "ann@example" not in repr(await rows.all())
    with pytest.raises(RunSweptError):
        await agents.run("clerk", work_key=key, prompt="go")


@pytest.mark.parametrize(
    "spoilt",
    [None, "x", {}, {"f": 1}, {"f": 1, "at": "1"}, {"f": 1, "at": 1, "key": "k"}, {"f": 1, "at": 1, "input": "order 7"}]
    + [{"f": 1, "at": 1, "work_key_hash": what} for what in ("0" * 32, "order-of-ann-777", None, 7)],
)
async def test_the_doctor_tells_of_tombstones_that_hold_more_than_hashes(spoilt):
    async with InMemoryStorage() as storage:
        good = {"f": 1, "at": 1_700_000_000_000, "input": "0" * 32, "work_key_hash": "0123456789abcdef"}
        ops = [Put(keys.swept("good"), good), Put(keys.swept("older"), {"f": 1, "at": 1})]
        await storage.runs.apply(ops, batch=new_batch())
        assert await examine_leftovers(storage.runs, "") == []
        await storage.runs.apply([Put(keys.swept("bad"), spoilt)], batch=new_batch())
        (found,) = await examine_leftovers(storage.runs, "")
        assert (found.check, found.level, found.run_id) == ("erasure.tombstones", "waits", "bad")
        assert "ann" not in found.text


async def test_s76_a_late_retry_of_a_swept_run_is_refused_and_acts_no_second_time(journal, clock, effects):
    @tool
    def charge(ctx: Context, order: int) -> str:
        effects.fire("charge", ctx)
        return "charged"

    async def order():
        calls, options = [("charge", {"order": 7})], {"tools": [charge], "tombstone_policy": "reject"}
        return await drive(journal, "order-7", *calls, **options)

    await order()
    clock.days(10)
    for number in range(1, 8):  # broken off before each of its writes: there is no moment of neither run nor tombstone
        faulty = FaultyJournal(journal, fault=Fault(number=number, action="unavailable"))
        try:
            await sweep_runs(faulty, older_than_ms=DAY, tombstones=True)
        except StoreUnavailableError:
            if number > 1:
                with pytest.raises(RefusedError):
                    await order()
        else:
            break
    with pytest.raises(RunSweptError):
        await order()
    assert number > 1
    assert effects.count() == 1


async def test_s90_the_ledger_outlives_its_runs_until_it_is_swept_itself(journal, clock, rows):
    await rows.put(keys.conflict(1, "r", "00"), {"f": 1, "code": "run_swept"})
    await rows.put(("idem", "conflicts", "x"), {"f": 1})
    await drive(journal, "r", "a", resource_id="ann")
    clock.days(10)
    await sweep_runs(journal, older_than_ms=DAY)
    await purge_resource(journal, "ann")
    assert len(await rows.all(("idem",))) == 2
    await rows.put(keys.conflict(2, "r", "01"), {"f": 1, "code": "run_swept"})
    assert (await sweep_log(journal, "conflict", older_than_ms=DAY, dry_run=True)).deleted_rows == 1
    swept = await sweep_log(journal, "conflict", older_than_ms=DAY)
    assert (swept.scanned, swept.deleted_rows) == (2, 1)
    assert len(await rows.all(("idem", "conflicts"))) == 1, "another namespace, whose name only begins alike"


# Erasure and retention, in any order ---------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["sweep first", "purge first", "sweep twice"])
async def test_l76_an_erasure_finds_the_conversation_of_a_swept_run(journal, clock, rows, order):
    await drive(journal, "r", "iban-tr55", thread_id="t", resource_id="ann")
    await drive(journal, "other", "b", thread_id="t2", resource_id="bob")
    clock.days(10)
    if order == "purge first":
        await purge_resource(journal, "ann")
    swept = await sweep_runs(journal, older_than_ms=DAY)
    if order != "purge first":
        assert swept.traces == 2
        assert "resthr/ann/t" in await rows.all()
        assert await rows.all(("xthr", "t")), "retention deletes no conversation"
    if order == "sweep twice":
        await sweep_runs(journal, older_than_ms=DAY)
    await purge_resource(journal, "ann")
    left = await rows.values()
    assert not [key for key in left if {"ann", "t", "r"} & set(keys.decode(key)[1:])]
    assert "iban-tr55" not in str(left)
    assert "resthr/bob/t2" in left


# Conversations -------------------------------------------------------------------------------------------------------


async def test_conversations_go_by_their_last_activity_and_those_that_wait_stay(journal, clock, rows):
    await drive(journal, "r1", "a", thread_id="old", resource_id="ann")
    await drive(journal, "r2", ("wire", {"iban": "x"}), thread_id="waits", resource_id="ann")
    await drive(journal, "r3", "a", thread_id="nobodys")
    clock.days(10)
    await drive(journal, "r4", "b", thread_id="young", resource_id="ann")
    (orphan,) = await list_orphan_thread_state(journal)
    assert (orphan.thread_id, orphan.rows) == ("nobodys", 2)
    would = await sweep_threads(journal, older_than_ms=DAY, dry_run=True)
    swept = await sweep_threads(journal, older_than_ms=DAY)
    assert (swept.scanned, swept.purged, swept.kept_active, swept.kept_waiting) == (4, 2, 1, 1)
    assert (would.purged, would.deleted_rows) == (swept.purged, swept.deleted_rows)
    assert [one.thread_id for one in swept.orphan_thread_state] == ["nobodys"]
    assert {key.split("/")[1] for key in await rows.all(("xthr",))} == {"young"}
    assert await ids(journal) == ["r1", "r2", "r3", "r4"], "their runs stay"
    assert await list_orphan_thread_state(journal) == []


async def test_work_in_doubt_keeps_its_conversation_until_it_is_settled(journal, clock, effects):
    @tool(idempotency="args", window="thread")
    async def book(ctx: Context, room: str) -> str:
        effects.fire("book", ctx)
        raise OSError("the line went dead")

    for thread in ("t", "u"):
        call = with_idempotency(book, journal, window="thread", thread_id=thread)
        with pytest.raises(ToolError):
            await call(room="7")
    clock.days(10)
    swept = await sweep_threads(journal, older_than_ms=DAY)
    assert (swept.purged, swept.kept_waiting) == (0, 2)
    with pytest.raises(SideEffectRetryBlockedError):
        await call(room="7")
    assert effects.count() == 2
    await release_failed_claim(journal, tool_name="book", args={"room": "7"}, window="thread", thread_id="t")
    clock.days(10)
    swept = await sweep_threads(journal, older_than_ms=DAY)
    assert (swept.purged, swept.kept_waiting) == (1, 1)


async def test_a_run_of_nobody_leaves_no_trace_and_is_counted(journal, clock):
    await drive(journal, "r", "a", thread_id="t")
    clock.days(10)
    swept = await sweep_runs(journal, older_than_ms=DAY)
    assert (swept.purged, swept.traces, swept.untraceable) == (1, 0, 1)
    assert [one.thread_id for one in await list_orphan_thread_state(journal)] == ["t"]


# The sweeper ---------------------------------------------------------------------------------------------------------


async def test_the_sweeper_goes_on_after_an_error_and_stops_after_its_pass(journal, clock):
    await drive(journal, "r", "a")
    clock.days(10)
    failed, passed = asyncio.Event(), asyncio.Event()

    class Away(FaultyJournal):
        async def scan(self, prefix, **options):
            if not failed.is_set():
                raise StoreUnavailableError("the store is away")
            if prefix == ("ix", "status", "canceled"):
                passed.set()
            return await super().scan(prefix, **options)

    errors = []

    def on_error(error):
        errors.append(error)
        failed.set()

    sweeper = create_retention_sweeper(Away(journal), interval_ms=1, sweep={"older_than_ms": DAY}, on_error=on_error)
    sweeper.start()
    sweeper.start()
    async with asyncio.timeout(30):
        await passed.wait()
    await sweeper.stop()
    await sweeper.stop()
    assert [type(error) for error in errors] == [StoreUnavailableError]
    assert await ids(journal) == []
    assert sweeper.last is not None


def test_no_age_is_guessed(journal):
    with pytest.raises(ConfigError, match="older_than_ms"):
        create_retention_sweeper(journal, sweep={})
    with pytest.raises(ConfigError, match="interval_ms"):
        create_retention_sweeper(journal, sweep={"older_than_ms": 1}, interval_ms=0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"older_than_ms": -1}, "older_than_ms"),
        ({"older_than_ms": "90d"}, "older_than_ms"),
        ({"older_than_ms": 1, "suspended_ttl_ms": 1.5}, "suspended_ttl_ms"),
        ({"older_than_ms": 1, "tombstone": True}, "'tombstone'.*tombstones"),
    ],
)
def test_a_sweep_that_cannot_be_is_told_before_its_first_pass(journal, wrong, words):
    with pytest.raises(ConfigError, match=words):
        create_retention_sweeper(journal, sweep=wrong)


@pytest.mark.parametrize("interval", [0, -1, float("nan"), "1h", None])
def test_an_interval_that_is_none_is_refused(journal, interval):
    with pytest.raises(ConfigError, match="interval_ms"):
        create_retention_sweeper(journal, sweep={"older_than_ms": 1}, interval_ms=interval)


@pytest.mark.parametrize("age", [-1, 1.5, True, "1"])
async def test_an_age_that_is_none_is_refused(journal, age):
    for sweep in (sweep_runs, sweep_threads):
        with pytest.raises(ConfigError, match="older_than_ms"):
            await sweep(journal, older_than_ms=age)


# Killed --------------------------------------------------------------------------------------------------------------

KILLED = textwrap.dedent(
    """
    import asyncio, sys
    import gnl_core
    from gnl_core import purge_resource, sweep_runs
    from gnl_core.testing.faulty import Fault, FaultyJournal
    what, number = sys.argv[1], int(sys.argv[2])
    async def main():
        async with STORE as storage:
            journal = FaultyJournal(storage.runs, fault=Fault(number=number, when="after"))
            if what == "purge":
                await purge_resource(journal, "ann")
            else:
                await sweep_runs(journal, older_than_ms=0, tombstones=True)
    asyncio.run(main())
    """
)
NUMBERS = [1, 2, 3, 5, 8, 12]


def interesting(kind):
    """Return (what, number) of the kills on a store: in a file all of them, on a server two of each."""
    return [(kind, what, number) for what in ("purge", "sweep") for number in (NUMBERS if kind == "sqlite" else (2, 5))]


@pytest.mark.parametrize(
    ("kind", "what", "number"), [case for kind in ("sqlite", "postgres", "redis") for case in interesting(kind)]
)
async def test_l76_a_process_that_was_killed_half_way_is_taken_up_by_the_next(new_store, kind, what, number):
    store = new_store(kind)
    async with store.open() as storage:
        for run in ("r1", "r2", "r3"):
            await drive(storage.runs, run, f"iban-{run}", thread_id=f"t-{run}", resource_id="ann")
    program = KILLED.replace("STORE", store.spelled)
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program, what, str(number)], capture_output=True, check=False
    )
    assert ended.returncode in (0, 9), ended.stderr.decode()
    assert ended.returncode == 9 or number > 5
    async with store.open() as storage:
        if what == "sweep":
            await sweep_runs(storage.runs, older_than_ms=0, tombstones=True)
            assert await ids(storage.runs) == []
            assert len((await storage.runs.scan(("swept",))).entries) == 3
            assert len((await storage.runs.scan(("resthr",))).entries) == 3
        await purge_resource(storage.runs, "ann")
        left = {entry.key async for entry in scan_all(storage.runs, ())}
        assert {key[0] for key in left} <= {"swept"}
