"""How ids and keys are spelt: segments and their escapes, run ids, the ids of sub-agents' runs and of calls.

What keys there are stands in `gnl_core.keys`, which gives these names, too.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from gnl_core.errors import IdInvalidError
from gnl_core.journal.port import Key

ROOT = "~"
"""The part of a request that is the root run itself."""

MAX_ID = 512
"""Most characters of a run, thread, resource or agent id."""

MAX_ENCODED_ID = 1_024
"""Most bytes of an id in its encoded form."""

MAX_KEY = 2_048
"""Most bytes of an encoded key: a btree entry of Postgres holds 2,704."""

_PLAIN = re.compile(r"[A-Za-z0-9._~:-]+")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9._~:-]+(?:/[A-Za-z0-9._~:-]+)*")
_CALL = re.compile(r"s(0|[1-9][0-9]{0,5})p(0|[1-9][0-9]{0,2})")
_DERIVED = re.compile(r"run1_[0-9a-f]{32}(?:#(?:[2-9]|[1-9][0-9]+)|#replay-(?:0|[1-9][0-9]*)|#fork-[1-9][0-9]*)?")
_EXECUTION = re.compile(r"(.+)[#@]([2-9]|[1-9][0-9]+)")
_ITEM = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ITEM_RUN = re.compile(r"batch:([A-Za-z0-9_-]{1,128}):[A-Za-z0-9_-]{1,128}\Z")
_RESERVED_PREFIXES = ("agent:", "wf:", "net:", "batch:")
_RESERVED_ROOTS = frozenset(
    (
        "mem",
        "xthr",
        "xid",
        "xrun",
        "om",
        "thread",
        "lesson",
        "sugg",
        "suggstats",
        "org",
        "res",
        "resthr",
        "idem",
        "wfrun",
    )
)


# Encoding ----------------------------------------------------------------------------------------------------------


def encode_segment(segment: str) -> str:
    """Return the text of one segment.

    Raises:
        IdInvalidError: It is empty, or holds a lone surrogate, which has no UTF-8.
    """
    if _PLAIN.fullmatch(segment):
        return segment
    if not segment:
        raise IdInvalidError("a key's segment is empty")
    try:
        data = segment.encode()
    except UnicodeEncodeError:
        raise IdInvalidError(f"{segment!r} holds a lone surrogate, which has no UTF-8 form") from None
    return "".join(chr(b) if _PLAIN.fullmatch(chr(b)) else f"%{b:02X}" for b in data)


@lru_cache(maxsize=4_096)
def encode(key: Key) -> str:
    """Return the text of a key, at most `MAX_KEY` bytes.

    Raises:
        IdInvalidError: A segment is empty or has no UTF-8 form, or the key is too long.
    """
    text = "/".join([segment if _PLAIN.fullmatch(segment) else encode_segment(segment) for segment in key])
    if len(text) > MAX_KEY:
        raise IdInvalidError(f"the key {text[:60]}… has {len(text)} bytes encoded, at most {MAX_KEY} are possible")
    return text


def decode(text: str) -> Key:
    """Return the key of an encoded text.

    Raises:
        ValueError: No key is spelt like this (`encode(decode(text))` would differ).
    """
    if len(text) <= MAX_KEY and _PLAIN_KEY.fullmatch(text):
        return tuple(text.split("/"))  # nothing is escaped, as in nearly every key
    key = tuple(unquote_to_bytes(part).decode() if "%" in part else part for part in text.split("/"))
    if encode(key) != text:
        raise ValueError(f"{text!r} is not the spelling of a key")
    return key


def prefix_range(prefix: Key) -> tuple[str, str, str]:
    """Return the encoded prefix, and the range [low, high) of every key below it."""
    text = encode(prefix)
    return text, text + "/", text + "0"


# Ids ---------------------------------------------------------------------------------------------------------------


def check_id(what: str, value: object) -> str:
    """Return an id that may become a segment.

    Args:
        what: Its name for the message, for instance 'run_id'.
        value: The id; callers and models send it, so it may be anything.

    Raises:
        IdInvalidError: No str, empty, over 512 characters or 1,024 encoded bytes, or holding white space, control
            characters or lone surrogates.
    """
    if not isinstance(value, str) or not value:
        raise IdInvalidError(f"{what} is {value!r}, must be a non-empty str")
    if len(value) > MAX_ID:
        raise IdInvalidError(f"{what} has {len(value)} characters, at most {MAX_ID} are possible")
    for position, character in enumerate(value):
        if character.isspace() or unicodedata.category(character) in ("Cc", "Cs"):
            raise IdInvalidError(
                f"{what} {value[:60]!r} holds white space or a control character at {position}; "
                "use letters, digits, . _ ~ : -"
            )
    length = len(encode_segment(value))
    if length > MAX_ENCODED_ID:
        raise IdInvalidError(f"{what} has {length} bytes encoded, at most {MAX_ENCODED_ID} are possible")
    return value


def check_run_id(value: object) -> str:
    """Return a run id that a caller may choose.

    Raises:
        IdInvalidError: As `check_id`; or its first segment (up to ':') is a name the runtime keeps for itself; or it
            begins like an id that was derived from a work key, and is none.
    """
    run_id = check_id("run_id", value)
    root = run_id.partition(":")[0]
    if run_id.startswith(_RESERVED_PREFIXES) or (":" in run_id and root in _RESERVED_ROOTS) or root.startswith("__"):
        raise IdInvalidError(
            f"run_id {run_id[:60]!r} begins with {root + ':' if ':' in run_id else '__'}, which the runtime keeps for "
            "itself; put a word of your own in front"
        )
    if run_id.startswith("run1_") and not is_derived(run_id):
        raise IdInvalidError(
            f"run_id {run_id[:60]!r} begins like one derived from a work key, and is none: those have 32 hex digits "
            "and at most one suffix (#2 and up, #replay-0 and up, #fork-1 and up); pass a result's run_id as it stands"
        )
    return run_id


def check_item(what: str, value: object) -> str:
    """Return the id of a batch, or the key of one of its items: 1 to 128 of A-Z a-z 0-9 _ -.

    Args:
        what: Its name for the message.
        value: What the caller sent.

    Raises:
        IdInvalidError: It is none.
    """
    if not isinstance(value, str) or _ITEM.fullmatch(value) is None:
        raise IdInvalidError(f"{what} is {str(value)[:60]!r}, must be 1 to 128 of A-Z a-z 0-9 _ -")
    return value


def item_run_id(batch: str, item: str) -> str:
    """Return the id of the run that does one item of a batch.

    Raises:
        IdInvalidError: The batch's id, or the item's key, is none.
    """
    return f"batch:{check_item('the id of a batch', batch)}:{check_item('the key of an item', item)}"


def batch_of(run_id: str) -> str | None:
    """Return the batch that a run does an item of, or None; a sub-agent's run is its root's."""
    match = _ITEM_RUN.match(split_run_id(run_id)[0])
    return match[1] if match else None


def is_derived(run_id: str) -> bool:
    """Return whether a run id was derived from a work key (`gnl_core.work`): nobody chose it."""
    return _DERIVED.fullmatch(run_id) is not None


def derived_base(run_id: str) -> str | None:
    """Return a derived run id without its suffix, None for an id that a caller chose."""
    return run_id.partition("#")[0] if is_derived(run_id) else None


def execution_of(run_id: str) -> tuple[str, int]:
    """Return (id of the first execution, number of this one), as an id spells it: ('order-1', 2) of 'order-1@2'.

    Of an id that somebody chose, ask this only where its run is known to follow another: '@7' may be part of a name.
    """
    match = _EXECUTION.fullmatch(run_id)
    return (match[1], int(match[2])) if match else (run_id, 1)


def execution_id(first: str, number: int) -> str:
    """Return the id of an execution of the work that was first done under an id; the number is at least 2."""
    return f"{first}{'#' if is_derived(first) else '@'}{number}"


def child_id(root: str, parent_part: str, call: str) -> str:
    """Return the id of the run that a sub-agent's call drives: of constant length at any depth, its root readable."""
    parent = root if parent_part == ROOT else parent_part
    text = json.dumps([parent, call], ensure_ascii=False, separators=(",", ":"))
    return f"agent:{root}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def split_run_id(run_id: str) -> tuple[str, str]:
    """Return (root, part) of a run id: ('order-1', '~') of a root's, ('order-1', 'agent:order-1:…') of a child's.

    Raises:
        IdInvalidError: It is no str.
    """
    if not isinstance(run_id, str):  # callers send anything, and every door that takes a run id comes by here
        raise IdInvalidError(f"run_id is {run_id!r:.60}, must be a non-empty str")
    if run_id.startswith("agent:"):
        root = run_id[len("agent:") :].rpartition(":")[0]
        if root:
            return root, run_id
    return run_id, ROOT


def run_id_of(root: str, part: str) -> str:
    """Return the id of the run that is this part of the request."""
    return root if part == ROOT else part


def call_id(step: int, position: int) -> str:
    """Return our id of a tool call: known at the first delta, independent of what a provider sends."""
    return f"s{step}p{position}"


def parse_call_id(text: str) -> tuple[int, int] | None:
    """Return (step, position) of one of our call ids, None where the text is none."""
    match = _CALL.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None
