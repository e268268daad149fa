"""What a finder of similar work may do to a call: put a question to a person, be noted, be remembered; nothing more."""

import asyncio

import pytest

from gnl_core import (
    Approval,
    Context,
    Deny,
    Duplicates,
    RunLimits,
    SemanticIdentity,
    args_hash,
    decide,
    keys,
    read_incidents,
    run_durable,
    tool,
)
from gnl_core.journal.port import Create, Put
from gnl_core.prior import Found, Notice, Prior
from gnl_core.testing.scripted import ScriptedModel

PRIOR = Prior(
    origin="rule",
    run_id="x",
    tool_call_id="s3p0",
    at=0,
    sentence="create: lamba 1",
    present="create: lamba-1",
    score=0.91,
    prior_hash="0123456789abcdef",
    identity_keys=("sku",),
    traces=({"rule": "digits", "class": "match", "field": "sku", "direction": "both"},),
)
FOUND = Found(prior=PRIOR, counts={"guarded": 1, "embedded": 2, "judged": 0})
ARGS = {"sku": "LAMBA-1"}
CALL = [("create", ARGS)]


class Looks:
    """A finder with one answer; it notes what it was asked."""

    def __init__(self, answer=FOUND):
        self.answer = answer
        self.subjects = []

    def check(self):
        return ()

    def freeze(self):
        return {"top_k": 3}

    async def find(self, subject, *, judge):
        self.subjects.append((subject, judge))
        return self.answer

    async def remember(self, subject):
        row = keys.similar(subject.scope, subject.tool, subject.args_hash)
        return (Create(row, {"f": 1, "sentence": subject.identity.sentence}, if_present="keep"),)


def creating(effects, *, fails=0, **options):
    options.setdefault("semantic_identity", SemanticIdentity(keys=("sku",)))

    @tool(**options)
    def create(ctx: Context, sku: str) -> str:
        effects.fire("create", ctx)
        if effects.fired <= fails:
            raise RuntimeError("no")
        return f"created {sku}"

    return create


async def drive(journal, tools, finder, *, turns=(CALL, "done"), run_id="r", **options):
    options.setdefault("thread_id", "t")
    return await run_durable(
        run_id=run_id,
        journal=journal,
        model=ScriptedModel(list(turns)),
        tools=tools,
        prompt="go",
        limits=RunLimits(side_effect_duplicates=Duplicates(scope="thread", semantic=finder, ttl_ms=1_000)),
        **options,
    )


async def similar(rows):
    return [value for key, (value, _) in (await rows.values()).items() if "/sem/" in key]


async def test_it_asks_with_the_earlier_work_beside_the_call(journal, rows, effects):
    finder = Looks()
    (question,) = (await drive(journal, [creating(effects)], finder)).interrupts
    assert (question.question, question.prior, effects.count()) == ("r/s0p0/semantic/0", PRIOR.to_json(), 0)
    assert "'create: lamba 1', 91 % alike" in question.reason
    ((subject, judge),) = finder.subjects
    assert judge
    assert (subject.scope, subject.root, subject.run, subject.call, subject.tool) == (
        ("xthr", "t"),
        "r",
        "r",
        "s0p0",
        "create",
    )
    assert (subject.args_hash, subject.identity.sentence, subject.ttl_ms) == (args_hash(ARGS), "create: lamba-1", 1_000)
    (incident,) = await read_incidents(journal, "r")
    assert (incident.source, incident.action) == ("semantic-guard", "suspend")
    assert incident.detail["traces"] == [dict(PRIOR.traces[0])]
    assert "lamba" not in str(incident.to_json()).lower()
    counts = (await rows.values())[keys.encode(keys.semantic_counts("r"))][0]
    assert counts == {"guarded": 1, "embedded": 2}
    # A drive that only waits looks for nothing.
    await drive(journal, [creating(effects)], finder)
    assert len(finder.subjects) == 1


async def test_a_yes_runs_it_and_buries_the_pair(journal, rows, effects):
    await drive(journal, [creating(effects)], Looks())
    await decide(journal, "r/s0p0/semantic/0", True, actor="ann", relation="different_work")
    result = await drive(journal, [creating(effects)], Looks())
    assert (result.text, effects.count()) == ("done", 1)
    tombstone = keys.encode(keys.tombstone(("xthr", "t"), "create", args_hash(ARGS), "0123456789abcdef"))
    assert (await rows.values())[tombstone][0] == {"f": 1, "run": "r", "call": "s0p0", "by": "ann"}
    assert await similar(rows) == [{"f": 1, "sentence": "create: lamba-1"}]


async def test_a_no_ends_it_and_binds_the_same_call_of_the_request(journal, rows, effects):
    turns = (CALL, CALL, "done")
    await drive(journal, [creating(effects)], Looks(), turns=turns)
    await decide(journal, "r/s0p0/semantic/0", False)
    result = await drive(journal, [creating(effects)], Looks(), turns=turns)
    assert (result.text, effects.count()) == ("done", 0)
    assert [call.status for step in result.steps for call in step.calls] == ["denied", "denied"]
    assert await similar(rows) == []
    assert not [key for key in await rows.values() if "/semtomb/" in key]


async def test_a_yes_given_ahead_looks_for_nothing(journal, effects):
    finder = Looks()
    ahead = {"s0p0": Approval(approved=True, args_digest=args_hash(ARGS))}
    result = await drive(journal, [creating(effects)], finder, approvals=ahead)
    assert (result.text, effects.count(), finder.subjects) == ("done", 1, [])


