"""One person's job that comes in again through another channel: found by its declared identity, in one read."""

import asyncio
import dataclasses
import time
from datetime import datetime
from typing import Any

import pytest

from gnl_core import (
    Context,
    Duplicates,
    DuplicateSideEffectError,
    InMemoryStorage,
    RunLimits,
    SemanticIdentity,
    agent_tool,
    decide,
    keys,
    read_incidents,
    run_durable,
    tool,
)
from gnl_core.journal import scan_all
from gnl_core.testing.scripted import ScriptedModel

BY_SKU = SemanticIdentity(keys=("sku",), amount_fields=("price",))


def creating(effects, identity=BY_SKU, **options):
    @tool(semantic_identity=identity, **options)
    def create(ctx: Context, sku: str, price: float = 1.0, note: str = "") -> str:
        effects.fire("create", ctx)
        return f"created {sku}"

    return create


def make(sku, **others):
    return [("create", {"sku": sku, **others})]


async def drive(journal, tools, *calls, run_id, resource_id="ann", action=None, **options):
    limits = action if isinstance(action, RunLimits) else RunLimits(side_effect_duplicates=action)
    return await run_durable(
        run_id=run_id,
        journal=journal,
        model=ScriptedModel([*calls, "done"]),
        tools=tools,
        prompt="go",
        resource_id=resource_id,
        limits=limits,
        **options,
    )


async def persons(journal):
    return [entry async for entry in scan_all(journal, ("xid",))]


# Found ---------------------------------------------------------------------------------------------------------------


async def test_l49_the_question_names_the_age_and_the_other_channel(effects):
    seconds = [1_000_000.0]
    async with InMemoryStorage(clock=lambda: seconds[0]) as storage:
        create = creating(effects)
        await drive(storage.runs, [create], make("LAMBA-1"), run_id="a", channel="chat")
        seconds[0] += 5 * 60
        result = await drive(storage.runs, [create], make(" lamba-1 ", note="x"), run_id="b", channel="batch")
        (question,) = result.interrupts
        assert (question.question, effects.count()) == ("b/s0p0/duplicate/0", 1)
        assert "5 min ago, via chat" in question.reason
        assert "(sku)" in question.reason
        assert question.prior == {
            "origin": "channel",
            "run_id": "a",
            "tool_call_id": "s0p0",
            "at": 1_000_000_000,
            "channel": "chat",
            "sentence": "create: lamba-1",
            "present": "create: lamba-1",
            "identity_keys": ["sku"],
        }
        (incident,) = await read_incidents(storage.runs, "b")
        assert (incident.source, incident.action) == ("semantic-guard", "suspend")
        assert incident.detail["origin"] == "channel"
        assert "lamba" not in str(incident.to_json()).lower(), "names of fields and figures, nothing that was said"
        await decide(storage.runs, question.question, True)
        result = await drive(storage.runs, [create], make(" lamba-1 ", note="x"), run_id="b")
        assert (result.text, effects.count()) == ("done", 2)


@pytest.mark.parametrize(("turkish", "plain"), [("\u0130NV-1", "inv-1"), ("INV-1", "\u0131nv-1")])
async def test_turkish_letters_do_not_make_two_jobs_of_one(journal, effects, turkish, plain):
    await drive(journal, [creating(effects)], make(turkish), run_id="a")
    assert len((await drive(journal, [creating(effects)], make(plain), run_id="b")).interrupts) == 1


async def test_without_a_channel_none_is_told(journal, effects):
    await drive(journal, [creating(effects)], make("x"), run_id="a")
    (question,) = (await drive(journal, [creating(effects)], make("X"), run_id="b")).interrupts
    assert "via" not in question.reason
    assert "None" not in question.reason
    assert "channel" not in question.prior


async def test_l71_a_sound_key_is_blocked_and_the_other_run_named(journal, effects):
    await drive(journal, [creating(effects)], make("x"), run_id="a", channel="chat")
    with pytest.raises(DuplicateSideEffectError) as blocked:
        await drive(journal, [creating(effects)], make("X"), run_id="b", action="block")
    assert blocked.value.detail["first_run"] == "a"
    (incident,) = await read_incidents(journal, "b")
    assert (incident.action, incident.detail["origin"], incident.detail["identity_keys"]) == (
        "block",
        "channel",
        ["sku"],
    )
    assert effects.count() == 1


@pytest.mark.parametrize(
    ("action", "status", "count"), [("skip", "denied", 1), ("reflect", "reflected", 1), ("warn", "succeeded", 2)]
)
async def test_the_ladder_rules_on_it_like_on_equal_arguments(journal, effects, action, status, count):
    await drive(journal, [creating(effects)], make("x"), run_id="a")
    result = await drive(journal, [creating(effects)], make("X"), run_id="b", action=action)
    assert (result.steps[0].calls[0].status, effects.count()) == (status, count)


