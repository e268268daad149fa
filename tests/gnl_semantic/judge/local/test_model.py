import hashlib
import json
from importlib.resources import files
from pathlib import Path

import pytest

from gnl_semantic.errors import JudgeConfigError
from gnl_semantic.judge import PROMPT_VERSION, PROMPTS, check_certificate, load_judge, read_certificate
from gnl_semantic.judge.local.features import NAMES
from gnl_semantic.judge.local.model import read_model, shipped_model

SHIPPED = (files("gnl_semantic.judge.local") / "parameters.json").read_bytes()


def edited(**members):
    return json.dumps({**json.loads(SHIPPED), **members}).encode()


def test_the_shipped_file_is_read_and_known_by_its_hash():
    model = shipped_model()
    assert model.sha256 == hashlib.sha256(SHIPPED).hexdigest()
    assert model.parameters.features == NAMES
    assert 0.5 < model.parameters.same_from < 1


def test_the_certificate_beside_it_was_earned_with_these_parameters(tmp_path, monkeypatch):
    monkeypatch.setenv("GNL_CACHE_DIR", str(tmp_path))
    path = files("gnl_semantic.judge.local") / "certificate.json"
    certificate = read_certificate(Path(str(path)))
    assert certificate.status == "certified"
    assert certificate.judge_parameters["parameters_sha256"] == shipped_model().sha256
    assert certificate.prompt_sha256 == PROMPTS[PROMPT_VERSION].sha256
    judge = load_judge("builtin:local", model=None, timeout_s=8)
    assert not check_certificate(
        certificate,
        judge_model_id=judge.info.model_id,
        prompt_version=PROMPT_VERSION,
        prompt_sha256=PROMPTS[PROMPT_VERSION].sha256,
        judge_parameters=judge.info.parameters,
        require="certified",
    )
    assert certificate.fixture_set_id != shipped_model().parameters.trained_on


def test_an_edit_is_another_hash():
    assert read_model(edited(same_from=0.5)).sha256 != shipped_model().sha256


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "Expecting value"),
        (b"\xff", "decode"),
        (b"[" * 100_000, "recursion"),
        (b"[]", "valid dictionary"),
        (edited(v=2), "Input should be 1"),
        (edited(note="x"), "Extra inputs"),
        (edited(same_from=1.5), "less than or equal to 1"),
        (edited(same_from=0.1, different_below=0.2), "different_below lies above"),
        (edited(features=NAMES[::-1]), "not those of this release"),
        (edited(slope=float("nan")), "finite"),
        (edited(trees=[[]]), "tree 0 is empty"),
        (edited(trees=[[[0, 0.5, 0, 0]]]), "points outside"),
        (edited(trees=[[[0, 0.5, 1, 9], [1.0]]]), "points outside"),
        (edited(trees=[[[len(NAMES), 0.5, 1, 2], [1.0], [1.0]]]), "points outside"),
        (edited(trees=[[[0.5, 0.5, 1, 2], [1.0], [1.0]]]), ""),
        (edited(trees=[[["__import__('os')"]]]), ""),
    ],
)
def test_a_file_that_is_anything_else_is_refused(data, reason):
    with pytest.raises(JudgeConfigError, match=f"(?i)cannot be used: .*{reason}.*make train"):
        read_model(data)


def test_the_sum_of_the_trees_is_turned_into_a_probability():
    tree = [[0, 0.5, 1, 2], [-1.0], [3.0]]
    model = read_model(edited(trees=[tree, tree], start=0.0, slope=1.0, intercept=0.0))
    low, high = (model.probability([value, *[0.0] * (len(NAMES) - 1)]) for value in (0.5, 0.6))
    assert low == pytest.approx(0.1192029)
    assert high == pytest.approx(0.9975274)


def test_no_sum_overflows():
    assert read_model(edited(trees=[[[1e308]]], slope=-1.0)).probability([0.0] * len(NAMES)) < 1e-20


def test_a_lexicon_that_was_changed_is_refused():
    with pytest.raises(JudgeConfigError, match=r"lexicon\.json is not the one"):
        read_model(edited(lexicon_sha256="0" * 64))
