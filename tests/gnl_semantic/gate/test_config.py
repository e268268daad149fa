"""A gate that cannot work is refused before a run starts, each time for its own reason; and what is frozen of one."""

import json
import math
from datetime import UTC, datetime, timedelta

import pytest

from gnl_core import Duplicates, DuplicatesByClass, RunLimits, decide, durable_context, durable_tools, keys, resume_run
from gnl_core.errors import ConfigError
from gnl_core.testing import ScriptedModel
from gnl_semantic import Judge, Rules, SemanticGate
from gnl_semantic.errors import (
    CertificateFalseAlarmError,
    CertificateMissingError,
    CertificateModelError,
    CertificatePromptError,
    CertificateRecallError,
    CertificateUnreadableError,
    JudgeConfigError,
    RulesError,
)

ABC, SPACED = {"sku": "abc"}, {"sku": " ABC "}


# The gate itself -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"embed": 7}, "SemanticGate.embed is int"),
        ({"embed": None}, "SemanticGate.embed is NoneType"),
        ({"embed": [[0.1]]}, "SemanticGate.embed is list"),
        ({"embed_model_id": None}, "embed_model_id is None"),
        ({"embed_model_id": ""}, "embed_model_id is ''"),
        ({"embed_model_id": "  "}, "embed_model_id is '  '"),
        ({"embed_model_id": 7}, "embed_model_id is 7"),
        ({"min_similarity": 1.5}, "min_similarity is 1.5"),
        ({"min_similarity": math.nan}, "min_similarity is nan"),
        ({"min_similarity": True}, "min_similarity is True"),
        ({"min_similarity": "0.6"}, "min_similarity is '0.6'"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_k": 101}, "top_k is 101"),
        ({"top_k": 3.0}, "top_k is 3.0"),
        ({"embed_timeout": 0}, "embed_timeout is 0"),
        ({"embed_timeout": math.inf}, "embed_timeout is inf"),
        ({"embed_timeout": "5"}, "embed_timeout is '5'"),
        ({"rules": "all"}, "rules is str"),
        ({"rules": 1}, "rules is int"),
        ({"judge": lambda system, user: "SAME"}, "judge is function"),
        ({"judge": "builtin:local"}, "judge is str"),
    ],
)
def test_l02_what_cannot_work_is_refused_where_it_is_made(shop, options, words):
    with pytest.raises(ConfigError) as caught:
        shop.gated(**options)
    assert words in str(caught.value)


def test_an_embedder_takes_no_other_stamp_than_its_own():
    gate = SemanticGate(embed="local")
    assert gate.embed_model_id.startswith("local:")
    with pytest.raises(ConfigError, match="leave it out"):
        SemanticGate(embed="local", embed_model_id="other")
    with pytest.raises(ConfigError, match="nope"):
        SemanticGate(embed="nope")


def test_options_of_the_rules_that_mean_nothing_are_refused():
    with pytest.raises(RulesError, match="disable names 'nothing'"):
        Rules(disable=("nothing",))


# Where it may stand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["off", "warn", "reflect", "block", "skip"])
def test_l01_it_needs_a_rule_that_asks(shop, action):
    with pytest.raises(ConfigError, match=f"needs action='suspend', not '{action}'"):
        Duplicates(action=action, scope="thread", semantic=shop.gate)


def test_l01_it_needs_the_whole_conversation(shop):
    with pytest.raises(ConfigError, match="needs scope='thread', not 'request'"):
        Duplicates(action="suspend", semantic=shop.gate)
    with pytest.raises(ConfigError, match="needs scope='thread'"):
        RunLimits(side_effect_duplicates={"action": "suspend", "scope": "request", "semantic": shop.gate})


def test_a_gate_is_no_mapping_of_its_options(shop):
    with pytest.raises(ConfigError, match="semantic is dict, must be SemanticGate"):
        Duplicates(scope="thread", semantic={"embed": shop.embed})


def test_by_class_needs_a_class_that_asks_in_the_whole_conversation(shop):
    wide = Duplicates(action="suspend", scope="thread")
    with pytest.raises(ConfigError, match="no class has the action 'suspend'"):
        DuplicatesByClass(by_class={"delete": "block"}, default="warn", semantic=shop.gate)
    with pytest.raises(ConfigError, match="for every class that asks, the default included"):
        DuplicatesByClass(by_class={"delete": wide}, semantic=shop.gate)
    with pytest.raises(ConfigError, match="name it once, beside by_class"):
        DuplicatesByClass(
            by_class={"delete": Duplicates(scope="thread", semantic=shop.gate)}, default="warn", semantic=shop.gate
        )


async def test_by_class_it_serves_the_classes_that_ask_and_no_other(shop, asked):
    wide = Duplicates(action="suspend", scope="thread")
    rule = DuplicatesByClass(
        by_class={"transactional": wide, "notification": "warn"}, default="off", semantic=shop.gate
    )
    tools = [
        shop.tool("order", effect_class="transactional"),
        shop.tool("tell", effect_class="notification"),
        shop.tool("other"),
    ]
    for calls in ([("order", ABC), ("tell", ABC), ("other", ABC)], [("tell", SPACED), ("other", SPACED)]):
        result = await shop.run(*calls, tools=tools, limits=RunLimits(side_effect_duplicates=rule))
        assert result.text == "done"
    assert shop.embed.sent == ["order: abc"]
    result = await shop.run(("order", SPACED), tools=tools, limits=RunLimits(side_effect_duplicates=rule))
    assert asked(result).kind == "semantic"


