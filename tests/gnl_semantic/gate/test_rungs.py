"""Rules, records of another embedder, calls that the layer has no part in, and what becomes of calls it asked about."""

import enum
from datetime import datetime
from decimal import Decimal

import pytest

from gnl_core import SemanticIdentity, decide, fork_run, keys, list_interrupts, resume_run, run_durable, tool
from gnl_core.approvals import Approval
from gnl_core.errors import IdentityDeclarationError
from gnl_core.testing import ScriptedModel

ABC, SPACED = {"sku": "abc"}, {"sku": " ABC ", "note": "again, please"}


class Room(enum.Enum):
    """What can be booked."""

    BLUE = "blue"


def statuses(result):
    return [call.status for step in result.steps for call in step.calls]


# Rules ---------------------------------------------------------------------------------------------------------------


async def test_l31_a_rule_that_matches_asks_and_says_which(shop, asked):
    shop.gate = shop.gated(rules=True)
    await shop.run({"sku": "INV-2026-0142"})
    question = asked(await shop.run({"sku": "inv 2026 142"}, run="second"))
    assert question.prior["origin"] == "rule"
    assert [(trace["rule"], trace["class"], trace["field"]) for trace in question.prior["traces"]] == [
        ("digit-value", "normalizer", "sku")
    ]
    assert "written differently" in question.reason
    ((source, action, detail),) = await shop.noted("second")
    assert (source, action, detail["origin"]) == ("semantic-guard", "suspend", "rule")
    assert detail["traces"] == question.prior["traces"]


async def test_l32_s84_sizes_look_alike_and_are_different_products(shop):
    shop.gate = shop.gated(rules=True)
    shop.embed.place("createProduct: philips airfryer xl", 0.959)
    await shop.run({"sku": "Philips Airfryer XXL"})
    result = await shop.run({"sku": "Philips Airfryer XL"}, run="second")
    assert (result.text, shop.effects.count()) == ("done", 2)
    ((source, action, detail),) = await shop.noted("second")
    assert (source, action) == ("semantic-guard", "warn")
    assert {name: value for name, value in detail.items() if name.startswith(("dropped", "gray"))} == {
        "dropped_by_rule": 1
    }
    assert detail["ruleset_version"] == "1"


async def test_l33_a_gray_candidate_hides_no_match_behind_it(shop, asked):
    shop.embed.place("createProduct: abc", 0.8)
    shop.embed.place("createProduct: samsung television", 1.0)
    shop.embed.place("createProduct: the call", 1.0)
    describe = {"keys": ("sku",), "describe": lambda args: args["note"]}
    made = shop.tool(declared=describe)
    await shop.run({"sku": "abc", "note": "createProduct: abc"}, tools=[made])
    await shop.run({"sku": "Samsung television", "note": "createProduct: samsung television"}, tools=[made])
    for rules in (True, False):
        shop.gate = shop.gated(rules=rules)
        question = asked(await shop.run({"sku": "ABC", "note": "createProduct: the call"}, tools=[made]))
        assert (question.prior["origin"], question.prior["run_id"], question.prior["score"]) == ("identity", "r1", 0.8)


async def test_l38_three_reasons_to_ask_nothing_are_one_incident(shop):
    shop.gate = shop.gated(rules=True)
    await shop.run({"sku": "Airfryer XL"}, {"sku": "Air fryer Philips"}, {"sku": "Airfryer XXL", "cancel": True})
    result = await shop.run({"sku": "Airfryer XXL"}, run="second")
    assert result.text == "done"
    ((source, action, detail),) = await shop.noted("second")
    assert (source, action) == ("semantic-guard", "warn")
    assert {name: value for name, value in detail.items() if name.startswith(("dropped", "gray"))} == {
        "dropped_by_rule": 1,
        "dropped_identity": 1,
        "dropped_discriminator": 1,
        "gray_calls": 1,
    }


# Records of another embedder -----------------------------------------------------------------------------------------


async def test_l19_records_of_another_embedder_are_counted_and_never_compared_by_cosine(shop):
    await shop.run(ABC)
    shop.gate = shop.gated(embed_model_id="fake@2", rules=True)
    result = await shop.run({"sku": "a wholly other thing"}, run="second")
    assert (result.text, shop.effects.count()) == ("done", 2)
    ((_, _, detail),) = await shop.noted("second")
    assert {name: value for name, value in detail.items() if name.startswith(("dropped", "gray"))} == {
        "dropped_stamp": 1
    }


