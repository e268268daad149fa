"""Whose a run is, and what it was asked: who comes again with something else is refused before anything is written.

Owner first: whoever may not know of the run learns nothing else of it. No refusal names the other party, neither in its
words nor in its facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gnl_core import keys
from gnl_core.errors import (
    RefusedError,
    RunActorMismatchError,
    RunAgentMismatchError,
    RunInputMismatchError,
    RunOwnerMismatchError,
    RunSweptError,
    RunThreadMismatchError,
)
from gnl_core.journal import get
from gnl_core.journal.port import Entry, Expect, Key, Op
from gnl_core.model.messages import Message, message_to_json
from gnl_core.passed import addresses_call
from gnl_core.splice import digest_json

if TYPE_CHECKING:
    from gnl_core.admission import Asked


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
    checks: tuple[tuple[str, str | None, type[RefusedError], str], ...] = (
        (
            "resource",
            options.resource_id,
            RunOwnerMismatchError,
            "does not belong to the resource_id that was passed; pass the one it began with, or use another run id",
        ),
        (
            "agent",
            asked.agent,
            RunAgentMismatchError,
            "is another agent's; drive it with that agent, or use another run id for this one's work",
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


async def check_swept(asked: Asked) -> tuple[Op, ...]:
    """Refuse a run that a sweep removed, and return what must still hold when it begins.

    Raises:
        RunSweptError: It was here, and its time is over.
    """
    if asked.terms.tombstone_policy != "reject" and not keys.is_derived(asked.run_id):
        return ()
    key = keys.swept(asked.run_id)
    if await get(asked.journal, key) is not None:
        raise RunSweptError(
            f"run {asked.run_id!r} was here and has been removed by a retention sweep; its effects happened, and what "
            "is known of them is gone. It is not run again under this name: look in the system of record, and use "
            "another name for new work",
            run_id=asked.run_id,
        )
    return (Expect(key, "absent"),)


def _digest(messages: Sequence[Message]) -> str:
    return digest_json([message_to_json(message) for message in messages])
