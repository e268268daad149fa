"""Run a workflow durably: begin, go on after a crash or a wait, give the recorded result of one that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from gnl_core import keys
from gnl_core.admission import Admitted, admit
from gnl_core.closing import close
from gnl_core.codec import decode, encode
from gnl_core.errors import (
    AlreadyDecidedError,
    CanceledError,
    DoubtError,
    NotCanonicalError,
    RefusedError,
    ResultNotRepresentableError,
)
from gnl_core.events import Event, tell
from gnl_core.journal.port import Create, Delete
from gnl_core.lock import Heartbeat
from gnl_core.presets import expand_preset, layered
from gnl_core.records import stamped
from gnl_core.results import ReplayedCall
from gnl_core.run import event_of
from gnl_core.sync import outside
from gnl_core.work import check_scope
from gnl_core.workflow.course import Course
from gnl_core.workflow.flow import Flow
from gnl_core.workflow.options import (
    Call,
    Workflow,
    WorkflowCallOptions,
    WorkflowPlan,
    arguments_of,
    check_options,
    held,
    name_of,
    plan,
)
from gnl_core.workflow.results import WorkflowResult, WorkflowStatus
from gnl_core.workflow.sending import check_same, send_along
from gnl_core.workflow.stops import leaves, own_error
from gnl_core.workflow.values import from_row, to_row

if TYPE_CHECKING:
    from gnl_core.journal.port import Journal
    from gnl_core.presets import Preset
    from gnl_core.request import Request
    from gnl_core.work import WorkScope


async def run_workflow(
    workflow: Workflow,
    *,
    journal: Journal,
    work_key: str | None = None,
    run_id: str | None = None,
    work_scope: WorkScope = "resource",
    name: str | None = None,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the word for what a run is asked
    send: Mapping[str, Any] | None = None,
    preset: Preset | None = None,
    **options: Unpack[WorkflowCallOptions],
) -> WorkflowResult:
    """Drive a workflow to its end, or to where it waits. Called again for the same work, it goes on.

    Its function is called anew in every drive, and each of its steps that is recorded is read instead of run. So it
    must take the same way every time: what may come out otherwise, a clock or a file for instance, belongs in a step. A
    step that is recorded with other arguments keeps its record, with a warning (an error under `replay="strict"`). Once
    the function has returned, its result is recorded, and it is called no more.

    Args:
        workflow: An async function of a `Flow` and of its input by name.
        journal: Where the run lives.
        work_key: Your name for the work: the same work is the same run, whoever asks for it.
        run_id: A run's own id instead. Without either the run is anonymous, and a warning says so.
        work_scope: Within what a work key is one job: 'resource' one person's (pass `resource_id`), 'org' the
            organisation's.
        name: Name of the workflow, part of the work's identity; by default the function's.
        input: What it works on, by name; None goes on with what the run began with.
        send: What is sent to waits of the run, by their names; the first that is sent stands.
        preset: 'critical', 'assistant' or 'headless'; what is given beside it wins, limits field by field.
        **options: approvals, guard, limits, timeouts, replay, approval_scope, exclusive_model_step, actor, context,
            lock_ttl, on_event, strict_input, bind_actor, tombstone_policy, conflict_ledger, audit_on_reject,
            shared_thread, tool_policy, thread_id, resource_id, channel of `run_durable`. Under 'strict-critical' each
            step that acts on the world needs `recover`, and the run a name.

    Raises:
        ConfigError: What was asked for cannot work; or a step's name is used twice, or something new was to begin after
            a failure.
        ToolDeclarationError: A step's function says too little about itself; nothing of it has begun.
        StepRetryBlockedError: A step began and nobody knows how it ended ('unresolved': `.interrupts` holds the
            question), or it still executes elsewhere ('in-flight').
        ToolError: A step failed; the next drive tries it again where it is harmless, or raised `NotPerformedError`, and
            settles any other side effect first.
        NotAnAgentRunError, RunAgentMismatchError: The run is a batch's, an agent's, or another workflow's.
        ResultNotRepresentableError: What the function returned cannot be stored; the run is not over.
        GnlError: As `run_durable` when it admits a run, and as its calls.
        Exception: What the function raised.
    """
    given = layered(held(expand_preset(preset)), options)
    call = Call(
        function=workflow,
        name=name_of(workflow) if name is None else name,
        work_key=work_key,
        run_id=run_id,
        work_scope=check_scope(work_scope),
        input=input,
        send=send,
        explicit_limits=options.get("limits") is not None,
    )
    return await drive(await plan(journal, call, check_options(given)))


def run_workflow_sync(
    workflow: Workflow,
    *,
    journal: Journal,
    work_key: str | None = None,
    run_id: str | None = None,
    work_scope: WorkScope = "resource",
    name: str | None = None,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - as above
    send: Mapping[str, Any] | None = None,
    preset: Preset | None = None,
    **options: Unpack[WorkflowCallOptions],
) -> WorkflowResult:
    """Do as `run_workflow` without `await`, for scripts.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `run_workflow` there.
        GnlError: As `run_workflow`.
    """
    outside("run_workflow")
    return asyncio.run(
        run_workflow(
            workflow,
            journal=journal,
            work_key=work_key,
            run_id=run_id,
            work_scope=work_scope,
            name=name,
            input=input,
            send=send,
            preset=preset,
            **options,
        )
    )


# The drive ---------------------------------------------------------------------------------------------------------


async def drive(planned: WorkflowPlan) -> WorkflowResult:
    """Admit a workflow's run and drive it; the lock is given back however it ends.

    Raises:
        GnlError: As `run_workflow`.
    """
    admitted = await admit(planned.asked, own_loop=True)
    request = admitted.request
    for warning in planned.warnings:
        request.warn(warning)
    beat = Heartbeat(request.journal, request.root, request.fence or 0, max(1, int(planned.asked.lock_ttl * 1000)))
    course: Course | None = None
    try:
        await beat.start()
        recorded = request.rows.get(keys.workflow_output(request.root))
        if recorded is not None:
            result = _over(request, from_row(recorded), planned.send)
        else:
            course = Course(request, planned.policy)
            result = await _drive(planned, course)
    except GeneratorExit:
        request.release()  # its loop is gone: nothing can be awaited, and the hold of no task is no hold
        raise
    except BaseException as error:
        try:
            tell(request.options.listener, event_of(error, request.root))
        finally:
            await _close(admitted, beat, course, error)
        if isinstance(error, CanceledError):
            return _result(request, "canceled")
        raise
    try:
        await _close(admitted, beat, course, None)
    except CanceledError:
        return _result(request, "canceled")
    detail = {"finish_reason": "stop" if result.status == "completed" else "suspended"}
    tell(request.options.listener, Event(kind="finished", run_id=request.root, replayed=course is None, detail=detail))
    return result


async def _drive(planned: WorkflowPlan, course: Course) -> WorkflowResult:
    """Call the function, and say what it came to; what is written of that is put off until the drive's end."""
    request = course.request
    halted = request.halted()
    if halted is not None:
        raise halted
    await send_along(request, planned.send)
    began = request.rows.get(keys.input_of(request.root))
    # What it began with counts; a run that begins now has it from its caller.
    job = stamped(began).get("job") if began is not None else planned.asked.door.job
    arguments = arguments_of(planned.function, str(planned.asked.agent), job)
    function = asyncio.ensure_future(_call(planned, Flow(course), arguments))
    try:
        await asyncio.wait({function})
    except asyncio.CancelledError:
        function.cancel()
        course.cancel()
        while not function.done():
            try:
                await asyncio.wait({function})
            except asyncio.CancelledError:
                function.cancel()
        course.over = True
        _read(function)
        await course.settle()
        raise
    course.over = True
    await course.settle()
    raised = _read(function)
    _judge(course, raised)
    for name in course.unread():
        request.warn(f"what was sent to {name!r} was not read: the workflow has come to no wait of that name")
    if course.waits or course.interrupts:
        return _result(
            request,
            "suspended",
            interrupts=course.open_questions(),
            waits=course.open_waits(),
        )
    return _completed(course, function.result())


