"""A confirm question shows earlier work beside the call: what deterministic comparison found, and nothing else."""

import pytest

from gnl_core import RequireApproval, args_hash, decide, keys

pytestmark = pytest.mark.stores()

ABC, SPACED = {"sku": "abc"}, {"sku": " ABC ", "note": "x"}


@pytest.fixture
def ask(shop, asked):
    """Drive one run whose tool asks before each call; return its question."""

    async def one(args, *, run=None, answer=True, **options):
        tools = [shop.tool(confirm=True, declared=options.pop("declared", DECLARED))]
        question = asked(await shop.run(args, run=run, tools=tools, **options))
        if answer is not None:
            await decide(shop.journal, question.question, answer, actor="deniz")
            await shop.run(args, run=question.run_id, tools=tools, **options)
        return question

    return one


DECLARED = {"keys": ("sku",), "amount_fields": ("price",), "discriminator_fields": ("cancel",)}


def is_plain(question):
    return question.prior is None and "\u26a0" not in question.reason


async def test_the_first_job_is_asked_about_as_it_is(ask, shop):
    assert is_plain(await ask(ABC))
    assert shop.effects.count() == 1


async def test_another_spelling_of_one_identity_is_shown_with_the_first_call(ask, shop):
    await ask(ABC, run="first")
    question = await ask(SPACED, run="second", answer=None)
    assert (question.kind, question.prior["origin"], question.prior["run_id"]) == ("confirm", "identity", "first")
    assert "same business identity (sku)" in question.reason
    assert "'createProduct: abc'" in question.reason
    assert "call s0p0 of run first" in question.reason
    assert "amounts" not in question.reason
    ((source, action, detail),) = await shop.noted("second")
    assert (source, action, detail["origin"], detail["asked_by"]) == (
        "semantic-guard",
        "suspend",
        "identity",
        "confirm",
    )


async def test_byte_identical_arguments_are_the_exact_layers(ask):
    await ask(ABC, run="first")
    question = await ask(ABC, run="second")
    assert (question.kind, question.prior["origin"]) == ("confirm", "exact")


async def test_amounts_that_differ_are_shown_by_their_names(ask):
    await ask({"sku": "abc", "price": 5})
    question = await ask({"sku": "ABC", "price": 7})
    assert question.prior["amounts_differ"] == ["price"]
    assert "amounts differ (price)" in question.reason


async def test_a_rule_that_matches_is_shown(ask, shop):
    shop.gate = shop.gated(rules=True)
    await ask({"sku": "INV-2026-0142"})
    question = await ask({"sku": "inv 2026 142"})
    assert question.prior["origin"] == "rule"
    assert "written differently" in question.reason


async def test_another_identity_is_plain_even_at_cosine_one_and_no_judge_is_called(ask, shop, judge_that):
    judge = judge_that("SAME")
    shop.gate = shop.gated(rules=True, judge=judge)
    await ask({"sku": "Samsung 42 inch TV"})
    question = await ask({"sku": "SMSNG TV42"}, run="second")
    assert is_plain(question)
    assert judge.says.sent == []
    assert shop.effects.count() == 2
    assert {source for source, _, _ in await shop.noted("second")} == {"semantic-guard"}


async def test_another_discriminator_is_plain(ask):
    await ask(ABC)
    assert is_plain(await ask({"sku": "ABC", "cancel": True}))


async def test_with_the_embedder_down_it_is_plain(ask, shop):
    await ask(ABC)
    sent = []

    def down(texts):
        sent.append(texts)
        raise RuntimeError("down")

    shop.gate = shop.gated(embed=down)
    assert is_plain(await ask({"sku": "ABC", "note": "y"}))
    assert shop.effects.count() == 2
    assert len(sent) == 2, "once to ask, once to keep it after the answer"


@pytest.mark.parametrize("sku", [["abc"], {"id": "abc"}, "", None])
async def test_with_an_identity_that_cannot_identify_it_is_plain(ask, sku):
    await ask({"sku": sku, "note": "1"})
    assert is_plain(await ask({"sku": sku, "note": "2"}))


async def test_without_a_conversation_it_is_plain(ask):
    await ask(ABC, thread_id=None)
    assert is_plain(await ask(SPACED, thread_id=None))


async def test_a_yes_runs_it_and_leaves_the_tombstone_and_a_no_asks_again(ask, shop):
    await ask(ABC)
    assert not is_plain(await ask(SPACED, answer=False))
    assert (shop.effects.count(), await shop.tombstones()) == (1, [])
    assert not is_plain(await ask(SPACED, answer=True))
    assert shop.effects.count() == 2
    assert await shop.tombstones() == [
        keys.tombstone(("xthr", "t"), "createProduct", args_hash(SPACED), args_hash(ABC))
    ]
    third = await ask({"sku": "Abc"}, answer=None)
    assert third.prior["origin"] == "identity", "the tombstone is of its own pair"


async def test_a_yes_to_confirm_is_not_asked_about_once_more_by_the_gate(ask, shop):
    await ask(ABC)
    question = await ask(SPACED, run="second")
    assert question.kind == "confirm"
    assert [one[1] for one in await shop.noted("second")] == ["suspend"], "one question, one incident"


async def test_a_guards_question_shows_earlier_work_too(shop, asked):
    await shop.run(ABC, run="first")
    question = asked(await shop.run(SPACED, guard=lambda _: RequireApproval("is that fine?")))
    assert (question.kind, question.prior["origin"], question.prior["run_id"]) == ("guard", "identity", "first")
    assert question.reason.startswith("is that fine?")


async def test_a_store_that_cannot_be_searched_leaves_the_question_plain(ask, shop, monkeypatch):
    await ask(ABC)

    async def fail(*_, **__):
        raise RuntimeError("the scan broke")

    monkeypatch.setattr(shop.gate._cache, "recall", fail)
    assert is_plain(await ask(SPACED))
    assert shop.effects.count() == 2


async def test_a_marker_that_cannot_be_read_leaves_the_question_plain(shop, shop_of, broken_at, asked):
    await shop.run(ABC)
    sick = shop_of(broken_at(shop.journal, "dup"))
    assert is_plain(asked(await sick.run(ABC, run="second", tools=[sick.tool(confirm=True)])))


@pytest.mark.parametrize("rules", [False, True])
async def test_records_without_an_identity_decorate_nothing(ask, shop, rules):
    shop.gate = shop.gated(rules=rules)
    await ask({"sku": "other"})
    (entry,) = (await shop.rows("xthr", "t", "sem")).values()
    for identity in ({}, {"sku": ""}, None, {"sku": 7}):
        await shop.put(entry.key, entry.value | {"identity": identity}, entry.blob)
        assert is_plain(await ask({"sku": "ABC", "note": str(identity)}, answer=None))
