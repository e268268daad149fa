"""The steps of a workflow by name: which call of the engine each is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnl_core import keys
from gnl_core.errors import ConfigError, StoreCorruptError
from gnl_core.journal.port import Create, Entry, JsonValue, Key, Put
from gnl_core.records import FORMAT, stamped

MAX_STEPS = 1_000_000
"""Most steps of one workflow: a call's key has six digits for them."""


@dataclass(frozen=True, slots=True)
class Named:
    """One step's row.

    Attributes:
        step: Number of its call, 's<step>p0'.
        failed: Whether its failure was handed on as final.
    """

    step: int
    failed: bool = False


class StepNames:
    """Numbers by name, as loaded and as given since; a number is never given twice in one drive."""

    def __init__(self, root: str, rows: Mapping[Key, Entry]) -> None:
        """Read the rows of a run.

        Raises:
            StoreCorruptError: One of them names no call.
            JournalFormatError: A newer release wrote one.
        """
        self.root = root
        self.known = {key[4]: read_name(rows[key]) for key in rows if is_name(key)}
        calls = [int(key[4]) for key in rows if len(key) == 6 and key[2:4] == (keys.ROOT, "tool")]
        self._next = max([named.step for named in self.known.values()] + calls, default=-1) + 1

    def take(self) -> int:
        """Return the next free number.

        Raises:
            ConfigError: The workflow has had a million steps.
        """
        if self._next >= MAX_STEPS:
            raise ConfigError(
                f"workflow run {self.root!r} has {MAX_STEPS:,} steps, which is the most; give part of its work to runs "
                "of their own",
                run_id=self.root,
            )
        self._next += 1
        return self._next - 1

    def begin_op(self, name: str, step: int) -> Create:
        """Return the operation that names a call; it belongs to the batch of the call's claim."""
        return Create(keys.workflow_step(self.root, name), {"f": FORMAT, "step": step}, if_present="keep")

    def fail_op(self, name: str) -> Put:
        """Return the operation that makes a step's failure final."""
        row: JsonValue = {"f": FORMAT, "step": self.known[name].step, "failed": True}
        return Put(keys.workflow_step(self.root, name), row)


def is_name(key: Key) -> bool:
    """Whether a key is that of a step's name."""
    return len(key) == 5 and key[0] == "run" and key[2:4] == (keys.ROOT, "step")


def read_name(entry: Entry) -> Named:
    """Return what a step's row says.

    Raises:
        StoreCorruptError: It names no call.
        JournalFormatError: A newer release wrote it.
    """
    value = stamped(entry)
    step, failed = value.get("step"), value.get("failed", False)
    if type(step) is not int or not 0 <= step < MAX_STEPS or type(failed) is not bool:
        text = keys.encode(entry.key)
        raise StoreCorruptError(f"the row {text} names no step that can be read; run `gnl doctor`", key=text)
    return Named(step, failed)
