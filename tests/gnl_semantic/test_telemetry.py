"""What is counted of live questions, over journals that the engine itself wrote."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
import pytest_asyncio

from gnl_core import (
    Approval,
    ConfigError,
    Duplicates,
    InMemoryStorage,
    RequireApproval,
    RunLimits,
    SemanticIdentity,
    SqliteStorage,
    args_hash,
    decide,
    read_incidents,
    run_durable,
    tool,
)
from gnl_core.journal import scan_all
from gnl_core.prior import Found, Notice, Prior
from gnl_core.testing.scripted import ScriptedModel
from gnl_semantic import read_telemetry
from gnl_semantic.telemetry import asked_questions

IDENTITY = SemanticIdentity(keys=("sku", "warehouse"), amount_fields=("price",))


@tool(semantic_identity=IDENTITY)
def order(sku: str, warehouse: str = "", price: float = 0.0, note: str = "") -> str:
    """Order something."""
    return "ordered"


@tool(confirm=True, semantic_identity=SemanticIdentity(keys=("invoice",)))
def pay(invoice: str, note: str = "") -> str:
    """Pay an invoice."""
    return "paid"


@tool(confirm=True, idempotency="args", window="thread", semantic_identity=SemanticIdentity(keys=("invoice",)))
def refund(invoice: str, note: str = "") -> str:
    """Refund an invoice, once a conversation."""
    return "refunded"


@tool(semantic_identity=SemanticIdentity(keys=("tags",)))
def label(tags: list[str]) -> str:
    """Declare a key that cannot identify anything."""
    return "labelled"


TOOLS = [order, pay, refund, label]


class Finder:
    """A finder that finds what it was told to, by the canonical sentence of the call."""

    def __init__(self, found=None, settings=None):
        self.found = found or {}
        self.settings = settings or {"embed_model_id": "e", "rules": {"disable": []}, "judge": None}

    def check(self):
        return ()

    def freeze(self):
        return self.settings

    async def find(self, subject, *, judge):
        return self.found.get(subject.identity.sentence, Found(counts={"guarded": 1}))

    async def remember(self, subject):
        return ()


def prior(origin, sentence, present, *, keys=("sku", "warehouse"), **members):
    return Prior(
        origin=origin,
        run_id="first",
        tool_call_id="s0p0",
        at=1,
        sentence=sentence,
        present=present,
        score=0.9,
        prior_hash="p" * 16,
        identity_keys=keys,
        **members,
    )


class Desk:
    """Drives runs over one journal and answers their questions."""

    def __init__(self, journal):
        self.journal = journal
        self.number = 0

    async def run(self, name, args, answer=None, *, found=None, settings=None, thread="t", person=None, **said):
        """Drive one run of one call; answer its question, if `answer` says how, and drive it on."""
        self.number += 1
        run_id = said.pop("run_id", f"r{self.number}")
        finder = Finder(found, settings)
        limits = RunLimits(side_effect_duplicates=Duplicates(action="suspend", scope="thread", semantic=finder))
        if said.pop("plain", False):
            limits = RunLimits()

        async def drive():
            return await run_durable(
                run_id=run_id,
                journal=self.journal,
                model=ScriptedModel([[(name, args)], "done"]),
                tools=TOOLS,
                prompt="go",
                thread_id=thread,
                resource_id=person,
                limits=limits,
            )

        result = await drive()
        if answer is not None:
            (question,) = result.interrupts
            await decide(self.journal, question.question, answer, **said)
            result = await drive()
        return result


@pytest.fixture
def place():
    """A folder in memory where there is one: journals are synced at every write."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def journal(request, place):
    async with InMemoryStorage() if request.param == "memory" else SqliteStorage(place / "journal.sqlite") as storage:
        yield storage.runs


@pytest.fixture
def desk(journal):
    return Desk(journal)


