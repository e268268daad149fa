"""The transport and the parser against a real language model, which is too small to be a judge."""

import textwrap

import pytest

from gnl_semantic.errors import JudgeRefusedError
from gnl_semantic.judge import PROMPT_VERSION, PROMPTS, Verdict, load_judge, parse_verdict

pytestmark = pytest.mark.llm

PROMPT = PROMPTS[PROMPT_VERSION]
LOOK_ALIKES = PROMPT.render("createOrder", "createOrder: philips airfryer xl", "createOrder: philips airfryer xxl")
THREE_WORDS = 'root ::= "SAME" | "DIFFERENT" | "UNSURE"'


async def test_held_to_the_three_words_it_gives_one_of_them(real_llm):
    judge = load_judge(
        f"openai:{real_llm.base_url}",
        model=real_llm.model,
        key_env=real_llm.key_env,
        timeout_s=120,
        max_tokens=8,
        extra_body={"grammar": THREE_WORDS},
    )
    try:
        reply = await judge.complete(PROMPT.system, LOOK_ALIKES)
    finally:
        await judge.aclose()
    assert parse_verdict(reply.text) in set(Verdict)
    assert reply.tokens_in > 200, "the whole prompt was read"
    assert 1 <= reply.tokens_out <= 8


async def test_left_to_itself_it_talks_and_that_is_no_verdict(real_llm):
    judge = load_judge(
        f"openai:{real_llm.base_url}", model=real_llm.model, key_env=real_llm.key_env, timeout_s=120, max_tokens=24
    )
    try:
        reply = await judge.complete(PROMPT.system, LOOK_ALIKES)
    finally:
        await judge.aclose()
    assert reply.text
    assert parse_verdict(reply.text) is None


async def test_a_file_of_ones_own_may_unwrap_a_schema(real_llm, tmp_path):
    file = tmp_path / "schema_judge.py"
    file.write_text(
        textwrap.dedent(f"""
            import json
            import urllib.request

            SCHEMA = {{
                "type": "object",
                "properties": {{"verdict": {{"enum": ["SAME", "DIFFERENT", "UNSURE"]}}}},
                "required": ["verdict"],
            }}

            def complete(system, user):
                body = {{
                    "messages": [{{"role": "system", "content": system}}, {{"role": "user", "content": user}}],
                    "temperature": 0,
                    "max_tokens": 24,
                    "response_format": {{"type": "json_schema", "json_schema": {{"schema": SCHEMA}}}},
                }}
                request = urllib.request.Request(
                    {real_llm.base_url + "/chat/completions"!r},
                    json.dumps(body).encode(),
                    {{"Authorization": {"Bearer " + real_llm.api_key!r}, "Content-Type": "application/json"}},
                )
                with urllib.request.urlopen(request, timeout=100) as response:
                    answer = json.load(response)["choices"][0]["message"]["content"]
                return json.loads(answer)["verdict"]
        """)
    )
    judge = load_judge(str(file), model=real_llm.model, timeout_s=120)
    assert parse_verdict((await judge.complete(PROMPT.system, LOOK_ALIKES)).text) is Verdict.SAME


async def test_a_wrong_key_is_refused(real_llm, monkeypatch):
    monkeypatch.setenv("GNL_TEST_WRONG_KEY", "wrong")
    judge = load_judge(f"openai:{real_llm.base_url}", model=real_llm.model, key_env="GNL_TEST_WRONG_KEY")
    try:
        with pytest.raises(JudgeRefusedError, match="401"):
            await judge.complete(PROMPT.system, LOOK_ALIKES)
    finally:
        await judge.aclose()
