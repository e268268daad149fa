import subprocess
import sys

import pytest

from gnl_core.errors import MissingExtraError
from gnl_semantic.errors import JudgeConfigError
from gnl_semantic.judge import load_judge


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("judge", "'judge' names no judge: give builtin:NAME"),
        ("", "'' names no judge"),
        ("builtin:oracle", "no built-in judge 'oracle'; known: ladder"),
        ("recorded:nowhere.jsonl", "nowhere.jsonl: cannot be read: No such file"),
        ("nowhere.py", "nowhere.py: cannot be read: No such file"),
        ("nowhere.py:complete", "nowhere.py: cannot be read"),
        ("no_such_module:complete", "module 'no_such_module' cannot be imported: ModuleNotFoundError"),
        (".relative:complete", "module '.relative' cannot be imported: TypeError"),
        ("json:no_such_attribute", "json: has no 'no_such_attribute'"),
        ("openai:", "'' is no http"),
        ("openai:ftp://127.0.0.1/v1", "'ftp://127.0.0.1/v1' is no http"),
        ("openai:http:///v1", "is no http"),
        ("openai:http://127.0.0.1:99999/v1", "is no http"),
        ("openai:http://[::1/v1", "is no http"),
    ],
)
def test_what_cannot_be_loaded_is_named(spec, message):
    with pytest.raises(JudgeConfigError) as caught:
        load_judge(spec, model="m")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["openai:http://127.0.0.1:1/v1", "judge.py", "module:complete"])
@pytest.mark.parametrize("model", [None, "", "  "])
def test_a_judge_of_the_callers_own_needs_a_model_id(spec, model):
    with pytest.raises(JudgeConfigError, match="needs a model id"):
        load_judge(spec, model=model)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_a_time_limit_that_means_nothing(limit):
    with pytest.raises(JudgeConfigError, match="the time limit is"):
        load_judge("judge.py", model="m", timeout_s=limit)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:s3cret@127.0.0.1/v1",
        "http://user:s3cret@127.0.0.1:99999/v1",
        "http://s3cret@/v1",
        "http://127.0.0.1/v1?key=s3cret",
        "http://127.0.0.1/v1#s3cret",
    ],
)
def test_a_key_in_the_url_is_refused_without_repeating_it(url):
    with pytest.raises(JudgeConfigError, match="environment variable") as caught:
        load_judge(f"openai:{url}", model="m")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_named_key_must_be_there(monkeypatch, value):
    monkeypatch.delenv("GNL_TEST_NO_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("GNL_TEST_NO_KEY", value)
    with pytest.raises(JudgeConfigError, match="'GNL_TEST_NO_KEY' is not set"):
        load_judge("openai:http://127.0.0.1:1/v1", model="m", key_env="GNL_TEST_NO_KEY")


def test_without_the_extra_the_command_that_brings_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gnl-semantic\[openai\]'"):
        load_judge("openai:http://127.0.0.1:1/v1", model="m")


def test_naming_a_server_is_what_loads_its_client():
    code = "import sys, gnl_semantic.judge as j; a = 'openai' in sys.modules; "
    code += "j.load_judge('openai:http://127.0.0.1:1/v1', model='m'); print(a, 'openai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False True\n"
