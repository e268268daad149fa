"""Erase runs, conversations, persons, organisations: all of what was named, and nothing beside it."""

import asyncio

import pytest

from gnl_core import (
    Context,
    Duplicates,
    NotPerformedError,
    PostgresStorage,
    RedisStorage,
    RunDrivenError,
    RunLimits,
    SemanticIdentity,
    agent_tool,
    create_batch,
    decide,
    fork_run,
    keys,
    list_interrupts,
    list_runs,
    purge_cross_run,
    purge_organization,
    purge_resource,
    purge_run,
    purge_thread,
    resume_run,
    run_durable,
    run_workflow,
    tool,
    with_idempotency,
)
from gnl_core.errors import (
    ChildRunError,
    ConfigError,
    ForkRefusedError,
    GnlError,
    IdInvalidError,
    RefusedError,
    SideEffectRetryBlockedError,
    StoreUnavailableError,
    StoreUnknownError,
)
from gnl_core.journal import scan_all
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

ASK = RunLimits(side_effect_duplicates=Duplicates(action="suspend", scope="thread"))


@tool(semantic_identity=SemanticIdentity(keys=("sku",)))
def create(sku: str) -> str:
    return f"created {sku}"


@tool(idempotency="args", window="cross-run")
def charge(order: str) -> str:
    return f"charged {order}"


@tool(idempotency="args", window="thread")
def book(room: str) -> str:
    return f"booked {room}"


async def drive(journal, run_id, *calls, tools=(create, charge, book), **options):
    script = [[("create", {"sku": call}) if isinstance(call, str) else call] for call in calls]
    model = ScriptedModel([*script, "done"])
    return await run_durable(
        run_id=run_id,
        journal=journal,
        model=model,
        tools=list(tools),
        prompt="go",
        **{"limits": ASK, "shared_thread": True} | options,
    )


async def naming(rows, *words):
    """Return the keys of rows that hold one of the words as a segment, or in their value."""
    found = await rows.all()
    return sorted(
        key
        for key, entry in found.items()
        if any(word in entry.key or f'"{word}"' in repr(entry.value).replace("'", '"') for word in words)
    )


# Whole segments ------------------------------------------------------------------------------------------------------


async def test_l74_a_run_keeps_those_whose_ids_begin_alike(journal, rows):
    for run in ("r-1", "r-10", "r-1:x"):
        await drive(journal, run, "a")
    kept = {key: row for key, row in (await rows.values()).items() if "r-1" not in keys.decode(key)}
    done = await purge_run(journal, "r-1")
    assert (done.runs, done.deleted > 5) == (1, True)
    assert await rows.values() == kept
    assert sorted(run.run_id for run in (await list_runs(journal)).runs) == ["r-10", "r-1:x"]


async def test_l74_a_conversation_keeps_those_whose_names_begin_alike(journal, rows):
    for number, thread in enumerate(("conv", "conv:msg1", "conv2")):
        await drive(journal, f"r{number}", "a", ("book", {"room": "7"}), thread_id=thread)
    before = await rows.values()
    done = await purge_thread(journal, "conv")
    gone = set(before) - set(await rows.values())
    assert gone == {key for key in before if keys.decode(key)[:2] in (("xthr", "conv"), ("mem", "conv"))}
    assert (done.threads, done.rows) == (1, {"mem": 1, "xthr/args": 1, "xthr/dup": 1})
    assert any("same arguments run again" in sentence for sentence in done.windows)


async def test_l74_a_person_keeps_those_whose_names_begin_alike(journal, rows):
    for number, person in enumerate(("bob", "bob:evil", "bobby")):
        calls = ("a", ("charge", {"order": person}), ("book", {"room": "7"}))
        await drive(journal, f"r{number}", *calls, thread_id=f"t{number}", resource_id=person)
    before = await rows.values()
    done = await purge_resource(journal, "bob")
    after = await rows.values()
    assert await naming(rows, "bob", "r0", "t0") == []
    assert {key: row for key, row in before.items() if key in after} == after
    others = [key for key in before if {"r1", "r2", "t1", "t2", "bob:evil", "bobby"} & set(keys.decode(key))]
    assert set(others) <= set(after)
    assert (done.runs, done.threads, done.rows["xrun"], done.rows["xid"]) == (1, 1, 1, 1)
    assert len(done.windows) == 4


