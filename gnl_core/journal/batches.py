"""What a batch means, without a store: its operations made ready to write, and the check of their conditions.

Stores differ in how they find rows and write them. What refuses a batch, what counts as done already, and what a
counter comes to are decided here, so that no two stores can disagree; so is what one page of a scan has to read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gnl_core import keys
from gnl_core.errors import ConfigError, IdInvalidError
from gnl_core.journal.port import Add, Create, Delete, Expect, JsonValue, Key, Op, Put, Replace
from gnl_core.journal.values import PLAIN_KEY, size_of, to_text

Kind = Literal["create", "keep", "replace", "put", "delete", "add", "expect"]
Stamp: TypeAlias = tuple[int, int]
"""(version, batch tag) of a present row."""

MAX_TAG = (1 << 63) - 1
"""Largest tag of a batch."""

MAX_BYTES = 900_000_000
"""Most bytes of a row's value and blob together: SQLite takes no row of 1,000,000,000."""


@dataclass(slots=True)
class Step:
    """One operation, its value in the form that is written.

    Attributes:
        kind: What it does; 'keep' is a `Create` that leaves a present row alone.
        name: The encoded key.
        key: The key.
        want: Version that `Replace`, `Delete` and `Expect` ask for; None where they ask for none.
        text: JSON text to write.
        blob: Bytes to write beside it.
        by: What an `Add` adds.
        size: Bytes of text and blob.
    """

    kind: Kind
    name: str
    key: Key
    want: int | str | None = None
    text: str = ""
    blob: bytes | None = None
    by: Mapping[str, int] | None = None
    size: int = 0


@dataclass(slots=True)
class Ruling:
    """What the rows found say about a batch.

    Attributes:
        refused: Index of the first operation whose condition fails; -1 where none does.
        resent: Version under which this very batch was written before; 0 where it was not.
        kept: Indexes of the creates that met a row and leave it alone.
        sums: Counters after each `Add`, by encoded key.
    """

    refused: int = -1
    resent: int = 0
    kept: tuple[int, ...] = ()
    sums: dict[str, dict[str, int]] | None = None

    def counters(self, steps: Sequence[Step]) -> dict[Key, dict[str, int]]:
        """Return the sums by key, as `Applied` shows them."""
        sums = self.sums
        return {} if sums is None else {step.key: sums[step.name] for step in steps if step.name in sums}


def name_of(key: Key) -> str:
    """Return the encoded form of a row's key.

    Raises:
        IdInvalidError: It has no segment, or one that cannot be spelt.
        TypeError: It is no tuple of str.
    """
    if type(key) is not tuple:
        raise TypeError(f"a key is a tuple of segments, not {key!r}")
    text = "/".join(key)
    if len(text) <= keys.MAX_KEY and PLAIN_KEY.fullmatch(text) and text.count("/") == len(key) - 1:
        return text
    if not key:
        raise IdInvalidError("a row's key has at least one segment")
    return keys.encode(key)


def prepare(ops: Sequence[Op], batch: int) -> list[Step]:
    """Return the operations made ready, their values copied into text. Nothing has been asked of the store yet.

    Raises:
        ValueError: A key stands in two writing operations or two `Expect`, a value or the tag is none.
        TypeError: An operation, a blob or a value has another type than it may.
        IdInvalidError: A key cannot be spelt.
    """
    if type(batch) is not int or not 0 <= batch <= MAX_TAG:
        raise ValueError(f"the batch tag is {batch!r}, must be an int of 63 bits: take it from new_batch()")
    steps = [_step(op) for op in ops]
    written: set[str] = set()
    expected: set[str] = set()
    for step in steps:
        seen = expected if step.kind == "expect" else written
        if step.name in seen:
            which = "Expect" if step.kind == "expect" else "writing operation"
            raise ValueError(f"the key {step.name} stands in more than one {which} of a batch")
        seen.add(step.name)
    return steps


def _step(op: Op) -> Step:
    build = _BUILDERS.get(type(op))
    if build is None:
        raise TypeError(f"{op!r} is no operation of a batch")
    return build(op)


def _create(op: Create) -> Step:
    if op.if_present not in ("abort", "keep"):
        raise ValueError(f"if_present of the Create for {'/'.join(op.key)} must be 'abort' or 'keep'")
    return _writing("keep" if op.if_present == "keep" else "create", op, None)


def _replace(op: Replace) -> Step:
    return _writing("replace", op, _version(op.key, op.version))


def _put(op: Put) -> Step:
    return _writing("put", op, None)


def _writing(kind: Kind, op: Create | Replace | Put, want: int | str | None) -> Step:
    name = name_of(op.key)
    text = to_text(op.key, op.value)
    size = size_of(text)
    blob = op.blob
    if blob is not None:
        if not isinstance(blob, bytes | bytearray | memoryview):
            raise TypeError(f"the blob for {name} is {type(blob).__name__}, must be bytes")
        blob = bytes(blob)
        size += len(blob)
    if size > MAX_BYTES:
        raise ValueError(f"the value and blob for {name} have {size} bytes, at most {MAX_BYTES} are possible")
    return Step(kind, name, op.key, want, text, blob, None, size)


def _delete(op: Delete) -> Step:
    return Step("delete", name_of(op.key), op.key, None if op.version is None else _version(op.key, op.version))


def _expect(op: Expect) -> Step:
    want = op.version if op.version in ("absent", "present") else _version(op.key, op.version)
    return Step("expect", name_of(op.key), op.key, want)


