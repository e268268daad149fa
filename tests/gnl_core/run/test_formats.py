"""S36: journals of earlier releases are listed, answered and driven by this one; those of later ones are refused."""

import importlib.util
import shutil
import time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio

from gnl_core import SqliteStorage, decide, fork_run, keys, list_interrupts, run_durable, tool
from gnl_core.doctor import examine_file, examine_runs
from gnl_core.errors import JournalFormatError, ModelUnavailableError, SideEffectRetryBlockedError, StoreCorruptError
from gnl_core.journal import Put, get, new_batch, scan_all
from gnl_core.run_list import list_runs
from gnl_core.testing.scripted import ScriptedModel
from gnl_core.views import read_run

FOLDER = Path(__file__).parents[1] / "golden"
_SPEC = importlib.util.spec_from_file_location("make_golden", FOLDER / "make_golden.py")
golden = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(golden)

RELEASES = sorted(FOLDER.glob("journal-*.sqlite"))
NAMES = ["completed", "failed", "fork", "in-doubt", "parent", "source", "suspended"]


@pytest.fixture(params=RELEASES, ids=[path.stem for path in RELEASES])
def release(request, place):
    """A copy of one release's journal."""
    return Path(shutil.copy(request.param, place / "journal.sqlite"))


@pytest_asyncio.fixture(params=["sqlite", "memory", "postgres", "redis"])
async def old(request, release, new_store, clock):
    """A store of each kind with that journal: the file itself, and its rows put elsewhere."""
    if request.param == "sqlite":
        async with SqliteStorage(release) as storage:
            yield storage
        return
    seconds = [float(golden.BEGAN)]
    # A server's clock is its own: there these rows are of now, and a day is let pass.
    at = {"clock": lambda: seconds[0]} if request.param == "memory" else {}
    async with new_store(request.param).open(**at) as storage, SqliteStorage(release) as file:
        ops = [Put(entry.key, entry.value, entry.blob) async for entry in scan_all(file.runs, (), blobs=True)]
        await storage.runs.apply(ops, batch=new_batch())
        seconds[0] = time.time()
        if at:
            yield storage
            return
        clock.days(1)
        yield SimpleNamespace(runs=clock.moved(storage.runs))


def outputs(result):
    return [[call.output for call in step.calls] for step in result.steps]


async def replay(old, name):
    """Drive a run that must do nothing but read."""
    work = golden.Work()
    result = await golden.drive(old, name, work, model=ScriptedModel([], spec="golden/model"), replay="strict")
    assert (work.ran, result.warnings) == ([], ())
    return result


def test_there_is_a_golden_journal():
    assert RELEASES


async def test_s36_every_run_is_listed_and_shown(old):
    page = await list_runs(old.runs)
    assert {run.run_id: run.status for run in page.runs} == {
        "golden-completed": "completed",
        "golden-suspended": "suspended",
        "golden-parent": "completed",
        "golden-source": "completed",
        "golden-failed": "failed",
        "golden-fork": "ready",
        "golden-in-doubt": "interrupted",
    }
    assert page.problems == ()
    for name in NAMES:
        assert (await read_run(old.runs, f"golden-{name}")).problems == ()
    by = await list_runs(old.runs, agent="golden")
    assert len(by.runs) == len(NAMES)


async def test_s36_the_doctor_finds_no_fault(release):
    assert [one.text for one in await examine_file(release) if one.level == "fault"] == []
    async with SqliteStorage(release) as storage:
        assert [one.text async for one in examine_runs(storage.runs) if one.level == "fault"] == []


async def test_s36_the_completed_run_is_replayed(old):
    result = await replay(old, "completed")
    assert (result.text, result.usage.total_tokens) == ("done", 36)
    seen, failed, gone, book = result.steps[0].calls
    assert seen.output == {"sum": Decimal("12.50"), "items": ("tea", b"\xff")}
    assert (failed.error.type, str(failed.error)) == ("LookupError", "no such bill")
    assert (gone.error.type, book.output) == ("ToolArgumentsError", "ü" * 11_000)
    assert [call.output for call in result.steps[1].calls] == ["receipt for 1", "shipped to Zoë", "shipped to Zoë"]
    origins = {one.tool_call_id: one.origin for one in result.replayed_tool_calls}
    assert (origins["s1p1"], origins["s1p2"]) == ("self", "window")
    assert result.messages[-2].parts[0].text == "shipped to Zoë"


