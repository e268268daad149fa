"""A judge that cannot work is refused where it is made, each time for its own reason."""

import json
import math
from datetime import UTC, datetime, timedelta

import pytest

from gnl_core.errors import ConfigError
from gnl_semantic.errors import (
    CertificateExpiredError,
    CertificateFalseAlarmError,
    CertificateLanguageError,
    CertificateMissingError,
    CertificateModelError,
    CertificatePromptError,
    CertificateProvisionalError,
    CertificateRecallError,
    CertificateSignatureError,
    CertificateUnreadableError,
    CertificateVersionError,
    JudgeConfigError,
)
from gnl_semantic.judge import Judge, JudgeInfo, read_certificate, write_certificate
from gnl_semantic.judge.qualification import SHIPPED


async def complete(system, user):
    return "SAME"


class Transport:
    """A transport of one's own."""

    def __init__(self, model_id="judge@1", **parameters):
        self.info = JudgeInfo(model_id=model_id, spec="mine", engine="mine", parameters=parameters)

    async def complete(self, system, user):
        return "SAME"


def ago(**time):
    return (datetime.now(UTC) - timedelta(**time)).isoformat()


# Who answers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 3, b"builtin:local", {"complete": complete}])
def test_what_cannot_be_called_is_refused(issued, value):
    with pytest.raises(JudgeConfigError, match=r"^Judge\.complete is "):
        Judge(value, judge_model_id="judge@1", qualification=issued())


def test_a_function_that_takes_other_arguments_is_refused(issued):
    with pytest.raises(JudgeConfigError, match="must take the arguments 'system' and 'user'"):
        Judge(lambda prompt: "SAME", judge_model_id="judge@1", qualification=issued())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nope", "'nope' names no judge"),
        ("builtin:oracle", "no built-in judge 'oracle'"),
        ("missing.py", "judge_model_id is needed for 'missing.py'"),
        ("openai:http://127.0.0.1:1/v1", "judge_model_id is needed for 'openai:"),
    ],
)
def test_no_such_judge(spec, message):
    with pytest.raises(JudgeConfigError, match=message):
        Judge(spec)


@pytest.mark.parametrize("model_id", ["", "  ", 7])
def test_an_empty_model_id_is_refused(issued, model_id):
    with pytest.raises(JudgeConfigError, match=r"Judge\.judge_model_id is "):
        Judge(complete, judge_model_id=model_id, qualification=issued())


def test_a_function_needs_a_model_id(issued):
    with pytest.raises(JudgeConfigError, match="judge_model_id is needed for a function"):
        Judge(complete, qualification=issued())


def test_what_names_itself_takes_no_other_name(issued):
    with pytest.raises(JudgeConfigError, match=r"builtin:local is 'builtin:local@1', not 'other'"):
        Judge("builtin:local", judge_model_id="other")
    with pytest.raises(JudgeConfigError, match="'other', the transport's own is 'judge@1'"):
        Judge(Transport(), judge_model_id="other", qualification=issued())


@pytest.mark.parametrize("value", [0, 1001, -1, True, 2.0, "10", None])
def test_calls_per_run_out_of_range(issued, value):
    with pytest.raises(JudgeConfigError, match=r"max_calls_per_run is .* from 1 to 1000"):
        Judge(complete, judge_model_id="judge@1", qualification=issued(), max_calls_per_run=value)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, 10**400, True, "8", None])
def test_timeouts_that_are_none(issued, value):
    with pytest.raises(JudgeConfigError, match=r"Judge\.timeout is .*finite number of seconds above 0"):
        Judge(complete, judge_model_id="judge@1", qualification=issued(), timeout=value)


# What it holds -----------------------------------------------------------------------------------------------------


def test_s40_no_certificate():
    with pytest.raises(CertificateMissingError, match="judge 'judge@1' has no certificate"):
        Judge(complete, judge_model_id="judge@1")