async def test_l04_it_does_not_start_where_nobody_can_be_asked(shop):
    async with durable_context(run_id="r", journal=shop.journal, limits=shop.limits(), thread_id="t") as ctx:
        with pytest.raises(ConfigError, match="no approvals channel exists here"):
            durable_tools([shop.tool()], ctx, approvals=False)
    assert shop.effects.count() == 0


# Its judge -----------------------------------------------------------------------------------------------------------


async def says_same(system, user):
    return "SAME"


def judge(issued, **changes):
    return Judge(says_same, judge_model_id="judge@1", qualification=issued(**changes))


def test_l40_s88_a_judge_without_a_certificate_is_refused_before_any_run():
    with pytest.raises(CertificateMissingError):
        Judge(says_same, judge_model_id="judge@1")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"judge_model_id": "judge@2"}, CertificateModelError),
        ({"judge_prompt_version": "0"}, CertificatePromptError),
        ({"paraphrase_recall": 0.43}, CertificateRecallError),
        ({"near_miss_fp": 0.2}, CertificateFalseAlarmError),
    ],
)
def test_l42_s88_a_certificate_that_does_not_hold_is_refused_before_any_run(issued, changes, error):
    with pytest.raises(error):
        judge(issued, **changes)


def test_s88_an_edited_certificate_is_refused_before_any_run(issued, tmp_path):
    file = tmp_path / "cert.json"
    file.write_text(json.dumps(issued().model_dump(mode="json") | {"paraphrase_recall": 0.99}))
    with pytest.raises(CertificateUnreadableError, match="edited"):
        Judge(says_same, judge_model_id="judge@1", qualification=file)


def test_a_judge_that_cannot_be_called_is_refused(issued):
    with pytest.raises(JudgeConfigError):
        Judge(7, judge_model_id="judge@1", qualification=issued())


# What is only said ---------------------------------------------------------------------------------------------------


async def test_l43_an_old_certificate_is_a_warning_of_the_run(shop, issued):
    old = (datetime.now(UTC) - timedelta(days=181)).isoformat()
    shop.gate = shop.gated(rules=True, judge=judge(issued, passed_at=old))
    result = await shop.run(ABC)
    assert result.text == "done"
    assert any("180 days" in text or "181 days" in text for text in result.warnings)


async def test_a_judge_without_rules_is_a_warning_of_the_run(shop, judge_that):
    shop.gate = shop.gated(judge=judge_that("SAME"))
    result = await shop.run(ABC)
    assert sum("has a judge and no rules" in text for text in result.warnings) == 1
    shop.gate = shop.gated(judge=judge_that("SAME"), rules=True)
    assert not any("no rules" in text for text in (await shop.run({"sku": "x"})).warnings)


# What is frozen ------------------------------------------------------------------------------------------------------


async def test_l41_what_is_frozen_names_the_settings_and_holds_nothing_open(shop, judge_that):
    judged = judge_that("SAME", max_calls_per_run=5, timeout=2.0)
    shop.gate = shop.gated(rules=True, judge=judged, min_similarity=0.7, top_k=5)
    await shop.run(ABC, run="first")
    frozen = (await shop.get(keys.input_of("first"))).value["limits"]["side_effect_duplicates"]
    assert (frozen["action"], frozen["scope"], frozen["semantic"]["inactive"]) == ("suspend", "thread", True)
    settings = frozen["semantic"]["settings"]
    assert (settings["embed_model_id"], settings["min_similarity"], settings["top_k"]) == ("fake@1", 0.7, 5)
    assert settings["rules"]["version"] == "1"
    assert settings["judge"] == judged.freeze()
    assert settings["judge"]["certificate"] == judged.certificate.sha256
    assert "complete" not in json.dumps(frozen)


async def test_l26_a_resume_without_the_limits_goes_on_and_says_once_that_the_layer_is_off(shop, caplog):
    await shop.run(ABC)
    shop.embed.sent.clear()
    model = ScriptedModel(
        [RuntimeError("away"), [("createProduct", SPACED)], [("createProduct", {"sku": "Abc"})], "done"]
    )
    with pytest.raises(RuntimeError, match="away"):
        await shop.run(turns=[RuntimeError("away")], run="second")
    model = ScriptedModel([[("createProduct", SPACED)], [("createProduct", {"sku": "Abc"})], "done"])
    caplog.clear()
    result = await resume_run(run_id="second", journal=shop.journal, model=model, tools=[shop.tool()])
    assert (result.text, result.interrupts, shop.effects.count(), shop.embed.sent) == ("done", (), 3, [])
    (warning,) = [text for text in result.warnings if "semantic gate" in text]
    assert "inactive" in warning
    assert sum(record.getMessage() == warning for record in caplog.records) == 1
    assert await shop.noted("second") == []


async def test_l27_the_gates_own_question_can_be_approved_without_the_limits(shop, asked):
    await shop.run(ABC)
    question = asked(await shop.run(SPACED, run="second"))
    await decide(shop.journal, question.question, True, actor="deniz")
    model = ScriptedModel([[("createProduct", SPACED)], "done"])
    result = await resume_run(run_id="second", journal=shop.journal, model=model, tools=[shop.tool()])
    assert (result.text, shop.effects.count()) == ("done", 2)
    assert len(await shop.tombstones()) == 1


async def test_a_resume_with_the_limits_has_the_layer_again(shop, asked):
    await shop.run(ABC)
    with pytest.raises(RuntimeError, match="away"):
        await shop.run(turns=[RuntimeError("away")], run="second")
    model = ScriptedModel([[("createProduct", SPACED)], "done"])
    result = await resume_run(
        run_id="second", journal=shop.journal, model=model, tools=[shop.tool()], limits=shop.limits()
    )
    assert asked(result).kind == "semantic"
    assert not any("inactive" in text for text in result.warnings)
