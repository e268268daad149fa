"""A person says of a call that was let run beside earlier work which it was: other work, or a repeat on purpose."""

import asyncio

import pytest

from gnl_core import (
    Approval,
    Context,
    SqliteStorage,
    args_hash,
    decide,
    keys,
    list_interrupts,
    run_durable,
    tool,
)
from gnl_core.cli import main
from gnl_core.errors import AlreadyDecidedError, ConfigError
from gnl_core.testing.scripted import ScriptedModel

CHARGE = [("charge", {"amount": 1})]
QUESTION = "r/s1p0/duplicate/0"
ANSWER = keys.encode(keys.answer("r", keys.ROOT, "s1p0", "duplicate", 0))


def charging(effects, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        return f"receipt {amount}"

    return charge


async def drive(journal, effects, *, tools=None, **options):
    return await run_durable(
        run_id="r",
        journal=journal,
        model=ScriptedModel([CHARGE, CHARGE, "done"]),
        tools=tools or [charging(effects)],
        prompt="go",
        **options,
    )


async def stored(rows, key=ANSWER):
    return (await rows.values())[key][0]


# In code -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["different_work", "deliberate_repeat"])
async def test_it_is_recorded_with_the_yes_and_changes_nothing_else(journal, rows, effects, relation):
    await drive(journal, effects)
    answer = await decide(journal, QUESTION, True, actor="ann", relation=relation)
    assert answer.relation == relation
    assert (await stored(rows))["relation"] == relation
    assert ((await drive(journal, effects)).text, effects.count()) == ("done", 2)


async def test_without_it_nothing_is_recorded_of_it(journal, rows, effects):
    await drive(journal, effects)
    await decide(journal, QUESTION, True)
    assert "relation" not in await stored(rows)


async def test_it_comes_with_an_approval_that_a_drive_is_given(journal, rows, effects):
    await drive(journal, effects)
    result = await drive(journal, effects, approvals={QUESTION: Approval(approved=True, relation="different_work")})
    assert (result.text, effects.count(), (await stored(rows))["relation"]) == ("done", 2, "different_work")


async def test_it_is_refused_beside_a_no(journal, rows, effects):
    await drive(journal, effects)
    with pytest.raises(ConfigError, match="approved=True"):
        await decide(journal, QUESTION, False, relation="different_work")
    assert ANSWER not in await rows.values()


async def test_it_is_refused_where_no_earlier_work_is_shown(journal, effects):
    await drive(journal, effects, tools=[charging(effects, confirm=True)])
    with pytest.raises(ConfigError, match="shows some"):
        await decide(journal, "r/s0p0/confirm/0", True, relation="different_work")
    with pytest.raises(ConfigError, match="shows some"):
        await drive(journal, effects, approvals={"s0p0": Approval(approved=True, relation="different_work")})
    assert effects.count() == 0


async def test_a_decorated_confirm_question_takes_one(journal, rows, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, effects, tools=[charge])
    await decide(journal, "r/s0p0/confirm/0", True)
    await drive(journal, effects, tools=[charge])
    await decide(journal, "r/s1p0/confirm/0", True, relation="deliberate_repeat")
    key = keys.encode(keys.answer("r", keys.ROOT, "s1p0", "confirm", 0))
    assert (await stored(rows, key))["relation"] == "deliberate_repeat"


async def test_it_cannot_come_before_its_question(journal, effects):
    ahead = Approval(approved=True, args_digest=args_hash({"amount": 1}), relation="different_work")
    with pytest.raises(ConfigError, match="before the question"):
        await drive(journal, effects, approvals={"s1p0": ahead})
    assert effects.count() == 0


@pytest.mark.parametrize("relation", ["same", "", 5, True])
async def test_it_is_one_of_two(journal, effects, relation):
    await drive(journal, effects)
    with pytest.raises(ConfigError, match="'different_work'"):
        await decide(journal, QUESTION, True, relation=relation)
    with pytest.raises(ConfigError, match="'deliberate_repeat'"):
        Approval(approved=True, relation=relation)


# Added later ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["decide", "approvals"])
async def test_a_label_is_added_to_a_yes_that_stands_and_it_stays_whose_it_was(journal, rows, effects, way):
    await drive(journal, effects)
    first = await decide(journal, QUESTION, True, actor="ann", reason="sure", expires_at=9_999_999_999_999)
    if way == "decide":
        labelled = await decide(journal, QUESTION, True, actor="bob", relation="different_work")
        assert (labelled.actor, labelled.relation) == ("ann", "different_work")
        assert await list_interrupts(journal) == []
    else:
        later = Approval(approved=True, actor="bob", relation="different_work")
        assert (await drive(journal, effects, approvals={QUESTION: later})).text == "done"
    assert await stored(rows) == {**first.to_json(), "relation": "different_work"}


async def test_a_label_is_corrected_and_no_yes_without_one_takes_it_away(journal, rows, effects):
    await drive(journal, effects)
    await decide(journal, QUESTION, True, relation="different_work")
    await decide(journal, QUESTION, True, relation="deliberate_repeat")
    await decide(journal, QUESTION, True)
    assert (await stored(rows))["relation"] == "deliberate_repeat"


async def test_a_no_takes_the_place_of_a_labelled_yes_and_has_no_label(journal, rows, effects):
    await drive(journal, effects)
    await decide(journal, QUESTION, True, relation="different_work")
    await decide(journal, QUESTION, False)
    assert "relation" not in await stored(rows)
    with pytest.raises(AlreadyDecidedError):
        await decide(journal, QUESTION, True, relation="different_work")


async def test_after_the_call_has_begun_the_answer_stands(journal, rows, effects):
    await drive(journal, effects)
    await decide(journal, QUESTION, True)
    await drive(journal, effects)
    with pytest.raises(AlreadyDecidedError):
        await decide(journal, QUESTION, True, relation="different_work")
    assert "relation" not in await stored(rows)


@pytest.mark.parametrize("value", ["same", 5, None, ["different_work"]], ids=str)
async def test_a_label_on_disk_that_is_none_does_not_harm_the_answer(journal, rows, effects, value):
    await drive(journal, effects)
    await decide(journal, QUESTION, True)
    await rows.change(ANSWER, relation=value)
    assert ((await drive(journal, effects)).text, effects.count()) == ("done", 2)


# On the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def gnl(capsys, place, effects):
    """Call the program on a journal whose run waits; return its status and what it said."""

    def call(*args):
        with pytest.raises(SystemExit) as ended:
            main([*args, "--db", str(place / "cli.sqlite")])
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err

    return call


@pytest.fixture
def waiting(place, effects):
    async def run(tools=None):
        async with SqliteStorage(place / "cli.sqlite") as storage:
            return await drive(storage.runs, effects, tools=tools)

    return run


@pytest.mark.parametrize(
    ("flag", "relation"), [("--different-work", "different_work"), ("--deliberate-repeat", "deliberate_repeat")]
)
def test_approve_says_which_it_was(gnl, waiting, effects, flag, relation):
    asyncio.run(waiting())
    code, said = gnl("approvals", "approve", QUESTION, flag, "--json")
    assert (code, f'"relation": "{relation}"' in said) == (0, True)
    assert asyncio.run(waiting()).text == "done"
    assert effects.count() == 2


def test_deny_and_settle_know_no_such_flag(gnl, waiting):
    asyncio.run(waiting())
    code, said = gnl("approvals", "deny", QUESTION, "--different-work")
    assert (code, "No such option" in said) == (2, True)


def test_a_question_that_shows_nothing_refuses_the_flag(gnl, waiting, effects):
    asyncio.run(waiting([charging(effects, confirm=True)]))
    code, said = gnl("approvals", "approve", "r/s0p0/confirm/0", "--different-work")
    assert (code, "relation" in said, "Traceback" in said) == (2, True, False)


def test_the_list_shows_what_was_found(gnl, waiting):
    asyncio.run(waiting())
    code, said = gnl("approvals", "list")
    assert code == 0
    assert "duplicate, asked" in said
    assert "Identical work was already completed" in said
