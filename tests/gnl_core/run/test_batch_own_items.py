"""A batch's own items are no repeats of each other, and nothing else passes for one of them."""

import pytest

from gnl_core import (
    Allow,
    Context,
    Duplicates,
    Gnl,
    NotAnAgentRunError,
    NotPerformedError,
    RequireApproval,
    RunLimits,
    SemanticIdentity,
    create_batch,
    decide,
    durable_context,
    keys,
    purge_batch,
    purge_run,
    resume_run,
    run_durable,
    stream_durable,
    sweep_runs,
    tool,
)
from gnl_core.testing.scripted import ScriptedModel

TWINS = [{"key": "k1", "sku": "x"}, {"key": "k2", "sku": "X"}]
SAME = [{"host": "h"}, {"host": "h"}]


def creating(effects, **options):
    @tool(semantic_identity=SemanticIdentity(keys=("sku",)), **options)
    async def create(ctx: Context, key: str, sku: str) -> str:
        effects.fire("create", ctx)
        return f"created {sku}"

    return create


def pinging(effects):
    @tool(side_effect=True)
    async def ping(ctx: Context, host: str) -> None:
        effects.fire("ping", ctx)

    return ping


def batch_of(journal, effects, tool=None, **options):
    options = {"resource_id": "ann", "concurrency": 1, **options}
    return create_batch(journal=journal, tool=tool or creating(effects), item_key="key", **options)


def conversation(journal, effects, *names, **options):
    """A batch of equal calls in one conversation, its items named one after the other."""
    given = iter(names * 9)
    return create_batch(
        journal=journal, tool=pinging(effects), item_key=lambda _: next(given), thread_id="t", concurrency=1, **options
    )


async def go(batch, batch_id, items):
    return await batch.run(batch_id, items, plan_token=(await batch.preflight(batch_id, items)).token)


def outcomes(report):
    return [item.outcome for item in report.items]


async def chat(journal, effects, run_id="chat", **options):
    return await run_durable(
        run_id=run_id,
        journal=journal,
        model=ScriptedModel([[("create", {"key": "c", "sku": "x"})], "done"]),
        tools=[creating(effects)],
        prompt="go",
        resource_id="ann",
        channel="chat",
        **options,
    )


# Own items -----------------------------------------------------------------------------------------------------------


async def test_items_of_one_identity_all_run(journal, effects):
    batch = batch_of(journal, effects)
    assert outcomes(await go(batch, "a", TWINS)) == ["done", "done"]
    assert effects.count() == 2


async def test_items_of_equal_arguments_in_a_conversation_all_run(journal, effects):
    batch = conversation(journal, effects, "k1", "k2")
    assert outcomes(await go(batch, "a", SAME)) == ["done", "done"]
    assert effects.count() == 2


async def test_an_item_that_goes_on_after_its_twin_was_done_is_no_repeat_of_it(journal, effects):
    batch = batch_of(journal, effects, creating(effects, confirm=True), thread_id="t")
    first = await go(batch, "a", TWINS)
    assert outcomes(first) == ["suspended", "suspended"]
    await decide(journal, "batch:a:k1/s0p0/confirm/0", True)
    assert outcomes(await go(batch, "a", TWINS)) == ["done", "suspended"]
    await decide(journal, "batch:a:k2/s0p0/confirm/0", True)
    assert outcomes(await go(batch, "a", TWINS)) == ["replayed", "done"]
    assert effects.count() == 2


@pytest.mark.parametrize(("one", "other"), [("a", "a-b"), ("a-b", "a"), ("a", "b"), ("k1", "k2")])
async def test_items_of_another_batch_are_earlier_work(journal, effects, one, other):
    batch = batch_of(journal, effects)
    assert outcomes(await go(batch, one, TWINS[:1])) == ["done"]
    plan = await batch.preflight(other, TWINS[1:])
    assert [(item.key, item.run_id) for item in plan.xid_hits] == [("k2", f"batch:{one}:k1")]
    report = await batch.run(other, TWINS[1:], plan_token=plan.token)
    assert outcomes(report) == ["suspended"]
    assert report.interrupts[0].prior["run_id"] == f"batch:{one}:k1"