async def test_s36_work_that_was_shared_across_runs_still_is(old):
    work = golden.Work()
    model = ScriptedModel([[("ship", {"to": "Zoë"})], "shipped"])
    result = await run_durable(
        run_id="new", journal=old.runs, model=model, tools=work.tools(), prompt="ship", resource_id="ann"
    )
    assert (outputs(result)[0], work.ran) == (["shipped to Zoë"], [])


@pytest.mark.parametrize("approved", [True, False])
async def test_s36_the_suspended_run_is_answered_and_resumed(old, approved):
    (question,) = await list_interrupts(old.runs, "golden-suspended")
    assert question.question == "golden-suspended/s0p1/confirm/0"
    assert (question.tool_name, dict(question.args)) == ("refund", {"amount": 2})
    waits = await golden.drive(old, "suspended", golden.Work())
    assert [one.question for one in waits.interrupts] == [question.question]
    await decide(old.runs, question.question, approved, actor="carol")
    work = golden.Work()
    result = await golden.drive(old, "suspended", work)
    assert (result.text, work.ran) == ("refunded", [("refund", 2)] if approved else [])
    assert outputs(result)[0] == ["receipt for 2", "refunded 2" if approved else None]


@pytest.mark.parametrize("answer", ["run", "settle", "deny"])
async def test_s36_the_run_in_doubt_is_settled(old, answer):
    for _ in range(2):
        work = golden.Work()
        with pytest.raises(SideEffectRetryBlockedError) as blocked:
            await golden.drive(old, "in-doubt", work)
        assert work.ran == []
    (question,) = await list_interrupts(old.runs, "golden-in-doubt")
    assert question.question == blocked.value.detail["question"] == "golden-in-doubt/s0p0/in_doubt/1"
    row = await get(old.runs, keys.tool("golden-in-doubt", keys.ROOT, 0, 0))
    assert question.asked_at == row.updated_at
    options = {"output": "receipt by hand"} if answer == "settle" else {}
    await decide(old.runs, question.question, answer == "run", actor="carol", **options)
    work = golden.Work()
    result = await golden.drive(old, "in-doubt", work)
    assert result.text == "charged"
    assert work.ran == ([("charge", 3)] if answer == "run" else [])
    assert outputs(result)[0] == [{"run": "receipt for 3", "settle": "receipt by hand", "deny": None}[answer]]


async def test_s36_the_failed_run_goes_on(old):
    work = golden.Work()
    with pytest.raises(ModelUnavailableError):
        await golden.drive(old, "failed", work)
    model = ScriptedModel([golden.SCRIPTS["failed"][0], "up again"], spec="golden/model")
    result = await golden.drive(old, "failed", work, model=model)
    assert (result.text, work.ran, model.calls) == ("up again", [], 1)
    assert outputs(result)[0] == ["receipt for 4"]


async def test_s36_the_fork_goes_on_from_its_step(old):
    work = golden.Work()
    result = await golden.drive(old, "fork", work)
    assert (result.text, work.ran) == ("both", [("charge", 6)])
    assert outputs(result)[0] == ["receipt for 5"]
    assert (await replay(old, "source")).text == "both"


async def test_s36_the_sub_agent_s_run_is_replayed_with_its_parent(old):
    result = await replay(old, "parent")
    assert outputs(result) == [["the helper paid"], []]
    assert [message.text for message in result.messages if message.role == "assistant"] == ["", "the helper was asked"]


# Newer formats -----------------------------------------------------------------------------------------------------


async def test_rows_of_a_newer_format_are_refused_before_anything_is_written(old):
    """Each row of each run by itself: the error names the row, both formats and the way out."""
    entries = [entry async for entry in scan_all(old.runs, ("run",), blobs=True)]
    stamped = [entry for entry in entries if "f" in entry.value and entry.key[3] != "answer"]
    assert {entry.key[3] for entry in stamped} >= {"head", "input", "model", "tool", "body", "lock"}
    for entry in stamped:
        name = entry.key[1].removeprefix("golden-")
        await old.runs.apply((Put(entry.key, {**entry.value, "f": 2}, entry.blob),), batch=new_batch())
        before = [one async for one in scan_all(old.runs, ("run",), blobs=True)]
        work = golden.Work()
        with pytest.raises(JournalFormatError) as refused:
            await golden.drive(old, name, work)
        text = "/".join(entry.key)
        assert str(refused.value) == (f"the row {text} has format 2, this release reads up to 1: update gnl-semantic")
        assert refused.value.detail == {"key": text, "format": 2}
        assert work.ran == []
        assert [one async for one in scan_all(old.runs, ("run",), blobs=True)] == before
        await old.runs.apply((Put(entry.key, entry.value, entry.blob),), batch=new_batch())
    assert (await replay(old, "completed")).text == "done"


