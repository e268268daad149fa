"""A tool that confirms every call: what its question shows of earlier work, and what a yes and a no come to."""

import pytest

from gnl_core import (
    Allow,
    Approval,
    Context,
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
from gnl_core.errors import StoreUnavailableError
from gnl_core.prior import Found, Notice, Prior
from gnl_core.testing.scripted import ScriptedModel

WARNING = "\u26a0"
PLAIN = "Run create("


class Looks:
    """A finder with one answer, or one error."""

    def __init__(self, answer=None):
        self.answer = answer
        self.asked = []

    def check(self):
        return ()

    def freeze(self):
        return {}

    async def find(self, subject, *, judge):
        self.asked.append((subject.call, judge))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or Found()

    async def remember(self, subject):
        return ()


SIMILAR = Found(
    prior=Prior(
        origin="identity",
        run_id="x",
        tool_call_id="s3p0",
        at=0,
        sentence="create: lamba 1",
        present="create: lamba-1",
        score=0.93,
        prior_hash="0123456789abcdef",
        identity_keys=("sku",),
    ),
    detail={"gray_calls": 1},
)


def creating(effects, *, confirm=True, **options):
    @tool(confirm=confirm, semantic_identity=SemanticIdentity(keys=("sku",), amount_fields=("price",)), **options)
    def create(ctx: Context, sku: str, price: float = 1.0, note: str = "") -> str:
        effects.fire("create", ctx)
        return f"created {sku}"

    return create


def make(**args):
    return [("create", args)]


async def drive(journal, tools, *calls, run_id="b", finder=None, **options):
    options.setdefault("thread_id", "t")
    options.setdefault("resource_id", "ann")
    rule = Duplicates(scope="thread", semantic=finder)
    return await run_durable(
        run_id=run_id,
        journal=journal,
        model=ScriptedModel([*calls, "done"]),
        tools=tools,
        prompt="go",
        limits=RunLimits(side_effect_duplicates=rule),
        **options,
    )


async def first(journal, effects, *, run_id="a", **options):
    """The first job, approved and done."""
    args = options.pop("args", {"sku": "LAMBA-1", "price": 5})
    (question,) = (await drive(journal, [creating(effects)], make(**args), run_id=run_id, **options)).interrupts
    await decide(journal, question.question, True)
    result = await drive(journal, [creating(effects)], make(**args), run_id=run_id, **options)
    assert result.text == "done"
    return question


async def asked(journal, effects, *, run_id="b", finder=None, tools=None, args=None, **options):
    tools = tools or [creating(effects)]
    (question,) = (await drive(journal, tools, make(**args), run_id=run_id, finder=finder, **options)).interrupts
    assert question.kind == "confirm"
    return question


# The matrix ----------------------------------------------------------------------------------------------------------


async def test_l73_a_first_job_is_asked_about_plainly(journal, effects):
    question = await first(journal, effects)
    assert (question.prior, question.reason) == (None, 'Run create({"sku": "LAMBA-1", "price": 5})?')
    assert await read_incidents(journal) == []


@pytest.mark.parametrize(
    "args", [{"sku": "LAMBA-1", "price": 5}, {"price": 5.0, "sku": "LAMBA-1"}], ids=["same", "order"]
)
async def test_l73_equal_arguments_warn_of_identical_work_and_its_first_call(journal, effects, args):
    await first(journal, effects)
    question = await asked(journal, effects, args=args)
    assert question.reason.startswith(PLAIN)
    assert f"{WARNING} Identical work was already completed" in question.reason
    assert "call s0p0 of run a" in question.reason
    assert "deliberate repeat" in question.reason
    assert question.prior["origin"] == "exact"
    (incident,) = await read_incidents(journal, "b")
    assert (incident.source, incident.action) == ("duplicate-guard", "suspend")
    assert incident.detail["asked_by"] == "confirm"
    assert incident.detail["first_run"] == "a"


async def test_l73_the_callers_own_reason_stands_in_front(journal, effects):
    await first(journal, effects)
    reasoned = creating(effects, confirm=lambda args: f"Create {args['sku']}?")
    question = await asked(journal, effects, tools=[reasoned], args={"sku": "LAMBA-1", "price": 5})
    assert question.reason.startswith(f"Create LAMBA-1? {WARNING} Identical work")


async def test_l73_the_same_identity_in_another_conversation_names_age_and_channel(journal, effects):
    await first(journal, effects, thread_id="other", channel="batch")
    question = await asked(journal, effects, args={"sku": "lamba-1", "price": 5})
    assert question.prior["origin"] == "channel"
    assert (
        f"{WARNING} Work with the same business identity (sku) was already completed just now, via batch"
        in question.reason
    )
    assert "amounts" not in question.reason
    (incident,) = await read_incidents(journal, "b")
    assert (incident.source, incident.detail["asked_by"]) == ("semantic-guard", "confirm")


async def test_l73_with_other_amounts_it_says_which(journal, effects):
    await first(journal, effects, thread_id="other")
    question = await asked(journal, effects, args={"sku": "lamba-1", "price": 6})
    assert "The amounts differ (price)" in question.reason
    assert question.prior["amounts_differ"] == ["price"]


async def test_l73_another_identity_is_asked_about_plainly(journal, effects):
    await first(journal, effects)
    question = await asked(journal, effects, args={"sku": "LAMBA-2", "price": 5})
    assert (question.prior, WARNING in question.reason) == (None, False)


async def test_l73_equal_arguments_come_first_then_the_channel_then_what_looks_the_same(journal, effects):
    finder = Looks(SIMILAR)
    await first(journal, effects)
    exact = await asked(journal, effects, args={"sku": "LAMBA-1", "price": 5}, finder=finder)
    channel = await asked(journal, effects, run_id="c", args={"sku": "lamba-1", "price": 5}, finder=finder)
    assert (exact.prior["origin"], channel.prior["origin"], finder.asked) == ("exact", "channel", [])
    similar = await asked(journal, effects, run_id="d", args={"sku": "LAMBA 1", "price": 5}, finder=finder)
    assert (similar.prior["origin"], finder.asked) == ("identity", [("s0p0", False)]), "no judge is asked here"
    assert "93 % alike" in similar.reason
    (incident,) = await read_incidents(journal, "d")
    assert (incident.detail["asked_by"], incident.detail["gray_calls"]) == ("confirm", 1)


async def test_l73_within_one_request_too_also_without_a_conversation(journal, effects):
    calls = (make(sku="x"), make(sku="x"))
    options = {"thread_id": None, "resource_id": None, "run_id": "r"}
    await drive(journal, [creating(effects)], *calls, **options)
    await decide(journal, "r/s0p0/confirm/0", True)
    (question,) = (await drive(journal, [creating(effects)], *calls, **options)).interrupts
    assert (question.kind, question.prior["tool_call_id"]) == ("confirm", "s0p0")


async def test_a_confirm_tool_leaves_its_marker_also_where_the_rule_is_the_requests(journal, effects):
    async def ask(run_id):
        return await run_durable(
            run_id=run_id,
            journal=journal,
            model=ScriptedModel([make(sku="x"), "done"]),
            tools=[creating(effects)],
            prompt="go",
            thread_id="t",
        )

    await ask("a")
    await decide(journal, "a/s0p0/confirm/0", True)
    await ask("a")
    (question,) = (await ask("b")).interrupts
    assert question.prior["run_id"] == "a"


# Yes and no ----------------------------------------------------------------------------------------------------------


async def test_l73_a_yes_runs_it_for_real_and_the_next_is_asked_again(journal, effects):
    args = {"sku": "LAMBA-1", "price": 5}
    await first(journal, effects)
    question = await asked(journal, effects, args=args)
    await decide(journal, question.question, True, relation="deliberate_repeat")
    result = await drive(journal, [creating(effects)], make(**args))
    assert (result.text, result.interrupts, effects.count()) == ("done", (), 2), "and the ladder asks no second time"
    again = await asked(journal, effects, run_id="c", args=args)
    assert again.prior["run_id"] == "a"


async def test_l73_a_no_runs_nothing_and_the_next_is_asked_again(journal, effects):
    args = {"sku": "LAMBA-1", "price": 5}
    await first(journal, effects)
    calls = (make(**args), make(**args))
    (question,) = (await drive(journal, [creating(effects)], *calls)).interrupts
    await decide(journal, question.question, False)
    (again,) = (await drive(journal, [creating(effects)], *calls)).interrupts
    assert (again.question, effects.count()) == ("b/s1p0/confirm/0", 1)


@pytest.mark.parametrize("approved", [True, False])
async def test_an_answer_given_ahead_is_the_confirm_gates_and_is_recorded_once(journal, rows, effects, approved):
    args = {"sku": "LAMBA-1", "price": 5}
    await first(journal, effects)
    ahead = {"s0p0": Approval(approved=approved, args_digest=args_hash(args))}
    result = await drive(journal, [creating(effects)], make(**args), approvals=ahead)
    assert (result.text, effects.count()) == ("done", 2 if approved else 1)
    answers = [key for key in await rows.values(keys.request("b")) if "/answer/" in key]
    assert answers == [keys.encode(keys.answer("b", keys.ROOT, "s0p0", "confirm", 0))]


async def test_a_guard_sees_the_approved_call_too(journal, effects):
    seen = []

    def guard(call):
        seen.append(call.tool_call_id)
        return Allow()

    await first(journal, effects)
    question = await asked(journal, effects, args={"sku": "LAMBA-1", "price": 5})
    await decide(journal, question.question, True)
    await drive(journal, [creating(effects)], make(sku="LAMBA-1", price=5), guard=guard)
    assert seen == ["s0p0"]


# Whatever fails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [RuntimeError("down"), KeyError("x"), StoreUnavailableError("gone"), TimeoutError()], ids=repr
)
async def test_an_error_of_the_finder_leaves_the_plain_question(journal, effects, error, caplog):
    question = await asked(journal, effects, args={"sku": "x"}, finder=Looks(error))
    assert (question.prior, question.reason) == (None, 'Run create({"sku": "x"})?')
    assert "work like call s0p0 of run b could not be looked for" in caplog.text


