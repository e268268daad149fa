"""A certificate follows from its transcript, or `verify` says where it does not."""

import hashlib
import json
from datetime import datetime, timedelta

import pytest

from gnl_qualify.errors import TranscriptError
from gnl_qualify.exam import Settings, sit_exam
from gnl_qualify.issue import issue_certificate
from gnl_qualify.verify import verify_certificate
from gnl_semantic.errors import CertificateMissingError, CertificateUnreadableError
from gnl_semantic.judge.certificate import Certificate, read_certificate, write_certificate


@pytest.fixture
async def passed(room, tmp_path):
    """A judge that is wrong here and there and still passes: (fixtures, certificate file, transcript file, sitting)."""
    fixtures = room.set_of(30)
    wrong = {"1003", "1008", "7004"}

    def answer(user):
        return "UNSURE" if any(number in user for number in wrong) else room.truth(user)

    transcript = tmp_path / "t.jsonl"
    settings = Settings(limit=100, valid_days=90)
    sitting = await sit_exam(room.FunctionJudge(answer), fixtures, settings, transcript=transcript)
    path = tmp_path / "cert.json"
    write_certificate(path, sitting.certificate)
    return fixtures, path, transcript, sitting


def edit(path, change):
    raw = json.loads(path.read_text(encoding="utf-8"))
    change(raw)
    path.write_text(json.dumps(raw), encoding="utf-8")


