"""What makes a call the same job as another: declared keys -> normalised identity.

A tool declares with `SemanticIdentity` which of its arguments name the job. `build()` turns one call's arguments into
an `Identity`, or into `Unusable` when the declared arguments cannot tell one job from another. Cross-channel identity,
the decoration of confirm questions, the batch preflight and the semantic gate all read this one diagnosis.
"""

from __future__ import annotations

import enum
import math
import unicodedata
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Literal

from gnl_core.errors import IdentityDeclarationError
from gnl_core.journal.port import JsonValue

UnusableCause = Literal["absent", "list", "object", "callable", "not-a-number", "endless", "bytes", "unsupported"]

_TURKISH_I = str.maketrans({"İ": "i", "I": "i", "ı": "i"})
"""Both Turkish letters i meet in one: 'İNV', 'INV', 'ınv' and 'inv' name one invoice."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The normalised identity of one call.

    Attributes:
        values: Normalised text by declared key, in the order of declaration; '' where an argument is absent.
        amounts: Finite numbers by amount field; a field that is absent or no number has no entry.
        discriminators: Normalised text by discriminator field.
        sentence: The canonical sentence: the only text that an embedder or a judge may see.
    """

    values: Mapping[str, str]
    amounts: Mapping[str, int | float | Decimal]
    discriminators: Mapping[str, str]
    sentence: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why the declared keys cannot identify this call. Carries names of fields, never their values.

    Attributes:
        cause: Kind of the offending value; 'absent' when every key is empty.
        keys: Names of the keys at fault.
        message: One sentence for an operator, with the way out.
    """

    cause: UnusableCause
    keys: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticIdentity:
    """Declare which arguments of a tool name the job.

    Attributes:
        keys: Arguments whose values together identify the job; at least one.
        amount_fields: Numeric arguments whose difference is asked about separately.
        discriminator_fields: Arguments whose difference makes two calls different jobs (for instance `cancel`).
        describe: Builds the canonical sentence from the arguments. It is the redaction point: only its text reaches
            an embedder or a judge. Without it the sentence is '<tool name>: <identity values>'.

    Raises:
        IdentityDeclarationError: `keys` is empty or no sequence of names, or a field name is not a non-empty str.
    """

    keys: tuple[str, ...]
    amount_fields: tuple[str, ...] = ()
    discriminator_fields: tuple[str, ...] = ()
    describe: Callable[[Mapping[str, object]], str] | None = None

    def __post_init__(self) -> None:
        for field in ("keys", "amount_fields", "discriminator_fields"):
            object.__setattr__(self, field, _names(field, getattr(self, field)))
        if not self.keys:
            raise IdentityDeclarationError(
                "SemanticIdentity.keys is empty: name the arguments that identify the job, for instance keys=('sku',)"
            )

    def diagnose(self, args: Mapping[str, object]) -> Unusable | None:
        """Say why these arguments cannot identify a job, or None when they can.

        One value that carries no identity (a dict, a list, a callable …) makes the whole declaration unusable. An
        absent value does so only when every key is empty: an optional warehouse that both calls lack still matches.
        """
        empty: list[str] = []
        for key in self.keys:
            value = args.get(key)
            cause = _cause(value)
            if cause is not None:
                return Unusable(cause, (key,), f"identity key '{key}' {_WHY[cause]}")
            if not normalize_identity_value(value):
                empty.append(key)
        if len(empty) == len(self.keys):
            names = ", ".join(f"'{key}'" for key in empty)
            return Unusable(
                "absent",
                tuple(empty),
                f"no identity key has a value ({names}): every call would look like every other; check the spelling",
            )
        return None

    def build(self, tool_name: str, args: Mapping[str, object]) -> Identity | Unusable:
        """Return the identity of one call, or why it has none.

        Args:
            tool_name: The tool's name; it opens the default sentence.
            args: The call's arguments by name.

        Raises:
            Exception: Whatever `describe` raises. The caller turns the identity layers off for this call; falling
                back to the default sentence would show what `describe` was written to hide.
        """
        fault = self.diagnose(args)
        if fault is not None:
            return fault
        values = {key: normalize_identity_value(args.get(key)) for key in self.keys}
        sentence = canonical_sentence(tool_name, values) if self.describe is None else self.describe(args)
        if not isinstance(sentence, str):
            raise TypeError(f"describe() of {tool_name} returned {type(sentence).__name__}, must return str")
        return Identity(
            values=values,
            amounts={field: amount for field in self.amount_fields if (amount := _amount(args.get(field))) is not None},
            discriminators={field: normalize_identity_value(args.get(field)) for field in self.discriminator_fields},
            sentence=sentence,
        )


def canonical_sentence(tool_name: str, values: Mapping[str, str]) -> str:
    """Return the default sentence: tool name, colon, and the normalised identity values, separated by one space.

    >>> canonical_sentence("createProduct", {"sku": "abc"})
    'createProduct: abc'
    """
    return " ".join([f"{tool_name}:", *(value for value in values.values() if value)])


def normalize_identity_value(value: object) -> str:
    """Return the text by which a value is compared: trimmed, NFKC, case-folded, Turkish i made one letter.

    datetimes become ISO 8601 in UTC (naive ones are kept without a zone), Enums their value, numbers their plain digits
    (1, 1.0 and Decimal('1.00') are one), None ''. The result is a fixed point: normalising it again changes nothing.
    """
    return fold_case(_text(value)).strip(_SPACE)


def fold_case(text: str) -> str:
    """Return `text` in NFKC with its case folded, İ, I, ı and i as one letter."""
    while True:
        # NFKC and case folding can each undo the other's work, so both run until nothing changes.
        folded = unicodedata.normalize("NFKC", text).translate(_TURKISH_I).casefold().replace("i\u0307", "i")
        folded = unicodedata.normalize("NFKC", folded)
        if folded == text:
            return folded
        text = folded


def amounts_of(identity: Identity) -> dict[str, JsonValue]:
    """Return the amounts of an identity as they are kept and compared: 1, 1.0 and Decimal('1.00') are one text."""
    return {field: normalize_identity_value(amount) for field, amount in identity.amounts.items()}


def amounts_differ(prior: object, present: Mapping[str, object], *, one_sided: bool = False) -> tuple[str, ...]:
    """Return the amount fields that differ, in their order.

    Args:
        prior: Amounts as `amounts_of` returns them, from a row.
        present: Those of the present call.
        one_sided: Whether an amount that only one side has differs.
    """
    before = prior if isinstance(prior, Mapping) else {}
    fields = dict.fromkeys((*before, *present))
    return tuple(
        field
        for field in fields
        if before.get(field) != present.get(field) and (one_sided or (field in before and field in present))
    )


_SPACE = "\ufeff" + "".join(chr(c) for c in range(0x3001) if chr(c).isspace())
"""What is trimmed: Unicode white space, and the byte order mark that some systems leave in front."""

_MAX_DIGITS = 1_000
"""Most digits of a number that is written out: an exponent must not fill the memory."""

_WHY: dict[UnusableCause, str] = {
    "absent": "is absent: check the spelling",
    "list": "is a list: element types flatten, so [1, 2] and ['1', '2'] would be one job; name a scalar argument",
    "object": "is an object, which carries no identity of its own; name a scalar argument, or describe it in one",
    "callable": "is a callable, which carries no identity; name a scalar argument",
    "not-a-number": "is not a finite number, so that all such calls would look alike; pass a number or leave it out",
    "endless": "is a number of more than a thousand digits; pass it as text",
    "bytes": "is bytes, which have no text form to compare; pass text",
    "unsupported": "has a type that carries no identity; pass str, number, bool, date, UUID or Enum",
}


def _cause(value: object) -> UnusableCause | None:
    """Classify a value found under a key: None when it can identify."""
    match value:
        case enum.Enum():
            return _cause(value.value)
        case None | str() | bool() | date() | time() | uuid.UUID():  # a datetime is a date
            return None
        case int() | float() | Decimal():
            return _number_cause(value)
        case bytes() | bytearray() | memoryview():
            return "bytes"
        case list() | tuple() | set() | frozenset():
            return "list"
        case _ if callable(value):
            return "callable"
        case Mapping():
            return "object"
        case _ if hasattr(type(value), "__dataclass_fields__") or hasattr(type(value), "model_fields"):
            return "object"
        case _:
            return "unsupported"


def _number_cause(value: float | Decimal) -> UnusableCause | None:
    if not _finite(value):
        return "not-a-number"
    match value:
        case int():
            endless = value.bit_length() > _MAX_DIGITS * math.log2(10)
        case Decimal():
            endless = abs(value.adjusted()) > _MAX_DIGITS
        case _:
            endless = False
    return "endless" if endless else None


def _finite(value: float | Decimal) -> bool:
    # math.isfinite() goes by way of a float, for which an int or a Decimal may be too large.
    if isinstance(value, Decimal):
        return value.is_finite()
    return isinstance(value, int) or math.isfinite(value)


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case enum.Enum():
            return _text(value.value)
        case datetime():
            return _utc(value).isoformat()
        case date() | time():
            return value.isoformat()
        case bool():
            return str(value)
        case int() if value.bit_length() > _MAX_DIGITS * math.log2(10):
            return hex(value)  # Python refuses to write thousands of decimal digits
        case float() | Decimal():
            return _plain_number(format(Decimal(float.__repr__(value) if isinstance(value, float) else value), "f"))
        case _:
            return str(value)


def _utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC) if value.tzinfo else value
    except OverflowError:  # the first and the last day there is, as some systems write "never", fall out of UTC's range
        return value


def _plain_number(text: str) -> str:
    """Drop what two spellings of one number differ in: trailing zeros, a trailing point, the sign of zero."""
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def _amount(value: object) -> int | float | Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not _finite(value):
        return None
    return value


def _names(field: str, names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, list | tuple):
        raise IdentityDeclarationError(
            f"SemanticIdentity.{field} is {type(names).__name__}, must be a tuple or list of argument names",
            field=field,
        )
    for name in names:
        if not isinstance(name, str) or not name:
            raise IdentityDeclarationError(f"SemanticIdentity.{field} holds {name!r}, must hold names", field=field)
    if len(set(names)) != len(names):
        raise IdentityDeclarationError(f"SemanticIdentity.{field} names an argument twice", field=field)
    return tuple(names)