@pytest.mark.parametrize(("one", "other"), [("a", "a-b"), ("a-b", "a")])
async def test_equal_arguments_of_another_batch_are_earlier_work(journal, effects, one, other):
    batch = conversation(journal, effects, "k1")
    assert outcomes(await go(batch, one, SAME[:1])) == ["done"]
    assert outcomes(await go(batch, other, SAME[:1])) == ["suspended"]
    assert effects.count() == 1


async def test_the_foreign_record_stays_first_and_every_item_of_its_identity_is_asked_about(journal, effects):
    await chat(journal, effects)
    batch = batch_of(journal, effects)
    assert outcomes(await go(batch, "a", TWINS)) == ["suspended", "suspended"]
    await decide(journal, "batch:a:k1/s0p0/duplicate/0", True)
    report = await go(batch, "a", TWINS)
    assert outcomes(report) == ["done", "suspended"], "that one was allowed allows no other"
    assert report.interrupts[0].prior["run_id"] == "chat"


async def test_a_runs_repeat_by_chance_of_a_batchs_name_is_no_item(journal, effects):
    await chat(journal, effects, run_id="a:k1")
    assert outcomes(await go(batch_of(journal, effects), "a", TWINS[:1])) == ["suspended"]


async def test_what_a_chat_did_between_two_items_of_one_identity_is_asked_about(journal, effects):
    """The row under the person's name was the first item's; what others do since is not hidden behind it."""
    batch = batch_of(journal, effects, creating(effects, confirm=True))
    await go(batch, "a", TWINS)
    await decide(journal, "batch:a:k1/s0p0/confirm/0", True)
    assert outcomes(await go(batch, "a", TWINS)) == ["done", "suspended"]
    (question,) = (await chat(journal, effects)).interrupts
    assert question.prior["run_id"] == "batch:a:k1"
    await decide(journal, question.question, True)
    await chat(journal, effects)
    (one, two) = (await go(batch_of(journal, effects), "b", TWINS)).interrupts
    assert {one.prior["run_id"], two.prior["run_id"]} == {"chat"}
    await decide(journal, "batch:a:k2/s0p0/confirm/0", True)
    (asked,) = (await go(batch, "a", TWINS)).interrupts
    assert (asked.kind, asked.prior["run_id"]) == ("duplicate", "chat"), "a yes without it is none to a repeat"
    assert effects.count() == 2


async def test_what_another_run_did_in_the_conversation_between_two_equal_items_is_asked_about(journal, effects):
    async def other(**options):
        return await run_durable(
            run_id="other",
            journal=journal,
            model=ScriptedModel([[("ping", {"host": "h"})], "done"]),
            tools=[pinging(effects)],
            prompt="go",
            thread_id="t",
            limits=RunLimits(side_effect_duplicates=Duplicates(action="warn", scope="thread")),
            **options,
        )

    # The second item is let in when the first is done, and another run has done the same in between.
    held = {"open": False}

    def guard(call):
        return Allow() if held["open"] or call.run_id.endswith("k1") else RequireApproval("later")

    batch = conversation(journal, effects, "k1", "k2", guard=guard)
    assert outcomes(await go(batch, "a", SAME)) == ["done", "suspended"]
    await other()
    held["open"] = True
    await decide(journal, "batch:a:k2/s0p0/guard/0", True)
    (asked,) = (await go(batch, "a", SAME)).interrupts
    assert asked.prior["run_id"] == "other"
    assert effects.count() == 2


