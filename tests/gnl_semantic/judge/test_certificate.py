import json
import math
import os
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_semantic.errors import (
    CertificateExpiredError,
    CertificateFalseAlarmError,
    CertificateMissingError,
    CertificateModelError,
    CertificatePromptError,
    CertificateRecallError,
    CertificateUnreadableError,
    CertificateUnwritableError,
    CertificateVersionError,
)
from gnl_semantic.judge import (
    PROMPT_VERSION,
    PROMPTS,
    Certificate,
    check_certificate,
    read_certificate,
    write_certificate,
)
from gnl_semantic.judge.certificate import one_sided_bars, parse_certificate

PROMPT_SHA256 = PROMPTS[PROMPT_VERSION].sha256
PASSED = datetime(2026, 11, 30, 12, tzinfo=UTC)

FIELDS = {
    "v": 1,
    "fixture_set_id": "0123456789abcdef",
    "judge_model_id": "judge@1",
    "judge_prompt_version": PROMPT_VERSION,
    "paraphrase_recall": 0.8,
    "near_miss_fp": 0.0,
    "passed_at": PASSED.isoformat(),
    "status": "certified",
    "expires_at": None,
    "prompt_sha256": PROMPT_SHA256,
    "parser_version": "1",
    "ruleset_version": "1",
    "library_version": "0.1.0",
    "transcript_sha256": "a" * 64,
    "seed": 7,
    "judge_spec": "judge.py",
    "judge_engine": "python-file",
    "judge_parameters": {"timeout_s": 8.0, "deep": [{"a": None}]},
    "fixture_set_name": "heldout",
    "fixture_set_private": False,
    "fixture_set_sampled_from": None,
    "pairs_by_label": {"dup-paraphrase": 75, "near-miss": 75},
    "pairs_by_language": {"tr": 150},
    "counts_by_label": {
        "dup-paraphrase": {"same": 60, "different": 10, "unsure": 2, "unparsed": 1, "error": 1, "timeout": 1},
        "near-miss": {"different": 75},
    },
    "recall": {"k": 60, "n": 75, "low": 0.696, "high": 0.875, "bound": 0.709},
    "false_alarms": {"k": 0, "n": 75, "low": 0.0, "high": 0.049, "bound": 0.039},
    "recall_by_domain": {"domains": 3, "low": 0.7, "high": 0.9},
    "false_alarms_by_domain": {"domains": 3, "low": None, "high": None},
    "worst_domain": "ticket",
    "worst_domain_right": {"k": 20, "n": 30, "low": 0.488, "high": 0.808},
    "repeat": {"pairs": 20, "runs": 2, "flips": 0, "couples": 20, "agreeing": 20},
    "order": None,
    "latency": {"p50_ms": 12.5, "p95_ms": None, "max_ms": 30.0, "limit_ms": 8000.0},
    "tokens_in": 1000,
    "tokens_out": None,
    "baselines": [
        {
            "name": "always same",
            "paraphrase_recall": 1.0,
            "near_miss_fp": 1.0,
            "recall_difference": {
                "n": 75,
                "judge_only": 0,
                "baseline_only": 15,
                "difference": -0.2,
                "low": -0.304,
                "high": -0.113,
                "p": 6.1e-05,
            },
            "false_alarm_difference": None,
        }
    ],
    "sitting": 1,
}


def issued(**changes):
    return Certificate.issue(**FIELDS | changes)


def check(certificate, *, model="judge@1", version=PROMPT_VERSION, sha256=PROMPT_SHA256, now=PASSED):
    return check_certificate(certificate, judge_model_id=model, prompt_version=version, prompt_sha256=sha256, now=now)


def test_a_certificate_that_holds_draws_no_warning():
    assert check(issued()) == ()


@pytest.mark.parametrize("status", ["provisional", "certified"])
def test_the_evidence_of_a_question_names_the_status_with_its_counts(status):
    certificate = issued(status=status)
    evidence = certificate.evidence()
    assert (evidence["status"], evidence["recall"], evidence["falseAlarms"]) == (status, "60/75", "0/75")
    assert evidence["certificate"] == certificate.sha256
    json.dumps(evidence)


