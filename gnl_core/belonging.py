"""Whose a run is, and what it was asked: who comes again with something else is refused before anything is written.

What kind of run it is comes first, and whether a sweep removed it; then the owner, so that a stranger learns nothing
else. No refusal names the other party, neither in its words nor in its facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from gnl_core import keys
from gnl_core.errors import (
    NotAnAgentRunError,
    RefusedError,
    RunActorMismatchError,
    RunAgentMismatchError,
    RunFollowedError,
    RunInputMismatchError,
    RunOwnerMismatchError,
    RunSweptError,
    RunThreadMismatchError,
    ThreadOwnerMismatchError,
)
from gnl_core.journal import get
from gnl_core.journal.port import Create, Entry, Expect, Journal, JsonValue, Key, Op
from gnl_core.model.messages import Message, message_to_json
from gnl_core.passed import addresses_call
from gnl_core.records import FORMAT
from gnl_core.splice import digest_json

if TYPE_CHECKING:
    from gnl_core.admission import Asked


def check_id(run_id: str) -> None:
    """Refuse what can be no run's id, before anything is read.

    Raises:
        IdInvalidError: It is none.
    """
    if keys.split_run_id(keys.check_id("run_id", run_id))[1] != keys.ROOT:
        return  # of a sub-agent's run, admission names the root
    if keys.batch_of(run_id) is None:
        keys.check_run_id(run_id)


def check_door(asked: Asked) -> None:
    """Refuse the id of a batch's item at any other door; a refusal of admission, so that it can be noted.

    Raises:
        NotAnAgentRunError: It is one.
    """
    if keys.batch_of(asked.run_id) is not None and asked.door.kind != "item":
        raise _other_door(asked.run_id, "item", asked.door.kind)


def check_kind(asked: Asked, kind: object) -> None:
    """Refuse a run that was begun through another door.

    Args:
        asked: What is asked for.
        kind: What the run froze; anything, since it comes from disk.

    Raises:
        NotAnAgentRunError: A workflow's run at an agent's door, or at a batch's.
        RunAgentMismatchError: An agent's run at another door.
    """
    if kind != asked.door.kind:
        raise _other_door(asked.run_id, str(kind), asked.door.kind)


def _other_door(run_id: str, kind: str, door: str) -> RefusedError:
    way_out = {
        "workflow": "is a workflow's: go on with it by run_workflow",
        "item": "does an item of a batch: go on with it by running the batch",
        "agent": "is an agent's, or a loop's of its caller's own: go on with it there",
    }.get(kind, "was begun by something that this release does not know")
    error = NotAnAgentRunError if kind in ("workflow", "item") else RunAgentMismatchError
    return error(f"run {run_id!r} {way_out}, or use another run id here", run_id=run_id, kind=kind, door=door)


def check_job(asked: Asked, job: object, warnings: list[str]) -> None:
    """Refuse another job than a workflow's run, or a batch's item, began with; without strict terms only say so.

    Raises:
        RunInputMismatchError: It is another one, and the terms are strict or the id was derived from a work key.
    """
    given = asked.door.job
    if given is None or digest_json(given) == digest_json(cast("JsonValue", job)):
        return
    message = f"run {asked.run_id!r} began with another input than was passed now"
    if asked.terms.strict_input or keys.is_derived(asked.run_id):
        way_out = "this work key names one job" if keys.is_derived(asked.run_id) else "one run id is one job"
        raise RunInputMismatchError(
            f"{message}; {way_out}: use another for another", run_id=asked.run_id, differs=["input"]
        )
    warnings.append(f"{message}. One run id is one job: use another for another; it goes on with what it began with")


def thread_owner_ops(asked: Asked, thread: str, owner: Entry | None) -> tuple[Op, ...]:
    """Refuse a run in another person's conversation, and return what makes its first person the owner.

    Args:
        asked: What is asked for, with a `resource_id`.
        thread: The conversation.
        owner: Its row `keys.thread_owner`.

    Raises:
        ThreadOwnerMismatchError: It is another person's; neither is named.
    """
    resource = asked.options.resource_id
    key = keys.thread_owner(thread)
    if owner is None:
        return (Create(key, {"f": FORMAT, "resource": resource}),)
    if _owner_in(owner) != resource:
        raise ThreadOwnerMismatchError(
            f"run {asked.run_id!r} was not begun: the conversation of its thread_id does not belong to the resource_id "
            "that was passed. Use a conversation of that person's, or say shared_thread=True where several work in one",
            run_id=asked.run_id,
        )
    return (Expect(key, owner.version),)


async def thread_owner(journal: Journal, thread: str) -> str | None:
    """Return the first person whose run named a conversation; None where nobody's has, or the row cannot be read."""
    return _owner_in(await get(journal, keys.thread_owner(thread)))


def _owner_in(entry: Entry | None) -> str | None:
    value = entry.value.get("resource") if entry is not None and isinstance(entry.value, dict) else None
    return value if isinstance(value, str) else None


