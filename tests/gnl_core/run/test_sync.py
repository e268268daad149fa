"""The same without `await`: from scripts and from threads that share a store; inside a loop they refuse by name."""

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gnl_core import (
    Context,
    InMemoryStorage,
    fork_run_sync,
    keys,
    resume_run_sync,
    run_durable,
    run_durable_sync,
    stream_durable_sync,
    tool,
)
from gnl_core.errors import (
    ConfigError,
    ModelResponseError,
    RefusedError,
    RunBusyError,
    RunLimitExceededError,
    StepTimeoutError,
    SyncInsideLoopError,
)
from gnl_core.limits import RunLimits
from gnl_core.testing.scripted import ScriptedModel

TURNS = [[("charge", {"order": 1})], "All is paid."]


@pytest.fixture
def release():
    """Lets a body in a thread end, at the latest with its test: a thread that waits keeps the process alive."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def shared(request, new_store):
    """A journal of each kind, without a loop of the test's own."""
    with new_store(request.param).open() as storage:
        yield storage.runs


def charging(effects, **options):
    @tool(**options)
    def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"{ctx.run_id}-order-{order}", {"receipt": order})

    return charge


def begin(journal, tools, turns=TURNS, run_id="r", **options):
    return run_durable_sync(
        run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=tools, prompt="Go.", **options
    )


def head(journal, run_id="r"):
    async def read():
        return (await journal.get_many([keys.head(run_id)])).entries[0].value["status"]

    return asyncio.run(read())


def test_a_script_runs_answers_resumes_and_forks_without_a_loop(shared, effects):
    charge = charging(effects, confirm=True)
    assert [one.question for one in begin(shared, [charge]).interrupts] == ["r/s0p0/confirm/0"]
    options = {"journal": shared, "tools": [charge]}
    done = resume_run_sync(run_id="r", model=ScriptedModel(TURNS), approvals={"r/s0p0/confirm/0": True}, **options)
    assert (done.text, effects.count()) == ("All is paid.", 1)
    assert fork_run_sync(journal=shared, run_id="r", step=1, new_run_id="f") == "f"
    assert resume_run_sync(run_id="f", model=ScriptedModel(TURNS), **options).text == "All is paid."
    assert effects.count() == 1


async def test_each_refuses_inside_a_loop_by_the_name_to_await_there(journal):
    options = {"run_id": "r", "journal": journal, "model": ScriptedModel(["Hi."])}
    for function, given in (
        (run_durable_sync, options),
        (resume_run_sync, options),
        (stream_durable_sync, options),
        (fork_run_sync, {"journal": journal, "run_id": "r", "step": 0, "new_run_id": "f"}),
    ):
        name = function.__name__
        with pytest.raises(SyncInsideLoopError, match=rf"^{name} .*await {name.removesuffix('_sync')}\("):
            function(**given)
    assert (await journal.get_many([keys.head("r")])).entries == (None,)


def test_a_stream_taken_into_a_loop_refuses_there_and_is_whole_afterwards(shared):
    with stream_durable_sync(run_id="r", journal=shared, model=ScriptedModel(["Hi."]), prompt="Go.") as stream:

        async def read():
            return stream.result

        with pytest.raises(SyncInsideLoopError, match="stream_durable"):
            asyncio.run(read())
        assert stream.text == "Hi."


def test_events_are_read_by_a_plain_for(shared, effects):
    stream = stream_durable_sync(
        run_id="r", journal=shared, model=ScriptedModel(TURNS), tools=[charging(effects)], prompt="Go."
    )
    kinds = [event.kind for event in stream]
    assert (kinds[0], kinds[-1]) == ("step-started", "finished")
    assert kinds.count("tool-finished") == 1
    assert (stream.text, stream.result.finish_reason) == ("All is paid.", "stop")
    assert list(stream) == [], "it is over"


def test_the_result_may_be_asked_for_without_reading(shared, effects):
    stream = stream_durable_sync(
        run_id="r", journal=shared, model=ScriptedModel(TURNS), tools=[charging(effects)], prompt="Go."
    )
    assert stream.text == "All is paid."
    assert effects.count() == 1


def test_s66_a_protection_ends_the_events_and_is_raised_by_the_result(shared, effects):
    blocked = []
    stream = stream_durable_sync(
        run_id="r",
        journal=shared,
        model=ScriptedModel(TURNS),
        tools=[charging(effects)],
        prompt="Go.",
        limits=RunLimits(max_tool_calls=0),
        on_blocked=blocked.append,
    )
    assert [event.kind for event in stream][-1] == "blocked"
    for _ in range(2):
        with pytest.raises(RunLimitExceededError):
            stream.result  # noqa: B018 - it raises
    assert len(blocked) == 1