def test_written_and_read_it_is_the_same(tmp_path):
    path = tmp_path / "my cert ü.json"
    write_certificate(path, issued())
    assert read_certificate(path) == issued()
    raw = json.loads(path.read_text(encoding="utf-8"))
    seed_fields = [
        "v",
        "fixtureSetId",
        "judgeModelId",
        "judgePromptVersion",
        "paraphraseRecall",
        "nearMissFp",
        "passedAt",
    ]
    assert list(raw)[:7] == seed_fields
    assert all("_" not in name for name in raw)


@given(
    st.fixed_dictionaries(
        {
            "judge_model_id": st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
            "paraphrase_recall": st.floats(0, 1),
            "seed": st.integers(),
            "worst_domain": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
            "judge_parameters": st.dictionaries(
                st.text(st.characters(codec="utf-8")),
                st.recursive(
                    st.none()
                    | st.booleans()
                    | st.integers()
                    | st.floats(allow_nan=False, allow_infinity=False)
                    | st.just("é"),
                    lambda inner: st.lists(inner) | st.dictionaries(st.just("k"), inner),
                    max_leaves=5,
                ),
            ),
            "pairs_by_label": st.dictionaries(st.sampled_from(["near-miss", "unrelated"]), st.integers(0, 400)),
        }
    )
)
def test_any_certificate_survives_its_json(changes):
    certificate = issued(**changes)
    assert parse_certificate(json.loads(certificate.to_json())) == certificate


# -- reading -----------------------------------------------------------------------------------------------------------


def test_no_file(tmp_path):
    with pytest.raises(CertificateMissingError, match=r"there is no certificate; sit the exam"):
        read_certificate(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is no JSON"),
        (b"{", "is no JSON"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 200_000, "is no JSON"),
        (b"[1" + b"0" * 5000 + b"]", "is no JSON"),
        (b"[]", "is list, must be a JSON object"),
        (b"null", "is NoneType, must be a JSON object"),
    ],
)
def test_no_certificate_at_all(tmp_path, data, message):
    path = tmp_path / "cert.json"
    path.write_bytes(data)
    with pytest.raises(CertificateUnreadableError) as caught:
        read_certificate(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_folder_is_no_certificate(tmp_path):
    with pytest.raises(CertificateUnreadableError, match="cannot be read"):
        read_certificate(tmp_path)


@pytest.mark.parametrize("version", [None, 0, 2, "1", True, 1.5, [1]])
def test_another_format(version):
    with pytest.raises(CertificateVersionError, match=r"field 'v' is .* this release reads 1"):
        parse_certificate(json.loads(issued().to_json()) | {"v": version})


def test_the_seven_fields_alone_are_not_enough():
    seven = dict(list(json.loads(issued().to_json()).items())[:7])
    with pytest.raises(CertificateUnreadableError, match="field 'status': Field required"):
        parse_certificate(seven)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("approvedBy", "me"),
        ("recall.note", "x"),
        ("judgeModelId", ""),
        ("judgeModelId", 3),
        ("fixtureSetId", "0123456789ABCDEF"),
        ("promptSha256", "a" * 63),
        ("paraphraseRecall", "0.8"),
        ("paraphraseRecall", True),
        ("recall.k", -1),
        ("recall.k", 60.0),
        ("recall.bound", 1.1),
        ("recall.low", math.nan),
        ("status", "failed"),
        ("passedAt", "yesterday"),
        ("passedAt", "2026-11-30T12:00:00"),
        ("expiresAt", "2026-11-30"),
        ("seed", None),
    ],
)
def test_a_field_of_another_shape_is_named(path, value):
    raw = json.loads(issued().to_json())
    *above, name = path.split(".")
    inner = raw
    for step in above:
        inner = inner[step]
    inner[name] = value
    with pytest.raises(CertificateUnreadableError) as caught:
        parse_certificate(raw, "cert.json")
    assert str(caught.value).startswith(f"cert.json: field '{path}': ")


