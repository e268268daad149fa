"""Walk the incidents of guards by time, and find for each question what a person said to it.

The decision stands in a row of the question's own (run, call, kind, attempt), wherever the call's record lives: a call
that is keyed by its arguments, or recorded across runs, is found like any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from gnl_core import keys
from gnl_core.approvals import read_answer
from gnl_core.errors import IdInvalidError
from gnl_core.journal.port import Entry, Journal, Key
from gnl_core.prior import Origin
from gnl_semantic.telemetry.model import Asked, Asker
from gnl_semantic.telemetry.rows import Reader, start_of, time_of

SOURCES: Final = ("semantic-guard", "semantic-judge", "duplicate-guard")
"""Who writes incidents about repeats."""

_LONGEST_NAME: Final = 200
_LONGEST_TEXT: Final = 10_000
_MOST_KEYS: Final = 32
_KEY_LENGTH: Final = 7

Source = Literal["semantic-guard", "semantic-judge", "duplicate-guard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """One incident of a guard.

    Attributes:
        at: Milliseconds of the store's clock.
        run_id: The run whose call it is.
        call: Our id of the call.
        source: Who noticed.
        action: What was done.
        tool: Name of the tool; '' where the row does not say.
        detail: Facts, as they stand in the row: of any type.
        asked: The question, where the action was one.
    """

    at: int
    run_id: str
    call: str
    source: Source
    action: str
    tool: str
    detail: Mapping[str, object]
    asked: Asked | None = None


@dataclass(slots=True)
class Skipped:
    """What a walk met and could not use.

    Attributes:
        unreadable: Rows that hold no record.
        gone: Incidents whose run was deleted since; their index rows are left.
    """

    unreadable: int = 0
    gone: int = 0


async def asked_questions(
    journal: Journal, *, since: int | None = None, skipped: Skipped | None = None
) -> AsyncIterator[Asked]:
    """Yield every question that showed earlier work, oldest first, those about equal arguments too.

    Args:
        journal: The store.
        since: Only questions asked at or after this time, in milliseconds of the store's clock.
        skipped: Takes what could not be used.

    Raises:
        JournalError: The store cannot be read.
    """
    skipped = skipped or Skipped()
    reader = Reader(journal)
    async for noticed in walk(reader, since, skipped):
        if noticed.asked is not None:
            yield noticed.asked
    skipped.unreadable += reader.unreadable


async def walk(reader: Reader, since: int | None, skipped: Skipped) -> AsyncIterator[Noticed]:
    """Yield the incidents about repeats, oldest first, a page of them in memory at a time."""
    prefix = keys.index_of_incidents()
    async for entries in reader.pages(prefix, after=start_of(prefix, since)):
        places: list[tuple[int, Key]] = []
        for entry in entries:
            at, key = time_of(entry.key, 2), _incident_key(entry.key)
            if at is None or key is None:
                reader.unreadable += 1
            elif key[5] in SOURCES:
                places.append((at, key))
        rows = await reader.get_many([key for _, key in places])
        found: list[Noticed] = []
        for (at, key), row in zip(places, rows, strict=True):
            noticed = _read(reader, skipped, at, key, row)
            if noticed is not None:
                found.append(noticed)
        for noticed in await _decided(reader, await _named(reader, found)):
            yield noticed


def _incident_key(key: Key) -> Key | None:
    try:
        found = keys.incident_of_index(key)
    except (TypeError, IdInvalidError):
        return None
    return found if found is not None and len(found) == _KEY_LENGTH else None


def _read(reader: Reader, skipped: Skipped, at: int, key: Key, row: Entry | None) -> Noticed | None:
    if row is None:
        skipped.gone += 1
        return None
    value = reader.object_of(row)
    if value is None:
        return None
    detail = value.get("detail", {})
    if not isinstance(detail, dict):
        reader.unreadable += 1
        return None
    _, root, part, _, call, source, action = key
    tool = _text(detail.get("tool"), _LONGEST_NAME)
    noticed = Noticed(
        at=at,
        run_id=keys.run_id_of(root, part),
        call=call,
        source=cast("Source", source),
        action=action,
        tool=tool,
        detail=detail,
    )
    if action != "suspend":
        return noticed
    origin = _origin(source, detail.get("origin"))
    said = detail.get("asked_by")
    asker: Asker = said if said in ("confirm", "guard") else "gate"
    asked = Asked(
        run_id=noticed.run_id,
        call=call,
        kind=_kind(origin, asker),
        attempt=0,
        at=at,
        tool=tool,
        origin=origin,
        asked_by=asker,
        decision="pending",
        identity_keys=_names(detail.get("identity_keys")),
    )
    return replace(noticed, asked=asked)


def _origin(source: str, said: object) -> Origin:
    if source != "semantic-guard":
        return "judge" if source == "semantic-judge" else "exact"
    return said if said in ("channel", "rule") else "identity"


def _kind(origin: Origin, asker: Asker) -> str:
    if asker != "gate":
        return asker
    return "duplicate" if origin in ("exact", "channel") else "semantic"


def _names(value: object) -> tuple[str, ...]:
    """Return a list of field names; () for anything else, which is no declaration rather than an empty one."""
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_KEYS:
        return ()
    return tuple(value) if all(isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME for name in value) else ()


def _text(value: object, most: int) -> str:
    return value[:most] if isinstance(value, str) else ""


async def _named(reader: Reader, found: Sequence[Noticed]) -> list[Noticed]:
    """Return the same with the names of tools that incidents leave out, from the records of their calls."""
    places = {id(one): place for one in found if not one.tool and (place := keys.parse_call_id(one.call)) is not None}
    wanted = [keys.tool(*keys.split_run_id(one.run_id), *places[id(one)]) for one in found if id(one) in places]
    rows = iter(await reader.get_many(wanted))
    named: list[Noticed] = []
    for one in found:
        row = next(rows) if id(one) in places else None
        value = row.value if row is not None else None
        tool = _text(value.get("tool"), _LONGEST_NAME) if isinstance(value, dict) else ""
        asked = one.asked if one.asked is None else replace(one.asked, tool=one.tool or tool)
        named.append(replace(one, tool=one.tool or tool, asked=asked))
    return named


# Decisions ---------------------------------------------------------------------------------------------------------


async def _decided(reader: Reader, found: Sequence[Noticed]) -> list[Noticed]:
    """Return the same with what a person said to the questions among them."""
    asked = [one.asked for one in found if one.asked is not None]
    rows = await reader.get_many([key for one in asked for key in _keys_of(one)])
    answered: list[Asked] = []
    for number, one in enumerate(asked):
        question, answer = rows[2 * number : 2 * number + 2]
        if question is None and answer is None:
            later = await _later(reader, one)
            if later is not None:
                one = later  # noqa: PLW2901 - the same question, by its right name
                question, answer = await reader.get_many(_keys_of(one))
        answered.append(_answered(reader, one, question, answer))
    rest = iter(answered)
    return [one if one.asked is None else replace(one, asked=next(rest)) for one in found]


def _keys_of(asked: Asked) -> tuple[Key, Key]:
    place = (*keys.split_run_id(asked.run_id), asked.call, asked.kind, asked.attempt)
    return keys.question(*place), keys.answer(*place)


async def _later(reader: Reader, asked: Asked) -> Asked | None:
    """Return the question by the attempt at which it was asked: a call that was freed and begun anew counts on."""
    root, part = keys.split_run_id(asked.run_id)
    prefix = keys.question(root, part, asked.call, asked.kind, 0)[:-1]
    async for entries in reader.pages(prefix):
        for entry in entries:
            attempt = entry.key[-1]
            if len(entry.key) == len(prefix) + 1 and attempt.isascii() and attempt.isdigit():
                return replace(asked, attempt=int(attempt))
    return None


def _answered(reader: Reader, asked: Asked, question: Entry | None, answer: Entry | None) -> Asked:
    prior: object = None
    if question is not None:
        value = reader.object_of(question)
        prior = value.get("prior") if value is not None else None
        if value is not None and not isinstance(prior, dict):
            reader.unreadable += 1
    said = read_answer(answer)
    if answer is not None and said is None:
        reader.unreadable += 1
    shown = prior if isinstance(prior, dict) else {}
    return replace(
        asked,
        decision="pending" if said is None else "approved" if said.approved else "denied",
        relation=said.relation if said is not None and said.approved else None,
        sentence=_text(shown.get("sentence"), _LONGEST_TEXT),
        present=_text(shown.get("present"), _LONGEST_TEXT),
    )
