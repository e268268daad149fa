"""Names of work: the run id that a work key gives, so that the same job is one run whoever asks for it.

The id is a pseudonym of the key and no anonymisation: whoever can guess the key can compute it. What keeps a guessed id
from being used is the check of whom a run belongs to (`gnl_core.belonging`), not the digest.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from gnl_core import keys
from gnl_core.errors import ConfigError, IdInvalidError
from gnl_core.journal.port import JsonValue

WorkScope: TypeAlias = Literal["resource", "org"]
"""Within what a work key is one job: one person's work, or the whole organisation's."""

MAX_WORK_KEY = 2_048
"""Most characters of a work key."""

NO_ORG = "~deployment"
"""Stands for the organisation where the journal is not scoped to one."""

_VERSION = "gnl.run.v1"
_ENTITIES = ("agent:", "wf:")


def derived_run_id(entity: str, work_scope: WorkScope, subject: str | None, work_key: str) -> str:
    """Return the id of the run that does this work; the same four inputs always give the same id.

    Args:
        entity: Who does it: 'agent:<name>' or 'wf:<name>'. The prefix is part of the name.
        work_scope: Within what the key is unique.
        subject: The person's id for 'resource'; for 'org' the organisation's, None or '' where the journal is not
            scoped to one.
        work_key: The caller's name for the work, 1 to 2,048 characters.

    Raises:
        ConfigError: An entity without its prefix, no such scope, or no person where the work is a person's.
        IdInvalidError: A work key, a subject or a name that cannot be one.
    """
    if not _is_text(entity) or not entity.startswith(_ENTITIES) or entity in _ENTITIES:
        raise ConfigError(f"entity is {entity!r}, must be 'agent:<name>' or 'wf:<name>': the prefix is part of it")
    check_scope(work_scope)
    if subject is None or subject == "":
        if work_scope == "resource":
            raise ConfigError(
                "this work belongs to a person (work_scope='resource'), and no resource_id was passed; nothing is put "
                "in its place, since two people's work would become one",
                option="resource_id",
            )
        subject = NO_ORG
    for what, text in (("entity", entity), ("subject", subject)):
        if not _is_text(text):
            raise IdInvalidError(f"{what} is {text!r}, must be a str that has a UTF-8 form")
    text = json.dumps(
        [_VERSION, entity, work_scope, subject, check_work_key(work_key)], ensure_ascii=False, separators=(",", ":")
    )
    return f"run1_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def check_work_key(value: object) -> str:
    """Return a work key; any text may be one, also with spaces.

    Raises:
        IdInvalidError: No str, empty, over 2,048 characters, or holding a lone surrogate.
    """
    if not isinstance(value, str) or not value:
        raise IdInvalidError(f"work_key is {value!r}, must be a non-empty str: your name for the work")
    if len(value) > MAX_WORK_KEY:
        raise IdInvalidError(f"work_key has {len(value):,} characters, at most {MAX_WORK_KEY:,} are possible")
    if not _is_text(value):
        raise IdInvalidError("work_key holds a lone surrogate, which has no UTF-8 form")
    return value


def check_scope(value: object) -> WorkScope:
    """Return a work scope.

    Raises:
        ConfigError: There is no such scope.
    """
    for scope in get_args(WorkScope):
        if value == scope:
            return scope  # type: ignore[no-any-return] # one of the Literal's own members
    raise ConfigError(f"work_scope is {value!r}, must be 'resource' or 'org'", option="work_scope")


def work_key_hash(work_key: str) -> str:
    """Return 16 hex digits that stand for a work key where the key itself may not: in tombstones and in the ledger."""
    return hashlib.sha256(work_key.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work that was named, as it is frozen with its run.

    Attributes:
        key: The caller's name for it.
        scope: Within what the key is unique.
        subject: The person or the organisation; `NO_ORG` where there is none.
    """

    key: str
    scope: WorkScope
    subject: str

    def to_json(self) -> JsonValue:
        """Return the form that is frozen in a run's input."""
        return {"key": self.key, "scope": [self.scope, self.subject]}


def name_work(
    *, entity: str, work_scope: WorkScope, work_key: object, resource_id: str | None, org: str
) -> tuple[str, Work]:
    """Return the run id of a piece of work, and what is frozen with its run.

    Args:
        entity: 'agent:<name>' or 'wf:<name>'.
        work_scope: Within what the key is unique.
        work_key: The caller's name for it.
        resource_id: The person on whose behalf it is done.
        org: The organisation of the journal; '' for none.

    Raises:
        ConfigError, IdInvalidError: As `derived_run_id`.
    """
    key = check_work_key(work_key)
    subject = resource_id if work_scope == "resource" else org or NO_ORG
    if work_scope == "resource" and resource_id is not None:
        keys.check_id("resource_id", resource_id)
    run_id = derived_run_id(entity, work_scope, subject, key)
    return run_id, Work(key=key, scope=work_scope, subject=subject or NO_ORG)


def _is_text(value: object) -> bool:
    """Return whether a value is a str that has a UTF-8 form; callers send anything."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
