"""The parts of the runtime for a loop of one's own: a model that is recorded and replayed, tools that run at most once.

    async with durable_context(run_id="order-1", journal=journal) as ctx:
        model = with_durable_model(my_model, ctx)
        tools = durable_tools([charge_card], ctx)
        response = await model.generate(request)
        for call in response.tool_calls:
            message = await tools[call.name].answer(call)

Call ids are ours, 's<step>p<position>': the durable model puts them on the calls of its answers. A tool is called with
the id of the call it answers; a framework's own id is not enough, since providers give the same one twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Unpack

from gnl_core import keys
from gnl_core.admission import Admitted, admit
from gnl_core.approvals import Interrupt
from gnl_core.call import Caller
from gnl_core.closing import close
from gnl_core.codec import decode
from gnl_core.drift import check_drift
from gnl_core.duplicates import check_duplicates
from gnl_core.errors import ApprovalRequiredError, ConfigError, IdInvalidError, JournalGapError, ToolError
from gnl_core.journal.port import Journal, JsonValue, Op
from gnl_core.lock import Heartbeat
from gnl_core.model.messages import (
    Message,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    ReasoningPart,
    ResponseDone,
    TextDelta,
    TextPart,
    ToolCallPart,
)
from gnl_core.model.router import ModelLike, resolve_model
from gnl_core.render import RENDER
from gnl_core.request import Request, interrupts_by_name
from gnl_core.run import make_plan
from gnl_core.run_options import OwnLoopOptions, RunOptions
from gnl_core.slots import Slot
from gnl_core.splice import Transcript, digest_message
from gnl_core.step import Bodies, Entry, ModelStep, bound, splice_messages
from gnl_core.tools import Tool, check_tools


class DurableContext:
    """One run that a loop of one's own drives; made by `durable_context`.

    Attributes:
        run_id: The run.
    """

    def __init__(self, admitted: Admitted) -> None:
        self.run_id = admitted.request.root
        self._admitted = admitted
        self._pending: list[Op] = []
        self._transcript = Transcript.start(admitted.messages)
        self._known: dict[str, JsonValue] = {}
        self._walking = asyncio.Lock()
        self._waiting: dict[str, tuple[Interrupt, ...]] = {}
        self._step = 0
        self._settled = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """What you should read."""
        return tuple(self._request.warnings)

    @property
    def _request(self) -> Request:
        return self._admitted.request

    @property
    def _interrupts(self) -> tuple[Interrupt, ...]:
        """The questions that wait now: a call that was made again after its answer asks no more."""
        return tuple(one for waiting in self._waiting.values() for one in waiting)

    def _counts(self) -> dict[str, JsonValue]:
        return {"steps": self._step, "calls": len(self._waiting), "questions": len(self._interrupts)}

    def _check_held(self) -> None:
        if self._request.released:
            raise ConfigError(
                f"the durable_context of run {self.run_id!r} is over; open it again to go on with the run",
                run_id=self.run_id,
            )


@asynccontextmanager
async def durable_context(
    *, run_id: str, journal: Journal, **options: Unpack[OwnLoopOptions]
) -> AsyncIterator[DurableContext]:
    """Hold a run for a loop of one's own: its lock, its records, its options.

    Args:
        run_id: As for `run_durable`.
        journal: As for `run_durable`.
        **options: approvals, guard, limits, timeouts, replay, approval_scope, exclusive_model_step, agent, thread_id,
            resource_id, actor, channel, context, lock_ttl, on_event of `run_durable`.

    Raises:
        GnlError: As `run_durable` when it admits a run.
        CanceledError: At the end of the block, if the run was canceled meanwhile and nothing else is raised.
    """
    names = {"model", *RunOptions.__annotations__} - OwnLoopOptions.__annotations__.keys()
    misplaced = sorted(names & options.keys())
    if misplaced:
        raise ConfigError(f"durable_context takes no {', '.join(misplaced)}: your own loop holds them")
    plan = make_plan(run_id=run_id, journal=journal, model=NoModel(), messages=[], **options)
    admitted = await admit(plan.asked, own_loop=True)
    request = admitted.request
    beat = Heartbeat(journal, request.root, request.fence or 0, max(1, int(plan.asked.lock_ttl * 1000)))
    context = DurableContext(admitted)
    stopped: BaseException | None = None
    try:
        await beat.start()
        yield context
    except GeneratorExit:
        request.release()  # its loop is gone: nothing can be awaited, and the hold of no task is no hold
        raise
    except BaseException as error:
        stopped = error
        raise
    finally:
        counts, interrupts = context._counts(), context._interrupts
        if not request.released:
            await close(admitted, beat, context._pending, counts=counts, interrupts=interrupts, error=stopped)


class NoModel:
    """Stands where a run's model would, and is never asked."""

    spec = "own/loop"

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Never called."""
        raise NotImplementedError

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Never called."""
        raise NotImplementedError