def test_the_ladder_brings_no_certificate():
    with pytest.raises(CertificateMissingError, match="'builtin:ladder@1' has no certificate"):
        Judge("builtin:ladder")


def test_the_shipped_certificate_is_not_one_for_declared_languages():
    with pytest.raises(CertificateMissingError, match=r"name the languages in Judge\(languages=…\) of 'builtin:local'"):
        Judge("builtin:local?languages=tr")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, CertificateMissingError),
        ("{}", CertificateVersionError),
        ('{"v": 1}', CertificateUnreadableError),
        ("no JSON", CertificateUnreadableError),
    ],
)
def test_a_path_that_is_no_certificate(tmp_path, text, error):
    path = tmp_path / "cert.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=r"cert\.json"):
        Judge(complete, judge_model_id="judge@1", qualification=path)


def test_a_value_that_is_no_certificate(issued):
    with pytest.raises(CertificateUnreadableError, match="qualification is dict"):
        Judge(complete, judge_model_id="judge@1", qualification=json.loads(issued().to_json()))


def test_a_certificate_changed_in_memory_is_refused(issued):
    better = issued().model_copy(update={"near_miss_fp": 0.0})
    with pytest.raises(CertificateUnreadableError, match="was changed after it was issued"):
        Judge(complete, judge_model_id="judge@1", qualification=better)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"judge_model_id": "other@2"}, CertificateModelError, "issued for judge model 'other@2', not for 'judge@1'"),
        ({"judge_prompt_version": "0"}, CertificatePromptError, "holds for prompt version '0'"),
        ({"prompt_sha256": "0" * 64}, CertificatePromptError, r"holds for prompt version '1' \(000000000000\)"),
        ({"paraphrase_recall": 0.43}, CertificateRecallError, r"recall is 0\.43, the bar is at least 0\.7"),
        ({"paraphrase_recall": math.nan}, CertificateRecallError, "recall is nan"),
        ({"near_miss_fp": 0.2}, CertificateFalseAlarmError, r"false alarms are 0\.2, the bar is at most 0\.05"),
        ({"near_miss_fp": math.nan}, CertificateFalseAlarmError, "false alarms are nan"),
        ({"expires_at": ago(days=1)}, CertificateExpiredError, "expired at"),
    ],
)
def test_s42_a_certificate_that_does_not_hold(issued, changes, error, message):
    with pytest.raises(error, match=message):
        Judge(complete, judge_model_id="judge@1", qualification=issued(**changes))


def test_a_certificate_for_other_parameters(issued):
    certificate = issued(judge_parameters={"temperature": 0, "timeout_s": 3.0})
    assert Judge(Transport(temperature=0), qualification=certificate).model_id == "judge@1"
    with pytest.raises(CertificateModelError, match=r"other parameters \(temperature\)"):
        Judge(Transport(temperature=1), qualification=certificate)


def test_certified_is_asked_for_where_only_certified_will_do(issued):
    provisional = issued(status="provisional")
    assert Judge(complete, judge_model_id="judge@1", qualification=provisional).certificate == provisional
    with pytest.raises(CertificateProvisionalError, match="provisional"):
        Judge(complete, judge_model_id="judge@1", qualification=provisional, require="certified")
    with pytest.raises(ConfigError, match="require is 'best'"):
        Judge(complete, judge_model_id="judge@1", qualification=provisional, require="best")


def test_an_unsigned_certificate_is_refused_where_keys_are_trusted(issued):
    pytest.importorskip("cryptography")
    with pytest.raises(CertificateSignatureError, match="not signed"):
        Judge(complete, judge_model_id="judge@1", qualification=issued(), trusted_keys=["00" * 32])


@pytest.mark.parametrize("languages", [("tr",), ("tr-TR", "EN"), ()])
def test_languages_that_were_examined(issued, languages):
    certificate = issued(pairs_by_language={"tr": 100, "en": 5, "de": 4})
    assert Judge(complete, judge_model_id="judge@1", qualification=certificate, languages=languages)


