"""What is found of earlier work for one call: looked up when a gate asks for it, and once."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gnl_core import keys
from gnl_core.canonical import digest
from gnl_core.duplicates import Duplicates, finder_of, rule_for
from gnl_core.identity import Identity, Unusable, amounts_differ, amounts_of
from gnl_core.incidents import Incident
from gnl_core.journal import get
from gnl_core.journal.port import Entry, JsonValue, Key, Op, Read
from gnl_core.prior import Found, Inactive, Prior, Similar, Subject
from gnl_core.records import stamped

if TYPE_CHECKING:
    from gnl_core.records import CallRecord
    from gnl_core.request import Request
    from gnl_core.verdicts import Call

logger = logging.getLogger("gnl_core.findings")

_NOTHING: Final = Found()


class Findings:
    """What is found of earlier work for one call.

    Attributes:
        rule: What happens to a repeat of this call.
        incidents: What was noticed while looking; noted with whatever is written of the call next.
        counts: What the finder of similar work cost, for the request's counter row.
    """

    def __init__(self, request: Request, call: Call) -> None:
        self._request = request
        self._call = call
        self._rows: dict[Key, Entry | None] | None = None
        self.incidents: list[Incident] = []
        self.counts: Mapping[str, int] = {}

    @property
    def rule(self) -> Duplicates:
        """What happens to a repeat of this call."""
        options = self._request.options
        return rule_for(options.limits.duplicates, self._call.tool, asks=options.asks)

    @property
    def covered(self) -> bool:
        """Whether repeats of the call are looked for at all: a side effect of a run, that names its work by no key."""
        call = self._call
        fitting = call.tool.side_effect and not call.tool.drives_run and self._request.fence is not None
        return fitting and not call.tool.args_mode

    # Equal arguments -----------------------------------------------------------------------------------------------

    @property
    def marker_key(self) -> Key | None:
        """Where the conversation's marker of this work stands; None where none is kept."""
        call = self._call
        wide = self.rule.scope == "thread" and self.rule.action != "off"
        if not self.covered or not (wide or call.tool.confirm):
            return None
        if call.thread is None:
            if wide:
                self._request.warn(
                    f"repeats of {call.tool.name} are looked for within this request only: side_effect_duplicates has "
                    "the scope 'thread', and the run has no thread_id"
                )
            return None
        return keys.marker(keys.thread_scope(call.thread), call.tool.name, call.args_digest)

    async def marker(self) -> Entry | None:
        """Return the conversation's marker of this work, this call's own too.

        Raises:
            StoreCorruptError: There is one, and it cannot be read.
        """
        key = self.marker_key
        marker = (await self._window()).get(key) if key is not None else None
        if marker is not None:
            stamped(marker)  # one that cannot be read hides earlier work: nothing runs on its word
        return marker

    async def exact(self) -> Prior | None:
        """Return earlier work of the scope with these very arguments, the first of it.

        It is asked for a call of which there is no record. A marker of its own, that is not released, is then another
        run's that had its id and whose rows are deleted: earlier work like any.
        """
        if not self.covered:
            return None
        marker = await self.marker()
        value = marker.value if marker is not None else None
        occupied = marker is not None and not self.is_free(marker)
        if marker is not None and isinstance(value, dict) and occupied and not await self.is_of_own_batch(marker):
            return Prior(
                origin="exact",
                run_id=str(value.get("run", "")),
                tool_call_id=str(value.get("call", "")),
                at=marker.updated_at,
                in_flight=value.get("state") != "done",
                channel=str(value.get("channel") or ""),
            )
        return await self._in_request()

    def is_free(self, marker: Entry) -> bool:
        """Whether a marker says that nothing has happened, or counts no more."""
        value = marker.value
        return not isinstance(value, dict) or value.get("state") == "released" or self._is_old(marker.updated_at)

    def is_own(self, marker: Entry) -> bool:
        """Whether a marker is this very call's."""
        value, call = marker.value, self._call
        return isinstance(value, dict) and (value.get("run"), value.get("call")) == (call.run, call.id)

    def refused_before(self) -> bool:
        """Whether a person has refused a repeat with these very arguments earlier in the request."""
        return any(
            record.status == "denied" and (record.question or {}).get("kind") in ("duplicate", "semantic")
            for _, record in self._alike()
        )

    def _alike(self) -> list[tuple[Entry, CallRecord]]:
        call = self._call
        own = keys.tool(call.root, call.part, call.step, call.position)
        found = self._request.calls_like(call.tool.name, call.digest)
        return [(entry, record) for entry, record in found if entry.key != own]

    async def _in_request(self) -> Prior | None:
        alike = [(entry, record) for entry, record in self._alike() if _may_have_happened(record)]
        if not alike:
            return None
        # What was last seen of the clock is older than the model's answer, and how old the work is, is told and counts.
        self._request.now = max(self._request.now, await self._request.journal.now())
        found = [
            Prior(
                origin="exact",
                run_id=keys.run_id_of(entry.key[1], entry.key[2]),
                tool_call_id=record.call,
                at=entry.updated_at if record.status == "succeeded" else record.started_at or entry.updated_at,
                in_flight=record.status != "succeeded",
            )
            for entry, record in alike
            if not self._is_old(entry.updated_at)
        ]
        # The first that is done, else the first that is under way.
        return min(found, key=lambda prior: (prior.in_flight, prior.at), default=None)

    def _is_old(self, at: int) -> bool:
        ttl = self.rule.ttl_ms
        return ttl is not None and self._request.now - at > ttl

    # Equal identity ------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity | None:
        """The call's normalised identity; None where it declares none, or one that cannot tell one job from another.

        What is wrong with a declaration is noted once, by the names of its fields: their values stay out of it.
        """
        call, memo = self._call, (self._call.run, self._call.id, "identity")
        declared = call.tool.semantic_identity
        if declared is None or not call.tool.side_effect or self._request.fence is None:
            return None
        if memo not in self._request.memo:
            try:
                # describe() is to look at the arguments: the body is given them as they are.
                arguments = copy.deepcopy(dict(call.arguments)) if declared.describe else call.arguments
                self._request.memo[memo] = declared.build(call.tool.name, arguments)
            except Exception as error:  # a tool's own describe(): falling back to the default would show what it hides
                self._request.memo[memo] = error
        found = self._request.memo[memo]
        if isinstance(found, Identity):
            return found
        if isinstance(found, Unusable):
            detail: dict[str, JsonValue] = {"reason": "identity-unusable", "cause": found.cause}
            message = f"repeats of {call.tool.name} are not looked for by identity in this call: {found.message}"
            named = found.keys
        else:
            detail = {"reason": "identity-build-failed", "cause": type(found).__name__}
            message = (
                f"repeats of {call.tool.name} are not looked for by identity in this call: describe() raised "
                f"{type(found).__name__}"
            )
            named = declared.keys
        self._notice("semantic-guard", message, tool=call.tool.name, **detail, identity_keys=list(named))
        return None

    @property
    def person_key(self) -> Key | None:
        """Where this work stands under the person's name; None where it has no identity, or nobody is named.

        Work whose discriminators differ is other work, and stands elsewhere: a refund is not its payment.
        """
        identity, resource = self.identity, self._call.resource
        if identity is None or not resource:
            return None
        discriminated = [dict(identity.values), dict(identity.discriminators)]
        name = digest(discriminated if identity.discriminators else discriminated[0])[:16]
        return keys.person_identity(resource, self._call.tool.name, name)

    async def other_channel(self) -> Prior | None:
        """Return the person's earlier work of the same identity in another request, from whatever channel."""
        key, identity = self.person_key, self.identity
        entry = (await self._window()).get(key) if key is not None else None
        value: Any = entry.value if entry is not None else None
        if entry is None or identity is None or not isinstance(value, dict) or self._is_of_this_request(value):
            return None
        if self._is_old(entry.updated_at) or await self.is_of_own_batch(entry):
            return None
        return Prior(
            origin="channel",
            run_id=str(value.get("run", "")),
            tool_call_id=str(value.get("call", "")),
            at=entry.updated_at,
            channel=str(value.get("channel") or ""),
            sentence=str(value.get("sentence", "")),
            present=identity.sentence,
            identity_keys=tuple(identity.values),
            amounts_differ=amounts_differ(value.get("amounts"), amounts_of(identity)),
        )

    def _is_of_this_request(self, value: Mapping[str, JsonValue]) -> bool:
        """Whether a person's row is of this request, and not of an earlier one of its id whose rows are deleted."""
        run, call = str(value.get("run", "")), str(value.get("call", ""))
        place = keys.parse_call_id(call)
        if value.get("root") != self._call.root or place is None:
            return False
        _, part = keys.split_run_id(run)
        return keys.tool(self._call.root, part, *place) in self._request.rows

    async def is_of_own_batch(self, row: Entry | None) -> bool:
        """Whether another item of this call's own batch wrote a row of earlier work, and its run is still there.

        A batch says itself what its items are, so they are no repeats of each other. An item whose run was erased is no
        item of what is run now, though the ids are the same: its row is older than the run that has its id today. Nor
        is a row the batch's own that took the place of others' work, which repeats theirs to its twins as well.
        """
        batch = keys.batch_of(self._call.root)
        if batch is None or row is None:
            return False
        value = row.value
        if not isinstance(value, dict) or value.get("repeats"):
            return False
        root = keys.split_run_id(str(value.get("run", "")))[0]
        if root == self._call.root or keys.batch_of(root) != batch:
            return False
        began = await get(self._request.journal, keys.input_of(root))
        return began is not None and began.version < row.version  # versions only grow, and none is used again

    def gives_way(self, row: Entry) -> bool:
        """Whether a row of earlier work is a batch's item's, and this call is none of that batch.

        Who was first stays first, but the batch's other items take that row for their own: what others did since would
        be hidden from them. So what others do stands in its place.
        """
        value = row.value
        batch = keys.batch_of(str(value.get("run", ""))) if isinstance(value, dict) else None
        return batch is not None and batch != keys.batch_of(self._call.root)

    async def person_row(self) -> Entry | None:
        """Return what stands under the person's name, whoever did it and however long ago."""
        key = self.person_key
        return (await self._window()).get(key) if key is not None else None

    def is_over(self, row: Entry) -> bool:
        """Whether a row of earlier work is so old that it counts no more."""
        return self._is_old(row.updated_at)

    async def _window(self) -> dict[Key, Entry | None]:
        """Read the rows of earlier work that stand outside of the request, in one round trip."""
        if self._rows is None:
            wanted = self.window
            if wanted:
                self.take(wanted, await self._request.journal.get_many(wanted))
        return self._rows or {}

    @property
    def window(self) -> list[Key]:
        """Where earlier work stands outside of the request."""
        return [key for key in (self.marker_key, self.person_key) if key is not None]

    def take(self, wanted: Sequence[Key], read: Read) -> None:
        """Take in rows that were read for this call, among others."""
        self._request.now = max(self._request.now, read.now)
        self._rows = dict(zip(wanted, read.entries, strict=True))

    # Work that looks the same --------------------------------------------------------------------------------------

    @property
    def finder(self) -> Similar | None:
        """The finder that looks for work like this call's; None where nothing is looked for."""
        call, request = self._call, self._request
        finder = finder_of(request.options.limits.duplicates)
        if finder is None or isinstance(finder, Inactive) or call.tool.semantic_identity is None:
            return None
        if not call.tool.side_effect or request.fence is None or self.rule.action != "suspend":
            return None
        if call.thread is None:
            request.warn(
                f"work like that of {call.tool.name} is not looked for: the semantic gate looks at a conversation's "
                "earlier work, and the run has no thread_id"
            )
            return None
        return finder

    def subject(self) -> Subject | None:
        """Return what the finder is told of the call; None where nothing is looked for."""
        call, request = self._call, self._request
        if self.finder is None or call.thread is None or request.fence is None:
            return None
        identity = self.identity
        if identity is None:
            return None
        return Subject(
            journal=request.journal,
            scope=keys.thread_scope(call.thread),
            root=call.root,
            fence=request.fence,
            run=call.run,
            call=call.id,
            tool=call.tool.name,
            args_hash=call.args_digest,
            identity=identity,
            now=request.now,
            ttl_ms=self.rule.ttl_ms,
        )

    async def similar(self, *, judge: bool) -> Found:
        """Return what looks the same; asked once a drive, so that a second walk embeds and judges nothing twice."""
        finder, subject = self.finder, self.subject()
        if finder is None or subject is None:
            return _NOTHING
        memo = (self._call.run, self._call.id, "similar", str(judge))
        if memo not in self._request.memo:
            self._request.memo[memo] = await self._ask(finder, subject, judge=judge)
        found: Found = self._request.memo[memo]
        for notice in found.notices:
            self._notice(notice.source, notice.message, **notice.detail)
            if notice.detail.get("embedder_outage"):
                self._request.warn(
                    "the embedder of the semantic gate failed three times in a row; until it answers, calls go on "
                    "without the gate"
                )
        self.counts = found.counts
        return found

    async def _ask(self, finder: Similar, subject: Subject, *, judge: bool) -> Found:
        try:
            return await finder.find(subject, judge=judge)
        except Exception:  # a finder of somebody's own, which promised to raise nothing: it costs no call
            logger.exception("work like call %s of run %s could not be looked for", subject.call, subject.run)
            return _NOTHING

    async def to_remember(self) -> tuple[Op, ...]:
        """Return what the finder of similar work wants kept once the call has succeeded."""
        finder, subject = self.finder, self.subject()
        if finder is None or subject is None:
            return ()
        try:
            return await finder.remember(subject)
        except Exception:
            logger.exception("what call %s of run %s looks like could not be kept", subject.call, subject.run)
            return ()

    def _notice(self, source: str, message: str, **detail: JsonValue) -> None:
        incident = Incident.of(self._call, source, "warn", message, self._request.now, **detail)
        if all((one.source, one.action) != (source, "warn") for one in self.incidents):
            self.incidents.append(incident)


def _may_have_happened(record: CallRecord) -> bool:
    """Whether the effect of a call has happened, or may have.

    One that failed has been told to the model as such, and a question about it is open: trying again is no repeat. One
    that a person forbade to run again was begun, and whether it took effect is not known.
    """
    return record.status in ("succeeded", "running", "in_doubt") or (record.status == "denied" and record.attempts > 0)