@pytest.mark.parametrize("name", ["s0p0", "r/s0p0/semantic/0"])
async def test_a_no_given_ahead_is_a_no_where_there_is_something_to_ask(journal, rows, effects, name):
    ahead = {name: Approval(approved=False, args_digest=args_hash(ARGS), actor="ann")}
    result = await drive(journal, [creating(effects)], Looks(), approvals=ahead)
    assert (result.text, effects.count()) == ("done", 0)
    answer = (await rows.values())[keys.encode(keys.answer("r", keys.ROOT, "s0p0", "semantic", 0))][0]
    assert (answer["approved"], answer["actor"]) == (False, "ann")


async def test_with_nothing_found_the_run_is_what_it_is_without(journal, rows, effects):
    plain = await drive(journal, [creating(effects)], None, run_id="plain")
    finder = Looks(Found())
    result = await drive(journal, [creating(effects)], finder, run_id="looked", thread_id="t2")
    assert result.messages == plain.messages
    assert (len(finder.subjects), await read_incidents(journal)) == (1, [])


async def test_what_it_notices_is_noted_once(journal, effects):
    notice = Notice(source="semantic-judge", message="no verdict", detail={"outcome": "unsure"})
    for _ in range(2):
        await drive(journal, [creating(effects)], Looks(Found(notices=(notice, notice))))
    (incident,) = await read_incidents(journal, "r")
    assert (incident.source, incident.action, incident.detail) == ("semantic-judge", "warn", {"outcome": "unsure"})


async def test_a_replay_looks_for_nothing(journal, effects):
    finder = Looks(Found())
    for _ in range(2):
        await drive(journal, [creating(effects)], finder)
    assert len(finder.subjects) == 1


async def test_equal_arguments_are_the_ladders(journal, effects):
    finder = Looks(Found())
    result = await drive(journal, [creating(effects)], finder, turns=(CALL, CALL, "done"))
    assert ([one.kind for one in result.interrupts], len(finder.subjects)) == (["duplicate"], 1)


async def test_a_refused_call_is_not_looked_for(journal, effects):
    finder = Looks()
    await drive(journal, [creating(effects)], finder, guard=lambda call: Deny("no"))
    assert finder.subjects == []


async def test_a_failure_is_not_remembered(journal, rows, effects):
    await drive(journal, [creating(effects, fails=1)], Looks(Found()))
    assert (effects.count(), await similar(rows)) == (1, [])


@pytest.mark.parametrize(
    ("options", "run"),
    [
        ({"semantic_identity": None}, {}),
        ({"side_effect": False}, {}),
        ({}, {"thread_id": None}),
    ],
    ids=["undeclared", "harmless", "no-thread"],
)
async def test_it_is_asked_only_where_it_is_declared_acts_and_has_a_conversation(journal, rows, effects, options, run):
    finder = Looks()
    result = await drive(journal, [creating(effects, **options)], finder, **run)
    assert (result.text, finder.subjects, await similar(rows)) == ("done", [], [])
    assert bool([one for one in result.warnings if "no thread_id" in one and "semantic gate" in one]) is bool(run)


async def test_an_unusable_identity_looks_for_nothing(journal, rows, effects):
    finder = Looks()
    result = await drive(journal, [creating(effects)], finder, turns=([("create", {"sku": " "})], "done"))
    assert (result.text, finder.subjects, await similar(rows)) == ("done", [], [])


async def test_keyed_tools_are_looked_for_by_their_identity_too(journal, rows, effects):
    """A key settles repeats of equal arguments; work that only looks the same has another key."""
    finder = Looks()
    (question,) = (await drive(journal, [creating(effects, idempotency="args")], finder)).interrupts
    assert question.kind == "semantic"
    await decide(journal, question.question, True)
    result = await drive(journal, [creating(effects, idempotency="args")], finder)
    assert (result.text, effects.count()) == ("done", 1)


# A finder of somebody's own, which promised to raise nothing ---------------------------------------------------------


class Breaks(Looks):
    """A finder of which one thing fails: it raises, or wants kept what no store can hold."""

    def __init__(self, *, find=None, remember=None, keeps=None):
        super().__init__(Found())
        self.raises = {"find": find, "remember": remember}
        self.keeps = keeps

    async def find(self, subject, *, judge):
        if self.raises["find"] is not None:
            raise self.raises["find"]
        return await super().find(subject, judge=judge)

    async def remember(self, subject):
        if self.raises["remember"] is not None:
            raise self.raises["remember"]
        return await super().remember(subject) if self.keeps is None else self.keeps


PLACE = keys.similar(("xthr", "t"), "create", args_hash(ARGS))
BROKEN = {
    "find raises": ({"find": KeyError("x")}, "could not be looked for"),
    "remember raises": ({"remember": KeyError("x")}, "looks like could not be kept"),
    "a blob that is none": ({"keeps": (Put(PLACE, {"f": 1}, "text"),)}, "could not be written with it"),
    "no operation": ({"keeps": ({"a": 1},)}, "could not be written with it"),
    "a value that is none": ({"keeps": (Put(PLACE, {"f": {1, 2}}),)}, "could not be written with it"),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_finder_that_breaks_its_promise_costs_no_call(journal, rows, effects, caplog, what):
    broken, told = BROKEN[what]
    for _ in range(2):
        result = await drive(journal, [creating(effects)], Breaks(**broken))
        assert (result.text, result.interrupts, effects.count()) == ("done", (), 1)
    record = (await rows.values())[keys.encode(keys.tool("r", keys.ROOT, 0, 0))][0]
    assert record["status"] == "succeeded"
    assert told in caplog.text
    assert bool(await similar(rows)) is (what == "find raises"), "what can be kept is"


async def test_a_finder_that_is_cancelled_takes_the_drive_with_it(journal, effects):
    """The caller's cancellation is no failure of the finder."""
    with pytest.raises(asyncio.CancelledError):
        await drive(journal, [creating(effects)], Breaks(find=asyncio.CancelledError()))
    assert effects.count() == 0
