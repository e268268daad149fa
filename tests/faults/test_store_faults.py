"""The store away, full, or silent at the worst moment."""

import pytest

from gnl_core import Context, decide, run_durable, tool
from gnl_core.errors import EffectNotRecordedError, SideEffectRetryBlockedError, StoreUnavailableError
from gnl_core.journal import send
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

TURNS = [[("charge", {"amount": 10})], "Done."]
FOR_EVER = 10_000


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    """A store that is away is asked again as often, after shorter pauses."""
    monkeypatch.setattr(send, "LONGEST_PAUSE", 0.001)


def writes(status):
    def match(ops):
        values = [getattr(op, "value", None) for op in ops if "tool" in op.key]
        return any(isinstance(value, dict) and value.get("status") == status for value in values)

    return match


@pytest.fixture
def charge(effects):
    @tool
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card."""
        return effects.fire("charge", ctx, {"receipt": amount})

    return charge


def drive(journal, charge):
    return run_durable(run_id="r", journal=journal, model=ScriptedModel(TURNS), tools=[charge], prompt="Do it.")


@pytest.mark.parametrize(
    "fault",
    [
        {"action": "unavailable"},
        {"action": "busy"},
        {"action": "unknown", "when": "before"},
        {"action": "unknown", "when": "after"},
        {"action": "unavailable", "times": 2},
    ],
    ids=str,
)
async def test_s70_a_result_that_the_store_misses_once_is_written_again(storage, effects, charge, fault):
    journal = FaultyJournal(storage.runs, fault=Fault(match=writes("succeeded"), **fault))
    assert (await drive(journal, charge)).text == "Done."
    assert journal.hit == fault.get("times", 1)
    assert effects.count() == 1
    assert (await drive(storage.runs, charge)).replayed_tool_calls[0].status == "succeeded"


async def test_s70_a_store_that_stays_away_says_that_the_effect_happened_and_hands_its_result_over(
    storage, effects, charge
):
    journal = FaultyJournal(storage.runs, fault=Fault(match=writes("succeeded"), action="unavailable", times=FOR_EVER))
    with pytest.raises(EffectNotRecordedError, match="charge") as lost:
        await drive(journal, charge)
    assert lost.value.output == {"receipt": 10}
    assert journal.hit == send.RECORD_TRIES > send.BEGIN_TRIES > 1, "it was tried harder than what has not begun"
    assert effects.count() == 1
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive(storage.runs, charge)
    (question,) = blocked.value.interrupts
    assert question.kind == "in_doubt"
    await decide(storage.runs, question.question, False, output=lost.value.output)
    assert (await drive(storage.runs, charge)).text == "Done."
    assert effects.count() == 1


async def test_s78_without_an_intent_there_is_no_effect(storage, effects, charge):
    journal = FaultyJournal(storage.runs, fault=Fault(match=writes("running"), action="unavailable", times=FOR_EVER))
    with pytest.raises(StoreUnavailableError):
        await drive(journal, charge)
    assert effects.count() == 0
    assert (await drive(storage.runs, charge)).text == "Done.", "nothing had begun, so nothing is in doubt"
    assert effects.count() == 1


async def test_an_intent_of_unknown_outcome_is_sent_again_and_never_taken_for_somebody_elses(storage, effects, charge):
    journal = FaultyJournal(storage.runs, fault=Fault(match=writes("running"), action="unknown", when="after"))
    assert (await drive(journal, charge)).text == "Done."
    assert effects.count() == 1


def test_s78_a_full_disk_at_the_intent_is_a_clear_error_and_no_effect(new_run):
    run = new_run("full_disk")
    full = run.drive()
    assert full["error"] == "store_unavailable", full
    assert "full" in full["message"] or "journal.sqlite" in full["message"]
    assert run.effects() == 0
    run.touch("room")
    assert run.drive()["text"] == "Done."
    assert run.effects() == 1
