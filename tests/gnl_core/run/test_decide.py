"""Decisions: the first one wins, a no replaces a yes until work starts, and what is stored is what happens."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from gnl_core import (
    Context,
    SideEffectRetryBlockedError,
    UnknownQuestionError,
    decide,
    list_interrupts,
    run_durable,
    tool,
)
from gnl_core.approvals import Approval
from gnl_core.errors import AlreadyDecidedError, ConfigError, NotCanonicalError
from gnl_core.testing.faulty import FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

ROOT = Path(__file__).parents[3]
ASKED = "r/s0p0/confirm/0"
DOUBT = "r/s0p0/in_doubt/1"


def charging(effects, *, fails=0, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt {amount}"

    return charge


async def drive(journal, charge, **options):
    model = ScriptedModel([[("charge", {"amount": 1})], "done"])
    return await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="pay", **options)


def told(result):
    (message,) = [message for message in result.messages if message.role == "tool"]
    return message.parts[0].text


@pytest.fixture
def asking(effects):
    return charging(effects, confirm=True)


async def test_a_decision_is_stored_with_who_when_and_why(journal, rows, asking):
    await drive(journal, asking)
    now = await journal.now()
    answer = await decide(journal, ASKED, True, actor="ana", reason="seen")
    assert (answer.approved, answer.actor, answer.reason, answer.kind, answer.attempt) == (
        True,
        "ana",
        "seen",
        "confirm",
        0,
    )
    assert now <= answer.at <= await journal.now()
    ((stored, _),) = [value for key, value in (await rows.values()).items() if "/answer/" in key]
    assert {name: stored[name] for name in ("approved", "actor", "reason", "at")} == {
        "approved": True,
        "actor": "ana",
        "reason": "seen",
        "at": answer.at,
    }
    assert await list_interrupts(journal) == []


async def test_s31_the_same_decision_twice_is_one(journal, rows, asking):
    await drive(journal, asking)
    first = await decide(journal, ASKED, True, actor="ana")
    before = await rows.values()
    again = await decide(journal, ASKED, True, actor="bob")
    assert again == first, "the stored one is told, and who gave it"
    assert await rows.values() == before


async def test_a_no_replaces_a_yes_before_work_starts_and_the_call_never_runs(journal, effects, asking):
    await drive(journal, asking)
    await decide(journal, ASKED, True, actor="ana")
    answer = await decide(journal, ASKED, False, actor="bob", reason="fraud")
    assert (answer.approved, answer.actor) == (False, "bob")
    with pytest.raises(AlreadyDecidedError) as refused:
        await decide(journal, ASKED, True, actor="ana")
    assert refused.value.detail == {
        "question": ASKED,
        "approved": False,
        "actor": "bob",
        "at": answer.at,
        "reason": "fraud",
    }
    result = await drive(journal, asking)
    assert (effects.count(), result.interrupts) == (0, ())
    assert "fraud" in told(result)


async def test_once_the_work_is_done_every_decision_is_refused_with_the_stored_one(journal, effects, asking):
    await drive(journal, asking)
    await decide(journal, ASKED, True, actor="ana")
    await drive(journal, asking)
    for approved in (True, False):
        with pytest.raises(AlreadyDecidedError, match="approved by ana"):
            await decide(journal, ASKED, approved)
    assert (await drive(journal, asking)).text == "done"
    assert effects.count() == 1


async def test_line_54_a_no_that_comes_while_the_work_runs_changes_nothing(journal, rows, effects):
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool(confirm=True)
    async def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        started.set()
        await go_on.wait()
        return "receipt"

    await drive(journal, charge)
    await decide(journal, ASKED, True, actor="ana")
    running = asyncio.ensure_future(drive(journal, charge))
    await started.wait()
    with pytest.raises(AlreadyDecidedError) as refused:
        await decide(journal, ASKED, False, actor="bob")
    assert refused.value.detail["approved"] is True
    assert await list_interrupts(journal, "r") == [], "a call that runs is in no doubt"
    go_on.set()
    assert (await running).text == "done"
    assert effects.count() == 1


class Meanwhile(FaultyJournal):
    """Lets something happen right before the first write."""

    def __init__(self, inner, meanwhile):
        super().__init__(inner)
        self.meanwhile = meanwhile

    async def apply(self, ops, *, batch):
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super().apply(ops, batch=batch)


async def test_a_decision_that_comes_as_the_work_begins_is_refused(journal, rows, effects, asking):
    await drive(journal, asking)
    await decide(journal, ASKED, True, actor="ana")

    async def work():
        await drive(journal, asking)

    with pytest.raises(AlreadyDecidedError) as refused:
        await decide(Meanwhile(journal, work), ASKED, False, actor="bob")
    assert refused.value.detail["actor"] == "ana"
    assert (await rows.values())["run/r/~/answer/s0p0/confirm/000"][0]["approved"] is True
    assert effects.count() == 1


@pytest.mark.parametrize("question", ["", "r", "r/s0p0", "r/s0p0/confirm", "r/s0p0/confirm/x", "r/x/confirm/0"])
async def test_what_names_no_question_is_refused(journal, asking, question):
    await drive(journal, asking)
    with pytest.raises(UnknownQuestionError, match="<run>/<call>/<kind>/<attempt>"):
        await decide(journal, question, True)


@pytest.mark.parametrize(
    "question", ["r/s0p1/confirm/0", "r/s0p0/guard/0", "r/s0p0/confirm/1", "r/s0p0/in_doubt/0", "q/s0p0/confirm/0"]
)
async def test_s35_unknown_questions_are_refused_with_the_open_ones(journal, rows, asking, question):
    await drive(journal, asking)
    before = await rows.values()
    with pytest.raises(UnknownQuestionError) as refused:
        await decide(journal, question, True)
    if question.startswith("r/"):
        assert refused.value.detail["open"] == [ASKED]
        assert ASKED in str(refused.value)
    assert await rows.values() == before


# Expiry --------------------------------------------------------------------------------------------------------------


async def test_an_expired_yes_lets_nothing_run_is_kept_and_is_asked_again(journal, rows, effects, asking):
    await drive(journal, asking)
    await decide(journal, ASKED, True, actor="ana", expires_at=1)
    result = await drive(journal, asking)
    assert ([one.question for one in result.interrupts], effects.count()) == ([ASKED], 0)
    (stored,) = [value for key, (value, _) in (await rows.values()).items() if "/answer/" in key]
    assert (stored["actor"], stored["expires_at"]) == ("ana", 1), "it is evidence still"
    assert [one.question for one in await list_interrupts(journal)] == [ASKED]
    await decide(journal, ASKED, True, actor="bob", expires_at=await journal.now() + 3_600_000)
    assert (await drive(journal, asking)).text == "done"
    assert effects.count() == 1


async def test_an_expired_yes_passed_along_lets_nothing_run(journal, effects, asking):
    await drive(journal, asking)
    result = await drive(journal, asking, approvals={ASKED: Approval(approved=True, expires_at=1)})
    assert (len(result.interrupts), effects.count()) == (1, 0)


async def test_a_no_does_not_expire(journal, effects, asking):
    await drive(journal, asking)
    await decide(journal, ASKED, False, expires_at=1)
    assert (await drive(journal, asking)).interrupts == ()
    assert effects.count() == 0


# Doubts --------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def doubt(journal, effects):
    """A run whose call raised after its effect: nobody knows whether it took effect."""
    charge = charging(effects, fails=1)
    await drive(journal, charge)
    return charge


async def test_an_output_settles_a_doubt_and_the_model_reads_it(journal, effects, doubt):
    answer = await decide(journal, DOUBT, False, output={"receipt": 7}, actor="ana")
    assert answer.has_output
    assert answer.output == {"receipt": 7}
    result = await drive(journal, doubt)
    assert told(result) == '{"receipt":7}'
    (call,) = result.steps[0].calls
    assert (call.status, call.output, effects.count()) == ("succeeded", {"receipt": 7}, 1)
    assert (await drive(journal, doubt)).text == "done"


async def test_an_output_of_none_settles_a_doubt_too(journal, effects, doubt):
    await decide(journal, DOUBT, False, output=None)
    (call,) = (await drive(journal, doubt)).steps[0].calls
    assert (call.status, call.output, effects.count()) == ("succeeded", None, 1)


async def test_a_plain_no_to_a_doubt_ends_it_and_claims_nothing(journal, effects, doubt):
    await decide(journal, DOUBT, False, reason="leave it")
    result = await drive(journal, doubt)
    (call,) = result.steps[0].calls
    assert (call.status, effects.count()) == ("denied", 1)
    assert "not known" in told(result)
    assert "leave it" in told(result)
    assert "did not run" not in told(result), "it may have"


async def test_a_yes_to_a_doubt_runs_it_exactly_once_more(journal, effects, doubt):
    await decide(journal, DOUBT, True)
    assert (await drive(journal, doubt)).text == "done"
    assert (await drive(journal, doubt)).text == "done"
    assert effects.count() == 2


async def test_an_output_beside_a_yes_or_to_another_question_is_refused(journal, rows, effects, asking):
    await drive(journal, asking)
    before = await rows.values()
    for approved in (True, False):
        with pytest.raises(ConfigError, match="in_doubt"):
            await decide(journal, ASKED, approved, output=1)
    assert await rows.values() == before


async def test_an_output_that_cannot_be_stored_is_refused_before_anything_is(journal, rows, doubt):
    before = await rows.values()
    with pytest.raises(ConfigError):
        await decide(journal, DOUBT, True, output=1)
    with pytest.raises(NotCanonicalError):
        await decide(journal, DOUBT, False, output=object())
    assert await rows.values() == before
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, doubt)


async def test_an_output_may_be_passed_along_with_a_drive(journal, effects, doubt):
    result = await drive(journal, doubt, approvals={DOUBT: Approval(approved=False, output="by hand")})
    assert (told(result), effects.count()) == ("by hand", 1)


# Actors --------------------------------------------------------------------------------------------------------------


async def test_s34_where_the_run_has_an_actor_an_answer_says_who_gave_it(journal, rows, effects, asking):
    await drive(journal, asking, actor="svc-payments")
    before = await rows.values()
    for nobody in (None, ""):
        with pytest.raises(ConfigError, match="actor="):
            await decide(journal, ASKED, True, actor=nobody)
        with pytest.raises(ConfigError, match="actor="):
            await drive(journal, asking, approvals={ASKED: Approval(approved=True, actor=nobody)})
    assert await rows.values() == before
    assert (await decide(journal, ASKED, True, actor="ana")).actor == "ana"
    assert (await drive(journal, asking)).text == "done"
    assert effects.count() == 1


async def test_s34_an_answer_passed_along_is_the_drivers_where_it_names_nobody(journal, rows, asking):
    await drive(journal, asking, actor="ana")
    await drive(journal, asking, actor="bob", approvals={"s0p0": True})
    (stored,) = [value for key, (value, _) in (await rows.values()).items() if "/answer/" in key]
    assert stored["actor"] == "bob"


async def test_s34_without_actors_none_is_asked_for(journal, asking):
    await drive(journal, asking)
    assert (await decide(journal, ASKED, True)).actor is None


# Races of real processes ---------------------------------------------------------------------------------------------

RACER = """
import asyncio, gnl_core, sys
from gnl_core import decide
from gnl_core.errors import AlreadyDecidedError
store, question, approved, who = sys.argv[1:]
async def main():
    async with eval(store) as storage:
        await storage.runs.now()
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            answer = await decide(storage.runs, question, approved == "yes", actor=who)
            print("stored", "yes" if answer.approved else "no", answer.actor, flush=True)
        except AlreadyDecidedError as error:
            print("refused", "yes" if error.detail["approved"] else "no", error.detail["actor"], flush=True)