@pytest.mark.parametrize("name", [name for name in json.loads(issued().to_json()) if name != "v"])
def test_no_field_may_be_left_out(name):
    raw = json.loads(issued().to_json())
    del raw[name]
    with pytest.raises(CertificateUnreadableError, match=f"field '{name}': Field required"):
        parse_certificate(raw)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("paraphraseRecall", 0.81),
        ("nearMissFp", 0.001),
        ("judgeModelId", "judge@2"),
        ("passedAt", "2026-12-01T12:00:00+00:00"),
        ("expiresAt", "2099-12-01T12:00:00+00:00"),
        ("promptSha256", "b" * 64),
        ("sha256", "b" * 64),
        ("judgeParameters", {}),
        ("pairsByLabel", {"dup-paraphrase": 76, "near-miss": 75}),
        ("baselines", []),
    ],
)
def test_an_edited_field_is_noticed(name, value):
    raw = json.loads(issued().to_json()) | {name: value}
    with pytest.raises(CertificateUnreadableError, match="the file was edited after it was issued"):
        parse_certificate(raw)


def test_text_that_cannot_be_hashed():
    raw = json.loads(issued().to_json()) | {"judgeSpec": "\ud800"}
    with pytest.raises(CertificateUnreadableError, match="cannot be hashed"):
        parse_certificate(raw)


def test_layout_and_key_order_are_no_edit():
    raw = json.loads(issued().to_json())
    assert parse_certificate(json.loads(json.dumps(dict(reversed(raw.items())), indent=8))) == issued()


# -- writing -----------------------------------------------------------------------------------------------------------


def test_a_failed_write_leaves_what_stood_there(tmp_path, monkeypatch):
    path = tmp_path / "cert.json"
    write_certificate(path, issued())

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CertificateUnwritableError, match=r"cert\.json: cannot be written: No space left"):
        write_certificate(path, issued(seed=8))
    assert read_certificate(path).seed == 7
    assert list(tmp_path.iterdir()) == [path], "no draft is left behind"


def test_a_new_one_takes_the_old_ones_place(tmp_path):
    path = tmp_path / "cert.json"
    for seed in (7, 8):
        write_certificate(path, issued(seed=seed))
    assert read_certificate(path).seed == 8
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_none(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "none" / "cert.json", tmp_path / "file" / "cert.json"):
        with pytest.raises(CertificateUnwritableError, match="cannot be written"):
            write_certificate(path, issued())


def test_a_number_that_json_has_not_is_never_issued():
    with pytest.raises(ValueError, match="JSON"):
        issued(paraphrase_recall=math.nan).to_json()


# -- holding it against a judge ----------------------------------------------------------------------------------------


def test_none_at_all():
    with pytest.raises(CertificateMissingError, match="judge 'judge@1' has no certificate: sit the exam"):
        check(None)


def test_another_model():
    with pytest.raises(CertificateModelError, match="issued for judge model 'judge@1', not for 'judge@2'"):
        check(issued(), model="judge@2")


def test_another_prompt_version_or_other_words_under_the_same_version():
    with pytest.raises(CertificatePromptError, match=r"holds for prompt version '1' .* renders '0'"):
        check(issued(), version="0")
    with pytest.raises(
        CertificatePromptError, match=rf"'1' \({PROMPT_SHA256[:12]}\), this release renders '1' \(cccccc"
    ):
        check(issued(), sha256="c" * 64)


def counted(*, same, alarms):
    """Fields of a certificate whose rates follow from their counts."""
    return {
        "paraphrase_recall": same / 100,
        "near_miss_fp": alarms / 100,
        "status": "provisional",
        "pairs_by_label": {"dup-paraphrase": 100, "near-miss": 100},
        "counts_by_label": {
            "dup-paraphrase": {"same": same, "different": 100 - same},
            "near-miss": {"same": alarms, "different": 100 - alarms},
        },
        "recall": FIELDS["recall"] | {"k": same, "n": 100},
        "false_alarms": FIELDS["false_alarms"] | {"k": alarms, "n": 100},
    }


def test_on_the_bars_is_over_them_and_one_pair_less_is_not():
    assert check(issued(**counted(same=70, alarms=5))) == ()
    with pytest.raises(CertificateRecallError, match=r"recall is 0\.69, the bar is at least 0\.7"):
        check(issued(**counted(same=69, alarms=5)))
    with pytest.raises(CertificateFalseAlarmError, match=r"false alarms are 0\.06, the bar is at most 0\.05"):
        check(issued(**counted(same=70, alarms=6)))


