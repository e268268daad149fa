import hashlib
import json

import pytest

from gnl_semantic import errors
from gnl_semantic.errors import JudgeAnswerMissingError, JudgeConfigError, JudgeError, JudgeRateLimitedError
from gnl_semantic.judge import PROMPT_VERSION, PROMPTS, Reply, load_judge

PROMPT = PROMPTS[PROMPT_VERSION]
USER = PROMPT.render("order", "tv 42", "tv-42")
OTHER = PROMPT.render("order", "tv 42", "tv 43")
HEADER = {"kind": "header", "judge_model_id": "m", "prompt_sha256": PROMPT.sha256, "seed": 7}


def answer_row(user, outcome, *, repeat=0):
    """The row of one call, as the exam writes it."""
    row = {"kind": "answer", "prompt_sha256": hashlib.sha256(user.encode()).hexdigest(), "repeat": repeat}
    if isinstance(outcome, JudgeError):
        return row | {"text": None, "error": outcome.code, "message": str(outcome)}
    return row | {"text": outcome.text, "tokens_in": outcome.tokens_in, "tokens_out": outcome.tokens_out}


@pytest.fixture
def judge_of(tmp_path):
    """Write a transcript, of rows or of bytes, and load it."""

    def build(*rows, model=None):
        file = tmp_path / "transcript.jsonl"
        file.write_bytes(b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows))
        return load_judge(f"recorded:{file}", model=model)

    return build


async def test_it_repeats_what_was_said(judge_of):
    judge = judge_of(HEADER, answer_row(USER, Reply("SAME", 9, 1)), answer_row(OTHER, Reply("hm:\u2028\n")))
    assert await judge.complete("s", USER) == Reply("SAME", 9, 1)
    assert await judge.complete("s", OTHER) == Reply("hm:\u2028\n")
    assert judge.info.model_id == "m"
    assert judge.info.engine == "recorded"
    assert len(judge.info.parameters["file_sha256"]) == 64
    await judge.aclose()


async def test_the_kth_ask_gets_the_kth_answer_and_then_none(judge_of):
    rows = [
        answer_row(USER, Reply(word), repeat=repeat) for repeat, word in ((1, "UNSURE"), (0, "SAME"), (2, "DIFFERENT"))
    ]
    judge = judge_of(HEADER, *rows, answer_row(OTHER, Reply("UNSURE")))
    assert [(await judge.complete("s", USER)).text for _ in range(3)] == ["SAME", "UNSURE", "DIFFERENT"]
    with pytest.raises(JudgeAnswerMissingError, match=r"has no 4\. answer"):
        await judge.complete("s", USER)
    assert (await judge.complete("s", OTHER)).text == "UNSURE"


async def test_both_orders_are_two_prompts(judge_of):
    judge = judge_of(HEADER, answer_row(USER, Reply("SAME")))
    with pytest.raises(JudgeAnswerMissingError, match="has no answer to the prompt"):
        await judge.complete("s", PROMPT.render("order", "tv 42", "tv-42", reverse=True))


LEAVES = [JudgeError, *JudgeError.__subclasses__()]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
async def test_a_failed_call_fails_alike(judge_of, leaf):
    judge = judge_of(HEADER, answer_row(USER, leaf("as it was")))
    with pytest.raises(JudgeError, match=r"^as it was$") as caught:
        await judge.complete("s", USER)
    assert type(caught.value) is leaf


def test_every_judge_error_of_the_tree_can_be_recorded():
    declared = {cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, JudgeError)}
    assert declared == set(LEAVES)
    assert len({leaf.code for leaf in LEAVES}) == len(LEAVES)


async def test_a_recorded_rate_limit_is_not_waited_for(judge_of):
    judge = judge_of(HEADER, answer_row(USER, JudgeRateLimitedError("429", retry_after=600.0)))
    with pytest.raises(JudgeRateLimitedError) as caught:
        await judge.complete("s", USER)
    assert caught.value.retry_after is None


async def test_what_a_kill_cut_off_is_left_out(judge_of):
    cut = json.dumps(answer_row(OTHER, Reply("é SAME")), ensure_ascii=False).encode()
    for end in (1, len(cut) // 2, cut.index("é".encode()) + 1, len(cut) - 1):
        judge = judge_of(HEADER, answer_row(USER, Reply("SAME")), cut[:end])
        assert (await judge.complete("s", USER)).text == "SAME"
        with pytest.raises(JudgeAnswerMissingError):
            await judge.complete("s", OTHER)


async def test_a_last_line_without_its_break_counts_when_it_is_whole(judge_of):
    judge = judge_of(HEADER, json.dumps(answer_row(USER, Reply("SAME"))).encode())
    assert (await judge.complete("s", USER)).text == "SAME"


async def test_other_rows_and_blank_lines_are_passed_over(judge_of):
    judge = judge_of(
        b"\n", HEADER, b"\r\n", {"kind": "pair", "text": 3}, {"no": "kind"}, answer_row(USER, Reply("SAME"))
    )
    assert (await judge.complete("s", USER)).text == "SAME"


ANSWER = answer_row(USER, Reply("SAME"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([HEADER, b'{"kind": "answer"\n', ANSWER], "line 2: is no JSON"),
        ([HEADER, b"\xff\n", ANSWER], "line 2: is no JSON"),
        ([HEADER, ANSWER, b"{\n"], "line 3: is no JSON"),
        ([HEADER, b"[" * 100_000 + b"\n"], "line 2: is no JSON"),
        ([[]], "line 1: is list, must be an object"),
        ([HEADER, ANSWER | {"text": 3}], "line 2: field 'text'"),
        ([HEADER, ANSWER | {"repeat": "0"}], "line 2: field 'repeat'"),
        ([HEADER, ANSWER | {"tokens_out": -1}], "line 2: field 'tokens_out'"),
        ([HEADER, {"kind": "answer", "text": "SAME"}], "line 2: field 'prompt_sha256'"),
        ([HEADER | {"judge_model_id": 3}, ANSWER], "line 1: field 'judge_model_id'"),
        ([HEADER, ANSWER | {"text": None}], "line 2: has neither 'text' nor 'error'"),
        ([HEADER, ANSWER | {"error": "model_not_found"}], "'model_not_found' is no code of a judge's error"),
        ([HEADER], "holds no answer rows"),
        ([], "holds no answer rows"),
        ([ANSWER], "has no judge_model_id in its header"),
        ([{"kind": "header", "judge_model_id": "m"}, ANSWER], "has no prompt_sha256 in its header"),
        ([HEADER | {"prompt_sha256": "0" * 64}, ANSWER], "a prompt with other words (000000000000, here"),
    ],
)
def test_a_faulty_transcript_is_told_where(judge_of, rows, message):
    with pytest.raises(JudgeConfigError) as caught:
        judge_of(*rows)
    assert message in str(caught.value)
    assert "transcript.jsonl" in str(caught.value)


def test_the_model_is_the_one_that_answered(judge_of):
    nameless = {"kind": "header", "prompt_sha256": PROMPT.sha256}
    assert judge_of(nameless, ANSWER, model="named").info.model_id == "named"
    assert judge_of(HEADER, ANSWER, model="m").info.model_id == "m"
    with pytest.raises(JudgeConfigError, match="the answers are those of 'm', not of 'better'"):
        judge_of(HEADER, ANSWER, model="better")