async def test_l74_an_organisation_keeps_those_whose_names_begin_alike(journal, rows):
    for org in ("a", "ab"):
        await drive(journal.scoped(org), "r", "x", thread_id="t", resource_id="bob")
    done = await purge_organization(journal, "a")
    assert (done.runs, done.threads) == (1, 1)
    assert [entry async for entry in scan_all(journal.scoped("a"), ())] == []
    assert (await list_runs(journal.scoped("ab"))).runs[0].run_id == "r"
    assert (await rows.values())["org/a"][0]["state"] == "done", "that it was erased outlives it"
    assert list(await journal.scopes())[-1] == "ab"
    with pytest.raises(ConfigError):
        await purge_organization(journal.scoped("ab"), "a")


# What goes, and what stays -------------------------------------------------------------------------------------------


async def test_a_run_takes_its_sub_agents_questions_incidents_and_indexes(journal, rows):
    child = agent_tool(
        name="ask", description="d", model=ScriptedModel([[("create", {"sku": "a"})], "sub"]), tools=[create]
    )
    await drive(journal, "first", "a", thread_id="t", agent="shop")
    result = await drive(journal, "second", ("ask", {"task": "x"}), tools=[child], thread_id="t", agent="shop")
    assert result.interrupts, "a question of a sub-agent's call waits"
    assert {key.split("/")[1] for key in await rows.all(("ix",))} >= {"ask", "inc", "status", "thr", "agent"}
    would = await purge_run(journal, "second", dry_run=True)
    assert await rows.all(("run", "second")), "a dry run deletes nothing"
    done = await purge_run(journal, "second")
    assert (done.rows, would.dry_run, done.dry_run) == (would.rows, True, False)
    assert await naming(rows, "second") == []
    assert (await list_runs(journal, thread_id="t")).runs[0].run_id == "first"


async def test_a_run_leaves_what_is_recorded_across_runs(journal, rows):
    await drive(journal, "r", ("charge", {"order": "1"}), "a", thread_id="t", resource_id="ann")
    await purge_run(journal, "r")
    assert {key.split("/")[0] for key in await rows.all()} == {"xrun", "xthr", "xid", "mem"}


async def test_an_absent_run_is_told_from_an_erased_one_by_its_count(journal):
    await drive(journal, "r", "a")
    assert (await purge_run(journal, "r")).deleted
    assert (await purge_run(journal, "r")).deleted == 0
    assert (await purge_run(journal, "never")).to_json()["runs"] == 0


async def test_a_sub_agents_run_goes_with_its_root(journal):
    with pytest.raises(ChildRunError, match="order-1"):
        await purge_run(journal, "agent:order-1:0123456789abcdef")
    with pytest.raises(IdInvalidError):
        await purge_run(journal, "a b")


async def test_a_conversation_that_others_work_in_loses_only_the_persons_part(journal, rows):
    await drive(journal, "r1", "a", ("book", {"room": "1"}), thread_id="t", resource_id="ann")
    await drive(journal, "r2", "b", ("book", {"room": "2"}), thread_id="t", resource_id="bob")
    before = set(await rows.all(("xthr",)))
    await purge_resource(journal, "ann")
    after = await rows.all(("xthr",))
    assert (len(before), len(after)) == (4, 2)
    assert await naming(rows, "ann", "r1") == []
    assert set(await rows.all(("mem",))) == {"mem/t/of/bob"}
    again = await drive(journal, "r3", "b", thread_id="t", resource_id="bob")
    assert again.interrupts, "what bob did there is still recognised"


