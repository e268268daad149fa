"""The items of a batch as they are read: a key each, arguments that a journal can hold, and the token of them all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gnl_core import keys
from gnl_core.canonical import digest
from gnl_core.errors import ConfigError, IdInvalidError, NotCanonicalError
from gnl_core.journal.port import JsonValue
from gnl_core.journal.values import to_text

Item: TypeAlias = Mapping[str, Any]
ItemKey: TypeAlias = str | Callable[[Item], str]
"""The name of the field that holds an item's key, or a function of the item that returns it."""

Resource: TypeAlias = str | Callable[[Item], str | None] | None
"""The person of every item, or a function of the item that returns its person."""


@dataclass(frozen=True, slots=True)
class Job:
    """One item of a batch.

    Attributes:
        key: Its key within the batch.
        run_id: The run that does it.
        args: The tool's arguments.
        digest: SHA-256 of their canonical JSON, 64 hex digits.
        resource: Person on whose behalf it is done, if any.
    """

    key: str
    run_id: str
    args: dict[str, Any]
    digest: str
    resource: str | None


def read_items(batch_id: str, items: Iterable[Item], item_key: ItemKey, resource: Resource) -> list[Job]:
    """Return the items of a batch in the order given; nothing is read or written.

    Raises:
        ConfigError: What is no item, two items of one key, a key or a person that cannot be had of an item. The message
            names the item's position, counted from 0.
        IdInvalidError: The batch's id, an item's key or a person's id is none.
        NotCanonicalError: Arguments that no journal can hold.
    """
    keys.check_item("the id of a batch", batch_id)
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise ConfigError(f"items is {type(items).__name__}, must be a list of mappings: the tool's arguments, each")
    jobs: list[Job] = []
    places: dict[str, int] = {}
    for position, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise ConfigError(f"item {position} is {type(item).__name__}, must be a mapping: the tool's arguments")
        key = _key_of(item, item_key, position)
        if key in places:
            raise ConfigError(
                f"items {places[key]} and {position} have one key, {key!r}: a key names one item of a batch"
            )
        places[key] = position
        args, args_digest = _read(item, position)
        jobs.append(
            Job(
                key,
                keys.item_run_id(batch_id, key),
                args,
                args_digest,
                _person(item, resource, position),
            )
        )
    return jobs


def token_of(policy: Mapping[str, JsonValue], jobs: Sequence[Job]) -> str:
    """Return the token of a plan: it changes with every item and with what happens to repeats, and with no order."""
    listed = sorted([job.key, job.digest, job.resource] for job in jobs)  # no two keys are one
    return digest({"policy": dict(policy), "items": listed})


def _key_of(item: Item, item_key: ItemKey, position: int) -> str:
    if isinstance(item_key, str):
        if item_key not in item:
            raise ConfigError(f"item {position} has no {item_key!r}, which is to name it: say item_key=… otherwise")
        value: object = item[item_key]
    else:
        value = _asked(item_key, item, f"item_key of item {position}")
    try:
        return keys.check_item(f"the key of item {position}", value)
    except IdInvalidError as error:
        if isinstance(value, str):
            raise
        raise IdInvalidError(f"{error}; a number is made a key by item_key=lambda item: str(item['id'])") from None


def _person(item: Item, resource: Resource, position: int) -> str | None:
    value = _asked(resource, item, f"resource_id of item {position}") if callable(resource) else resource
    return None if value is None else keys.check_id(f"resource_id of item {position}", value)


def _asked(function: Callable[[Item], Any], item: Item, what: str) -> object:
    try:
        return function(item)
    except Exception as error:
        raise ConfigError(f"{what} cannot be had: the function raised {type(error).__name__}") from error


def _read(item: Item, position: int) -> tuple[dict[str, Any], str]:
    """Return a copy of an item that is the batch's own, as a journal gives it back, and its digest."""
    try:
        args = json.loads(to_text(("item", str(position)), item))
        return args, digest(args)
    except (TypeError, ValueError) as error:
        raise NotCanonicalError(
            f"item {position} cannot be recorded: {error}. Write it as JSON would have it, a date or an exact amount "
            "as text: the tool's own types are made of it"
        ) from None
