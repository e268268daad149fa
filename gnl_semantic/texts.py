"""Vectors of texts that were embedded before. A text is known by its hash: none is kept."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict

from gnl_semantic.embedder.port import Vectors
from gnl_semantic.vectors.cache import IDLE_SECONDS
from gnl_semantic.vectors.idle import watch

CACHED_TEXTS = 500
"""Texts whose vectors are kept, an embedder: the one used longest ago goes first."""


class Texts:
    """Vectors by text: at most `CACHED_TEXTS`, and none for longer than `IDLE_SECONDS` after its last use."""

    def __init__(self) -> None:
        self._vectors: OrderedDict[bytes, tuple[Vectors, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._vectors)

    def get(self, text: str) -> Vectors | None:
        """Return the vector of a text; None where it is not known."""
        name = _name(text)
        with self._lock:
            found = self._vectors.get(name)
            if found is None:
                return None
            self._vectors[name] = (found[0], time.monotonic())
            self._vectors.move_to_end(name)
            return found[0]

    def put(self, text: str, vector: Vectors) -> None:
        """Keep the vector of a text."""
        name = _name(text)
        with self._lock:
            self._vectors[name] = (vector, time.monotonic())
            self._vectors.move_to_end(name)  # two may have embedded it at the same time
            while len(self._vectors) > CACHED_TEXTS:
                self._vectors.popitem(last=False)
        watch(self)

    def sweep(self) -> float | None:
        """Drop what was not used for too long; return the seconds until the next is due, None where none is."""
        with self._lock:
            now = time.monotonic()
            while self._vectors:
                _, used = next(iter(self._vectors.values()))
                if now - used < IDLE_SECONDS:
                    return IDLE_SECONDS - (now - used)
                self._vectors.popitem(last=False)
            return None


def _name(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
