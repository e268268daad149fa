"""Batches as the scripts' arguments, and the scripts' answers as rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gnl_core.errors import JournalFormatError, StoreCorruptError, StoreUnavailableError
from gnl_core.journal.batches import Step
from gnl_core.journal.port import Entry, Key
from gnl_core.journal.values import from_text, to_text

ROW_FORMAT = 1
"""What this release writes into a row's stamp."""

JSON_TEXT = 0
"""The codec of a row whose value is JSON text and whose blob is plain bytes; there is no other yet."""

MOST_BYTES = 400_000_000
"""Most bytes of a batch's values and blobs: Redis takes 512 MiB a value, and 1 GiB a command with its copies."""


def arguments_of(steps: Sequence[Step]) -> list[str | bytes]:
    """Return a batch as the arguments of apply.lua.

    Raises:
        ValueError: It is larger than a server takes.
    """
    if sum(step.size for step in steps) > MOST_BYTES:
        largest = max(steps, key=lambda step: step.size)
        raise ValueError(
            f"the batch has more than {MOST_BYTES} bytes, most of them of {largest.name}; a Redis store takes no more"
        )
    found: list[str | bytes] = [str(len(steps))]
    for step in steps:
        found += (step.kind, step.name)
        if step.kind == "add":
            found += _additions(step)
            continue
        found.append("" if step.want is None else str(step.want))
        if step.kind not in ("delete", "expect"):
            found.append(step.text)
            found += ("0",) if step.blob is None else ("1", step.blob)
    return found


def _additions(step: Step) -> Iterator[str]:
    by = step.by or {}
    yield str(len(by))
    for name, integer in by.items():
        # As values are written: in UTF-8, and where that cannot be, in ASCII. A present row may have it either way.
        yield to_text(step.key, name)
        yield json.dumps(name)
        yield str(integer)


def check_status(answer: Sequence[Any], where: str) -> None:
    """Raise what an answer says instead of an outcome.

    Raises:
        StoreUnavailableError: Another store, or none, is where this one was.
        StoreCorruptError: A row's stamp cannot be read.
        JournalFormatError: A newer release wrote a row.
        ValueError: A counter would have more digits than can be read back.
    """
    status = answer[0]
    if status == b"replaced":
        raise StoreUnavailableError(
            f"the store at {where} was emptied, or replaced by another, while it was in use; nothing was written. What "
            "was recorded there is gone unless it is restored: a new storage would do again what was done",
            server=where,
            replaced=True,
        )
    if status == b"long":
        raise ValueError(f"the counter {_text(answer[1])} would have more digits than can be read back")
    if status == b"corrupt":
        name = _text(answer[1])
        if not name:
            raise StoreCorruptError(f"the store at {where} has rows and no head; restore it from a copy", server=where)
        raise _bad_stamp(name)
    if status == b"newer":
        raise _newer(_text(answer[1]), _text(answer[2]))


def entry_of(name: str, key: Key, stamp: bytes | None, value: bytes | None, blob: bytes | None) -> Entry:
    """Return a row.

    Raises:
        StoreCorruptError: It cannot be read.
        JournalFormatError: A newer release wrote it.
    """
    form, codec, version, batch, created, updated = _numbers(name, stamp)
    if form != ROW_FORMAT or codec != JSON_TEXT:
        raise _newer(name, f"{form} {codec}")
    if version < 1 or batch < 0:  # no condition holds of it, and whoever waits for one would wait for ever
        raise StoreCorruptError(f"the row {name} has version {version} and tag {batch}; run `gnl doctor`", key=name)
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError as error:
        raise StoreCorruptError(f"the row {name} holds text that is no UTF-8; run `gnl doctor`", key=name) from error
    return Entry(key, from_text(name, text), blob, version, batch, created, updated)


def _numbers(name: str, stamp: bytes | None) -> tuple[int, ...]:
    try:
        numbers = tuple(map(int, (stamp or b"").split(b" ")))
    except ValueError:
        numbers = ()
    if len(numbers) != 6:
        raise _bad_stamp(name)
    return numbers


def _bad_stamp(name: str) -> StoreCorruptError:
    return StoreCorruptError(f"the row {name} has a version or time that is no number; run `gnl doctor`", key=name)


def _newer(name: str, stamp: str) -> JournalFormatError:
    form, codec = [*stamp.split(" "), "?"][:2]
    return JournalFormatError(
        f"the row {name} has format {form} and codec {codec}, this release reads {ROW_FORMAT} and {JSON_TEXT}: "
        "update gnl-semantic",
        key=name,
    )


def _text(answer: Any) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
