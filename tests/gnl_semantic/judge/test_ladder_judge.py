import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core.identity import canonical_sentence, normalize_identity_value
from gnl_semantic.errors import JudgeConfigError, JudgeError
from gnl_semantic.judge import PROMPT_VERSION, PROMPTS, Verdict, load_judge, parse_verdict
from gnl_semantic.ladder import RULESET_VERSION, Rules, evaluate

PROMPT = PROMPTS[PROMPT_VERSION]


async def ask(tool, a, b, *, reverse=False):
    reply = await load_judge("builtin:ladder").complete(PROMPT.system, PROMPT.render(tool, a, b, reverse=reverse))
    return parse_verdict(reply.text)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ("INV-2026-0142", "inv 2026 142", Verdict.SAME),
        ("Danışmanlık A.Ş.", "DANISMANLIK AS", Verdict.SAME),
        ("tv-42", "tv-42", Verdict.SAME),
        ("PHI-AF-XXL", "PHI-AF-XL", Verdict.DIFFERENT),
        ("tv-42", "tv-43", Verdict.DIFFERENT),
        ("Samsung 42 inc TV", "SMSNG TV42", Verdict.UNSURE),
        ("jane bergman", "jane berg", Verdict.UNSURE),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
async def test_match_separate_and_gray_are_the_three_words(a, b, verdict, reverse):
    assert await ask("order", f"order: {a}", f"order: {b}", reverse=reverse) is verdict


PIECES = ["tv", "42", "43", "042", "xl", "xxl", "A.Ş.", "as", "İzmir", "izmir", "-", "1.5"]
WORDS = st.lists(st.sampled_from(PIECES), min_size=1).map(" ".join)  # an identity without a value is none


@given(WORDS, WORDS)
async def test_it_says_what_the_ladder_says_of_the_identity_values(a, b):
    one, other = ({"record": normalize_identity_value(value)} for value in (a, b))
    expected = {"match": Verdict.SAME, "separate": Verdict.DIFFERENT, "gray": Verdict.UNSURE}
    verdict = await ask("order", canonical_sentence("order", one), canonical_sentence("order", other))
    assert verdict is expected[evaluate(one, other, Rules()).outcome]


async def test_the_tools_name_is_no_part_of_a_record():
    assert await ask("order", "order: tv 42", "tv-42") is Verdict.SAME
    assert await ask("order", "order", "order: order") is Verdict.SAME
    assert await ask("xl", "xl: shirt xl", "xl: shirt xxl") is Verdict.DIFFERENT


async def test_a_text_that_nobody_rendered_is_a_failed_call():
    with pytest.raises(JudgeError, match="builtin:ladder: not a user text"):
        await load_judge("builtin:ladder").complete("", "tv 42\ntv 43")


async def test_it_is_known_by_its_rules_and_may_be_named_but_not_renamed():
    model_id = f"builtin:ladder@{RULESET_VERSION}"
    info = load_judge("builtin:ladder", model=model_id).info
    assert (info.model_id, info.spec) == (model_id, "builtin:ladder")
    assert info.parameters == {"ruleset_version": RULESET_VERSION, "rules": Rules().parameters()}
    json.dumps(dict(info.parameters))
    with pytest.raises(JudgeConfigError, match=f"is '{model_id}', not 'gpt': leave it out"):
        load_judge("builtin:ladder", model="gpt")
