"""Identities that cannot identify, and what of a call may reach an embedder, a judge, an incident or a log."""

import logging

import pytest

from gnl_core import SemanticIdentity, keys, tool
from gnl_core.errors import ToolDeclarationError

ABC, SPACED = {"sku": "abc"}, {"sku": " ABC "}
SECRET = "Ayşe Yılmaz"


def statuses(result):
    return [call.status for step in result.steps for call in step.calls]


# S85 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys_", "args", "cause", "words"),
    [
        (("sku",), {"sku": {"id": SECRET}}, "object", "is an object"),
        (("sku",), {"sku": [SECRET, "2"]}, "list", "flatten"),
        (("warehouse", "price"), {"sku": SECRET}, "absent", "'warehouse', 'price'"),
        (("sku", "warehouse"), {"sku": SECRET, "warehouse": {"name": SECRET}}, "object", "'warehouse'"),
        (("sku",), {"sku": "   "}, "absent", "'sku'"),
        (("sku",), {"sku": None}, "absent", "'sku'"),
    ],
)
async def test_l22_s85_an_identity_that_cannot_identify_stands_the_layer_down_and_says_so_by_names(
    shop, caplog, keys_, args, cause, words
):
    caplog.set_level(logging.DEBUG)
    made = shop.tool(declared={"keys": keys_, "describe": lambda args: f"about {args['sku']}"})
    result = await shop.run(args, args | {"note": "once more"}, tools=[made], run="first", resource_id="person")
    assert (statuses(result), shop.effects.count()) == (["succeeded", "succeeded"], 2)
    assert (shop.embed.sent, await shop.records(), await shop.rows("xid")) == ([], [], {})
    noted = await shop.noted("first")
    assert [(source, action) for source, action, _ in noted] == [("semantic-guard", "warn")] * 2, "one a call"
    for _, _, detail in noted:
        assert (detail["reason"], detail["cause"]) == ("identity-unusable", cause)
        assert set(detail["identity_keys"]) <= set(keys_)
        assert SECRET not in str(detail)
    rows = await shop.rows("run", "first", "~", "incident")
    assert all(words in entry.value["message"] and SECRET not in str(entry.value) for entry in rows.values())
    assert SECRET not in caplog.text


async def test_l24_a_describe_that_raises_stands_the_layer_down_and_no_default_takes_its_place(shop, caplog):
    def describe(args):
        raise KeyError(args["sku"])

    made = shop.tool(declared={"keys": ("sku",), "describe": describe})
    result = await shop.run({"sku": SECRET}, {"sku": f" {SECRET} "}, tools=[made], run="first")
    assert (result.text, shop.effects.count()) == ("done", 2)
    assert (shop.embed.sent, await shop.records()) == ([], [])
    for source, action, detail in await shop.noted("first"):
        assert (source, action) == ("semantic-guard", "warn")
        assert (detail["reason"], detail["cause"], detail["identity_keys"]) == (
            "identity-build-failed",
            "KeyError",
            ["sku"],
        )
        assert SECRET not in str(detail)
    assert len(await shop.noted("first")) == 2
    assert SECRET not in caplog.text


@pytest.mark.parametrize("text", [None, 7, b"x", ["a"]])
async def test_a_describe_that_returns_no_text_stands_the_layer_down(shop, text):
    made = shop.tool(declared={"keys": ("sku",), "describe": lambda _: text})
    assert (await shop.run(ABC, SPACED, tools=[made])).text == "done"
    assert (await shop.noted())[0][2]["reason"] == "identity-build-failed"
    assert shop.embed.sent == []


async def test_a_describe_may_not_change_what_the_tool_is_given(shop, asked):
    seen = []

    def describe(args):
        seen.append(dict(args))
        args.clear()
        return "a sentence"

    made = shop.tool(declared={"keys": ("sku",), "describe": describe})
    await shop.run(ABC, tools=[made], run="first")
    assert [args["sku"] for args in seen] == ["abc"]
    record = (await shop.get(keys.tool("first", "~", 0, 0))).value
    assert record["args"] == ABC
    question = asked(await shop.run(SPACED, tools=[made]))
    assert (question.prior["origin"], question.args) == ("identity", SPACED)