def similar(origin, present, **members):
    """A finder's answer for the call with this sentence."""
    found = Found(prior=prior(origin, "order: tv-42 izmir", present, **members), counts={"guarded": 1, "embedded": 1})
    return {present: found}


async def test_line_70_no_decision_no_rate(journal, desk):
    await desk.run("order", {"sku": "x"}, found=similar("rule", "order: x"))
    told = await read_telemetry(journal)
    assert (told.suspend, told.warn) == (1, 0)
    assert told.decisions.pending == 1
    assert told.decisions.precision.value is None
    assert told.to_json()["precision"]["rate"] == {"k": 0, "n": 0, "value": None, "low": 0.0, "high": 1.0}


async def test_line_70_one_yes_and_one_no_make_a_half(journal, desk):
    await desk.run("order", {"sku": "x"}, True, found=similar("identity", "order: x"))
    await desk.run("order", {"sku": "y"}, False, found=similar("identity", "order: y"))
    told = await read_telemetry(journal)
    assert (told.decisions.approved, told.decisions.denied, told.decisions.pending) == (1, 1, 0)
    rate = told.decisions.precision
    assert (rate.k, rate.n, rate.value) == (1, 2, 0.5)
    assert 0.09 < rate.low < 0.1
    assert 0.9 < rate.high < 0.91


async def test_each_rung_is_told_apart_and_a_channel_counts_as_identity(journal, desk):
    await desk.run("order", {"sku": "lamp", "note": "1"}, person="ayse", thread="a")
    await desk.run("order", {"sku": "LAMP", "note": "2"}, True, person="ayse", thread="b", relation="deliberate_repeat")
    await desk.run("order", {"sku": "x"}, False, found=similar("identity", "order: x"))
    await desk.run("order", {"sku": "y"}, True, found=similar("rule", "order: y"), relation="different_work")
    await desk.run("order", {"sku": "z"}, True, found=similar("judge", "order: z", judge={"model": "m"}))
    told = await read_telemetry(journal)
    assert told.to_json()["by_origin"] == {"identity": 2, "rule": 1, "judge": 1, "channel": 1}
    assert told.by_origin["identity"].denied == 1
    assert told.by_origin["identity"].deliberate_repeat == told.channel.deliberate_repeat == 1
    assert told.by_origin["rule"].different_work == 1
    assert told.by_origin["judge"].unsaid == 1
    assert told.judge.same == 1
    assert (told.decisions.approved, told.decisions.unsaid) == (3, 1)


async def test_equal_arguments_are_counted_apart_and_never_enter_precision(journal, desk):
    await desk.run("order", {"sku": "x"})
    await desk.run("order", {"sku": "x"}, False)
    told = await read_telemetry(journal)
    assert told.exact.by_action == {"suspend": 1}
    assert told.exact.decisions.denied == 1
    assert (told.suspend, told.warn, told.decisions.asked) == (0, 0, 0)
    assert told.recent == ()
    assert told.declarations == ()
    assert told.series == ()


async def test_trap_17_a_decorated_confirm_question_counts_and_says_who_asked(journal, desk):
    found = {"pay: inv 2": Found(prior=prior("identity", "pay: inv-2", "pay: inv 2", keys=("invoice",)))}
    await desk.run("pay", {"invoice": "inv 2"}, False, found=found)
    await desk.run("order", {"sku": "x"}, True, found=similar("rule", "order: x"))
    told = await read_telemetry(journal)
    assert told.by_asker["confirm"].denied == 1
    assert told.by_asker["gate"].approved == 1
    assert told.decisions.decided == 2


async def test_a_guard_s_question_that_shows_earlier_work_is_told_apart_too(journal):
    def drive(run_id, note, **options):
        return run_durable(
            run_id=run_id,
            journal=journal,
            model=ScriptedModel([[("order", {"sku": "lamp", "note": note})], "done"]),
            tools=TOOLS,
            prompt="go",
            thread_id=run_id,
            resource_id="ayse",
            **options,
        )

    await drive("r1", "a")
    (question,) = (await drive("r2", "b", guard=lambda call: RequireApproval("careful"))).interrupts
    await decide(journal, question.question, True)
    told = await read_telemetry(journal)
    assert told.by_asker["guard"].approved == 1
    assert told.recent[0].question == question.question