@pytest.mark.parametrize("share", [0.43, math.nan, -math.inf])
def test_recall_below_the_bar(share):
    with pytest.raises(CertificateRecallError, match=f"recall is {share}"):
        check(issued(paraphrase_recall=share))


@pytest.mark.parametrize("share", [0.2, math.nan, math.inf])
def test_false_alarms_above_the_bar(share):
    with pytest.raises(CertificateFalseAlarmError, match=f"false alarms are {share}"):
        check(issued(near_miss_fp=share))


def test_nan_survives_a_file_and_is_refused_by_its_bar(tmp_path):
    certificate = issued(paraphrase_recall=math.nan)
    path = tmp_path / "cert.json"
    path.write_text(json.dumps(certificate.model_dump(by_alias=True)))
    assert "NaN" in path.read_text()
    with pytest.raises(CertificateRecallError):
        check(read_certificate(path))


COUNTS = FIELDS["counts_by_label"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paraphrase_recall": 0.9}, "field 'paraphraseRecall' is 0.9, its counts say 60 of 75"),
        ({"near_miss_fp": 0.02}, "field 'nearMissFp' is 0.02, its counts say 0 of 75"),
        ({"recall": FIELDS["recall"] | {"k": 0, "n": 0}}, "'paraphraseRecall' is 0.8, its counts say 0 of 0"),
        ({"recall": FIELDS["recall"] | {"k": 1000, "n": 1}}, "field 'paraphraseRecall' is 0.8, its counts say 1000"),
        ({"false_alarms": FIELDS["false_alarms"] | {"n": 0}}, "'nearMissFp' is 0.0, its counts say 0 of 0"),
        ({"false_alarms": FIELDS["false_alarms"] | {"n": 7500}}, "says 0 of 75, the rate 0 of 7500"),
        ({"recall": FIELDS["recall"] | {"k": 4, "n": 5}}, "says 60 of 75, the rate 4 of 5"),
        ({"counts_by_label": {}}, "field 'countsByLabel.dup-paraphrase' says 0 of 0, the rate 60 of 75"),
        (
            {"counts_by_label": COUNTS | {"near-miss": {"different": 74, "same": 1}}},
            "near-miss' says 1 of 75, the rate 0",
        ),
        ({"pairs_by_label": {"dup-paraphrase": 75, "near-miss": 300}}, "field 'countsByLabel.near-miss'"),
        (
            {"counts_by_label": COUNTS | {"near-miss": {"error": 75}}},
            "only 0 of 75 'near-miss' pairs were answered, 5 are",
        ),
        (
            {"counts_by_label": COUNTS | {"near-miss": {"unparsed": 71, "different": 4}}},
            "only 4 of 75 'near-miss' pairs",
        ),
        ({"recall": FIELDS["recall"] | {"bound": 0.69}}, "'certified', its bounds do not clear the bars"),
        ({"false_alarms": FIELDS["false_alarms"] | {"bound": 0.051}}, "'certified', its bounds do not clear the bars"),
    ],
)
def test_a_certificate_that_contradicts_itself(changes, message):
    with pytest.raises(CertificateUnreadableError) as caught:
        check(issued(**changes))
    assert message in str(caught.value)


def test_five_answered_pairs_are_enough_and_a_provisional_one_needs_no_bounds():
    counts = COUNTS | {"near-miss": {"error": 70, "different": 5}}
    assert check(issued(counts_by_label=counts, status="provisional")) == ()
    with pytest.raises(CertificateUnreadableError, match="'certified'"):
        check(issued(counts_by_label=counts))
    assert check(issued(status="provisional", recall=FIELDS["recall"] | {"bound": 0.1})) == ()


@pytest.mark.parametrize(
    ("recall", "alarms", "certified"),
    [(0.70, 0.05, True), (0.6999, 0.05, False), (0.70, 0.0501, False), (math.nan, 0.0, False), (1.0, math.nan, False)],
)
def test_certified_means_that_both_bounds_clear(recall, alarms, certified):
    assert one_sided_bars(recall, alarms) is certified