def _add(op: Add) -> Step:
    by: dict[Any, Any] = dict(op.by)  # callers may hand over anything
    for field, number in by.items():
        if not isinstance(field, str) or not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(
                f"the Add for {'/'.join(op.key)} adds {number!r} to {field!r}; it adds ints to named fields"
            )
    to_text(op.key, by)
    return Step("add", name_of(op.key), op.key, by=by)


def _version(key: Key, version: object) -> int:
    if type(version) is not int:
        raise TypeError(f"the version {version!r} asked of {'/'.join(key)} is none; take it from an Entry or Applied")
    return version


_BUILDERS: dict[type, Callable[[Any], Step]] = {
    Create: _create,
    Replace: _replace,
    Put: _put,
    Delete: _delete,
    Add: _add,
    Expect: _expect,
}


def rule(
    steps: Sequence[Step], present: Mapping[str, Stamp], tag: int, value_of: Callable[[Step], JsonValue]
) -> Ruling:
    """Check the conditions of a batch, in the order given.

    A batch of which any row carries its own tag has been written before, whole: whatever else its conditions say now,
    it is done, and writing it again could undo what others wrote since.

    Args:
        steps: The batch.
        present: Version and tag of each of its rows that is there.
        tag: Its tag.
        value_of: Reads the value of a present row, for counters.
    """
    again = 0
    for step in steps:
        if step.kind != "expect":
            row = present.get(step.name)
            if row is not None and row[1] == tag:
                again = row[0]
    kept: list[int] = []
    sums: dict[str, dict[str, int]] | None = None
    for index, step in enumerate(steps):
        row = present.get(step.name)
        kind = step.kind
        if kind == "keep":
            if row is not None and row[1] != tag:
                kept.append(index)
        elif kind == "add":
            total = _sum(step, value_of(step) if row is not None else {}, again=bool(again))
            if total is not None:
                if sums is None:
                    sums = {}
                sums[step.name] = total
            elif not again:
                return Ruling(refused=index)
        elif not again and not _holds(kind, step.want, row):
            return Ruling(refused=index)
    return Ruling(resent=again, kept=tuple(kept), sums=sums)


def _holds(kind: Kind, want: int | str | None, row: Stamp | None) -> bool:
    if kind == "create" or want == "absent":
        return row is None
    if want is None:
        return True
    return row is not None and want in ("present", row[0])


def _sum(step: Step, value: JsonValue, *, again: bool) -> dict[str, int] | None:
    if not isinstance(value, dict) or not all(type(number) is int for number in value.values()):
        return None
    total: dict[str, int] = dict(value)  # type: ignore[arg-type] # checked above
    if not again and step.by:
        for field, number in step.by.items():
            total[field] = total.get(field, 0) + number
    return total


@dataclass(frozen=True, slots=True)
class Span:
    """What one page of a scan has to read.

    Attributes:
        own: Encoded key of the row at the prefix itself, None where it is not due. It comes first, reversed last.
        low: The rows below the prefix begin here,
        high: and end before this.
        newer_than: Only rows of a larger version.
        reverse: Descend.
        limit: Rows at most.
        max_bytes: The page ends after the row that reaches this many bytes.
        blobs: Whether to read blobs.
    """

    own: str | None
    low: str
    high: str
    newer_than: int
    reverse: bool
    limit: int
    max_bytes: int
    blobs: bool


_END = "\x7f"  # sorts after every key


def span(
    prefix: Key, *, after: Key | None, newer_than: int, reverse: bool, limit: int, max_bytes: int, blobs: bool
) -> Span:
    """Return what a page has to read.

    Raises:
        ValueError: A bound is out of range.
        IdInvalidError: A segment cannot be spelt.
        TypeError: The prefix is no tuple of str.
    """
    check_limit(limit)
    if type(max_bytes) is not int or max_bytes < 1:
        raise ValueError(f"max_bytes is {max_bytes!r}, must be at least 1")
    if type(newer_than) is not int:
        raise TypeError(f"newer_than is {newer_than!r}, must be a version")
    if type(prefix) is not tuple:
        raise TypeError(f"a prefix is a tuple of segments, not {prefix!r}")
    own: str | None = None
    low, high = "", _END
    if prefix:
        own, low, high = keys.prefix_range(prefix)
    if after is not None:
        name = name_of(after)
        if own is not None and (own >= name if reverse else own <= name):
            own = None
        if reverse:
            high = min(high, name)
        else:
            low = max(low, name + "!")  # before every longer key, since '!' precedes all characters of one
    newer_than = max(0, min(newer_than, MAX_TAG))
    return Span(own, low, high, newer_than, reverse, min(limit, MAX_TAG), max_bytes, blobs)


def check_limit(limit: int) -> None:
    """Check how many rows may be asked for.

    Raises:
        ValueError: Less than 1.
    """
    if type(limit) is not int or limit < 1:
        raise ValueError(f"limit is {limit!r}, must be at least 1")


def check_org(org: str) -> str:
    """Return the name of an organisation that a journal may be scoped to.

    Raises:
        IdInvalidError: As `keys.check_id`.
    """
    return keys.check_id("org", org)


def refuse_scope(what: str) -> ConfigError:
    """Return the error of asking a scoped journal for what only the whole store has."""
    return ConfigError(f"{what} is asked of a journal that is scoped already; ask the storage's own journal")