async def test_a_store_that_cannot_be_read_leaves_the_plain_question(journal, effects, caplog):
    await first(journal, effects)

    class Blind:
        def __getattr__(self, name):
            return getattr(journal, name)

        async def get_many(self, asked):
            if any(key[0] in ("xthr", "xid") for key in asked):
                raise StoreUnavailableError("gone")
            return await journal.get_many(asked)

    question = await asked(Blind(), effects, args={"sku": "LAMBA-1", "price": 5})
    assert question.prior is None


async def test_an_unusable_identity_leaves_the_plain_question_and_one_incident(journal, effects):
    for run_id in ("a", "b"):
        question = await asked(journal, effects, run_id=run_id, args={"sku": " ", "note": run_id}, thread_id=run_id)
        assert question.prior is None
        (incident,) = await read_incidents(journal, run_id)
        assert (incident.action, incident.detail["reason"]) == ("warn", "identity-unusable")


async def test_what_the_finder_noticed_is_noted_with_the_plain_question(journal, effects):
    notice = Notice(source="semantic-guard", message="2 dropped", detail={"dropped_identity": 2})
    question = await asked(journal, effects, args={"sku": "x"}, finder=Looks(Found(notices=(notice,))))
    assert question.prior is None
    (incident,) = await read_incidents(journal, "b")
    assert (incident.source, incident.action, incident.detail) == ("semantic-guard", "warn", {"dropped_identity": 2})


# Harmless tools -------------------------------------------------------------------------------------------------------


async def test_a_tool_that_only_reads_is_asked_about_plainly_every_time(journal, effects):
    reads = creating(effects, side_effect=False)
    for run_id in ("a", "b"):
        question = await asked(journal, effects, run_id=run_id, tools=[reads], args={"sku": "x"})
        assert question.prior is None
        await decide(journal, question.question, True)
        await drive(journal, [reads], make(sku="x"), run_id=run_id)
    assert effects.count() == 2
