"""A real language model, too small to be a judge, sits the exam and fails it honestly, in two ways."""

import pytest

from gnl_fixtures import load_shipped
from gnl_qualify.exam import Settings, sit_exam
from gnl_semantic.judge.load import load_judge

pytestmark = pytest.mark.llm

SETTINGS = Settings(limit=40, concurrency=1, timeout_s=120, repeat_sample=4, order_sample=4)
THREE_WORDS = 'root ::= "SAME" | "DIFFERENT" | "UNSURE"'


@pytest.fixture
def sit(real_llm, tmp_path):
    async def sit(**options):
        judge = load_judge(
            f"openai:{real_llm.base_url}", model=real_llm.model, key_env=real_llm.key_env, timeout_s=120, **options
        )
        path = tmp_path / "t.jsonl"
        sitting = await sit_exam(judge, load_shipped("calibration"), SETTINGS, transcript=path)
        assert real_llm.api_key not in path.read_text(encoding="utf-8")
        return sitting

    return sit


async def test_held_to_the_three_words_it_says_same_to_everything_and_fails_on_false_alarms(sit):
    sitting = await sit(max_tokens=8, extra_body={"grammar": THREE_WORDS})
    recall, alarms = sitting.report.bars
    assert (recall.rate.k, recall.rate.n, alarms.rate.k, alarms.rate.n) == (10, 10, 10, 10)
    assert (recall.passed, alarms.passed, sitting.certificate) == (True, False, None)
    assert sitting.report.reasons[0].startswith("near-miss false alarms: 1.000 (10/10")
    # Its perfect steadiness is worth nothing.
    assert sitting.report.order.flips.k == sitting.report.repeat.flips.k == 0
    assert sitting.report.tokens_in > 200 * 48


async def test_left_to_itself_it_talks_and_the_first_reason_is_the_format(sit):
    sitting = await sit(max_tokens=16)
    assert sitting.certificate is None
    assert sitting.report.reasons[0].startswith("format failure: 40 of 40")
    assert sitting.report.bars[1].rate.k == 0
