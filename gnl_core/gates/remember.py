"""What a side effect leaves behind for later calls: its marker, the person's record of it, what it looked like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gnl_core import keys
from gnl_core.identity import amounts_of
from gnl_core.journal.port import Create, JsonValue, Key, Op, Put, Replace
from gnl_core.records import FORMAT
from gnl_core.verdicts import BEGINNING, PROCEED, CallContext, Ended, Finish, Proceed, State, Verdict


class Remember:
    """Add to the claim what marks the work as under way, and to its end what it came to."""

    name: ClassVar[str] = "remember"
    states: ClassVar[frozenset[State]] = BEGINNING

    async def rule(self, ctx: CallContext) -> Verdict:
        """Proceed, with what is to be written."""
        tool = ctx.call.tool
        if not tool.side_effect or tool.drives_run or ctx.request.fence is None:
            return PROCEED
        claim, finish = await self._marker(ctx)
        claim += self._tombstone(ctx)
        finish += await self._person(ctx)
        finish += await self._similar(ctx)
        return Proceed(claim=claim, finish=finish) if claim or finish else PROCEED

    async def _marker(self, ctx: CallContext) -> tuple[tuple[Op, ...], tuple[Finish, ...]]:
        """Claim the marker, unless earlier work holds it: whoever was first stays first."""
        found, call = ctx.findings, ctx.call
        key = found.marker_key
        if key is None:
            return (), ()
        marker = await found.marker()
        value: dict[str, JsonValue] = {"f": FORMAT, "run": call.run, "call": call.id, "state": "in_flight"}
        if ctx.request.options.channel:
            value["channel"] = ctx.request.options.channel
        if marker is None:
            return (Create(key, value),), (_ends(key, value),)
        if found.is_free(marker):  # its own too, from an attempt that failed: it is under way once more
            return (Replace(key, marker.version, value),), (_ends(key, value),)
        if found.is_own(marker):
            return (), (_ends(key, value, marker.version),)
        if found.gives_way(marker):
            return (), (_on_success(Replace(key, marker.version, {**value, "state": "done", "repeats": True})),)
        return (), ()

    def _tombstone(self, ctx: CallContext) -> tuple[Op, ...]:
        """A person let this pair pass: it is not asked about again."""
        record, answer, call = ctx.record, ctx.answer, ctx.call
        if ctx.state is not State.ANSWERED or record is None or answer is None or call.thread is None:
            return ()
        prior = (record.question or {}).get("prior")
        other = prior.get("prior_hash") if isinstance(prior, dict) else None
        if not answer.approved or not isinstance(other, str) or not other:
            return ()
        value: JsonValue = {"f": FORMAT, "run": call.run, "call": call.id, "by": answer.actor}
        key = keys.tombstone(keys.thread_scope(call.thread), call.tool.name, call.args_digest, other)
        return (Create(key, value, if_present="keep"),)

    async def _person(self, ctx: CallContext) -> tuple[Finish, ...]:
        """The first to do a job stays first, until that counts no more."""
        found, call = ctx.findings, ctx.call
        key, identity = found.person_key, found.identity
        if key is None or identity is None:
            return ()
        value: dict[str, JsonValue] = {
            "f": FORMAT,
            "root": call.root,
            "run": call.run,
            "call": call.id,
            "channel": ctx.request.options.channel or "",
            "sentence": identity.sentence,
            "amounts": amounts_of(identity),
        }
        row = await found.person_row()
        if row is not None and found.is_over(row):
            return (_on_success(Put(key, value)),)
        if row is not None and found.gives_way(row):
            return (_on_success(Put(key, {**value, "repeats": True})),)
        return (_on_success(Create(key, value, if_present="keep")),)

    async def _similar(self, ctx: CallContext) -> tuple[Finish, ...]:
        ops = await ctx.findings.to_remember()
        return (_on_success(*ops),) if ops else ()


def _on_success(*ops: Op) -> Finish:
    def finish(ended: Ended) -> Sequence[Op]:
        return ops if ended.succeeded else ()

    return finish


def _ends(key: Key, value: dict[str, JsonValue], version: int = 0) -> Finish:
    """Say with the call's end what became of its marker: unless others hold it by then.

    Args:
        key: The marker.
        value: What it says while the work is under way.
        version: Version under which it stands; 0 where it is written with the claim.
    """

    def finish(ended: Ended) -> Sequence[Op]:
        state = "done" if ended.succeeded else "released"
        return (Replace(key, version or ended.version, {**value, "state": state}),)

    return finish