@pytest.mark.parametrize("kind", ["person", "conversation"])
async def test_an_item_that_repeats_another_batchs_hides_that_from_no_twin_of_its_own(journal, effects, kind):
    def guard(call):
        return RequireApproval("later") if call.run_id.startswith("batch:b:") else Allow()

    def batch(*names):
        if kind == "person":
            return batch_of(journal, effects, guard=guard)
        return conversation(journal, effects, *(names or ("k1", "k2")), guard=guard)

    items = TWINS if kind == "person" else SAME
    assert outcomes(await go(batch(), "b", items)) == ["suspended", "suspended"]
    await go(batch("k1"), "a", items[:1])
    await decide(journal, "batch:b:k1/s0p0/guard/0", True)
    (one, _) = (await go(batch(), "b", items)).interrupts
    assert one.prior["run_id"] == "batch:a:k1"
    await decide(journal, one.question, True)
    assert outcomes(await go(batch(), "b", items)) == ["done", "suspended"]
    await decide(journal, "batch:b:k2/s0p0/guard/0", True)
    (asked,) = (await go(batch(), "b", items)).interrupts
    assert (asked.kind, asked.prior["run_id"]) == ("duplicate", "batch:b:k1")
    assert effects.count() == 2


async def test_one_who_fails_leaves_the_items_mark_where_it_was(journal, effects):
    await go(conversation(journal, effects, "k1"), "a", SAME[:1])

    @tool(name="ping", side_effect=True)
    def failing(host: str) -> None:
        raise NotPerformedError("no route")

    await run_durable(
        run_id="other",
        journal=journal,
        model=ScriptedModel([[("ping", {"host": "h"})], "done"]),
        tools=[failing],
        prompt="go",
        thread_id="t",
        limits=RunLimits(side_effect_duplicates=Duplicates(action="warn", scope="thread")),
    )
    report = await go(conversation(journal, effects, "k1"), "b", SAME[:1])
    assert report.interrupts[0].prior["run_id"] == "batch:a:k1"


# Erased items --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("erase", ["run", "batch", "sweep"])
async def test_what_an_erased_item_did_is_earlier_work_to_it_and_to_its_twins(journal, rows, effects, erase):
    batch = batch_of(journal, effects)
    await go(batch, "a", TWINS[:1] if erase == "batch" else TWINS)
    if erase == "run":
        await purge_run(journal, "batch:a:k1")
    elif erase == "batch":
        await purge_batch(journal, "a")
    else:
        await _passed(journal)
        await sweep_runs(journal, older_than_ms=1)
    await rows.delete(keys.batch_report("a"))  # which would know what was done
    before = effects.count()
    plan = await batch.preflight("a", TWINS)
    asked = {"run": ["k1"], "batch": ["k1", "k2"], "sweep": ["k1", "k2"]}[erase]
    assert [item.key for item in plan.xid_hits] == asked
    report = await batch.run("a", TWINS, plan_token=plan.token)
    assert [item.key for item in report.items if item.outcome == "suspended"] == asked
    assert effects.count() == before
    # The run that has the id today was asked about; what stands under the person's name is older than it.
    again = await batch.run("a", TWINS, plan_token=plan.token)
    assert [item.key for item in again.items if item.outcome == "suspended"] == asked
    assert effects.count() == before


async def test_an_item_whose_run_was_deleted_is_known_by_the_report_of_its_batch(journal, effects):
    batch = create_batch(journal=journal, tool=pinging(effects), item_key="host")
    items = [{"host": "h"}, {"host": "i"}]
    await go(batch, "a", items)
    await purge_run(journal, "batch:a:h")
    plan = await batch.preflight("a", items)
    assert ([item.key for item in plan.already_done], plan.fresh) == (["h", "i"], ())
    again = await batch.run("a", items, plan_token=plan.token)
    assert [(item.outcome, item.code) for item in again.items] == [("not-run", "run_swept"), ("replayed", "")]
    assert effects.count() == 2
    await purge_batch(journal, "a")
    assert outcomes(await go(batch, "a", items)) == ["done", "done"]