async def test_an_erased_person_owns_no_conversation_any_more(journal, rows):
    await drive(journal, "r1", "a", thread_id="t", resource_id="ann", shared_thread=False)
    await drive(journal, "r2", "b", thread_id="t", resource_id="bob")
    await purge_resource(journal, "bob")
    assert set(await rows.all(("thread",))) == {"thread/t/owner"}, "the conversation is ann's"
    await drive(journal, "r3", "b", thread_id="t", resource_id="bob")
    await purge_resource(journal, "ann")
    assert (await naming(rows, "ann"), await rows.all(("thread",))) == ([], {})
    await drive(journal, "r4", "b", thread_id="t", resource_id="bob", shared_thread=False)


async def test_work_of_no_run_goes_with_its_person(journal, rows):
    await with_idempotency(charge, journal, resource_id="ann")(order="1")
    await with_idempotency(charge, journal, resource_id="bob")(order="2")
    await with_idempotency(book, journal, window="thread", thread_id="t", resource_id="ann")(room="1")
    done = await purge_resource(journal, "ann")
    assert done.rows == {"xrun": 1, "xthr/args": 1}
    assert [entry.value["resource"] for entry in (await rows.all(("xrun",))).values()] == ["bob"]


async def test_what_a_body_of_no_run_returned_late_goes_with_its_record(journal, rows):
    for number, purge in enumerate((purge_resource(journal, "ann"), purge_cross_run(journal, tool="charge"))):
        await with_idempotency(charge, journal, resource_id="ann")(order=str(number))
        (record,) = (await rows.all(("xrun",))).values()
        late = keys.evidence(record.value["run"], keys.ROOT, "s0p0", 1)
        await rows.put(late, {"f": 1, "ok": True, "output": "charged"})
        assert (await purge).rows == {"run": 1, "xrun": 1}
        assert await rows.all() == {}


async def test_a_fork_that_was_broken_off_goes_with_its_person(journal, rows):
    await drive(journal, "r", "a", resource_id="ann")
    await fork_run(journal=journal, run_id="r", step=1, new_run_id="copy")
    await rows.change(keys.head("copy"), forking=True)
    for key in [key for key in await rows.all(("ix",)) if "copy" in key]:
        await rows.delete(key)
    assert (await purge_resource(journal, "ann")).runs == 2
    assert await rows.all() == {}


async def test_work_across_runs_is_erased_by_tool_or_by_key(journal, rows):
    for order in ("1", "2", "3"):
        await with_idempotency(charge, journal)(order=order)
    first, *_ = await rows.all(("xrun",))
    assert (await purge_cross_run(journal, tool="charge", key=first)).rows == {"xrun": 1}
    (second, *_) = await rows.all(("xrun",))
    assert (await purge_cross_run(journal, tool="charge", key=second.rpartition("/")[2])).deleted == 1
    assert (await purge_cross_run(journal, tool="char")).deleted == 0
    with pytest.raises(ConfigError, match="names no work of refund"):
        await purge_cross_run(journal, tool="refund", key=first)
    done = await purge_cross_run(journal, tool="charge")
    assert (done.deleted, "runs it again" in done.windows[0]) == (1, True)


# What a run has done stays done --------------------------------------------------------------------------------------

ERASE_WORK = {
    "thread": lambda journal: purge_thread(journal, "t"),
    "cross-run": lambda journal: purge_cross_run(journal, tool="order"),
}


def ordering(window, effects, *, fails=None):
    """A tool whose work is recorded in a window beyond the run."""

    @tool(idempotency="args", window=window)
    async def order(ctx: Context, item: str) -> str:
        effects.fire(item, ctx)
        if fails is not None:
            raise fails
        return f"ordered {item}"

    return order