async def test_the_first_stays_first(journal, effects):
    for run_id in ("a", "b", "c"):
        await drive(journal, [creating(effects)], make("x"), run_id=run_id, action="warn")
    assert [one.detail["first_run"] for one in await read_incidents(journal)] == ["a", "a"]
    (row,) = await persons(journal)
    assert (row.value["run"], row.value["root"]) == ("a", "a")


async def test_what_is_older_than_the_ttl_counts_no_more_and_the_next_one_does(effects):
    seconds = [1_000_000.0]
    rule = Duplicates(ttl_ms=60_000)
    async with InMemoryStorage(clock=lambda: seconds[0]) as storage:
        await drive(storage.runs, [creating(effects)], make("x"), run_id="a", action=rule)
        seconds[0] += 61
        assert (await drive(storage.runs, [creating(effects)], make("x"), run_id="b", action=rule)).text == "done"
        seconds[0] += 30
        (question,) = (await drive(storage.runs, [creating(effects)], make("x"), run_id="c", action=rule)).interrupts
        assert question.prior["run_id"] == "b"


@pytest.mark.parametrize(
    ("prices", "differ"),
    [((1.5, 2.5), True), ((1, 1.0), False), ((1.50, 1.5), False)],
)
async def test_amounts_that_differ_are_told_by_the_names_of_their_fields(journal, effects, prices, differ):
    await drive(journal, [creating(effects)], make("x", price=prices[0]), run_id="a")
    (question,) = (await drive(journal, [creating(effects)], make("X", price=prices[1]), run_id="b")).interrupts
    assert ("The amounts differ (price)" in question.reason) is differ
    assert question.prior.get("amounts_differ") == (["price"] if differ else None)


async def test_a_tool_that_confirms_or_names_its_work_by_a_key_leaves_the_record_too(journal, effects):
    keyed = creating(effects, idempotency="args")
    await drive(journal, [keyed], make("x"), run_id="a")
    assert (await drive(journal, [keyed], make("X"), run_id="b")).text == "done", "the key settles its repeats"
    (row,) = await persons(journal)
    assert row.value["run"] == "a"


# Not found -----------------------------------------------------------------------------------------------------------


async def test_l49_the_own_request_is_ignored(journal, effects):
    create = creating(effects)
    helper = agent_tool(name="helper", description="d", model=ScriptedModel([make("X"), "ok"]), tools=[create])
    result = await drive(
        journal, [create, helper], make("x"), make(" X "), [("helper", {"task": "create"})], run_id="a"
    )
    assert (result.text, effects.count()) == ("done", 3)


async def test_a_run_whose_rows_are_deleted_and_that_is_begun_anew_is_another(journal, effects):
    await drive(journal, [creating(effects)], make("x"), run_id="a")
    await journal.delete_prefix(keys.request("a"))
    (question,) = (await drive(journal, [creating(effects)], make("X"), run_id="a")).interrupts
    assert (question.prior["origin"], effects.count()) == ("channel", 1)


async def test_two_persons_do_not_meet(journal, effects):
    await drive(journal, [creating(effects)], make("x"), run_id="a")
    assert (await drive(journal, [creating(effects)], make("x"), run_id="b", resource_id="bob")).text == "done"
    assert effects.count() == 2


@pytest.mark.parametrize("action", ["suspend", "block", "skip"])
async def test_work_whose_discriminators_differ_does_not_meet(journal, effects, action):
    identity = SemanticIdentity(keys=("sku",), discriminator_fields=("note",))
    tools = [creating(effects, identity)]
    for number, note in enumerate(("pay", "refund")):
        done = await drive(journal, tools, make("x", note=note), run_id=f"run-{number}", action=action)
        assert (done.text, effects.count()) == ("done", number + 1)
    (question,) = (await drive(journal, tools, make("X", note="refund"), run_id="again")).interrupts
    assert question.prior["run_id"] == "run-1"


async def test_two_organisations_do_not_meet(journal, effects):
    for scope in (journal, journal.scoped("one"), journal.scoped("two")):
        assert (await drive(scope, [creating(effects)], make("x"), run_id="a", action="block")).text == "done"
    assert effects.count() == 3


async def test_two_tools_do_not_meet(journal, effects):
    @tool(name="create-again", semantic_identity=BY_SKU)
    def other(sku: str, price: float = 1.0) -> str:
        return "ok"

    await drive(journal, [creating(effects)], make("x"), run_id="a")
    assert (await drive(journal, [other], [("create-again", {"sku": "x"})], run_id="b")).text == "done"