async def test_a_record_of_another_embedder_whose_identity_folds_alike_is_asked_about_all_the_same(shop, asked):
    await shop.run(ABC)
    shop.gate = shop.gated(embed_model_id="fake@2")
    question = asked(await shop.run(SPACED))
    assert (question.prior["origin"], "score" in question.prior) == ("identity", False)
    assert "alike" in question.reason
    assert "%" not in question.reason


# No record, no conversation, no declaration --------------------------------------------------------------------------


async def test_l11_replay_costs_no_embedding(shop):
    await shop.run(ABC, run="first")
    sent = len(shop.embed.sent)
    shop.gate = shop.gated()
    result = await shop.run(ABC, run="first")
    assert (result.text, len(shop.embed.sent)) == ("done", sent)
    assert [call.origin for call in result.replayed_tool_calls] == ["self"]


async def test_l21_without_a_conversation_the_layer_is_off_and_says_so_once(shop, caplog):
    result = await shop.run(ABC, SPACED, {"sku": "Abc"}, thread_id=None)
    assert (result.text, shop.effects.count(), shop.embed.sent) == ("done", 3, [])
    (warning,) = [text for text in result.warnings if "semantic gate" in text]
    assert "no thread_id" in warning
    assert sum(record.getMessage() == warning for record in caplog.records) == 1
    assert not await shop.rows("xthr")


async def test_without_a_declaration_the_layer_is_off(shop):
    made = shop.tool(declared=None)
    result = await shop.run(ABC, SPACED, tools=[made])
    assert (result.text, shop.effects.count(), shop.embed.sent) == ("done", 2, [])
    assert any("no tool declares a semantic_identity" in text for text in result.warnings)


async def test_without_the_gate_a_declaration_asks_nothing_of_itself(shop):
    shop.gate = None
    result = await shop.run(ABC, SPACED)
    assert (result.text, shop.effects.count(), shop.embed.sent, await shop.records()) == ("done", 2, [], [])


async def test_a_tool_that_only_reads_is_never_looked_at(shop):
    made = shop.tool(side_effect=False)
    result = await shop.run(ABC, SPACED, tools=[made])
    assert (result.text, shop.effects.count(), shop.embed.sent) == ("done", 2, [])


async def test_a_keyed_tool_that_declares_an_identity_is_asked_about_too(shop, asked):
    made = shop.tool(idempotency="args")
    await shop.run(ABC, tools=[made])
    question = asked(await shop.run(SPACED, tools=[made], run="second"))
    assert question.kind == "semantic"
    await decide(shop.journal, question.question, True, actor="deniz")
    result = await shop.run(SPACED, tools=[made], run="second")
    assert (result.text, shop.effects.count()) == ("done", 2)
    assert len(await shop.tombstones()) == 1


def test_l03_keys_that_name_nothing_are_refused_where_they_are_declared():
    with pytest.raises(IdentityDeclarationError, match="keys is empty"):
        SemanticIdentity(keys=())
    with pytest.raises(IdentityDeclarationError, match="keys is str"):
        SemanticIdentity(keys="sku")


# Failed and settled work ---------------------------------------------------------------------------------------------


async def test_l25_a_failed_attempt_is_not_overwritten_by_a_question(shop, asked):
    shop.embed.place("createProduct: abc", 1.0)
    made = shop.tool(fails=1)
    await shop.run(ABC, run="first", tools=[made])
    await shop.run(SPACED, run="other", tools=[shop.tool()])
    key = keys.tool("first", "~", 0, 0)
    before = await shop.get(key)
    assert before.value["status"] == "failed"
    question = next(one for one in await list_interrupts(shop.journal, "first"))
    assert question.kind == "in_doubt"
    await decide(shop.journal, question.question, False, actor="deniz", output="it went through")
    result = await shop.run(ABC, run="first", tools=[made])
    assert result.interrupts == ()
    assert (await shop.get(key)).value["status"] == "succeeded"
    assert shop.effects.count() == 2


