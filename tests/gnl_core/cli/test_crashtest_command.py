"""`gnl crashtest`: its status, its witness, and the scenarios that prove nothing."""

import json

import pytest

CRASH = '''
from gnl_core import Context, run_durable, tool
from gnl_core.testing.scripted import ScriptedModel

async def durable(journal, effects):
    @tool(side_effect=True)
    def charge(amount: int, ctx: Context) -> str:
        """Charge."""
        return effects.fire("charge", ctx, f"ch-{amount}")

    model = ScriptedModel([[("charge", {"amount": 5})], "done"])
    return await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="go")

async def careless(journal, effects):
    effects.fire("charge", "r/s0p0", 1)
    await durable(journal, effects)

async def broken(journal, effects):
    raise ValueError("no")

def no_coroutine(journal, effects):
    pass
'''


@pytest.mark.parametrize(("function", "code"), [("durable", 0), ("careless", 1), ("broken", 2), ("no_coroutine", 2)])
def test_a_crash_test_tells_by_its_status(gnl_process, tmp_path, function, code):
    (tmp_path / "scenario.py").write_text(CRASH)
    folder = tmp_path / "made"
    folder.mkdir()
    ended = gnl_process("crashtest", f"scenario:{function}", "--json", "--folder", folder, cwd=tmp_path)
    assert ended.code == code, ended.err
    if code == 2:
        assert ended.out == ""
        assert "Traceback" not in ended.err
        return
    report = json.loads(ended.out)
    assert report["ok"] is (code == 0)
    assert report["points"] > 5
    assert (report["max_effects"] > 1) is (code == 1)


IDLE = '''
import threading
from gnl_core import Context, InMemoryStorage, run_durable, tool
from gnl_core.testing.scripted import ScriptedModel

def drive(journal, charge):
    model = ScriptedModel([[("charge", {"amount": 5})], "done"])
    return run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="go")

async def no_effects(journal, effects):
    @tool
    def charge(amount: int) -> str:
        """Charge."""
        return "paid"

    return await drive(journal, charge)

async def own_storage(journal, effects):
    @tool
    def charge(amount: int, ctx: Context) -> str:
        """Charge."""
        return effects.fire("charge", ctx, "paid")

    return await drive(InMemoryStorage().runs, charge)

async def empty(journal, effects):
    pass

async def own_key(journal, effects):
    @tool
    def charge(amount: int) -> str:
        """Charge."""
        return effects.fire("charge", "order-1", "paid")

    return await drive(journal, charge)

async def own_thread(journal, effects):
    @tool
    def charge(amount: int) -> str:
        """Charge."""
        thread = threading.Thread(target=effects.fire, args=("charge", "order-1", "paid"))
        thread.start()
        thread.join()
        return "paid"

    return await drive(journal, charge)

async def own_thread_with_context(journal, effects):
    @tool
    def charge(amount: int, ctx: Context) -> str:
        """Charge."""
        thread = threading.Thread(target=effects.fire, args=("charge", ctx, "paid"))
        thread.start()
        thread.join()
        return "paid"

    return await drive(journal, charge)

async def harmless(journal, effects):
    @tool(side_effect=False)
    def charge(amount: int, ctx: Context) -> str:
        """Charge."""
        return effects.fire("charge", ctx, "paid")

    return await drive(journal, charge)
'''


@pytest.fixture
def crash(gnl_process, tmp_path):
    """Test a scenario of `IDLE` in a process of its own."""
    (tmp_path / "idle.py").write_text(IDLE)
    folder = tmp_path / "made"
    folder.mkdir()

    def run(function, *options):
        return gnl_process("crashtest", f"idle:{function}", "--folder", folder, *options, cwd=tmp_path)

    return run


@pytest.mark.parametrize(
    ("function", "what"),
    [
        ("no_effects", "fired no effect"),
        ("own_storage", "wrote nothing to the journal"),
        ("empty", "wrote nothing to the journal"),
    ],
)
def test_a_crash_test_that_tests_nothing_does_not_pass(crash, function, what):
    ended = crash(function)
    assert (ended.code, ended.out) == (2, "")
    assert f"nothing to judge: idle:{function} {what}" in ended.err
    assert "run_durable(journal=journal" in ended.err
    assert "effects.fire" in ended.err


@pytest.mark.parametrize("function", ["own_key", "own_thread_with_context"])
def test_the_witness_knows_whose_effect_it_is(crash, function):
    ended = crash(function, "--json")
    assert ended.code == 0, ended.out + ended.err
    assert (ended.json["max_effects"], ended.json["min_effects"], ended.json["stuck"]) == (1, 1, 0)
    assert ended.json["settled"] > 0


def test_an_effect_that_could_be_any_calls_is_no_verdict(crash):
    ended = crash("own_thread")
    assert (ended.code, ended.out) == (2, "")
    assert "cannot be judged" in ended.err
    assert "Context" in ended.err
    assert "'order-1'" in ended.err


def test_a_tool_that_says_it_is_harmless_and_acts_is_a_finding(crash):
    ended = crash("harmless")
    assert ended.code == 1
    assert "charge r/s0p0: declared side_effect=False, but acted; up to 2 times" in ended.out