async def test_line_70_an_ordinary_confirm_question_is_no_event(journal, desk):
    await desk.run("pay", {"invoice": "inv 1"}, True)
    told = await read_telemetry(journal)
    assert (told.suspend, told.warn, told.exact.by_action) == (0, 0, {})
    assert told.configured


async def test_trap_24_a_call_that_is_keyed_by_its_arguments_is_found_by_its_question(journal, desk):
    await desk.run("refund", {"invoice": "inv 1", "note": "a"}, True, person="ayse", thread="a")
    await desk.run("refund", {"invoice": "INV 1", "note": "b"}, True, person="ayse", thread="b")
    await desk.run("refund", {"invoice": "iNV 1", "note": "c"}, False, person="ayse", thread="c")
    records = [entry.key async for entry in scan_all(journal, ("xthr", "b", "args"))]
    assert records, "the record lives outside of its run"
    told = await read_telemetry(journal)
    assert (told.channel.approved, told.channel.denied, told.channel.pending) == (1, 1, 0)
    assert told.by_asker["confirm"].decided == 2
    assert told.recent[1].question == "r2/s0p0/confirm/0"


async def test_an_answer_that_came_before_its_question_is_none_to_a_question(journal, desk):
    await desk.run("order", {"sku": "lamp", "note": "1"}, person="ayse", thread="a")
    result = await run_durable(
        run_id="early",
        journal=journal,
        model=ScriptedModel([[("order", {"sku": "LAMP", "note": "2"})], "done"]),
        tools=TOOLS,
        prompt="go",
        thread_id="b",
        resource_id="ayse",
        approvals={"s0p0": _yes({"sku": "LAMP", "note": "2"})},
    )
    assert result.text == "done"
    told = await read_telemetry(journal)
    assert (told.channel.asked, told.decisions.precision.n, told.recent) == (0, 0, ()), "nobody was shown anything"
    (noted,) = await read_incidents(journal, "early")
    assert (noted.source, noted.action, told.unreadable) == ("semantic-guard", "answered-ahead", 0)


def _yes(args):
    return Approval(approved=True, args_digest=args_hash(args))


async def test_line_70_declarations_are_ranked_by_the_questions_that_were_approved(journal, desk):
    for number in range(3):
        await desk.run("order", {"sku": f"a{number}"}, True, found=similar("rule", f"order: a{number}", keys=("sku",)))
    for number in range(4):
        await desk.run("order", {"sku": f"b{number}"}, False, found=similar("rule", f"order: b{number}"))
    await desk.run("order", {"sku": "c"}, True, found=similar("rule", "order: c", keys=()))
    rows = (await read_telemetry(journal)).declarations
    told = [(row.tool, row.keys, row.decisions.asked, row.decisions.approved, row.decisions.denied) for row in rows]
    assert told == [("order", ("sku",), 3, 3, 0), ("order", ("sku", "warehouse"), 4, 0, 4)]


async def test_trap_18_a_record_without_keys_is_left_out_and_never_shown_as_none(journal, desk):
    await desk.run("order", {"sku": "c"}, True, found=similar("rule", "order: c", keys=()))
    told = await read_telemetry(journal)
    assert told.decisions.approved == 1
    assert told.to_json()["by_declaration"] == []


def scanned(**detail):
    facts = {"tool": "order", "dropped_identity": 0, "gray_calls": 0, **detail}
    return Notice(source="semantic-guard", message="m", detail=facts)