@pytest.mark.parametrize(
    ("languages", "missing"), [(("sw",), ["sw"]), (("tr", "de"), ["de"]), (("pt-BR", "sw", "tr"), ["pt-BR", "sw"])]
)
def test_languages_without_pairs_or_with_too_few_are_refused_with_those_that_are_there(issued, languages, missing):
    certificate = issued(pairs_by_language={"tr": 100, "en": 5, "de": 4})
    with pytest.raises(CertificateLanguageError, match=r"it had pairs in en \(5\), tr \(100\):") as refused:
        Judge(complete, judge_model_id="judge@1", qualification=certificate, languages=languages)
    assert refused.value.detail == {"missing": missing}


@pytest.mark.parametrize("languages", ["tr", ("",), (3,), {"tr"}, None])
def test_languages_that_are_no_tags(issued, languages):
    with pytest.raises(JudgeConfigError, match=r"Judge\.languages "):
        Judge(complete, judge_model_id="judge@1", qualification=issued(), languages=languages)


# What holds --------------------------------------------------------------------------------------------------------


def test_s43_a_certificate_of_half_a_year_warns_and_a_younger_one_does_not(issued):
    old = Judge(complete, judge_model_id="judge@1", qualification=issued(passed_at=ago(days=180, seconds=1)))
    assert [warning[:50] for warning in old.check()] == ["the certificate of judge 'judge@1' is 180 days old"]
    assert Judge(complete, judge_model_id="judge@1", qualification=issued(passed_at=ago(days=179))).check() == ()


def test_a_certificate_that_runs_out_later_warns(issued, monkeypatch):
    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=2)

    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    judge = Judge(complete, judge_model_id="judge@1", qualification=issued(expires_at=until))
    assert judge.check() == ()
    monkeypatch.setattr("gnl_semantic.judge.certificate.datetime", Later)
    assert [warning[:22] for warning in judge.check()] == ["the certificate expire"]


def test_a_certificate_by_its_path(tmp_path, issued):
    write_certificate(tmp_path / "cert.json", issued())
    for path in (tmp_path / "cert.json", str(tmp_path / "cert.json")):
        assert Judge(complete, judge_model_id="judge@1", qualification=path).certificate.judge_model_id == "judge@1"


def test_a_python_file_is_held_to_the_bytes_that_were_examined(tmp_path, issued):
    file = tmp_path / "judge.py"
    file.write_text("def complete(system, user):\n    return 'SAME'\n")
    spec = str(file)
    with pytest.raises(CertificateModelError, match="file_sha256"):
        Judge(spec, judge_model_id="judge@1", qualification=issued(judge_parameters={"file_sha256": "0" * 64}))


def test_the_local_judge_brings_its_own():
    judge = Judge("builtin:local", languages=("tr", "en"), require="certified")
    assert judge.certificate == read_certificate(SHIPPED["builtin:local"])
    assert (judge.model_id, judge.certificate.status) == ("builtin:local@1", "certified")


def test_s41_frozen_it_is_json_without_what_it_holds_open(issued):
    certificate = issued()
    judge = Judge(
        complete, judge_model_id="judge@1", qualification=certificate, max_calls_per_run=3, timeout=2, languages=["tr"]
    )
    assert json.loads(json.dumps(judge.freeze())) == {
        "model_id": "judge@1",
        "certificate": certificate.sha256,
        "status": "certified",
        "max_calls_per_run": 3,
        "timeout_s": 2.0,
        "languages": ["tr"],
    }


def test_shown_it_says_who_it_is_and_no_more(issued):
    certificate = issued()
    judge = Judge(complete, judge_model_id="judge@1", qualification=certificate)
    assert repr(judge) == f"Judge('judge@1', certified, {certificate.sha256[:16]})"
