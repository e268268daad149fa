"""What a call of the model's stands for: a tool, arguments of its types, and where its record stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gnl_core import keys
from gnl_core.approvals import Interrupt, read_answer
from gnl_core.canonical import args_hash
from gnl_core.codec import encode
from gnl_core.decisions import question_of
from gnl_core.errors import DivergenceError, ToolArgumentsError
from gnl_core.journal.port import Entry, Journal, Key
from gnl_core.model.messages import ToolCallPart
from gnl_core.request import Request
from gnl_core.verdicts import Call

if TYPE_CHECKING:
    from gnl_core.tools import Tool


def resolve(request: Request, where: str, part: ToolCallPart, tool: Tool, place: tuple[int, int]) -> Call:
    """Return what a call of the model's stands for.

    Raises:
        ToolArgumentsError, NotCanonicalError: Its arguments do not fit; the tool is not called.
        DivergenceError: A call of this id was asked about, or begun, with other arguments or for another tool.
    """
    assert part.args is not None
    options, run = request.options, keys.run_id_of(request.root, where)
    step, position = place
    key = keys.tool(request.root, where, step, position)
    unfit: ToolArgumentsError | None = None
    known = request.rows.get(key)
    if known is not None:
        _check_same(request, run, known, where, part)
    arguments: Mapping[str, object] = part.args
    if known is None or tool.args_mode:
        arguments = tool.validate(part.args)
        digest = args_hash(part.args)
    else:
        # The row was made of these arguments, unless somebody changed it: then the digest tells.
        recorded = request.record_of(known)
        same = recorded.args == part.args and not recorded.mirror_of
        digest = recorded.digest if same else args_hash(part.args)
        if not recorded.terminal or recorded.status == "failed":  # what came to nothing for certain may begin anew
            try:
                arguments = tool.validate(part.args)
            except ToolArgumentsError as error:
                unfit = error
        if not digest and unfit is None and request.untold:
            digest = args_hash(part.args)  # they did not fit when the call was refused, and do by now
    record_digest, provider_key = digest, f"{run}:{part.id}"
    if tool.args_mode:
        record_digest = tool.key_of(part.args)
        own, (key, provider_key) = key, _work_key(request, where, tool, record_digest)
        begun = _begun_work(request, known, own, run, part.id) if known is not None else None
        if begun is not None and begun[0] != key:
            request.warn(
                f"{tool.name} (call {part.id} of run {run}) was begun under another name of its work than the tool "
                "gives it now; it stays under that one"
            )
        if begun is not None:
            key, record_digest, provider_key = begun
    return Call(
        root=request.root,
        part=where,
        run=run,
        step=step,
        position=position,
        id=part.id,
        provider_id=part.provider_id,
        tool=tool,
        # A function of one's own is called with values of every type; a model's arguments are JSON.
        args=part.args if request.fence is not None else encode(part.args),  # type: ignore[arg-type] # of a dict
        arguments=arguments,
        unfit=unfit,
        args_digest=digest,
        digest=record_digest,
        record_key=key,
        provider_key=provider_prefix(request.journal) + provider_key,
        thread=options.thread_id,
        resource=options.resource_id,
        actor=options.actor,
    )


def _check_same(request: Request, run: str, known: Entry, where: str, part: ToolCallPart) -> None:
    """Refuse other arguments for a call that waits or is in doubt: an answer covers those that a person was shown.

    Raises:
        DivergenceError: They are others.
    """
    record = request.record_of(known)
    if record.terminal or record.status == "released" or (record.status == "failed" and not record.side_effect):
        return
    recorded, present = args_hash(record.args), args_hash(part.args or {})
    if (record.tool, recorded) == (part.name, present):
        return
    question = question_of(request.root, where, record, known, request.now, driven=request.fence)
    if record.tool == part.name and question is not None and _answered(request, where, question, present):
        return  # the record changed behind the person's back; what they answered about is what is called
    what = "other arguments" if record.tool == part.name else f"the tool {part.name}"
    state = "was begun and is not over" if question is None else f"waits on question {question.question!r}"
    error = DivergenceError(
        f"call {part.id} of run {run} {state}, for the arguments that {record.tool} was called with then; it cannot "
        f"be made with {what} instead. Make it as it was made, or make another call under an id of its own",
        run_id=run,
        tool_call_id=part.id,
        tool=record.tool,
        question=question.question if question is not None else "",
        recorded=recorded,
        present=present,
    )
    error.interrupts = (question,) if question is not None else ()
    raise error


def _answered(request: Request, where: str, question: Interrupt, digest: str) -> bool:
    key = keys.answer(request.root, where, question.tool_call_id, question.kind, question.attempt)
    answer = read_answer(request.rows.get(key))
    return answer is not None and answer.args_digest == digest


def provider_prefix(journal: Journal) -> str:
    """Return what every idempotency key of a scoped journal begins with; '' where it is not scoped.

    Organisations choose their run ids without knowing of each other, and their services see one account: without it two
    of them would name two jobs alike.
    """
    # No organisation's name may end inside another's: ':' ends it here, so within it one is escaped.
    name = journal.org.replace("%", "%25").replace(":", "%3A")
    return f"org:{name}:" if name else ""


def _begun_work(request: Request, known: Entry, own: Key, run: str, call: str) -> tuple[Key, str, str] | None:
    """Return key, digest and provider key under which a call has begun; None where it has not.

    A tool may name its work otherwise by now: by another key, in another window, or not at all when the call was made.
    """
    record = request.record_of(known)
    if record.status in ("suspended", "released"):
        return None
    if not record.mirror_of:
        return None if record.terminal else (own, record.digest, f"{run}:{call}")
    key = keys.decode(record.mirror_of)
    match key:
        case ("xrun", "args", tool, digest):
            return key, digest, f"{tool}:{digest}"
        case ("xthr", thread, "args", tool, digest):
            return key, digest, f"thr:{thread}:{tool}:{digest}"
        case ("run", _, _, "args", tool, digest):
            return key, digest, f"{run}:{tool}:{digest}"
        case _:
            return None


def _work_key(request: Request, where: str, tool: Tool, digest: str) -> tuple[Key, str]:
    run = keys.run_id_of(request.root, where)
    thread = request.options.thread_id
    if tool.window == "cross-run":
        return keys.xrun_args(tool.name, digest), f"{tool.name}:{digest}"
    if tool.window == "thread":
        if thread:
            return keys.xthr_args(thread, tool.name, digest), f"thr:{thread}:{tool.name}:{digest}"
        request.warn(
            f"{tool.name} remembers its work within a conversation, but run {run} names no thread_id: it is "
            "remembered within the run only"
        )
    return keys.args(request.root, where, tool.name, digest), f"{run}:{tool.name}:{digest}"