async def test_shared_work_of_a_newer_format_is_refused(old):
    (entry,) = [one async for one in scan_all(old.runs, ("xrun",), blobs=True)]
    await old.runs.apply((Put(entry.key, {**entry.value, "f": 2}, entry.blob),), batch=new_batch())
    work = golden.Work()
    model = ScriptedModel([[("ship", {"to": "Zoë"})], "shipped"])
    with pytest.raises(JournalFormatError, match="xrun/args/ship/"):
        await run_durable(
            run_id="new", journal=old.runs, model=model, tools=work.tools(), prompt="ship", resource_id="ann"
        )
    assert work.ran == []


# Damaged rows ------------------------------------------------------------------------------------------------------

DAMAGE = [None, [], "text", 5, {}, {"f": 1}, {"f": "1"}, {"f": True}, {"f": 0}, {"f": -1}]
OPTIONAL = {"incident", "evidence", "comp", "beat", "answer"}


# What a row says is read alike from every store, and two hundred drives take a server many seconds.
@pytest.mark.parametrize("storage", ["memory", "sqlite"], indirect=True)
async def test_damaged_rows_are_told_by_name_and_nothing_is_done(journal, rows):
    """Every row of a run with every kind of call, replaced by what is no record."""
    ran = []

    @tool
    def charge(amount: int) -> str:
        ran.append(amount)
        return "receipt"

    @tool(idempotency="args")
    def ship(to: str) -> str:
        ran.append(to)
        return "shipped"

    @tool(side_effect=False, untrusted=True)
    def fetch() -> list:
        return [Decimal(1)]

    script = [[("charge", {"amount": 1}), ("ship", {"to": "a"}), ("gone", {})], [("fetch", {})], "done"]

    async def drive():
        return await run_durable(
            run_id="r",
            journal=journal,
            model=[ScriptedModel(script)],
            tools=[charge, ship, fetch],
            prompt="go",
            system="Be exact.",
            exclusive_model_step=True,
            max_steps=9,
        )

    good = await drive()
    assert sorted(map(str, ran)) == ["1", "a"]
    families = set()
    for key, entry in (await rows.all(("run",))).items():
        family = key.split("/")[3]
        families.add(family)
        members = [{k: v for k, v in entry.value.items() if k != name} for name in entry.value]
        changed = [{**entry.value, name: bad} for name in entry.value for bad in (None, 5, [], {}, "\ud800")]
        for value in (*DAMAGE, *members, *changed):
            await rows.put(key, value, entry.blob)
            try:
                result = await drive()
            except Exception as error:
                assert type(error).__module__ == "gnl_core.errors", (key, value, repr(error))  # noqa: PT017
                if type(error).__name__ in ("StoreCorruptError", "JournalFormatError"):
                    assert key in str(error), (value, str(error))  # noqa: PT017
            else:
                assert result.text == "done", (key, value)
                assert value not in DAMAGE[:5] or family in OPTIONAL, (key, value)
            assert sorted(map(str, ran)) == ["1", "a"], (key, value)
            await rows.put(key, entry.value, entry.blob)
    assert families >= {"head", "input", "model", "tool", "args", "body", "cfg", "claim", "lock", "taint"}
    assert (await drive()).messages == good.messages