async def _call(planned: WorkflowPlan, flow: Flow, arguments: Mapping[str, Any]) -> Any:
    return await planned.function(flow, **arguments)


def _read(function: asyncio.Future[Any]) -> BaseException | None:
    return asyncio.CancelledError() if function.cancelled() else function.exception()


def _judge(course: Course, raised: BaseException | None) -> None:
    """Raise what stopped the drive, if it was an error. A stop that the function swallowed stops it all the same."""
    if course.error is not None:
        error = course.error
        if isinstance(error, RefusedError | DoubtError):
            others = (one for one in course.open_questions() if one not in error.interrupts)
            error.interrupts = (*error.interrupts, *others)
        raise error
    own = own_error(raised) if raised is not None else None
    waits = bool(course.waits or course.interrupts)
    if own is not None and not (waits and all(isinstance(one, asyncio.CancelledError) for one in leaves(own))):
        raise own
    if waits:
        return
    if course.late is not None:
        raise course.late
    if raised is None and course.failures:
        failure = course.failures[0]
        failure.add_note(
            "the function returned in spite of this: the run is not over. Use flow.attempt where a failure is one of "
            "the ways on"
        )
        raise failure


def _completed(course: Course, output: object) -> WorkflowResult:
    """Return the result of a function that returned, and put off what is recorded of it."""
    request = course.request
    try:
        row, blob = to_row(output)
    except NotCanonicalError as error:
        raise ResultNotRepresentableError(
            f"the workflow of run {request.root} returned what cannot be stored: {error}. Its steps are recorded, and "
            "the run is not over: return plain data, and drive it again",
            output=output,
            run_id=request.root,
        ) from None
    course.pending.append(Create(keys.workflow_output(request.root), row, blob))
    for name, named in course.names.known.items():
        if name in course.used:
            continue
        request.warn(
            f"step {name!r} of run {request.root} is recorded, but this drive never came to it: the function takes "
            "another way than it did"
        )
        if keys.tool(request.root, keys.ROOT, named.step, 0) not in request.rows:
            # A harmless body that a crash broke off, and that nobody asks for any more: it names nothing.
            course.pending.append(Delete(keys.workflow_step(request.root, name)))
    return _result(request, "completed", output=decode(encode(output)))


