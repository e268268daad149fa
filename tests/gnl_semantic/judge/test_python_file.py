import asyncio
import contextvars
import hashlib
import subprocess
import sys
import textwrap
import threading

import pytest

from gnl_semantic.errors import (
    JudgeConfigError,
    JudgeError,
    JudgeRateLimitedError,
    JudgeRefusedError,
    JudgeServerError,
    JudgeTimeoutError,
    JudgeUnreachableError,
)
from gnl_semantic.judge import load_judge


@pytest.fixture
def judge_of(tmp_path):
    """Build a judge from source text."""

    def build(source, *, name="", timeout_s=8.0):
        file = tmp_path / "a judge.py"
        file.write_text(textwrap.dedent(source), encoding="utf-8")
        return load_judge(f"{file}{name and ':'}{name}", model="own-model", timeout_s=timeout_s)

    yield build
    for module in [name for name in sys.modules if name.startswith("gnl_judge_")]:
        del sys.modules[module]


FORMS = {
    "sync": ("def complete(system, user): return f'{system}|{user}'", ""),
    "async": ("async def complete(*, system, user): return f'{system}|{user}'", ""),
    "any keywords": ("def complete(**texts): return texts['system'] + '|' + texts['user']", ""),
    "sync that hands out a coroutine": (
        "async def ask(s, u): return f'{s}|{u}'\ncomplete = lambda system, user: ask(system, user)",
        "",
    ),
    "class": ("class Mine:\n  def complete(self, user, system): return f'{system}|{user}'", "Mine"),
    "object": ("class M:\n  async def complete(self, system, user): return f'{system}|{user}'\nmine = M()", "mine"),
    "class called complete": ("class complete:\n  def complete(self, system, user): return f'{system}|{user}'", ""),
    "callable object": ("class M:\n  def __call__(self, system, user): return f'{system}|{user}'\nmine = M()", "mine"),
    "dataclass": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass Mine:\n"
        "  bar: str = '|'\n  def complete(self, system, user): return system + self.bar + user",
        "Mine",
    ),
}


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_gets_both_texts_by_name(judge_of, form):
    source, name = FORMS[form]
    judge = judge_of(source, name=name)
    assert (await judge.complete("sys", "use")).text == "sys|use"
    await judge.aclose()
    await judge.aclose()


def test_it_is_known_by_the_bytes_that_run(judge_of, tmp_path):
    judge = judge_of("def complete(system, user): return 'SAME'")
    source = (tmp_path / "a judge.py").read_bytes()
    assert judge.info.model_id == "own-model"
    assert judge.info.engine == "python-file"
    assert judge.info.parameters["file_sha256"] == hashlib.sha256(source).hexdigest()


async def test_an_attribute_of_a_module(tmp_path, monkeypatch):
    (tmp_path / "gnl_test_own_judge.py").write_text("class J:\n  def complete(self, system, user): return 'UNSURE'\n")
    monkeypatch.syspath_prepend(tmp_path)
    judge = load_judge("gnl_test_own_judge:J", model="m")
    try:
        assert (await judge.complete("s", "u")).text == "UNSURE"
        assert len(judge.info.parameters["file_sha256"]) == 64
    finally:
        del sys.modules["gnl_test_own_judge"]


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("x = 1", "", "has no 'complete'"),
        ("x = 1", "Mine", "has no 'Mine'"),
        ("complete = 'SAME'", "", "'complete' is str, must be a function"),
        ("class M:\n  complete = 3", "M", "'M' is int, must be a function"),
        ("def complete(prompt): return 'SAME'", "", "must take the arguments 'system' and 'user'"),
        ("def complete(system, user, more): return 'SAME'", "", "must take the arguments"),
        (
            "class M:\n  def __init__(self, key): pass\n  def complete(self, system, user): pass",
            "M",
            "M() raised TypeError",
        ),
        ("x = 1\ndef complete(:", "", "line 2: SyntaxError"),
        ("import os\nimport no_such_package", "", "line 2: ModuleNotFoundError: No module named 'no_such_package'"),
        ("\n\nraise OSError('no\\nGPU')", "", "line 3: OSError: no GPU"),
        ("import sys\nsys.exit(3)", "", "line 2: SystemExit: 3"),
        ("x = '\0'", "", "null bytes"),
    ],
)
def test_a_file_that_cannot_be_a_judge_is_told_what_and_where(judge_of, source, name, message):
    with pytest.raises(JudgeConfigError) as caught:
        judge_of(source, name=name)
    assert message in str(caught.value)
    assert "a judge.py" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "kind"), [("None", "NoneType"), ("b'SAME'", "bytes"), ("True", "bool"), ("{}", "dict")]
)
async def test_an_answer_that_is_no_text(judge_of, value, kind):
    judge = judge_of(f"def complete(system, user): return {value}")
    with pytest.raises(JudgeError, match=f"returned {kind}, must return str"):
        await judge.complete("s", "u")


