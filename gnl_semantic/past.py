"""A record of past work: one side effect that succeeded, as a sentence with its vector.

Rows come from disk and are trusted in nothing: what is no such record is None, and costs no call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gnl_core import keys
from gnl_core.canonical import digest
from gnl_core.identity import amounts_of
from gnl_core.journal.port import Add, Create, Entry, JsonValue, Key, Op, Put
from gnl_core.prior import Subject
from gnl_semantic.embedder.port import Vectors
from gnl_semantic.recall import fold_key
from gnl_semantic.rules import RULESET_VERSION

FORMAT = 1
"""Format of the record's row."""

TEMPLATE_VERSION = "1"
"""How the canonical sentence is built; vectors of two versions are never compared."""

VECTOR_TYPE = np.dtype("<f4")
"""How a vector lies in the row's blob."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One record.

    Attributes:
        args_hash: `args_hash` of its arguments.
        model: Stamp of the embedder that its vector is, or would have been, made by.
        template: `TEMPLATE_VERSION` of its sentence.
        sentence: Its canonical sentence.
        identity: Normalised text by identity key.
        amounts: Number as text by amount field.
        discriminators: Normalised text by discriminator field.
        run: Run id of the run that did it first.
        call: Our id of that call.
        at: When it was first done, in milliseconds of the store's clock.
    """

    args_hash: str
    model: str
    template: str
    sentence: str
    identity: Mapping[str, str]
    amounts: Mapping[str, str]
    discriminators: Mapping[str, str]
    run: str
    call: str
    at: int


def read_past(entry: Entry, scope: Key, tool: str) -> Past | None:
    """Return the record that a row holds; None where it is none, or stands elsewhere than such a record would.

    Never raises, whatever the row holds.

    Args:
        entry: The row.
        scope: The scope that was looked at.
        tool: The tool that was looked for: a record of another one is none.
    """
    key, value = entry.key, entry.value
    if not key or key != keys.similar(scope, tool, key[-1]) or not isinstance(value, dict):
        return None
    if type(value.get("f")) is not int or value["f"] != FORMAT:
        return None
    model, template, sentence = value.get("model"), value.get("template"), value.get("sentence")
    run, call = value.get("run"), value.get("call")
    identity, amounts = _texts(value.get("identity")), _texts(value.get("amounts"))
    discriminators = _texts(value.get("discriminators"))
    if not (isinstance(model, str) and isinstance(template, str) and isinstance(sentence, str)):
        return None
    if not (isinstance(run, str) and isinstance(call, str)):
        return None
    # Without an identity every record would look like every other: a question a call.
    if not identity or amounts is None or discriminators is None:
        return None
    return Past(
        args_hash=key[-1],
        model=model,
        template=template,
        sentence=sentence,
        identity=identity,
        amounts=amounts,
        discriminators=discriminators,
        run=run,
        call=call,
        at=entry.created_at,
    )


def _texts(value: JsonValue) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    texts = {name: text for name, text in value.items() if isinstance(text, str)}
    return texts if len(texts) == len(value) else None


def fold_hash(values: Mapping[str, str]) -> str:
    """Return the 16 hex digits under which spellings of one identity meet, in whatever order its fields come.

    Args:
        values: Normalised text by identity key.
    """
    return digest([RULESET_VERSION, [list(pair) for pair in fold_key(values)]])[:16]


def past_ops(subject: Subject, *, stamp: str, vector: Vectors | None, known: Entry | None) -> tuple[Op, ...]:
    """Return the operations that record a call's work once it has succeeded.

    The first success of equal arguments stays who did it and when. A record without a vector gets one, and with
    it the sentence that it is of. A row that cannot be read is left alone: a newer release may have written it.

    Args:
        subject: The call.
        stamp: Stamp of the embedder.
        vector: Unit vector of the call's sentence, shape (dimension,); None where embedding failed. One that is not
            finite, or zero, counts as None.
        known: The row of these arguments, None where there is none.
    """
    blob = _blob(vector)
    scope, tool, identity = subject.scope, subject.tool, subject.identity
    run, call = subject.run, subject.call
    if known is not None:
        past = read_past(known, scope, tool)
        if past is None or blob is None or known.blob:
            return ()
        run, call = past.run, past.call
    place = keys.similar(scope, tool, subject.args_hash)
    value: dict[str, JsonValue] = {
        "f": FORMAT,
        "model": stamp,
        "template": TEMPLATE_VERSION,
        "sentence": identity.sentence,
        "identity": dict(identity.values),
        "amounts": amounts_of(identity),
        "discriminators": dict(identity.discriminators),
        "run": run,
        "call": call,
    }
    by_fold = keys.fold(scope, tool, fold_hash(identity.values), subject.args_hash)
    copy = keys.new_vector(scope, tool, stamp_key(stamp), subject.args_hash)
    return (
        Create(place, value, blob, if_present="keep") if known is None else Put(place, value, blob),
        Create(by_fold, {"f": FORMAT}, if_present="keep"),
        Add(keys.generation(scope, tool), {"n": 1} if known is None else {"f": 1}),
        # Recall reads the few that are new, and blocks of the rest, instead of walking over every record.
        Create(copy, {"f": FORMAT}, blob, if_present="keep")
        if known is None
        else Put(copy, {"f": FORMAT, "at": known.created_at}, blob),
    )


@lru_cache(maxsize=64)
def stamp_key(stamp: str) -> str:
    """Return the 16 hex digits under which copies of the vectors of a stamp stand."""
    return digest([stamp, TEMPLATE_VERSION])[:16]


def _blob(vector: Vectors | None) -> bytes | None:
    if vector is None:
        return None
    data = np.ascontiguousarray(vector, dtype=VECTOR_TYPE)
    with np.errstate(over="ignore", invalid="ignore"):
        length = float(data @ data) if data.ndim == 1 else 0.0
    return data.tobytes() if 0 < length < np.inf else None
