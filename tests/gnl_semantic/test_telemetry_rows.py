"""Rows come from disk: whatever they hold is counted or left out, and a big journal costs no more memory."""

import asyncio
import sqlite3
import tracemalloc

import pytest

from gnl_core import InMemoryStorage, SqliteStorage, keys
from gnl_core.journal import Delete, Put, new_batch
from gnl_qualify.stats import rate
from gnl_semantic import read_telemetry
from gnl_semantic.telemetry.rates import wilson

AT = 1_767_571_200_000  # 5 January 2026, a Monday
DAY = 86_400_000
INCIDENT = keys.incident("r0", "~", "s0p0", "semantic-guard", "suspend")
PLACE = ("r0", "~", "s0p0", "semantic", 0)
DEEP = {"a": [{"b": [[[{"c": "x" * 300}]]]}]}
STRANGE = [None, True, 0, -1, 2**70, 1e308, "", "text", [], [1, None], {}, {"f": 1}, {"f": True}, {"f": 99}, DEEP]


def rows(number, *, approved=None, at=None, origin="rule", **detail):
    """The rows of one run that asked one question, as the engine writes them."""
    root, at = f"r{number}", AT + number if at is None else at
    incident = keys.incident(root, "~", "s0p0", "semantic-guard", "suspend")
    facts = {"tool": f"tool{number % 7}", "origin": origin, "args_hash": "a", "identity_keys": ["sku"], **detail}
    prior = {"origin": origin, "run_id": "f", "tool_call_id": "s0p0", "at": 1, "sentence": "s" * 200, "present": "p"}
    settings = {"embed_model_id": "e", "rules": None, "judge": None}
    limits = {"side_effect_duplicates": {"semantic": {"inactive": True, "settings": settings}}}
    ops = [
        Put(incident, {"f": 1, "message": "m", "detail": facts}),
        Put(keys.incident_index(at, incident), {}),
        Put(keys.question(root, "~", "s0p0", "semantic", 0), {"f": 1, "tool": "t", "kind": "semantic", "prior": prior}),
        Put(keys.index("status", "completed", at, root), {}),
        Put(keys.input_of(root), {"f": 1, "messages": ["m" * 500], "limits": limits}),
        Put(keys.semantic_counts(root), {"guarded": 2, "gray": 1}),
    ]
    if approved is not None:
        answer = {"f": 1, "kind": "semantic", "attempt": 0, "approved": approved, "args_digest": "a", "at": at}
        ops.append(Put(keys.answer(root, "~", "s0p0", "semantic", 0), answer))
    return ops


async def write(journal, *ops):
    await journal.apply(ops, batch=new_batch())


@pytest.fixture
async def journal():
    async with InMemoryStorage() as storage:
        for number in range(3):
            await write(storage.runs, *rows(number, approved=False))
        yield storage.runs


async def test_the_sound_rows_are_all_counted(journal):
    told = await read_telemetry(journal)
    assert (told.suspend, told.decisions.denied, told.unreadable, told.gone) == (3, 3, 0, 0)
    assert (told.runs.runs, told.runs.with_gate, told.runs.count("guarded")) == (3, 3, 6)


@pytest.mark.parametrize("value", STRANGE)
@pytest.mark.parametrize(
    ("key", "lost"),
    [
        (INCIDENT, "incident"),
        (keys.question(*PLACE), "texts"),
        (keys.answer(*PLACE), "answer"),
        (keys.input_of("r0"), "settings"),
        (keys.semantic_counts("r0"), "counts"),
    ],
    ids=["incident", "question", "answer", "input", "counts"],
)
async def test_a_row_that_is_no_record_costs_itself_and_nothing_else(journal, key, lost, value):
    await write(journal, Put(key, value))
    told = await read_telemetry(journal)
    fits = value == {"f": 1} and value["f"] is not True
    if lost == "counts":
        assert told.unreadable == (0 if isinstance(value, dict) else 1)
        assert told.runs.count("guarded") == 4
    elif lost == "settings" or (lost == "incident" and fits):
        assert told.unreadable == (0 if fits else 1)
    else:
        assert told.unreadable == 1
    assert told.runs.runs == 3
    assert told.runs.with_gate == (2 if lost == "settings" else 3)
    assert told.suspend == (2 if lost == "incident" and not fits else 3)
    assert told.decisions.denied == (2 if lost == "answer" or (lost == "incident" and not fits) else 3)
    told.to_json()


@pytest.mark.parametrize("value", STRANGE)
@pytest.mark.parametrize(
    "member", ["tool", "origin", "identity_keys", "asked_by", "judge", "outcome", "cached", "latency_ms", "gray_calls"]
)
@pytest.mark.parametrize(
    ("source", "action"), [("semantic-guard", "suspend"), ("semantic-guard", "warn"), ("semantic-judge", "warn")]
)
async def test_a_detail_of_another_type_raises_nothing(journal, source, action, member, value):
    incident = keys.incident("r9", "~", "s0p0", source, action)
    detail = {"tool": "order", "outcome": "different", member: value}
    await write(
        journal, Put(incident, {"f": 1, "message": "m", "detail": detail}), Put(keys.incident_index(AT, incident), {})
    )
    told = await read_telemetry(journal)
    assert told.suspend + told.warn == 4
    assert told.to_json()["by_declaration"][0]["keys"] == ["sku"]