def reseal(path):
    """Hash an edited certificate again, as someone would who means it."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    raw["sha256"] = Certificate.model_validate(raw).content_sha256()
    path.write_text(json.dumps(raw), encoding="utf-8")
    read_certificate(path)


async def test_what_the_exam_wrote_verifies(passed):
    fixtures, path, transcript, sitting = passed
    assert read_certificate(path) == sitting.certificate
    assert verify_certificate(path, transcript, fixtures) == []


async def test_the_certificate_carries_the_figures_of_the_report(passed):
    _, path, _, sitting = passed
    raw = json.loads(path.read_text(encoding="utf-8"))
    recall, alarms = sitting.report.bars
    assert 0.7 < raw["paraphraseRecall"] == recall.rate.value < 1
    assert (raw["recall"]["k"], raw["recall"]["n"], raw["recall"]["bound"]) == (
        recall.rate.k,
        recall.rate.n,
        recall.bound,
    )
    assert raw["nearMissFp"] == alarms.rate.value
    assert sum(sum(counts.values()) for counts in raw["countsByLabel"].values()) == 100
    assert raw["repeat"] == {"pairs": 30, "runs": 2, "flips": 0, "couples": 30, "agreeing": 30}
    assert [base["name"] for base in raw["baselines"]] == ["always same", "always different", "ladder only"]


async def test_valid_days_write_an_expiry(passed):
    *_, sitting = passed
    certificate = sitting.certificate
    passed_at, expires_at = map(datetime.fromisoformat, (certificate.passed_at, certificate.expires_at))
    assert expires_at - passed_at == timedelta(days=90)
    assert issue_certificate(sitting.report).expires_at is None
    for days in (0, -1, 3651):
        with pytest.raises(ValueError, match="valid_days"):
            issue_certificate(sitting.report, valid_days=days)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("paraphraseRecall", 0.99),
        ("nearMissFp", 0.01),
        ("status", "certified"),
        ("fixtureSetId", "0" * 16),
        ("judgeModelId", "a-better-model"),
        ("seed", 7),
        ("transcriptSha256", "0" * 64),
        ("worstDomain", "nowhere"),
        ("tokensIn", 5),
        ("passedAt", "2001-01-01T00:00:00+00:00"),
    ],
)
async def test_an_edited_field_is_named_even_under_a_fresh_hash(passed, field, value):
    fixtures, path, transcript, _ = passed
    edit(path, lambda raw: raw.update({field: value}))
    found = verify_certificate(path, transcript, fixtures)
    assert [line for line in found if line.startswith(f"{field}: certificate {json.dumps(value)}, transcript ")]
    assert [line for line in found if line.startswith("sha256: ")]
    reseal(path)
    assert [line for line in verify_certificate(path, transcript, fixtures) if line.startswith(f"{field}: ")]


@pytest.mark.parametrize(
    ("edits", "name"),
    [
        (lambda raw: raw["recall"].update(k=25), "recall.k"),
        (lambda raw: raw["falseAlarms"].update(bound=0.01), "falseAlarms.bound"),
        (lambda raw: raw["countsByLabel"]["near-miss"].update(unsure=0), "countsByLabel.near-miss.unsure"),
        (lambda raw: raw["latency"].update(p95Ms=0.5), "latency.p95Ms"),
        (lambda raw: raw["order"].update(flips=3), "order.flips"),
        (lambda raw: raw["baselines"][2].update(nearMissFp=0.5), "baselines[2].nearMissFp"),
        (lambda raw: raw["order"].update(runs=9), "order.runs"),
        (lambda raw: raw["recallByDomain"].update(low=0.99), "recallByDomain.low"),
        (lambda raw: raw["falseAlarmsByDomain"].update(domains=9), "falseAlarmsByDomain.domains"),
        (lambda raw: raw["worstDomainRight"].update(k=0), "worstDomainRight.k"),
        (lambda raw: raw["baselines"][2]["recallDifference"].update(p=0.5), "baselines[2].recallDifference.p"),
        (lambda raw: raw["baselines"][0]["falseAlarmDifference"].update(n=1), "baselines[0].falseAlarmDifference.n"),
        (lambda raw: raw.update(sitting=7), "sitting"),
        (lambda raw: raw["judgeParameters"].update(n=2), "judgeParameters.n"),
        (lambda raw: raw["pairsByLanguage"].update(en=1), "pairsByLanguage.en"),
        (lambda raw: raw.update(expiresAt="2999-01-01T00:00:01+00:00"), "expiresAt"),
    ],
)
async def test_an_edited_number_deep_inside_is_named(passed, edits, name):
    fixtures, path, transcript, _ = passed
    edit(path, edits)
    assert [line for line in verify_certificate(path, transcript, fixtures) if line.startswith(f"{name}: ")]


def change_row(transcript, number, **changes):
    rows = transcript.read_text(encoding="utf-8").splitlines()
    rows[number] = json.dumps(json.loads(rows[number]) | changes)
    transcript.write_text("\n".join(rows) + "\n", encoding="utf-8")


async def test_an_edited_answer_is_found_by_hash_and_by_verdict(passed):
    fixtures, path, transcript, _ = passed
    item = json.loads(transcript.read_text(encoding="utf-8").splitlines()[5])
    change_row(transcript, 5, text="SAME" if item["verdict"] != "same" else "DIFFERENT")
    found = verify_certificate(path, transcript, fixtures)
    assert (
        f"transcript, item {item['item']}, round main 0, field verdict: {item['verdict']} is not what the text says"
        in found
    )
    assert [line for line in found if line.startswith("transcriptSha256: ")]
    assert [line for line in found if line.startswith("countsByLabel.")]


async def test_answers_of_another_prompt_or_item_are_named(passed):
    fixtures, path, transcript, _ = passed
    change_row(transcript, 5, prompt_sha256="0" * 64)
    change_row(transcript, 6, item="q99999")
    found = verify_certificate(path, transcript, fixtures)
    assert [line for line in found if "field prompt_sha256" in line]
    assert [line for line in found if "q99999" in line and "did not ask" in line]
    assert [line for line in found if "1 of " in line and "no answer" in line]


@pytest.mark.parametrize("change", [{"round": "repeat", "repeat": 1}, {"round": "reversed"}])
async def test_an_answer_beside_all_that_were_asked_is_named(passed, change):
    fixtures, path, transcript, _ = passed
    lines = transcript.read_text(encoding="utf-8").splitlines(keepends=True)
    lines.insert(5, json.dumps(json.loads(lines[5]) | {"item": "q99999"} | change) + "\n")
    transcript.write_text("".join(lines), encoding="utf-8")
    found = verify_certificate(path, transcript, fixtures)
    assert [line for line in found if "q99999" in line and "did not ask" in line]


@pytest.mark.parametrize(("field", "value"), [("sampled_from", None), ("set_private", False)])
async def test_a_transcript_that_hides_where_its_pairs_come_from_is_found(passed, field, value):
    fixtures, path, transcript, _ = passed
    change_row(transcript, 0, **{field: value})
    (found,) = verify_certificate(path, transcript, fixtures)
    assert found.startswith(f"transcript, field {field}: {value}, the fixtures give ")


async def test_a_certificate_too_deep_to_hash_is_an_error(passed):
    fixtures, path, transcript, _ = passed
    deep = 0
    for _ in range(600):
        deep = [deep]
    edit(path, lambda raw: raw["judgeParameters"].update(n=deep))
    with pytest.raises(CertificateUnreadableError, match="cannot be hashed"):
        verify_certificate(path, transcript, fixtures)


async def test_other_fixtures_are_named(passed, room):
    _, path, transcript, _ = passed
    found = verify_certificate(path, transcript, room.set_of(31))
    assert [line.partition(":")[0] for line in found] == ["transcript, field set_id", "transcript, field sampled_from"]


async def test_without_fixtures_an_unknown_set_says_what_to_give(passed):
    _, path, transcript, _ = passed
    with pytest.raises(TranscriptError, match="--fixtures"):
        verify_certificate(path, transcript)


async def test_an_expired_certificate_verifies_and_is_still_refused(passed):
    fixtures, path, transcript, _ = passed
    change_row(transcript, -1, finished_at="2001-01-01T00:00:00+00:00")
    aged = {
        "passedAt": "2001-01-01T00:00:00+00:00",
        "expiresAt": "2001-01-02T00:00:00+00:00",
        "transcriptSha256": hashlib.sha256(transcript.read_bytes()).hexdigest(),
    }
    edit(path, lambda raw: raw.update(aged))
    reseal(path)
    (found,) = verify_certificate(path, transcript, fixtures)
    assert found.startswith("refused at run time: the certificate expired")


async def test_what_is_no_certificate_is_an_error(passed, tmp_path):
    fixtures, path, transcript, _ = passed
    with pytest.raises(CertificateMissingError):
        verify_certificate(tmp_path / "none.json", transcript, fixtures)
    edit(path, lambda raw: raw.pop("recall"))
    with pytest.raises(CertificateUnreadableError, match="'recall'"):
        verify_certificate(path, transcript, fixtures)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(CertificateUnreadableError, match="no JSON"):
        verify_certificate(path, transcript, fixtures)


async def test_a_failed_exam_earns_none(room, tmp_path):
    sitting = await sit_exam(
        room.FunctionJudge(lambda user: "SAME"), room.set_of(10), Settings(), transcript=tmp_path / "t.jsonl"
    )
    assert sitting.certificate is None
    with pytest.raises(ValueError, match="failed exam"):
        issue_certificate(sitting.report)
