"""The request of a model step as a splice on the step before: growth stays linear, and a resume rebuilds by folding.

A step keeps the first `keep` messages of the step before (of the input, for step 0) and adds references to the rest:
the answer of a step, the tool message made of a call's record, or a message that stands in a row of its own. The chain
is a SHA-256 over the digests of the messages in order, so that one comparison tells whether a replay
asks the same question.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gnl_core.journal.port import JsonValue
from gnl_core.model.messages import Message, message_to_json

_sorted = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

EMPTY_CHAIN = hashlib.sha256(b"gnl.chain.v1").hexdigest()


def digest_json(value: JsonValue) -> str:
    """Return 32 hex digits of the SHA-256 over a JSON text with sorted keys; any text, lone surrogates included."""
    return hashlib.sha256(_sorted(value).encode()).hexdigest()[:32]


def digest_message(message: Message) -> str:
    """Return the digest of a message: 32 hex digits."""
    return digest_json(message_to_json(message))


def extend(chain: str, digest: str) -> str:
    """Return the chain with one more message at its end."""
    return hashlib.sha256((chain + digest).encode()).hexdigest()


@dataclass(slots=True)
class Transcript:
    """The messages of a run as they stand, with their digests and the chain after each.

    Attributes:
        messages: In order.
        digests: One a message.
        chains: One a message, and the empty chain first.
        references: Where each message comes from; None for those of the input.
    """

    messages: list[Message]
    digests: list[str]
    chains: list[str]
    references: list[Mapping[str, JsonValue] | None]

    @classmethod
    def start(cls, messages: Sequence[Message]) -> Transcript:
        """Return the transcript of a run's input."""
        transcript = cls([], [], [EMPTY_CHAIN], [])
        for message in messages:
            transcript.append(message, None)
        return transcript

    @property
    def chain(self) -> str:
        """The chain over all messages."""
        return self.chains[-1]

    def append(self, message: Message, reference: Mapping[str, JsonValue] | None) -> None:
        """Add one message."""
        digest = digest_message(message)
        self.messages.append(message)
        self.digests.append(digest)
        self.chains.append(extend(self.chains[-1], digest))
        self.references.append(reference)

    def splice(self, messages: Sequence[Message]) -> tuple[int, tuple[tuple[Message, str], ...]]:
        """Compare a caller's messages with these.

        Returns:
            How many stand here already, from the first on, and the rest with their digests.
        """
        digests = [digest_message(message) for message in messages]
        keep = 0
        for mine, theirs in zip(self.digests, digests, strict=False):
            if mine != theirs:
                break
            keep += 1
        return keep, tuple(zip(messages[keep:], digests[keep:], strict=True))

    def cut(self, keep: int) -> None:
        """Forget all but the first `keep` messages."""
        del self.messages[keep:], self.digests[keep:], self.references[keep:], self.chains[keep + 1 :]


T = TypeVar("T")


def rebuild(
    before: Sequence[T],
    keep: int,
    add: Sequence[Mapping[str, JsonValue]],
    resolve: Callable[[Mapping[str, JsonValue]], T],
) -> list[T]:
    """Return the messages of a step, or what stands for each, from those of the step before.

    Args:
        before: Messages of the step before, or of the input; or their digests.
        keep: How many of them stay.
        add: The step's references.
        resolve: Makes a message of a reference, or its digest.

    Raises:
        ValueError: The step keeps more messages than there are.
    """
    if keep > len(before):
        raise ValueError(f"the step keeps {keep} messages of {len(before)}")
    return [*before[:keep], *(resolve(reference) for reference in add)]