asyncio.run(main())
"""


def race(common, *decisions):
    """Let processes decide at once; return what each was told."""
    workers = []
    for number, approved in enumerate(decisions):
        arguments = [common.spelled, ASKED, approved, f"p{number}"]
        workers.append(
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", RACER, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
        )
    try:
        for worker in workers:
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        return [worker.communicate(timeout=60)[0].split() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@pytest.mark.parametrize("decisions", [("yes", "yes"), ("yes", "no"), ("no", "yes", "no", "yes")])
async def test_s31_of_a_race_one_decision_is_stored_and_the_effect_matches_it(common, effects, decisions):
    charge = charging(effects, confirm=True)
    async with common.open() as storage:
        await drive(storage.runs, charge)
        told_to = race(common, *decisions)
        result = await drive(storage.runs, charge)
        # A no wins over a yes until work starts, whichever came first.
        winner = "no" if "no" in decisions else "yes"
        assert effects.count() == (1 if winner == "yes" else 0)
        assert result.interrupts == ()
        actors = {actor for _, decision, actor in told_to if decision == winner}
        assert len(actors) == 1, "all who were told of the winner were told of one person"
        for (word, decision, _), asked in zip(told_to, decisions, strict=True):
            if word == "stored":
                assert decision == asked, "nobody is told that another decision than theirs was stored"
            else:
                assert (asked, decision) == ("yes", "no")
        with pytest.raises(AlreadyDecidedError) as stored:
            await decide(storage.runs, ASKED, True, actor="later")
        assert stored.value.detail["actor"] in actors


BAD = [
    ({"reason": 123}, "reason"),
    ({"actor": 5}, "actor"),
    ({"expires_at": "tomorrow"}, "expires_at"),
    ({"expires_at": 1.5}, "expires_at"),
    ({"expires_at": True}, "expires_at"),
    ({"expires_at": -1}, "expires_at"),
    ({"expires_at": 10**5000}, "expires_at"),
]


@pytest.mark.parametrize(("options", "named"), BAD, ids=[f"{name}-{n}" for n, (_, name) in enumerate(BAD)])
async def test_an_answer_that_could_not_be_read_again_is_refused_before_it_is_recorded(
    journal, rows, asking, effects, options, named
):
    await drive(journal, asking)
    before = await rows.all()
    for approved in (True, False):
        with pytest.raises(ConfigError, match=named):
            await decide(journal, ASKED, approved, **options)
        with pytest.raises(ConfigError, match=named):
            await drive(journal, asking, approvals={ASKED: Approval(approved=approved, **options)})
    assert await rows.all() == before
    await decide(journal, ASKED, False, reason="no")
    assert told(await drive(journal, asking)).startswith("A person refused this call")
    assert effects.count() == 0


async def test_the_digest_that_an_answer_covers_is_text():
    with pytest.raises(ConfigError, match="args_digest"):
        Approval(approved=True, args_digest=7)