@pytest.mark.parametrize("member", ["sentence", "present", "origin", "prior"])
@pytest.mark.parametrize("value", STRANGE)
async def test_what_a_question_showed_is_text_or_nothing(journal, member, value):
    prior = {"sentence": "s", "present": "p", member: value}
    shown = {"f": 1, "prior": value if member == "prior" else prior}
    await write(journal, Put(keys.question(*PLACE), shown))
    oldest = (await read_telemetry(journal)).recent[-1]
    assert isinstance(oldest.sentence, str)
    assert isinstance(oldest.present, str)
    assert oldest.decision == "denied"


@pytest.mark.parametrize(
    "key",
    [
        ("ix", "inc"),
        ("ix", "inc", "1767571200001"),
        ("ix", "inc", "soon", "r0", "~", "s0p0", "semantic-guard", "suspend"),
        ("ix", "inc", "１７６７５７１２００００１", "r0", "~", "s0p0", "semantic-guard", "suspend"),
        ("ix", "inc", "1", "r0", "~", "s0p0", "semantic-guard", "suspend"),
        ("ix", "inc", "1767571200001", "r0", "~", "s0p0", "semantic-guard", "suspend", "more"),
        ("ix", "status", "completed", "soon", "r0"),
        ("ix", "status", "completed", "1767571200001"),
    ],
)
async def test_an_index_row_that_names_nothing_is_counted(journal, key):
    await write(journal, Put(key, {}))
    told = await read_telemetry(journal)
    assert (told.unreadable, told.suspend, told.runs.runs) == (1, 3, 3)


async def test_an_index_row_of_an_incident_with_the_longest_key_is_read(journal):
    call = "s" * 1_990
    key = keys.incident("r", "~", call, "semantic-guard", "suspend")
    detail = {"tool": "order", "origin": "identity", "asked_by": "confirm"}
    await write(journal, Put(key, {"f": 1, "message": "m", "detail": detail}), Put(keys.incident_index(AT, key), {}))
    told = await read_telemetry(journal)
    assert told.suspend == 4
    assert told.decisions.pending == 1


async def test_numbers_of_a_broken_journal_stay_bounded(journal):
    for number in range(1_200):
        await write(journal, *rows(number, tool=f"t{number}", identity_keys=[f"k{number}"], approved=True))
    told = await read_telemetry(journal)
    assert told.suspend == 1_200
    assert len(told.tools) == len(told.declarations) + 1 == 1_001
    assert sum(row.suspend for row in told.tools) == 1_200


@pytest.mark.parametrize("broken", ["{", '{"f": NaN}', b"\xff\xfe"])
@pytest.mark.parametrize("key", [keys.incident_index(AT, INCIDENT), INCIDENT, keys.answer(*PLACE)])
async def test_text_that_is_no_json_costs_its_row(tmp_path, key, broken):
    path = tmp_path / "j.sqlite"
    async with SqliteStorage(path) as storage:
        for number in range(40):
            await write(storage.runs, *rows(number, approved=False))
    with sqlite3.connect(path) as connection:
        done = connection.execute(
            "UPDATE gnl_rows SET value = CAST(? AS TEXT) WHERE key = ?", (broken, keys.encode(key))
        )
        assert done.rowcount == 1
    connection.close()
    async with SqliteStorage(path) as storage:
        told = await read_telemetry(storage.runs)
    assert told.unreadable >= 1
    assert told.suspend >= 39
    assert told.decisions.denied == 39
    assert told.runs.runs == 40


class Counting:
    """A journal that counts what is asked of it, and refuses every write."""

    def __init__(self, journal):
        self.journal = journal
        self.org = journal.org
        self.scans = self.gets = self.rows = 0
        self.largest = 0

    async def now(self):
        return await self.journal.now()

    async def get_many(self, wanted):
        self.gets += 1
        self.rows += len(wanted)
        self.largest = max(self.largest, len(wanted))
        return await self.journal.get_many(wanted)

    async def scan(self, prefix, **options):
        self.scans += 1
        assert options["limit"] <= 500
        page = await self.journal.scan(prefix, **options)
        self.rows += len(page.entries)
        return page