@pytest.mark.parametrize(
    "blob", [None, b"", b"{", b"\xff\xfe", b"[NaN, ", b'{"\\u0000gnl:Decimal": "x"}', b'{"\\u0000gnl:New": 1}']
)
async def test_a_damaged_blob_is_told_and_never_read_as_nothing(journal, rows, effects, blob):
    @tool
    def book() -> str:
        return effects.fire("book", "b", "x" * 100_000)

    options = {"run_id": "r", "journal": journal, "tools": [book], "prompt": "go"}
    await run_durable(model=ScriptedModel([[("book", {})], "done"]), **options)
    key = "run/r/~/tool/000000/000"
    value = (await rows.all())[key].value
    assert value["in_blob"]
    await rows.put(key, value, blob)
    with pytest.raises(StoreCorruptError) as corrupt:
        await run_durable(model=ScriptedModel([]), **options)
    assert key in str(corrupt.value)
    assert "s0p0 (book)" in str(corrupt.value)
    assert effects.count() == 1


async def test_an_id_that_could_be_a_key_is_no_key(journal, rows):
    """Names that look like parts of keys stay names."""
    for run_id in ("r/~/model", "a%2Fb", "r:model:0", "~", "r-1", "r-10", "run"):
        await run_durable(run_id=run_id, journal=journal, model=ScriptedModel([run_id]), prompt="go")
    for run_id in ("r/~/model", "a%2Fb", "r:model:0", "~", "r-1", "r-10", "run"):
        result = await run_durable(run_id=run_id, journal=journal, model=ScriptedModel([]), prompt="go")
        assert result.text == run_id
    assert len({keys.decode(key)[1] for key in await rows.all(("run",))}) == 7


@pytest.mark.parametrize("started_at", [10**18, 10**400, -(10**18), -1])
async def test_a_doubt_whose_time_was_damaged_is_still_a_doubt(journal, rows, effects, started_at):
    @tool
    def charge(amount: int) -> str:
        effects.fire("charge", "c")
        raise RuntimeError("who knows")

    options = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "go"}
    with pytest.raises(ModelUnavailableError):
        await run_durable(model=ScriptedModel([[("charge", {"amount": 1})], ModelUnavailableError("down")]), **options)
    await rows.change("run/r/~/tool/000000/000", started_at=started_at)
    for _ in range(2):
        with pytest.raises(SideEffectRetryBlockedError):
            await run_durable(model=ScriptedModel([[("charge", {"amount": 1})]]), **options)
    assert effects.count() == 1


@pytest.mark.parametrize(
    "key", ["run/r/~/model/abc", "run/r/~/model/000000/000", "run/r/~/model", "run/r/~/model/-1", "run/r/~/model/٣"]
)
async def test_a_step_where_none_can_stand_is_told_by_a_drive_and_by_a_fork(journal, rows, key):
    options = {"run_id": "r", "journal": journal, "prompt": "go"}
    await run_durable(model=ScriptedModel(["done"]), **options)
    value = (await rows.all())["run/r/~/model/000000"].value
    await rows.put(tuple(key.split("/")), value)
    for again in (
        run_durable(model=ScriptedModel([]), **options),
        fork_run(journal=journal, run_id="r", step=1, new_run_id="f"),
    ):
        with pytest.raises(StoreCorruptError, match="no model step can"):
            await again
    assert not any(name.startswith("run/f/") for name in await rows.all())


@pytest.mark.parametrize("value", [None, [], {}, {"f": 2, "approved": True}, {"f": 1, "approved": "yes"}])
async def test_an_answer_that_cannot_be_read_is_no_answer_and_stops_nobody(old, value):
    question = "golden-suspended/s0p1/confirm/0"
    await decide(old.runs, question, True, actor="carol")
    key = keys.answer("golden-suspended", "~", "s0p1", "confirm", 0)
    await old.runs.apply((Put(key, value),), batch=new_batch())
    work = golden.Work()
    waits = await golden.drive(old, "suspended", work)
    assert ([one.question for one in waits.interrupts], work.ran) == ([question], [])


@pytest.mark.parametrize("value", [None, {}, {"f": 1}, {"f": 2}])
async def test_an_incident_that_cannot_be_read_stops_nobody_and_one_of_a_newer_release_does(old, value):
    key = keys.incident("golden-completed", "~", "s0p0", "taint-guard", "warn")
    await old.runs.apply((Put(key, value),), batch=new_batch())
    if value == {"f": 2}:
        with pytest.raises(JournalFormatError, match="incident/s0p0/taint-guard/warn has format 2"):
            await golden.drive(old, "completed", golden.Work())
    else:
        assert (await replay(old, "completed")).text == "done"