def test_an_error_of_the_model_is_raised_by_the_text(shared):
    stream = stream_durable_sync(run_id="r", journal=shared, model=ScriptedModel([ModelResponseError("x")]), prompt="?")
    with pytest.raises(ModelResponseError):
        stream.text  # noqa: B018 - it raises


def test_leaving_a_stream_half_read_gives_the_run_back(shared, effects):
    with stream_durable_sync(
        run_id="r", journal=shared, model=ScriptedModel(TURNS), tools=[charging(effects)], prompt="Go."
    ) as stream:
        next(iter(stream))
    assert head(shared) in ("failed", "completed")
    assert begin(shared, [charging(effects)]).text == "All is paid."
    assert effects.count() == 1


def test_a_closed_stream_has_no_result(shared):
    stream = stream_durable_sync(
        run_id="r", journal=shared, model=ScriptedModel(["Hi."], gate=asyncio.Event()), prompt="Go."
    )
    stream.close()
    stream.close()
    with pytest.raises(RefusedError, match="closed before the run was over"):
        stream.result  # noqa: B018 - it raises
    assert list(stream) == []


def test_what_is_refused_at_admission_is_raised_by_the_call_itself(shared):
    with pytest.raises(ConfigError):
        stream_durable_sync(run_id="a b", journal=shared, model=ScriptedModel(["Hi."]), prompt="Go.")


def test_eight_threads_share_one_store_each_with_its_own_run(shared, effects):
    charge = charging(effects)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: begin(shared, [charge], run_id=f"r{n}"), range(32)))
    assert [result.text for result in results] == ["All is paid."] * 32
    assert effects.counts() == {f"charge r{n}-order-1": 1 for n in range(32)}


def test_s08_eight_threads_that_start_one_run_at_once_do_its_work_once(shared, effects):
    charge = charging(effects)
    barrier = threading.Barrier(8)

    def one(_):
        barrier.wait()
        try:
            return begin(shared, [charge]).text
        except RunBusyError as busy:
            return f"busy for {busy.retry_after >= 1}"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(8)))
    assert set(answers) <= {"All is paid.", "busy for True"}
    assert "All is paid." in answers
    assert effects.count() == 1


def test_threads_that_stream_beside_threads_that_run(shared, effects):
    charge = charging(effects)

    def one(n):
        if n % 2:
            return begin(shared, [charge], run_id=f"r{n}").text
        with stream_durable_sync(
            run_id=f"r{n}", journal=shared, model=ScriptedModel(TURNS), tools=[charge], prompt="Go."
        ) as stream:
            assert [event.kind for event in stream][-1] == "finished"
            return stream.text

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, range(16))) == {"All is paid."}
    assert effects.count() == 16


def test_s61_a_body_that_outlives_the_loop_is_evidence_all_the_same(shared, effects, release, begun):
    @tool(timeout=0.02)
    def charge(ctx: Context, order: int) -> dict:
        """Charge, late."""
        release.wait()
        return effects.fire("charge", ctx, {"receipt": order})

    with pytest.raises(StepTimeoutError):
        begin(shared, [charge])
    release.set()
    evidence = keys.evidence("r", keys.ROOT, "s0p0", 1)

    async def kept():
        async with asyncio.timeout(30):
            while (await shared.get_many([evidence])).entries == (None,):  # noqa: ASYNC110 - it appears in the store
                await asyncio.sleep(0.005)

    asyncio.run(kept())
    result = begin(shared, [charge])
    assert (result.text, effects.count()) == ("All is paid.", 1)
    assert result.steps[0].calls[0].output == {"receipt": 1}


def test_the_twins_take_what_the_originals_take():
    for twin in (run_durable_sync, resume_run_sync, stream_durable_sync):
        assert list(inspect.signature(twin).parameters)[:3] == ["run_id", "journal", "model"]
    with pytest.raises(TypeError, match="'no_such'"):
        run_durable_sync(run_id="r", journal=InMemoryStorage().runs, model=ScriptedModel(["Hi."]), no_such=1)


async def test_a_thread_beside_a_running_loop_may_use_them(journal, effects):
    charge = charging(effects)
    options = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "Go."}
    inside = await asyncio.to_thread(lambda: run_durable_sync(model=ScriptedModel(TURNS), **options))
    outside = await run_durable(model=ScriptedModel(TURNS), **options)
    assert (inside.text, outside.text, effects.count()) == ("All is paid.", "All is paid.", 1)
