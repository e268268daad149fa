"""Error codes are API: this table changes only by addition."""

import importlib

import pytest

from gnl_core import ConfigError, GnlError, MissingExtraError

MODULES = ["gnl_core.errors", "gnl_semantic.errors", "gnl_fixtures.loader", "gnl_qualify.errors"]
CODES = {
    "already_decided": 409,
    "step_retry_blocked": 409,
    "batch_plan_mismatch": 409,
    "not_an_agent_run": 409,
    "thread_owner_mismatch": 409,
    "approval_required": 409,
    "calibration_set_incomplete": 400,
    "certificate_expired": 400,
    "certificate_false_alarms": 400,
    "certificate_invalid": 400,
    "certificate_language": 400,
    "certificate_missing": 400,
    "certificate_model": 400,
    "certificate_prompt": 400,
    "certificate_provisional": 400,
    "certificate_recall": 400,
    "certificate_signature": 400,
    "certificate_unreadable": 400,
    "certificate_unwritable": 507,
    "certificate_version": 400,
    "child_run": 409,
    "config_invalid": 400,
    "divergence": 409,
    "doubt": 409,
    "duplicate_side_effect": 422,
    "effect_not_recorded": 500,
    "embedder_failed": 502,
    "embedder_input_invalid": 422,
    "embedder_stamp_mismatch": 409,
    "fixture_invalid": 400,
    "fork_refused": 409,
    "rollover_refused": 409,
    "run_followed": 409,
    "gnl_error": 500,
    "id_invalid": 400,
    "idempotency_owner_mismatch": 409,
    "guard_failed": 500,
    "identity_declaration_invalid": 400,
    "journal_failed": 503,
    "journal_format": 409,
    "journal_gap": 409,
    "judge_answer_missing": 502,
    "judge_config_invalid": 400,
    "judge_failed": 502,
    "judge_rate_limited": 429,
    "judge_refused": 502,
    "judge_server_error": 502,
    "judge_timeout": 504,
    "judge_unreachable": 502,
    "key_invalid": 400,
    "limit": 422,
    "missing_extra": 400,
    "model_cache_failed": 507,
    "model_invalid": 400,
    "model_not_found": 404,
    "model_spec_invalid": 400,
    "not_canonical": 422,
    "not_performed": 422,
    "output_unwritable": 400,
    "pair_unusable": 400,
    "refused": 409,
    "report_invalid": 400,
    "result_not_representable": 500,
    "retry_limit_exceeded": 422,
    "rules_invalid": 400,
    "run_actor_mismatch": 409,
    "run_agent_mismatch": 409,
    "run_busy": 409,
    "run_canceled": 409,
    "run_compensated": 409,
    "run_exists": 409,
    "run_driven": 409,
    "run_fenced": 409,
    "run_input_mismatch": 409,
    "run_limit_exceeded": 422,
    "run_not_found": 404,
    "run_owner_mismatch": 409,
    "run_swept": 409,
    "run_thread_mismatch": 409,
    "side_effect_retry_blocked": 409,
    "step_timeout": 504,
    "store_busy": 503,
    "store_corrupt": 500,
    "store_unavailable": 503,
    "store_unknown": 503,
    "sync_inside_loop": 400,
    "tainted_side_effect": 422,
    "tool_arguments_invalid": 422,
    "tool_declaration_invalid": 400,
    "tool_failed": 502,
    "tool_loop_detected": 422,
    "transcript_invalid": 400,
    "transcript_mismatch": 400,
    "unknown_question": 404,
    "upstream_failed": 502,
    "upstream_rate_limited": 429,
    "upstream_response_invalid": 502,
    "upstream_timeout": 504,
    "upstream_unauthorized": 502,
    "upstream_unavailable": 502,
}


def tree(base):
    yield base
    for leaf in base.__subclasses__():
        yield from tree(leaf)


@pytest.fixture(scope="module")
def errors():
    for module in MODULES:
        importlib.import_module(module)
    return [error for error in tree(GnlError) if error.__module__.startswith("gnl_")]


def test_every_code_is_pinned_with_its_status(errors):
    assert {error.code: error.http_status for error in errors if error.__module__ in MODULES} == CODES


def test_no_two_errors_share_a_code(errors):
    codes = [error.code for error in set(errors)]
    assert len(codes) == len(set(codes))


def test_a_configuration_error_is_never_worth_a_retry(errors):
    assert not [error for error in errors if issubclass(error, ConfigError) and error.resumable]


def test_details_are_for_programs():
    error = ConfigError("no such file: x", file="x")
    assert error.detail == {"file": "x"}
    assert str(error) == "no such file: x"


def test_a_missing_extra_names_the_one_command():
    error = MissingExtraError("The built-in embedder", "semantic")
    assert "pip install 'gnl-semantic[semantic]'" in str(error)
    assert isinstance(error, ImportError)