@pytest.mark.parametrize("kind", ["", "async "])
@pytest.mark.parametrize(
    "fault", ["ValueError('no\\nluck')", "SystemExit(2)", "StopIteration()", "asyncio.QueueFull()"]
)
async def test_whatever_it_raises_is_a_failed_call(judge_of, kind, fault):
    judge = judge_of(f"import asyncio\n{kind}def complete(system, user): raise {fault}")
    with pytest.raises(JudgeError, match="complete\\(\\) raised") as caught:
        await judge.complete("s", "u")
    assert type(caught.value) is JudgeError
    assert "\n" not in str(caught.value)


async def test_a_long_complaint_is_cut(judge_of):
    judge = judge_of("def complete(system, user): raise ValueError('x' * 100_000)")
    with pytest.raises(JudgeError) as caught:
        await judge.complete("s", "u")
    assert len(str(caught.value)) < 400


CLIENT_ERRORS = {
    "urllib": """
        from email.message import Message
        from urllib.error import HTTPError
        def fail(status, url):
            headers = Message()
            headers["Retry-After"] = "7"
            raise HTTPError(url, status, "as clients do", headers, None)
    """,
    "status on the response": """
        from types import SimpleNamespace
        def fail(status, url):
            error = RuntimeError("as clients do")
            error.response = SimpleNamespace(status_code=status, headers={"retry-after": "7"})
            raise error
    """,
}


@pytest.mark.parametrize("client", CLIENT_ERRORS)
@pytest.mark.parametrize(
    ("status", "leaf"), [(429, JudgeRateLimitedError), (503, JudgeServerError), (401, JudgeRefusedError)]
)
async def test_an_http_clients_error_keeps_its_meaning(judge_of, client, status, leaf):
    source = textwrap.dedent(CLIENT_ERRORS[client])
    judge = judge_of(f"{source}\ndef complete(system, user): fail({status}, 'http://127.0.0.1/')")
    with pytest.raises(leaf, match="as clients do") as caught:
        await judge.complete("s", "u")
    if status == 429:
        assert caught.value.retry_after == 7


@pytest.mark.parametrize(
    "response", ["None", "3", "SimpleNamespace(status_code='429')", "SimpleNamespace(status_code=429)"]
)
async def test_an_error_with_a_strange_response_is_still_one_failed_call(judge_of, response):
    judge = judge_of(
        f"""
        from types import SimpleNamespace

        def complete(system, user):
            error = RuntimeError("odd")
            error.response = {response}
            error.headers = 3
            raise error
        """
    )
    with pytest.raises(JudgeError, match="odd"):
        await judge.complete("s", "u")


async def test_a_refused_connection_is_no_broken_judge(judge_of):
    judge = judge_of("def complete(system, user): raise ConnectionRefusedError('nobody there')")
    with pytest.raises(JudgeUnreachableError, match="nobody there"):
        await judge.complete("s", "u")


async def test_a_judges_own_error_passes(judge_of):
    judge = judge_of(
        """
        from gnl_semantic.errors import JudgeRateLimitedError

        async def complete(system, user):
            raise JudgeRateLimitedError("slow down", retry_after=3.0)
        """
    )
    with pytest.raises(JudgeRateLimitedError, match=r"^slow down$"):
        await judge.complete("s", "u")


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasync def complete(system, user): await asyncio.Event().wait()",
        "import threading\nnever = threading.Event()\ndef complete(system, user): never.wait(30)",
        "def complete(system, user): raise TimeoutError",
    ],
    ids=["async", "sync", "gives up by itself"],
)
async def test_no_answer_in_time(judge_of, source):
    judge = judge_of(source, timeout_s=0.05)
    with pytest.raises(JudgeTimeoutError, match=r"no answer within 0\.05 s"):
        await judge.complete("s", "u")