# The model ---------------------------------------------------------------------------------------------------------


def with_durable_model(model: ModelLike, ctx: DurableContext) -> DurableModel:
    """Return the model with every answer recorded before it is given, and replayed when the run is driven again."""
    return DurableModel(model, ctx)


class DurableModel:
    """A chat model whose answers are recorded under a run; its first answer is step 0, its next step 1."""

    def __init__(self, model: ModelLike, ctx: DurableContext) -> None:
        self._model = bound(ctx._request, keys.ROOT, resolve_model(model))
        self._ctx = ctx

    @property
    def spec(self) -> str:
        """'provider/model' of the model inside."""
        return self._model.spec

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the answer of this step, recorded or live.

        Raises:
            GnlError: As a model step of `run_durable`.
        """
        return await self._answer(request, "generate")

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer of this step: once it is recorded whole, so that nothing acts on a part of it."""
        response = await self._answer(request, "stream")
        for part in response.parts:
            match part:
                case TextPart(text):
                    yield TextDelta(text)
                case ReasoningPart(text):
                    yield ReasoningDelta(text)
                case _:
                    pass
        yield ResponseDone(response)

    async def _answer(self, asked: ModelRequest, mode: Entry) -> ModelResponse:
        self._ctx._check_held()
        before, put_off = _copy(self._ctx._transcript), len(self._ctx._pending)
        try:
            return await self._step(asked, mode)
        except BaseException:
            # The next try is a splice on the last step that is recorded, and none on this one.
            self._ctx._transcript = before
            del self._ctx._pending[put_off:]
            raise

    async def _step(self, asked: ModelRequest, mode: Entry) -> ModelResponse:
        ctx, request = self._ctx, self._ctx._request
        step = ctx._step
        bodies = Bodies(system=asked.system, tools=asked.tools, settings=asked.settings)
        asker = ModelStep(request, part=keys.ROOT, model=self._model, bodies=bodies, pending=ctx._pending, mode=mode)
        splice = splice_messages(request, keys.ROOT, ctx._transcript, asked.messages, ctx._known)
        record = asker.recorded(step)
        if record is None and await request.recalls(keys.model(request.root, keys.ROOT, step)):
            record = asker.recorded(step)
        if record is None and step <= request.last_step(keys.ROOT):
            raise JournalGapError(f"step {step} of run {ctx.run_id} is missing; run `gnl doctor`", run_id=ctx.run_id)
        if record is not None:
            check_drift(
                request,
                run=ctx.run_id,
                step=step,
                record=record,
                transcript=ctx._transcript,
                bodies=bodies,
                model=self._model.spec,
                settled=ctx._settled,
            )
            response = record.response
        else:
            await asker.ask(step, ctx._transcript, splice=splice)
            await request.write((), pending=ctx._pending, begins=True)
            record = asker.recorded(step)  # an earlier try may have been recorded after all: that one counts
            assert record is not None
            response = record.response
        ctx._step += 1
        ctx._known[digest_message(response.message())] = {"step": step}
        return response


def _copy(transcript: Transcript) -> Transcript:
    return Transcript(
        list(transcript.messages), list(transcript.digests), list(transcript.chains), list(transcript.references)
    )


# Tools -------------------------------------------------------------------------------------------------------------