@pytest.fixture(scope="module")
def big():
    """10,000 runs, a question each, two hours apart; every second one answered."""

    async def fill():
        storage = InMemoryStorage()
        for number in range(10_000):
            approved = None if number % 2 else number % 4 == 0
            await write(storage.runs, *rows(number, at=AT + number * DAY // 12, approved=approved))
        return storage

    storage = asyncio.run(fill())
    yield storage.runs
    storage.close()


async def test_ten_thousand_runs_are_read_in_pages_and_bounded_memory(big):
    journal = Counting(big)
    tracemalloc.start()
    try:
        told = await read_telemetry(journal)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert told.suspend == told.runs.runs == told.runs.with_gate == 10_000
    assert (told.decisions.approved, told.decisions.denied, told.decisions.pending) == (2_500, 2_500, 5_000)
    assert told.decisions.precision.value == 0.5
    assert told.runs.share("gray").n == 20_000
    assert len(told.recent) == 50
    assert (told.unit, len(told.series)) == ("week", 120)
    assert journal.scans == 20 + 20 + 4, "500 index rows a page, and one page of each empty status"
    assert journal.gets == 20 * (1 + 2) + 200, "incidents, two rows a question, and inputs of 50 runs at a time"
    assert journal.largest <= 500
    assert peak < 16 << 20, f"{peak / 2**20:.1f} MB"


async def test_since_reads_nothing_older(big):
    journal = Counting(big)
    told = await read_telemetry(journal, since=AT + 9_990 * DAY // 12)
    assert told.suspend == told.runs.runs == 10
    assert journal.rows <= 100


@pytest.mark.parametrize("k", [0, 1, 5, 17, 20])
def test_the_interval_is_the_exam_s(k):
    mine, theirs = wilson(k, 20), rate(k, 20)
    assert mine.low == pytest.approx(theirs.low, abs=1e-12)
    assert mine.high == pytest.approx(theirs.high, abs=1e-12)
    assert (wilson(0, 0).value, wilson(0, 0).low, wilson(0, 0).high) == (None, 0.0, 1.0)


async def test_deleting_a_run_beside_a_report_costs_that_run(journal):
    await write(journal, Delete(INCIDENT), Delete(keys.input_of("r1")), Delete(keys.semantic_counts("r1")))
    told = await read_telemetry(journal)
    assert (told.gone, told.suspend, told.runs.with_gate, told.unreadable) == (1, 2, 2, 0)


# Rows written by hand, in a journal of their own -------------------------------------------------------------------


@pytest.fixture
async def empty():
    async with InMemoryStorage() as storage:
        yield storage.runs


async def test_a_sub_run_s_own_part_is_where_its_answer_is_looked_for(empty):
    """A child's id names its root: question and answer stand in the child's part of the root's request."""
    child = keys.child_id("root", keys.ROOT, "s0p0")
    at = await empty.now()
    await empty.apply(_asked_rows("root", child, "s0p0", at, approved=False), batch=new_batch())
    told = await read_telemetry(empty)
    assert told.decisions.denied == 1
    assert told.recent[0].question == f"{child}/s0p0/semantic/0"


def _asked_rows(root, part, call, at, *, approved=None, attempt=0, origin="rule"):
    detail = {"tool": "order", "origin": origin, "args_hash": "a", "identity_keys": ["sku"]}
    incident = keys.incident(root, part, call, "semantic-guard", "suspend")
    shown = {"origin": origin, "run_id": "f", "tool_call_id": "s0p0", "at": 1, "sentence": "s", "present": "p"}
    place = (root, part, call, "semantic", attempt)
    ops = [
        Put(incident, {"f": 1, "message": "m", "detail": detail}),
        Put(keys.incident_index(at, incident), {}),
        Put(keys.question(*place), {"f": 1, "tool": "order", "kind": "semantic", "prior": shown}),
    ]
    if approved is not None:
        answer = {"f": 1, "kind": "semantic", "attempt": attempt, "approved": approved, "args_digest": "a", "at": at}
        ops.append(Put(keys.answer(*place), answer))
    return ops


async def test_a_question_of_a_later_attempt_is_found(empty):
    at = await empty.now()
    await empty.apply(_asked_rows("r", "~", "s0p0", at, approved=True, attempt=2), batch=new_batch())
    told = await read_telemetry(empty)
    assert (told.decisions.approved, told.recent[0].attempt) == (1, 2)


async def test_a_run_that_was_deleted_leaves_a_count_behind(empty):
    at = await empty.now()
    await empty.apply(_asked_rows("r", "~", "s0p0", at, approved=True), batch=new_batch())
    await empty.delete_prefix(keys.request("r"))
    told = await read_telemetry(empty)
    assert (told.gone, told.suspend, told.unreadable) == (1, 0, 0)


async def test_weeks_are_counted_where_days_would_be_too_many(empty):
    day = 86_400_000
    monday = 1_767_571_200_000  # 5 January 2026
    for number, at in enumerate((monday, monday + 6 * day + 1, monday + 7 * day, monday + 100 * day)):
        await empty.apply(_asked_rows(f"r{number}", "~", "s0p0", at, approved=True), batch=new_batch())
    told = await read_telemetry(empty)
    assert told.unit == "week"
    assert [(one.start, one.rule, one.decisions.approved) for one in told.series] == [
        ("2026-01-05", 2, 2),
        ("2026-01-12", 1, 1),
        ("2026-04-13", 1, 1),
    ]
    told = await read_telemetry(empty, since=monday + 7 * day)
    assert told.unit == "week"
    await empty.apply((Delete(keys.incident("r3", "~", "s0p0", "semantic-guard", "suspend")),), batch=new_batch())
    told = await read_telemetry(empty)
    assert [(told.unit, one.start) for one in told.series] == [
        ("day", "2026-01-05"),
        ("day", "2026-01-11"),
        ("day", "2026-01-12"),
    ]
    assert told.series[0].judge_share.n == 1