def test_a_hanging_judge_does_not_keep_the_program(tmp_path):
    (tmp_path / "hang.py").write_text("import threading\ndef complete(system, user): threading.Event().wait()\n")
    (tmp_path / "main.py").write_text(
        textwrap.dedent("""
            import asyncio
            from gnl_semantic.errors import JudgeTimeoutError
            from gnl_semantic.judge import load_judge

            try:
                asyncio.run(load_judge("hang.py", model="m", timeout_s=0.05).complete("s", "u"))
            except JudgeTimeoutError:
                print("ended")
        """)
    )
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


async def test_a_sync_judge_runs_beside_the_loop_with_the_callers_context(judge_of):
    variable = contextvars.ContextVar("variable")
    variable.set("seen")
    meeting = threading.Barrier(2)
    judge = judge_of("def complete(system, user): return user.meet()")

    class User:
        def meet(self):
            meeting.wait(30)  # both calls must be under way at once
            return f"{threading.current_thread() is threading.main_thread()} {variable.get()}"

    answers = await asyncio.gather(judge.complete("s", User()), judge.complete("s", User()))
    assert [answer.text for answer in answers] == ["False seen"] * 2


@pytest.mark.parametrize("kind", ["", "async "])
async def test_it_is_closed_once(judge_of, tmp_path, kind):
    log = tmp_path / "closed"
    judge = judge_of(
        f"""
        from pathlib import Path

        class Mine:
            def complete(self, system, user): return "SAME"
            {kind}def aclose(self):
                log = Path({str(log)!r})
                log.write_text(log.read_text() + "x" if log.exists() else "x")
        """,
        name="Mine",
    )
    await judge.aclose()
    await judge.aclose()
    assert log.read_text() == "x"


@pytest.mark.parametrize("fault", ["asyncio.CancelledError()", "GeneratorExit()", "BaseException('odd')"])
@pytest.mark.parametrize("kind", ["", "async "])
async def test_no_exception_of_the_judge_ends_the_task_that_asks(judge_of, kind, fault):
    judge = judge_of(f"import asyncio\n{kind}def complete(system, user): raise {fault}")
    with pytest.raises(JudgeError, match=fault.split("(")[0].rpartition(".")[2]):
        await judge.complete("s", "u")


async def test_the_callers_own_cancellation_passes(judge_of):
    judge = judge_of("import asyncio\nasync def complete(system, user): await asyncio.Event().wait()")
    task = asyncio.create_task(judge.complete("s", "u"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("fault", ["RuntimeError('shut')", "SystemExit(0)", "asyncio.CancelledError()"])
@pytest.mark.parametrize("kind", ["", "async "])
async def test_a_judge_that_cannot_be_closed_is_logged_and_costs_nothing(judge_of, caplog, kind, fault):
    judge = judge_of(
        f"""
        import asyncio

        class Mine:
            def complete(self, system, user): return "SAME"
            {kind}def aclose(self): raise {fault}
        """,
        name="Mine",
    )
    await judge.aclose()
    assert fault.split("(")[0].rpartition(".")[2] in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        "def __init__(self): raise SystemExit(0)\n  def complete(self, system, user): return 'SAME'",
        "@property\n  def complete(self): raise RuntimeError('no')",
    ],
)
def test_a_judge_that_breaks_while_it_is_built_is_refused(judge_of, body):
    with pytest.raises(JudgeConfigError, match="Mine"):
        judge_of(f"class Mine:\n  {body}", name="Mine")


async def test_a_judge_that_cancels_its_task_cancels_no_caller(judge_of):
    judge = judge_of(
        """
        import asyncio
        async def complete(system, user):
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        """
    )
    with pytest.raises(JudgeError, match="CancelledError"):
        await judge.complete("s", "u")
    assert asyncio.current_task().cancelling() == 0