def _over(request: Request, output: object, send: Mapping[str, Any]) -> WorkflowResult:
    """Return the result of a run that was over before."""
    unread = sorted(wait for wait in send if keys.workflow_sent(request.root, wait) not in request.rows)
    if unread:
        request.warn(f"run {request.root} is over and reads nothing more; not sent: {', '.join(unread)}")
    for wait in sorted(send.keys() - set(unread)):
        try:
            check_same(request.root, wait, request.rows[keys.workflow_sent(request.root, wait)], *to_row(send[wait]))
        except AlreadyDecidedError as error:
            request.warn(f"{error}; the run is over, and its result is given")
    for key in sorted(key for key in request.rows if len(key) == 6 and key[2:4] == (keys.ROOT, "tool")):
        record = request.record_of(request.rows[key])
        request.log.replayed.append(
            ReplayedCall(
                tool_call_id=record.call,
                tool_name=record.tool,
                status=record.status,
                origin="self",
                run_id=request.root,
            )
        )
    return _result(request, "completed", output=output)


async def _close(admitted: Admitted, beat: Heartbeat, course: Course | None, error: BaseException | None) -> None:
    interrupts = [one for asked in course.interrupts.values() for one in asked] if course is not None else []
    if isinstance(error, RefusedError | DoubtError):
        interrupts += [one for one in error.interrupts if one not in interrupts]
    counts = course.counts() if course is not None else {}
    pending = course.pending if course is not None else []
    await close(admitted, beat, pending, counts=counts, interrupts=interrupts, error=error)


def _result(request: Request, status: WorkflowStatus, **members: Any) -> WorkflowResult:
    return WorkflowResult(
        run_id=request.root,
        status=status,
        replayed_tool_calls=tuple(request.log.replayed),
        unused_approvals=tuple(sorted(request.unused)),
        warnings=tuple(request.warnings),
        **members,
    )