async def test_a_fork_is_guarded_like_any_run(shop, asked):
    await shop.run(ABC, SPACED, run="first")
    await fork_run(journal=shop.journal, run_id="first", step=1, new_run_id="branch")
    result = await run_durable(
        run_id="branch",
        journal=shop.journal,
        model=ScriptedModel([[("createProduct", ABC)], [("createProduct", {"sku": "Abc"})], "done"]),
        tools=[shop.tool()],
        limits=shop.limits(),
    )
    question = asked(result)
    assert (question.run_id, question.kind, question.prior["run_id"]) == ("branch", "semantic", "first")
    assert shop.effects.count() == 1


async def test_a_run_with_a_question_goes_on_by_resume(shop, asked):
    await shop.run(ABC)
    question = asked(await shop.run(SPACED, run="second", channel="chat"))
    sent = len(shop.embed.sent)
    model = ScriptedModel([[("createProduct", SPACED)], "done"])
    result = await resume_run(
        run_id="second",
        journal=shop.journal,
        model=model,
        tools=[shop.tool()],
        limits=shop.limits(),
        approvals={question.question: Approval(approved=True, actor="deniz", relation="different_work")},
    )
    assert (result.text, shop.effects.count()) == ("done", 2)
    assert len(shop.embed.sent) == sent, "the vector that was found by is the one that is kept"


async def test_the_first_call_of_a_conversation_is_embedded_once_for_finding_and_keeping(shop):
    await shop.run(ABC, {"sku": "other"}, SPACED)
    assert shop.embed.sent == ["createProduct: abc", "createProduct: other"], "the same text is never sent twice"


@tool(side_effect=True, semantic_identity=SemanticIdentity(keys=("subject",)))
def open_ticket(subject: str) -> str:
    """Open a ticket."""
    return f"opened {subject}"


async def test_a_sync_tool_is_guarded_like_any(shop, asked):
    await shop.run(("open_ticket", {"subject": "Broken chair"}), tools=[open_ticket])
    assert asked(await shop.run(("open_ticket", {"subject": "BROKEN CHAIR"}), tools=[open_ticket])).kind == "semantic"


async def test_a_refused_call_is_not_asked_about_again_in_its_request_and_other_words_are(shop, asked):
    await shop.run(ABC)
    question = asked(await shop.run(SPACED, SPACED, {"sku": "Abc"}, run="second"))
    await decide(shop.journal, question.question, False, actor="deniz")
    result = await shop.run(SPACED, SPACED, {"sku": "Abc"}, run="second")
    assert statuses(result) == ["denied", "denied", "suspended"]
    assert (asked(result).tool_call_id, asked(result).kind) == ("s2p0", "semantic")
    assert shop.effects.count() == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("İNV-1", "inv-1"),
        ("INV-1", "ınv-1"),
        ("Straße 5", "STRASSE 5"),
        ("\uff21\uff22\uff23", "abc"),
        ("abc\ufeff", "\u00a0ABC"),
        (7, "7"),
        (7.0, 7),
        (True, "true"),
    ],
)
@pytest.mark.parametrize("rules", [False, True])
async def test_spellings_that_normalise_alike_are_one_identity(shop, asked, first, second, rules):
    shop.gate = shop.gated(rules=rules)
    await shop.run({"sku": first, "note": "one"})
    assert asked(await shop.run({"sku": second, "note": "other"})).prior["origin"] == "identity"


async def test_typed_arguments_are_compared_by_what_they_mean(shop, asked):
    booked = []

    @tool(
        side_effect=True,
        semantic_identity=SemanticIdentity(keys=("room", "start"), amount_fields=("price",)),
    )
    async def book(room: Room, start: datetime, price: Decimal) -> str:
        """Book a room."""
        booked.append((room, start, price))
        return "booked"

    def at(start, price="10.50"):
        return ("book", {"room": "blue", "start": start, "price": price})

    await shop.run(at("2026-03-01T10:00:00+02:00"), tools=[book])
    question = asked(await shop.run(at("2026-03-01T08:00:00Z", "10.5"), tools=[book]))
    assert question.prior["origin"] == "identity"
    assert "amounts_differ" not in question.prior
    assert (await shop.run(at("2026-03-01T09:00:00Z"), tools=[book])).text == "done"
    assert asked(await shop.run(at("2026-03-01T11:00:00+02:00", "11"), tools=[book])).prior["amounts_differ"] == [
        "price"
    ]
    assert len(booked) == 2