@pytest.mark.parametrize("window", ERASE_WORK)
async def test_a_run_replays_its_work_whose_record_was_erased(journal, effects, window):
    order = ordering(window, effects)
    options = {"tools": [order], "thread_id": "t", "resource_id": "ann"}
    batch = create_batch(journal=journal, tool=order, item_key="item", resource_id="ann", thread_id="t")
    token = (await batch.preflight("b", [{"item": "x" * 100}])).token

    async def workflow(flow):
        return await flow.step("order", order, item="w"), await flow.wait("bank")

    async def all_of(**sent):
        agent = await drive(journal, "r", ("order", {"item": "a"}), **options)
        done = await run_workflow(workflow, journal=journal, run_id="w", thread_id="t", resource_id="ann", **sent)
        report = await batch.run("b", [{"item": "x" * 100}], plan_token=token)
        return agent.steps[0].calls[0].output, done.output, report.items[0].outcome

    assert await all_of() == ("ordered a", None, "done")
    assert (await ERASE_WORK[window](journal)).deleted >= 3
    assert await all_of(send={"bank": "yes"}) == ("ordered a", ("ordered w", "yes"), "replayed")
    assert effects.count() == 3
    await drive(journal, "other", ("order", {"item": "a"}), **options)
    assert effects.count() == 4, "whoever asks for it anew has it done"


@pytest.mark.parametrize("window", ERASE_WORK)
async def test_a_run_replays_a_refusal_of_work_whose_record_was_erased(journal, effects, window):
    options = {"tools": [ordering(window, effects, fails=NotPerformedError("sold out"))]}
    options |= {"thread_id": "t", "resource_id": "ann"}
    first = await drive(journal, "r", ("order", {"item": "a"}), **options)
    await ERASE_WORK[window](journal)
    again = await drive(journal, "r", ("order", {"item": "a"}), **options)
    assert [run.steps[0].calls[0].status for run in (first, again)] == ["failed", "failed"]
    assert effects.count() == 1


@pytest.mark.parametrize("answer", ["yes", "no", "settled"])
@pytest.mark.parametrize("window", ERASE_WORK)
async def test_a_doubt_stays_one_for_its_run_though_its_record_was_erased(journal, effects, window, answer):
    options = {"tools": [ordering(window, effects, fails=OSError("dead"))], "thread_id": "t", "resource_id": "ann"}
    await drive(journal, "r", ("order", {"item": "a"}), **options)
    await ERASE_WORK[window](journal)
    (listed,) = await list_interrupts(journal)
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive(journal, "r", ("order", {"item": "a"}), **options)
    assert [one.question for one in blocked.value.interrupts] == [listed.question] == ["r/s0p0/in_doubt/1"]
    known = {"output": "ordered"} if answer == "settled" else {}
    await decide(journal, listed.question, answer == "yes", **known)
    assert await list_interrupts(journal) == []
    options["tools"] = [ordering(window, effects)]
    done = await drive(journal, "r", ("order", {"item": "a"}), **options)
    outcome = done.steps[0].calls[0]
    expected = {"yes": ("succeeded", "ordered a"), "no": ("denied", None), "settled": ("succeeded", "ordered")}
    assert (outcome.status, outcome.output) == expected[answer]
    assert effects.count() == (2 if answer == "yes" else 1)


# While it is worked on -----------------------------------------------------------------------------------------------


@pytest.fixture
async def driven(journal):
    """A run in the middle of a call; it ends when it is let."""
    entered, release = asyncio.Event(), asyncio.Event()

    @tool(name="charge", idempotency="args", window="cross-run")
    async def slow(order: str) -> str:
        entered.set()
        await release.wait()
        return "charged"

    options = {"tools": [slow], "thread_id": "t", "resource_id": "ann"}
    task = asyncio.create_task(drive(journal, "r", ("charge", {"order": "1"}), **options))
    await entered.wait()
    yield task, release
    release.set()
    await asyncio.gather(task, return_exceptions=True)


ALL = {
    "run": lambda journal, **options: purge_run(journal, "r", **options),
    "thread": lambda journal, **options: purge_thread(journal, "t", **options),
    "person": lambda journal, **options: purge_resource(journal, "ann", **options),
    "cross-run": lambda journal, **options: purge_cross_run(journal, tool="charge", **options),
}