async def test_the_body_is_given_what_the_model_said_whatever_describe_does(shop):
    given = []

    def describe(args):
        args["sku"] = "another"
        args["nested"].append("more")
        return "a sentence"

    @tool(side_effect=True, semantic_identity=SemanticIdentity(keys=("sku",), describe=describe))
    async def order(sku: str, nested: list[str]) -> str:
        """Order it."""
        given.append((sku, nested))
        return "ordered"

    await shop.run(("order", {"sku": "abc", "nested": ["x"]}), tools=[order])
    assert given == [("abc", ["x"])]


@pytest.mark.parametrize("name", ["skuu", "constructor", "__class__", "SKU"])
def test_s85_a_field_that_the_tool_does_not_take_is_refused_where_it_is_declared(shop, name):
    with pytest.raises(ToolDeclarationError, match=f"has '{name}' among its keys"):
        shop.tool(declared={"keys": (name,)})


# What leaves the process ---------------------------------------------------------------------------------------------


async def test_by_default_the_identity_values_reach_embedder_and_judge_and_no_other_field_does(shop, judge_that):
    judge = judge_that("DIFFERENT")
    shop.gate = shop.gated(rules=True, judge=judge)
    hidden = {"price": 987654, "cancel": "verily", "warehouse": "north gate", "note": "ring twice"}
    await shop.run({"sku": SECRET} | hidden)
    await shop.run({"sku": "someone else"} | hidden)
    assert shop.embed.sent == ["createProduct: ayşe yilmaz", "createProduct: someone else"]
    ((system, user),) = judge.says.sent
    assert user == "TOOL: createProduct\nRECORD 1: createProduct: ayşe yilmaz\nRECORD 2: createProduct: someone else"
    for value in hidden.values():
        assert str(value) not in system + user


async def test_describe_is_the_redaction_point_for_embedder_and_judge_alike(shop, judge_that):
    judge = judge_that("DIFFERENT")
    shop.gate = shop.gated(rules=True, judge=judge)
    made = shop.tool(declared={"keys": ("sku",), "describe": lambda args: f"customer {len(args['sku'])}"})
    await shop.run({"sku": SECRET}, tools=[made])
    await shop.run({"sku": "Jane Bergman"}, tools=[made])
    assert shop.embed.sent == ["customer 11", "customer 12"]
    ((system, user),) = judge.says.sent
    assert user == "TOOL: createProduct\nRECORD 1: customer 11\nRECORD 2: customer 12"
    assert "ayşe" not in (system + user).lower()
    assert "jane" not in (system + user).lower()


@pytest.mark.parametrize("said", ["DIFFERENT", "SAME", RuntimeError(SECRET)])
async def test_s85_incidents_and_logs_hold_names_of_fields_and_never_values(shop, judge_that, caplog, said):
    caplog.set_level(logging.INFO)
    shop.gate = shop.gated(rules=True, judge=judge_that(said))
    await shop.run({"sku": SECRET, "price": 987654})
    await shop.run({"sku": f" {SECRET.upper()} ", "price": 123987})
    await shop.run({"sku": "A. Yılmaz, Ms"})
    shop.embed.error = RuntimeError(f"cannot embed {SECRET}")
    await shop.run({"sku": f"{SECRET} Jr"})
    rows = await shop.rows("run")
    incidents = [entry.value for key, entry in rows.items() if "incident" in key]
    assert len(incidents) >= 2
    for text in (str(incidents).lower(), caplog.text.lower()):
        for value in ("ayşe", "yilmaz", "yılmaz", "987654", "123987"):
            assert value not in text


# What only describe() can mend ----------------------------------------------------------------------------------------


async def test_terms_in_two_languages_are_missed_by_the_built_in_embedder_unless_describe_makes_one_of_them(
    shop, judge_that, asked
):
    """What recall never surfaces is seen by no rule and no judge; these two were measured below its threshold."""
    judge = judge_that("SAME")
    shop.gate = shop.gated(embed="local", embed_model_id=None, rules=True, judge=judge)
    english, turkish = {"sku": "invoice export"}, {"sku": "Fatura dışa aktarma"}
    await shop.run(english)
    assert (await shop.run(turkish, run="missed")).text == "done"
    assert (shop.effects.count(), judge.says.sent, await shop.noted("missed")) == (2, [], [])

    terms = {"fatura dışa aktarma": "invoice export"}
    made = shop.tool(declared={"keys": ("sku",), "describe": lambda args: terms.get(args["sku"].lower(), args["sku"])})
    await shop.run(english, tools=[made], thread_id="u")
    question = asked(await shop.run(turkish, tools=[made], thread_id="u"))
    assert (question.prior["origin"], question.prior["score"]) == ("judge", 1.0)