async def test_trap_5_gray_is_counted_by_call_and_dropped_by_candidate(journal, desk):
    found = {
        "order: x": Found(notices=(scanned(dropped_identity=3, gray_calls=1, dropped_by_rule=2),)),
        "order: y": Found(notices=(scanned(dropped_identity=1, gray_calls=1, dropped_stamp=4),)),
        "order: z": Found(notices=(scanned(dropped_discriminator=5),)),
    }
    for sku in "xyz":
        await desk.run("order", {"sku": sku}, found=found)
    told = await read_telemetry(journal)
    assert told.scan.to_json() == {
        "calls": 3,
        "dropped_identity": 4,
        "dropped_by_rule": 2,
        "dropped_discriminator": 5,
        "dropped_stamp": 4,
        "gray_calls": 2,
    }
    assert (told.suspend, told.warn) == (0, 3)
    assert [(row.tool, row.suspend, row.warn) for row in told.tools] == [("order", 0, 3)]


def judged(outcome, **detail):
    facts = {"tool": "order", "outcome": outcome, "args_hash": "a", "prior_hash": "b", "cached": False, **detail}
    return (scanned(dropped_identity=1, gray_calls=1), Notice(source="semantic-judge", message="m", detail=facts))


async def test_the_judge_is_told_by_outcome_and_timed_by_call(journal, desk):
    outcomes = {
        "a": judged("different", latency_ms=10),
        "b": judged("different", latency_ms=0, cached=True),
        "c": judged("unsure", latency_ms=30),
        "d": judged("skipped:timeout", latency_ms=8_000),
        "e": judged("skipped:budget", latency_ms=0),
        "f": judged("skipped:canonical-too-long"),
    }
    for sku, notices in outcomes.items():
        await desk.run("order", {"sku": sku}, found={f"order: {sku}": Found(notices=notices)})
    evidence = {"model": "m", "cached": False, "latency_ms": 20}
    await desk.run("order", {"sku": "g"}, False, found=similar("judge", "order: g", judge=evidence))
    judge = (await read_telemetry(journal)).judge
    assert (judge.same, judge.different, judge.unsure, judge.cached) == (1, 2, 1, 1)
    assert judge.skipped == {"budget": 1, "canonical-too-long": 1, "timeout": 1}
    assert (judge.latency_p50, judge.latency_p95, judge.timed) == (20, 8_000, 4), "neither cached nor never sent"


async def test_trap_16_a_stale_verdict_that_was_replaced_is_counted_asked_or_not(journal, desk):
    quiet = {"order: a": Found(notices=judged("different", latency_ms=1, stale_replaced=True))}
    await desk.run("order", {"sku": "a"}, found=quiet)
    asked = Found(prior=prior("judge", "x", "order: b", judge={"model": "m"}), detail={"stale_replaced": True})
    await desk.run("order", {"sku": "b"}, found={"order: b": asked})
    assert (await read_telemetry(journal)).judge.stale_replaced == 2


async def test_trouble_is_told_with_its_times(journal, desk):
    await desk.run("label", {"tags": ["a"]})
    found = {
        "order: x": Found(notices=(scanned(embedder_outage=True),)),
        "order: y": Found(notices=(scanned(no_scan=True),)),
    }
    for sku in "xy":
        await desk.run("order", {"sku": sku}, found=found)
    trouble = (await read_telemetry(journal)).trouble
    assert trouble.unusable == {"label: list": 1}
    assert (trouble.embedder_outages, trouble.no_scan) == (1, 1)
    assert [(tool, what) for _, tool, what in trouble.recent] == [
        ("order", "no-scan"),
        ("order", "embedder-outage"),
        ("label", "identity-unusable"),
    ]