def test_certified_is_held_against_the_counts_and_not_only_against_the_bounds_written_down():
    few = {"dup-paraphrase": {"same": 5}, "near-miss": {"different": 5}}
    changes = {
        "paraphrase_recall": 1.0,
        "counts_by_label": few,
        "pairs_by_label": {"dup-paraphrase": 5, "near-miss": 5},
        "recall": FIELDS["recall"] | {"k": 5, "n": 5, "bound": 0.99},
        "false_alarms": FIELDS["false_alarms"] | {"n": 5, "bound": 0.01},
    }
    with pytest.raises(CertificateUnreadableError, match="'certified'"):
        check(issued(**changes))
    assert check(issued(**changes, status="provisional")) == ()


@pytest.mark.parametrize("many", [10**6 + 1, 10**12, 10**400])
def test_a_count_without_measure_is_refused_before_anything_is_summed(many):
    fields = json.loads(issued().to_json())
    fields["recall"] |= {"k": many, "n": many}
    with pytest.raises(CertificateUnreadableError, match=r"recall\.[kn]"):
        parse_certificate(fields)


@pytest.mark.parametrize(("alarms", "least"), [(0, 59), (1, 93), (2, 124), (5, 208), (10, 336)])
def test_how_many_near_misses_certify_is_sharp(alarms, least):
    for n, holds in ((least, True), (least - 1, False)):
        counts = COUNTS | {"near-miss": {"same": alarms, "different": n - alarms}}
        certificate = issued(
            counts_by_label=counts,
            pairs_by_label={"dup-paraphrase": 75, "near-miss": n},
            near_miss_fp=alarms / n,
            false_alarms=FIELDS["false_alarms"] | {"k": alarms, "n": n},
        )
        if holds:
            assert check(certificate) == ()
        else:
            with pytest.raises(CertificateUnreadableError, match="'certified'"):
                check(certificate)


def test_other_parameters_of_the_judge_are_refused_by_name_and_another_limit_is_not():
    def ask(**parameters):
        return check_certificate(
            issued(judge_parameters={"timeout_s": 30.0, "temperature": 0, "file_sha256": "a"}),
            judge_model_id="judge@1",
            prompt_version=PROMPT_VERSION,
            prompt_sha256=PROMPT_SHA256,
            judge_parameters=parameters,
            now=PASSED,
        )

    assert ask(timeout_s=8.0, temperature=0, file_sha256="a") == ()
    with pytest.raises(CertificateModelError, match=r"\(file_sha256, temperature\)"):
        ask(timeout_s=8.0, file_sha256="b")


def test_the_set_is_on_record_and_never_compared():
    assert check(issued(fixture_set_id="f" * 16, fixture_set_name="mine", fixture_set_private=True)) == ()


def test_older_than_180_days_warns_and_still_holds():
    day_180 = PASSED + timedelta(days=180)
    assert check(issued(), now=day_180) == ()
    (warning,) = check(issued(), now=day_180 + timedelta(milliseconds=1))
    assert warning == "the certificate of judge 'judge@1' is 180 days old: sit the exam again"


def test_an_expiry_is_enforced_in_any_zone():
    expires = PASSED + timedelta(days=30)
    for zone in (UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=11))):
        certificate = issued(expires_at=expires.astimezone(zone).isoformat())
        assert check(certificate, now=expires) == ()
        with pytest.raises(CertificateExpiredError, match="expired at 2026-12-") as caught:
            check(certificate, now=expires + timedelta(milliseconds=1))
        assert caught.value.detail == {"expired": certificate.expires_at}


def test_without_a_time_the_present_counts():
    stale = issued(passed_at="2001-01-01T00:00:00Z")
    (warning,) = check(stale, now=None)
    assert "days old" in warning


def test_the_first_fault_in_the_order_of_the_rules_is_told():
    worst = issued(judge_model_id="other", judge_prompt_version="0", paraphrase_recall=0.1, near_miss_fp=0.9)
    with pytest.raises(CertificateModelError):
        check(worst)
    with pytest.raises(CertificatePromptError):
        check(worst, model="other")
    with pytest.raises(CertificateRecallError):
        check(worst, model="other", version="0")