def check_belonging(asked: Asked, began: Mapping[str, str | None]) -> None:
    """Refuse a caller who names another person, agent, conversation or actor than the run began with.

    What the caller does not name is not compared: an operator goes on with a person's run as that person's. A run that
    began for nobody, or in no conversation, is not free to be claimed by somebody, or for one.

    Args:
        asked: What is asked for.
        began: 'resource', 'agent', 'thread' and 'actor' as the run froze them.

    Raises:
        RunOwnerMismatchError, RunAgentMismatchError, RunThreadMismatchError, RunActorMismatchError: In this order; the
            last only where the terms bind a run to its actor.
    """
    options, run_id = asked.options, asked.run_id
    # Nobody chose a derived id, so nobody can choose another one.
    name_of_work = "work_key" if asked.terms.work is not None or keys.is_derived(run_id) else "run id"
    checks: tuple[tuple[str, str | None, type[RefusedError], str], ...] = (
        (
            "resource",
            options.resource_id,
            RunOwnerMismatchError,
            "does not belong to the resource_id that was passed; pass the one it began with, or use another "
            + name_of_work,
        ),
        (
            "agent",
            asked.agent,
            RunAgentMismatchError,
            f"is another agent's; drive it with that agent, or use another {name_of_work} for this one's work",
        ),
        (
            "thread",
            options.thread_id,
            RunThreadMismatchError,
            "does not belong to the thread_id that was passed; pass the one it began with, or none to go on with it",
        ),
        (
            "actor",
            options.actor,
            RunActorMismatchError,
            "is bound to its first actor, and another one was passed; whoever only answers a question names themselves "
            "in the answer: Approval(…, actor=…), or decide(…, actor=…)",
        ),
    )
    for name, passed, error, way_out in checks:
        known = began.get(name)
        claims = known is not None if name in ("agent", "actor") else True
        if passed is not None and claims and passed != known and (name != "actor" or asked.terms.bind_actor):
            raise error(f"run {run_id!r} {way_out}", run_id=run_id)


def check_input(asked: Asked, messages: Sequence[Message], system: str | None, rows: Mapping[Key, Entry]) -> bool:
    """Return whether a run is asked something else than it began with; refuse that where the terms are strict.

    An answer to a call that this run made lets a caller in whose conversation has grown since; the run goes on with
    what it began with all the same.

    Args:
        asked: What is asked for.
        messages: What the run began with.
        system: The system prompt it began with.
        rows: The request's rows.

    Raises:
        RunInputMismatchError: Other content under strict terms, or under an id that was derived from a work key.
    """
    if asked.messages is None:
        return False
    others = _digest(asked.messages) != _digest(messages)
    strict = asked.terms.strict_input or keys.is_derived(asked.run_id)
    prompts = asked.terms.system_asked and asked.system is not None and asked.system != system
    if strict and (others or prompts) and not addresses_call(asked.approvals, asked.run_id, rows):
        differs = [name for name, other in (("messages", others), ("system", prompts)) if other]
        derived = asked.terms.work is not None or keys.is_derived(asked.run_id)
        way_out = (
            "this work key names one job, with the content it began with: use another work_key for another job"
            if derived
            else "one run id is one request: use another run id for another"
        )
        raise RunInputMismatchError(
            f"run {asked.run_id!r} began with other content than was passed now ({', '.join(differs)}); {way_out}",
            run_id=asked.run_id,
            differs=differs,
        )
    return others


def check_followed(marker: Entry | None, head: Mapping[str, Any] | None, run_id: str) -> None:
    """Refuse a run that was rolled over before it was done; one that is over is replayed as ever.

    Args:
        marker: Its row `keys.rollover`, None where it was not rolled over.
        head: Its head.
        run_id: The run.

    Raises:
        RunFollowedError: Its work is another run's now.
    """
    if marker is None or (head is not None and head.get("status") in ("completed", "canceled")):
        return
    follower = marker.value.get("next") if isinstance(marker.value, dict) else None
    raise RunFollowedError(
        f"the work of run {run_id!r} was begun anew as {follower!r}; it is not gone on with here, so that nothing is "
        "done by both: drive that one",
        run_id=run_id,
        next=follower,
    )


async def check_swept(asked: Asked) -> tuple[Op, ...]:
    """Refuse a run that a sweep removed, and return what must still hold when it begins.

    Raises:
        RunSweptError: It was here, and its time is over.
    """
    if asked.terms.tombstone_policy != "reject" and not keys.is_derived(asked.run_id):
        return ()
    key = keys.swept(asked.run_id)
    if await get(asked.journal, key) is not None or await _later_swept(asked.journal, asked.run_id):
        raise RunSweptError(
            f"run {asked.run_id!r} was here and has been removed by a retention sweep; its effects happened, and what "
            "is known of them is gone. It is not run again under this name: look in the system of record, and use "
            "another name for new work",
            run_id=asked.run_id,
        )
    return (Expect(key, "absent"),)


async def _later_swept(journal: Journal, run_id: str) -> bool:
    """Return whether a sweep removed a later execution of named work.

    What led to that one went with the earlier executions, whose runs were purged, or swept without a word; it says that
    the work was done all the same.
    """
    if not keys.is_derived(run_id):
        return False
    first, number = keys.execution_of(run_id)
    after: Key | None = keys.swept(first)
    while after is not None:
        page = await journal.scan(keys.all_swept(), after=after, limit=50)
        for entry in page.entries:
            if not entry.key[1].startswith(f"{first}#"):
                return False
            if keys.execution_of(entry.key[1])[0] == first and keys.execution_of(entry.key[1])[1] > number:
                return True
        after = page.after
    return False


def _digest(messages: Sequence[Message]) -> str:
    return digest_json([message_to_json(message) for message in messages])