async def test_the_runs_counters_are_added_up(journal, desk):
    counts = {"guarded": 1, "embedded": 1, "embed_ms": 7, "gray": 1, "judged": 1, "judge_ms": 90}
    await desk.run("order", {"sku": "x"}, found={"order: x": Found(counts=counts)})
    await desk.run("order", {"sku": "y"}, found={"order: y": Found(counts={"guarded": 1, "embed_hits": 1})})
    await desk.run("order", {"sku": "z"}, plain=True)
    runs = (await read_telemetry(journal)).runs
    assert (runs.runs, runs.with_gate) == (3, 2)
    assert {name: runs.count(name) for name in ("guarded", "embedded", "embed_hits", "judged", "judge_ms")} == {
        "guarded": 2,
        "embedded": 1,
        "embed_hits": 1,
        "judged": 1,
        "judge_ms": 90,
    }
    assert (runs.share("judged").k, runs.share("judged").n) == (1, 2)


async def test_the_newest_run_s_settings_are_in_force_and_others_are_listed(journal, desk):
    old, new = {"embed_model_id": "e1", "rules": None, "judge": None}, {"embed_model_id": "e2", "rules": {}}
    for number, settings in enumerate((old, old, new)):
        await desk.run("order", {"sku": f"x{number}"}, settings=settings)
        await asyncio.sleep(0.002)  # the store's clock has whole milliseconds
    told = await read_telemetry(journal)
    assert [(one.settings["embed_model_id"], one.runs) for one in told.runs.settings] == [("e2", 1), ("e1", 2)]
    assert told.in_force.rules
    assert not told.in_force.judge


async def test_a_journal_without_a_gate_says_so(journal, desk):
    await desk.run("order", {"sku": "x"}, plain=True)
    told = await read_telemetry(journal)
    assert not told.configured
    assert told.in_force is None
    assert told.to_json()["runs"]["runs"] == 1


async def test_recent_shows_what_a_person_saw(journal, desk):
    for number in range(3):
        await desk.run("order", {"sku": f"x{number}"}, False, found=similar("rule", f"order: x{number}"))
    told = await read_telemetry(journal, recent=2)
    assert [one.present for one in told.recent] == ["order: x2", "order: x1"]
    newest = told.recent[0]
    assert (newest.sentence, newest.kind, newest.origin) == ("order: tv-42 izmir", "semantic", "rule")
    assert (newest.decision, newest.asked_by, newest.identity_keys) == ("denied", "gate", ("sku", "warehouse"))
    age = newest.to_json(told.now)["age_ms"]
    assert age == told.now - newest.at
    assert 0 <= age < 60_000


async def test_since_reads_only_what_it_must(journal, desk):
    await desk.run("order", {"sku": "old"}, False, found=similar("rule", "order: old"))
    await asyncio.sleep(0.002)
    middle = await journal.now()
    await asyncio.sleep(0.002)
    await desk.run("order", {"sku": "new"}, True, found=similar("rule", "order: new"))
    told = await read_telemetry(journal, since=middle)
    assert (told.decisions.approved, told.decisions.denied) == (1, 0)
    assert told.runs.runs == 1
    assert (await read_telemetry(journal, since=told.recent[0].at)).suspend == 1, "the moment itself is within"
    assert (await read_telemetry(journal, since=told.recent[0].at + 1)).suspend == 0
    assert [one.present async for one in asked_questions(journal, since=middle)] == ["order: new"]


@pytest.mark.parametrize(
    "options", [{"since": -1}, {"since": 1.5}, {"since": 10**13}, {"recent": -1}, {"recent": 1001}]
)
async def test_what_cannot_be_read_is_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        await read_telemetry(InMemoryStorage().runs, **options)


async def test_a_tenant_sees_its_own_questions_alone(journal):
    ours, theirs = Desk(journal.scoped("a")), Desk(journal.scoped("b"))
    await ours.run("order", {"sku": "x"}, True, found=similar("rule", "order: x"))
    for number in range(2):
        await theirs.run("order", {"sku": f"x{number}"}, False, found=similar("rule", f"order: x{number}"))
    told = await read_telemetry(journal.scoped("a"))
    assert (told.org, told.decisions.approved, told.decisions.denied, told.runs.runs) == ("a", 1, 0, 1)
    assert (await read_telemetry(journal)).suspend == 0