def durable_tools(
    tools: Sequence[Any] | Mapping[str, Any], ctx: DurableContext, *, approvals: bool = True
) -> dict[str, DurableTool]:
    """Return tools by name whose calls are claimed, asked about and recorded under a run.

    Args:
        tools: As for `run_durable`.
        ctx: The run.
        approvals: Whether your loop shows a person the questions of `ApprovalRequiredError`. False: nobody is asked,
            so that repeated side effects are blocked, and `side_effect_duplicates='suspend'` is refused.

    Raises:
        ToolDeclarationError: As for `run_durable`.
        ConfigError: The run's limits ask a person, and nobody can be asked.
    """
    checked = check_tools(tools)
    request = ctx._request
    for warning in check_duplicates(request.options.limits.duplicates, checked, asks=approvals):
        request.warn(warning)
    request.options = replace(request.options, asks=approvals)
    caller = Caller(ctx._request, part=keys.ROOT, tools=checked, pending=ctx._pending)
    return {name: DurableTool(tool, caller, ctx) for name, tool in checked.items()}


class DurableTool:
    """A tool whose calls are recorded under a run.

    Attributes:
        tool: The tool inside; its `spec` is what a model is told.
    """

    def __init__(self, tool: Tool, caller: Caller, ctx: DurableContext) -> None:
        self.tool = tool
        self._caller = caller
        self._ctx = ctx

    async def call(self, args: Mapping[str, Any], *, tool_call_id: str) -> object:
        """Run one call, at most once, and return what the tool returned.

        Args:
            args: Arguments as the model wrote them.
            tool_call_id: Our id of the call, 's<step>p<position>'.

        Raises:
            IdInvalidError: The id is not one of ours.
            ApprovalRequiredError: A person is asked; `.interrupts` holds the question.
            SideEffectRetryBlockedError: It began before and nobody knows how it ended.
            ToolError: It failed, or was refused; the message is what a model would read.
            GnlError: As a call of `run_durable`.
        """
        slot = await self._run(ToolCallPart(tool_call_id, self.tool.name, dict(args)))
        if slot.status != "succeeded":
            record = slot.record
            error = (record.error if record is not None else None) or {}
            raise ToolError(_text(slot), type=str(error.get("type", slot.status)))
        return decode(slot.output)

    async def answer(self, call: ToolCallPart) -> Message:
        """Run one call of a durable model's answer and return the message that carries its result to the model.

        Raises:
            GnlError: As `call`; a tool's own failure is in the message.
        """
        slot = await self._run(call)
        assert slot.message is not None
        self._ctx._known[digest_message(slot.message)] = {"call": call.id, "render": RENDER}
        return slot.message

    async def _run(self, part: ToolCallPart) -> Slot:
        place = keys.parse_call_id(part.id)
        if place is None:
            raise IdInvalidError(
                f"tool_call_id {part.id!r} is not one of ours ('s<step>p<position>'): take it from the answer of "
                "with_durable_model, or name the model step and the call's position in it"
            )
        ctx = self._ctx
        ctx._check_held()
        slot = Slot(part)
        try:
            async with ctx._walking:  # calls of one step are claimed one after another
                await self._caller.begin(slot, *place)
                if ctx._pending:
                    await ctx._request.write((), pending=ctx._pending)
        except BaseException:
            await self._caller.walker.unclaim(slot)
            raise
        await self._caller.finish(slot)
        self._caller.account(slot, place[0])
        ctx._waiting[part.id] = slot.interrupts
        record = slot.record
        if record is not None and (record.settled_by or record.attempts > 1):
            ctx._settled = True
        if slot.error is not None:
            if hasattr(slot.error, "interrupts"):
                slot.error.interrupts = slot.interrupts
            raise slot.error
        if slot.interrupts:
            error = ApprovalRequiredError(
                f"{part.name} (call {part.id} of run {ctx.run_id}) waits for a person: answer "
                f"{interrupts_by_name(slot.interrupts)} with decide(…), then make the call again",
                run_id=ctx.run_id,
                tool_call_id=part.id,
                tool=part.name,
            )
            error.interrupts = slot.interrupts
            raise error
        return slot


def _text(slot: Slot) -> str:
    part = slot.message.parts[0] if slot.message is not None else None
    return getattr(part, "text", slot.status)