@pytest.mark.parametrize("purge", ALL.values(), ids=ALL)
async def test_what_is_driven_is_refused(driven, journal, rows, purge):
    before = await rows.values()
    with pytest.raises(RunDrivenError, match="is not erased"):
        await purge(journal)
    with pytest.raises(RunDrivenError):
        await purge(journal, dry_run=True)
    assert await rows.values() == before
    task, release = driven
    release.set()
    assert (await task).text == "done"
    assert (await purge(journal)).deleted > 0


async def test_a_driven_organisation_is_refused(journal):
    entered, release = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        entered.set()
        await release.wait()
        return "w"

    task = asyncio.create_task(drive(journal.scoped("a"), "r", ("wait", {}), tools=[wait]))
    await entered.wait()
    with pytest.raises(RunDrivenError):
        await purge_organization(journal, "a")
    release.set()
    await task
    assert (await purge_organization(journal, "a")).runs == 1


async def test_with_force_the_driver_is_fenced_and_nothing_comes_back(driven, journal, rows):
    task, release = driven
    await purge_resource(journal, "ann", force=True)
    release.set()
    with pytest.raises(GnlError):
        await task
    assert await naming(rows, "ann", "r") == [], "not even what its body returned late"


# Broken off ----------------------------------------------------------------------------------------------------------


async def test_l78_a_listing_that_fails_is_an_error_and_not_nothing(journal):
    await drive(journal, "r", "a", thread_id="t", resource_id="ann")

    class Blind(FaultyJournal):
        async def scan(self, prefix, **options):
            raise StoreUnavailableError("the store is away")

        def scoped(self, org):
            return Blind(journal.scoped(org))

    for purge in (*ALL.values(), lambda journal: purge_organization(journal, "o")):
        with pytest.raises(StoreUnavailableError):
            await purge(Blind(journal))


@pytest.mark.parametrize("action", ["unavailable", "unknown"])
async def test_l76_a_person_is_gone_wherever_the_erasure_broke_off_before(storage, journal, rows, action):
    """Every write of it fails once, in its turn; the same call, repeated, ends it. On a server, every sixth write."""
    number, step = 0, 6 if isinstance(storage, (PostgresStorage, RedisStorage)) else 1
    while True:
        number += step
        for run, thread in (("r1", "t1"), ("r2", "t2"), ("r3", "shared")):
            calls = ("a", ("charge", {"order": f"{run}-{number}"}))
            await drive(journal, run, *calls, thread_id=thread, resource_id="ann", shared_thread=False)
        await drive(journal, f"other{number}", "b", thread_id="shared", resource_id="bob")
        when = "before" if action == "unavailable" else "after"
        faulty = FaultyJournal(journal, fault=Fault(number=number, action=action, when=when))
        if not await _fails(purge_resource(faulty, "ann")):
            break
        await purge_resource(journal, "ann")
        assert await naming(rows, "ann", "r1", "r2", "r3", "t1", "t2") == [], f"broken off at write {number}"
    assert number > 10, "an erasure of so much writes that often"


async def _fails(work):
    try:
        await work
    except (StoreUnavailableError, StoreUnknownError):
        return True
    return False


async def test_a_half_erased_run_is_driven_no_more(journal):
    await drive(journal, "r", "a", "b")
    faulty = FaultyJournal(journal, fault=Fault(number=2, action="unavailable"))
    with pytest.raises(StoreUnavailableError):
        await purge_run(faulty, "r")
    with pytest.raises(ForkRefusedError, match="being erased"):
        await fork_run(journal=journal, run_id="r", step=0, new_run_id="copy")
    with pytest.raises(RefusedError, match="being erased"):
        await resume_run(run_id="r", journal=journal, model=ScriptedModel(["x"]), tools=[create])
    assert (await purge_run(journal, "r")).runs == 1
    assert (await drive(journal, "r", "a")).text == "done"
