"""What is counted of the layer, and what is not: gray pairs, answers that came before a question, embeddings."""

import pytest

from gnl_core import Approval, RequireApproval, agent_tool, args_hash, decide, keys, read_incidents
from gnl_core.testing import ScriptedModel
from gnl_semantic import read_telemetry

pytestmark = pytest.mark.stores()

ABC, SPACED = {"sku": "abc"}, {"sku": " ABC "}
TV, TELLY = {"sku": "Samsung 42 inch TV"}, {"sku": "SMSNG TV42"}


def ask(call):
    return RequireApproval("is that fine?")


async def counts(shop, run):
    return (await shop.get(keys.semantic_counts(run))).value


# Gray pairs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["confirm", "guard", "nobody"])
@pytest.mark.parametrize("judged", [False, True])
async def test_a_gray_pair_is_counted_only_where_a_judge_could_be_asked(shop, judge_that, how, judged):
    """Beside a question that is asked anyway no judge is asked: a person looks at the call already."""
    judge = judge_that("DIFFERENT") if judged else None
    shop.gate = shop.gated(rules=True, judge=judge)
    await shop.run(TV)
    tools = [shop.tool(confirm=how == "confirm")]
    result = await shop.run(TELLY, run="second", tools=tools, guard=ask if how == "guard" else None)
    assert [question.prior for question in result.interrupts] == ([] if how == "nobody" else [None])
    gray = int(how == "nobody")
    assert (await counts(shop, "second")).get("gray", 0) == gray
    assert (await counts(shop, "second")).get("judged", 0) == (gray if judged else 0)
    told = [detail for source, _, detail in await shop.noted("second") if source == "semantic-guard"]
    assert [detail.get("gray_calls", 0) for detail in told if "gray_calls" in detail] == [1] * gray
    telemetry = await read_telemetry(shop.journal)
    assert (telemetry.scan.gray_calls, telemetry.runs.count("gray"), telemetry.decisions.asked) == (gray, gray, 0)


# Answers given ahead --------------------------------------------------------------------------------------------------


async def test_a_no_given_ahead_is_no_answer_to_the_gates_question(shop):
    await shop.run(ABC)
    no = Approval(approved=False, args_digest=args_hash(SPACED))
    result = await shop.run(SPACED, run="second", approvals={"s0p0": no})
    assert (result.interrupts, shop.effects.count()) == ((), 1)
    ((source, action, _),) = await shop.noted("second")
    assert (source, action) == ("semantic-guard", "answered-ahead")
    decisions = (await read_telemetry(shop.journal)).decisions
    assert (decisions.asked, decisions.decided, decisions.precision.n) == (0, 0, 0)


async def test_beside_it_an_answered_question_counts_alone(shop, asked):
    await shop.run(ABC)
    question = asked(await shop.run(SPACED, run="second"))
    await decide(shop.journal, question.question, False)
    await shop.run(SPACED, run="second")
    ahead = {"sku": "Abc"}
    no = Approval(approved=False, args_digest=args_hash(ahead))
    await shop.run(ahead, run="third", approvals={"s0p0": no})
    telemetry = await read_telemetry(shop.journal)
    assert (telemetry.decisions.asked, telemetry.decisions.denied) == (1, 1)
    assert (telemetry.decisions.precision.k, telemetry.decisions.precision.n) == (1, 1)
    assert telemetry.unreadable == 0


async def test_a_no_given_ahead_to_a_repeat_is_no_question_either(shop):
    await shop.run(ABC)
    no = Approval(approved=False, args_digest=args_hash(ABC))
    await shop.run(ABC, run="second", approvals={"s0p0": no})
    assert [(one.source, one.action) for one in await read_incidents(shop.journal, "second")] == [
        ("duplicate-guard", "answered-ahead")
    ]
    assert (await read_telemetry(shop.journal)).decisions.asked == 0
    assert shop.effects.count() == 1


# Embeddings -----------------------------------------------------------------------------------------------------------


async def test_an_embedding_that_only_keeping_made_is_counted(shop, asked):
    """A drive that carries out a person's yes looks for nothing, and in a new process nothing is known."""
    await shop.run(ABC)
    question = asked(await shop.run(SPACED, run="second"))
    assert (await counts(shop, "second")).get("embedded", 0) == 0, "its text is the first one's"
    await decide(shop.journal, question.question, True)
    sent = []

    async def embed(texts):
        sent.extend(texts)
        return [[1.0, 0.0]]

    shop.gate = shop.gated(embed=embed)
    assert (await shop.run(SPACED, run="second")).text == "done"
    found = await counts(shop, "second")
    assert (found["guarded"], found["embedded"], len(sent)) == (1, 1, 1)


async def test_what_keeping_knows_already_is_counted_once(shop):
    await shop.run(ABC, run="first")
    assert ((await counts(shop, "first"))["embedded"], len(shop.embed.sent)) == (1, 1)


async def test_a_yes_given_ahead_is_kept_at_the_cost_of_one_embedding(shop):
    yes = Approval(approved=True, args_digest=args_hash(ABC))
    await shop.run(ABC, run="first", approvals={"s0p0": yes})
    assert ((await counts(shop, "first"))["embedded"], len(shop.embed.sent)) == (1, 1)
    assert len(await shop.records()) == 1


# Declarations ---------------------------------------------------------------------------------------------------------

NOTHING = "looks at nothing"


def child(shop, **options):
    model = ScriptedModel([[("createProduct", ABC)], "made"])
    return agent_tool(name="child", description="Makes products.", model=model, tools=[shop.tool(**options)])


async def test_a_declaration_in_a_sub_agent_is_looked_at(shop, asked):
    turns = [[("child", {"task": "make it"})], "done"]
    result = await shop.run(turns=turns, tools=[child(shop)])
    assert (result.text, [text for text in result.warnings if NOTHING in text]) == ("done", [])
    again = ScriptedModel([[("createProduct", SPACED)], "made"])
    other = agent_tool(name="child", description="Makes products.", model=again, tools=[shop.tool()])
    assert asked(await shop.run(turns=turns, tools=[other])).kind == "semantic"


async def test_without_any_declaration_it_is_said_that_nothing_is_looked_at(shop):
    result = await shop.run(ABC, tools=[shop.tool(declared=None)])
    assert len([text for text in result.warnings if NOTHING in text]) == 1