async def test_an_item_that_left_a_tombstone_is_not_run_again(journal, effects):
    batch = create_batch(journal=journal, tool=pinging(effects), item_key="host")
    await go(batch, "a", SAME[:1])
    await _passed(journal)
    assert (await sweep_runs(journal, older_than_ms=1, tombstones=True)).tombstones == 1
    plan = await batch.preflight("a", SAME[:1])
    assert ([item.key for item in plan.already_done], plan.fresh) == (["h"], ())
    (item,) = (await batch.run("a", SAME[:1], plan_token=plan.token)).items
    assert (item.outcome, item.code) == ("not-run", "run_swept")
    assert effects.count() == 1


async def _passed(journal):
    began = await journal.now()
    while await journal.now() < began + 3:
        pass


async def test_a_marker_of_an_erased_item_is_earlier_work_to_its_twin(journal, effects):
    batch = conversation(journal, effects, "k1", "k2")
    await go(conversation(journal, effects, "k1"), "a", SAME[:1])
    await purge_batch(journal, "a")
    assert outcomes(await go(batch, "a", SAME)) == ["suspended", "suspended"]
    await decide(journal, "batch:a:k1/s0p0/duplicate/0", True)
    assert outcomes(await go(batch, "a", SAME)) == ["done", "suspended"], "the marker is still the erased one's"
    assert effects.count() == 2


async def test_an_old_record_that_counts_no_more_is_nobodys_repeat(journal, effects):
    limits = RunLimits(side_effect_duplicates=Duplicates(action="suspend", ttl_ms=1))
    await chat(journal, effects)
    await _passed(journal)
    assert outcomes(await go(batch_of(journal, effects, limits=limits), "a", TWINS)) == ["done", "done"]


# Doors ---------------------------------------------------------------------------------------------------------------


async def test_l73_an_items_run_is_no_agents(journal, effects, rows):
    await go(batch_of(journal, effects), "a", TWINS)
    before = await rows.values()
    model = ScriptedModel([])
    given = {"run_id": "batch:a:k1", "journal": journal, "model": model}
    gnl = Gnl(journal, agents={"helper": {"model": model}})
    for door in (
        lambda: run_durable(**given, prompt="go"),
        lambda: resume_run(**given),
        lambda: stream_durable(**given, prompt="go"),
        lambda: gnl.run("helper", run_id="batch:a:k1", prompt="go"),
        lambda: gnl.resume("helper", run_id="batch:a:k1"),
        lambda: gnl.stream("helper", run_id="batch:a:k1", prompt="go"),
    ):
        with pytest.raises(NotAnAgentRunError) as refused:
            await door()
        assert (refused.value.code, refused.value.http_status) == ("not_an_agent_run", 409)
    with pytest.raises(NotAnAgentRunError):
        async with durable_context(run_id="batch:a:k1", journal=journal):
            raise AssertionError("it was let in")
    assert await rows.values() == before
    assert (await journal.get_many([keys.input_of("batch:a:k1")])).entries[0].value["kind"] == "item"


async def test_gnl_makes_batches_under_its_preset_and_its_options(journal, effects):
    await chat(journal, effects)
    events = []
    gnl = Gnl(
        journal,
        agents={"helper": {"model": ScriptedModel([])}},
        preset="headless",
        on_event=lambda event: events.append(event.kind),
        limits=RunLimits(max_tool_calls=3),
    )
    options = {"tool": creating(effects), "item_key": "key", "resource_id": "ann"}
    assert (await go(gnl.create_batch(**options), "a", TWINS[:1])).of("k1").code == "duplicate_side_effect"
    asks = gnl.create_batch(**options, limits=RunLimits(side_effect_duplicates="suspend"))
    assert outcomes(await go(asks, "b", TWINS[:1])) == ["suspended"]
    skips = gnl.create_batch(**options, on_duplicate="skip")
    assert outcomes(await go(skips, "c", TWINS[:1])) == ["skipped"]
    none = gnl.create_batch(**options, limits=RunLimits(max_tool_calls=0))
    other = await go(none, "d", [{"key": "k1", "sku": "new"}])
    assert other.of("k1").code == "run_limit_exceeded"
    assert "tool-finished" in events
    assert effects.count() == 1
