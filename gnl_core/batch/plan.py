"""What a person looks at before a batch runs: its plan, with a token that stands for what was looked at."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanItem:
    """What a plan says of one item.

    Attributes:
        key: The item.
        text: What a person should know, in a sentence or two.
        run_id: The run that did the earlier work, or that is to do the item; '' where there is none.
        tool_call_id: The call of it.
        at: When that was, in milliseconds of the store's clock; 0 where there is no such time.
        channel: Where it came from; '' where that was not told.
        fields: Names of arguments it is about, never their values.
    """

    key: str
    text: str
    run_id: str = ""
    tool_call_id: str = ""
    at: int = 0
    channel: str = ""
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Items of one batch that are the same work. They are no repeats of each other: all of them run.

    Attributes:
        keys: The items, in the order given.
        by: 'arguments': they are equal. 'identity': what the tool declares to name the job is.
        amounts_differ: Amount fields in which they differ.
    """

    keys: tuple[str, ...]
    by: Literal["arguments", "identity"]
    amounts_differ: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What a batch would do. Each item stands in one of the lists from `fresh` to `unfit`.

    Attributes:
        token: What `Batch.run` asks for: 64 hex digits over the items and over what happens to repeats.
        batch_id: The batch.
        fresh: Keys of items that nothing is known of.
        exact_repeats: Items whose very arguments have been worked on before.
        xid_hits: Items whose person has had the same job done before, from whatever channel.
        amount_mismatches: The same, with other amounts: a new job, or a typing error.
        suspended: Items of this batch that wait for a person.
        unfinished: Items of this batch that were begun and are not over: they go on.
        already_done: Items of this batch that are over: what is recorded of them is given. Of those that a sweep
            removed nothing is, and they do not run again.
        unfit: Items whose arguments do not fit the tool.
        xid_scope_disabled: Keys of items that name no person, so that nobody's earlier jobs can be looked at.
        xid_identity_unusable: Items whose arguments cannot tell one job from another, so that they are not compared;
            None where there are none.
        intra_batch_duplicates: Items that are the same work as others of this batch.
        warnings: What you should read.
    """

    token: str
    batch_id: str
    fresh: tuple[str, ...] = ()
    exact_repeats: tuple[PlanItem, ...] = ()
    xid_hits: tuple[PlanItem, ...] = ()
    amount_mismatches: tuple[PlanItem, ...] = ()
    suspended: tuple[PlanItem, ...] = ()
    unfinished: tuple[PlanItem, ...] = ()
    already_done: tuple[PlanItem, ...] = ()
    unfit: tuple[PlanItem, ...] = ()
    xid_scope_disabled: tuple[str, ...] = ()
    xid_identity_unusable: tuple[PlanItem, ...] | None = None
    intra_batch_duplicates: tuple[Alike, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def repeats(self) -> tuple[PlanItem, ...]:
        """Every item that repeats earlier work."""
        return (*self.exact_repeats, *self.xid_hits, *self.amount_mismatches)

    def to_json(self) -> dict[str, Any]:
        """Return the plan for programs; `xid_identity_unusable` is left out where it is None."""
        value = dataclasses.asdict(self)
        return {name: member for name, member in value.items() if member is not None}