async def test_without_a_person_there_is_no_row(journal, effects):
    for run_id in ("a", "b"):
        result = await drive(journal, [creating(effects)], make("x"), run_id=run_id, resource_id=None)
        assert result.text == "done"
    assert await persons(journal) == []


async def test_off_looks_at_nothing(journal, effects):
    for run_id in ("a", "b"):
        await drive(journal, [creating(effects)], make("x"), run_id=run_id, action="off")
    assert effects.count() == 2
    assert await read_incidents(journal) == []


async def test_a_failure_leaves_no_row(journal, effects):
    @tool(semantic_identity=SemanticIdentity(keys=("sku",)))
    def create(sku: str) -> str:
        raise RuntimeError("no")

    await drive(journal, [create], make("x"), run_id="a")
    assert await persons(journal) == []
    assert (await drive(journal, [creating(effects)], make("x"), run_id="b", action="block")).text == "done"


async def test_a_row_that_cannot_be_read_finds_nothing(journal, rows, effects):
    await drive(journal, [creating(effects)], make("x"), run_id="a")
    (row,) = await persons(journal)
    for value in ("text", 5, None, []):
        await rows.put(row.key, value)
        assert (await drive(journal, [creating(effects)], make("x"), run_id=f"b{value}")).text == "done"


# Dates ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def zone(monkeypatch):
    def set_to(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_to
    monkeypatch.undo()
    time.tzset()


async def test_l51_a_dates_identity_is_the_same_in_two_time_zones(journal, effects, zone):
    @tool(semantic_identity=SemanticIdentity(keys=("at",)))
    def book(ctx: Context, at: datetime) -> str:
        effects.fire("book", ctx)
        return "booked"

    zone("Europe/Istanbul")
    await drive(journal, [book], [("book", {"at": "2026-03-01T12:00:00+03:00"})], run_id="a")
    zone("America/New_York")
    result = await drive(journal, [book], [("book", {"at": "2026-03-01T09:00:00Z"})], run_id="b")
    assert (len(result.interrupts), effects.count()) == (1, 1)


# Declarations that cannot tell one job from another ------------------------------------------------------------------


UNUSABLE = [
    ("typo", ("skuu",), {"sku": "SECRET-9"}, "absent", ["skuu"]),
    ("prototype", ("__class__", "keys"), {"sku": "SECRET-9"}, "absent", ["__class__", "keys"]),
    ("empty", ("sku", "note"), {"sku": "  ", "note": ""}, "absent", ["sku", "note"]),
    ("null", ("what",), {"what": None}, "absent", ["what"]),
    ("list", ("what",), {"what": ["SECRET-9", 2]}, "list", ["what"]),
    ("object", ("what",), {"what": {"id": "SECRET-9"}}, "object", ["what"]),
    ("one-poisons", ("sku", "what"), {"sku": "SECRET-9", "what": {"id": 1}}, "object", ["what"]),
]


def doing(effects, names, **declared):
    async def do(ctx: Context, sku: str = "", note: str = "", what: Any = None) -> str:
        effects.fire("do", ctx)
        return "did"

    # A declaration that names no argument is refused with the tool; past that, it must do no harm.
    return dataclasses.replace(tool(do), semantic_identity=SemanticIdentity(keys=names, **declared))


@pytest.mark.parametrize("action", ["block", "skip", "suspend"])
@pytest.mark.parametrize(
    ("keys_", "args", "cause", "named"), [case[1:] for case in UNUSABLE], ids=[c[0] for c in UNUSABLE]
)
async def test_s85_l50_l71_an_unusable_identity_turns_the_layer_off_and_is_noted_by_field(
    journal, effects, keys_, args, cause, named, action
):
    do = doing(effects, keys_)
    for run_id in ("a", "b"):
        for _ in range(2):
            result = await drive(journal, [do], [("do", args)], run_id=run_id, action=action)
            assert result.text == "done"
        (incident,) = await read_incidents(journal, run_id)
        assert (incident.source, incident.action) == ("semantic-guard", "warn")
        assert incident.detail == {
            "tool": "do",
            "reason": "identity-unusable",
            "cause": cause,
            "identity_keys": named,
        }
        assert "SECRET" not in str(incident.to_json())
        assert all(name in incident.message for name in named)
    assert effects.count() == 2
    assert await persons(journal) == []


async def test_the_reason_for_a_list_is_its_own(journal, effects):
    await drive(journal, [doing(effects, ("what",))], [("do", {"what": [1, 2]})], run_id="a")
    (incident,) = await read_incidents(journal, "a")
    assert "flatten" in incident.message


async def test_one_absent_key_of_two_still_identifies(journal, effects):
    do = doing(effects, ("sku", "what"))
    await drive(journal, [do], [("do", {"sku": "x"})], run_id="a")
    (question,) = (await drive(journal, [do], [("do", {"sku": "X", "note": "n"})], run_id="b")).interrupts
    assert question.prior["identity_keys"] == ["sku", "what"]


@pytest.mark.parametrize("args", [{"what": "x"}, {"what": 7}, {"what": True}, {"what": 1.5}], ids=str)
async def test_scalars_identify(journal, effects, args):
    do = doing(effects, ("what",))
    await drive(journal, [do], [("do", args)], run_id="a")
    assert len((await drive(journal, [do], [("do", args)], run_id="b")).interrupts) == 1


async def test_an_unusable_identity_is_noted_also_where_describe_would_speak(journal, effects):
    do = doing(effects, ("skuu",), describe=lambda args: "a sentence")
    await drive(journal, [do], [("do", {"sku": "x"})], run_id="a")
    (incident,) = await read_incidents(journal, "a")
    assert incident.detail["reason"] == "identity-unusable"


# describe ------------------------------------------------------------------------------------------------------------


async def test_describe_that_raises_turns_the_layer_off_and_nothing_it_hides_is_shown(journal, rows, effects):
    def describe(args):
        raise KeyError("SECRET-9")

    do = doing(effects, ("sku",), describe=describe)
    for run_id in ("a", "b"):
        result = await drive(journal, [do], [("do", {"sku": "SECRET-9"})], run_id=run_id, action="block")
        assert result.text == "done"
        (incident,) = await read_incidents(journal, run_id)
        assert incident.detail == {
            "tool": "do",
            "reason": "identity-build-failed",
            "cause": "KeyError",
            "identity_keys": ["sku"],
        }
        assert "SECRET" not in str(incident.to_json())
    assert effects.count() == 2
    assert await persons(journal) == []


@pytest.mark.parametrize("value", [None, 5, b"x"], ids=str)
async def test_describe_that_returns_no_text_is_one_that_failed(journal, effects, value):
    do = doing(effects, ("sku",), describe=lambda args: value)
    await drive(journal, [do], [("do", {"sku": "x"})], run_id="a")
    (incident,) = await read_incidents(journal, "a")
    assert incident.detail["reason"] == "identity-build-failed"


async def test_only_the_described_sentence_is_kept_and_shown(journal, rows, effects):
    do = doing(effects, ("sku",), describe=lambda args: "an order of somebody")
    await drive(journal, [do], [("do", {"sku": "SECRET-9"})], run_id="a")
    (row,) = await persons(journal)
    assert row.value["sentence"] == "an order of somebody"
    assert "secret" not in str((row.key, row.value)).lower()
    (question,) = (await drive(journal, [do], [("do", {"sku": "SECRET-9"})], run_id="b")).interrupts
    assert "SECRET" not in question.reason


async def test_describe_is_asked_once_a_drive(journal, effects):
    asked = []

    def describe(args):
        asked.append(dict(args))
        return "a sentence"

    do = doing(effects, ("sku",), describe=describe)
    await drive(journal, [do], [("do", {"sku": "x"})], run_id="a")
    assert len(asked) == 1


# Together ------------------------------------------------------------------------------------------------------------


async def test_equal_arguments_come_before_equal_identity(journal, effects):
    rule = Duplicates(scope="thread")
    await drive(journal, [creating(effects)], make("x"), run_id="a", thread_id="t", action=rule)
    (question,) = (
        await drive(journal, [creating(effects)], make("x"), run_id="b", thread_id="t", action=rule)
    ).interrupts
    assert question.prior["origin"] == "exact"


async def test_many_at_once_leave_one_row(journal, effects):
    create = creating(effects)
    await asyncio.gather(*(drive(journal, [create], make("x"), run_id=f"r{n}", action="warn") for n in range(5)))
    assert (len(await persons(journal)), effects.count()) == (1, 5)


async def test_the_row_stands_under_the_persons_name(journal, effects):
    await drive(journal, [creating(effects)], make("x"), run_id="a", resource_id="ann/../bob", channel="chat")
    (row,) = await persons(journal)
    assert row.key[:3] == ("xid", "ann/../bob", "create")
    assert row.value == {
        "f": 1,
        "root": "a",
        "run": "a",
        "call": "s0p0",
        "channel": "chat",
        "sentence": "create: x",
        "amounts": {"price": "1"},
    }
    assert keys.decode(keys.encode(row.key)) == row.key
