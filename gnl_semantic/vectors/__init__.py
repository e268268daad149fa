"""The vectors of past work: what is held of them in memory, and the copies that a journal keeps to be read fast.

The rooms: `cache` (what a call asks), `held` (which scopes are held, within a bound), `table` (vectors in one matrix),
`idle` (forgets by itself), `blocks` (copies in the journal).
"""

from gnl_semantic.vectors.cache import IDLE_SECONDS, MAX_BYTES, VECTORS, Recall, VectorCache

__all__ = ["IDLE_SECONDS", "MAX_BYTES", "VECTORS", "Recall", "VectorCache"]
