"""The journal's contract as tests, for every store: subclass, say how a journal is made, and let pytest run it.

    from gnl_core.testing.conformance import JournalConformance

    class TestMyStore(JournalConformance):
        async def make_journal(self):
            return MyStore(...).runs

The tests are coroutines without fixtures: pytest-asyncio's auto mode runs them, and so does `asyncio.run` one by one.
Nothing here imports pytest.
"""

from __future__ import annotations

from gnl_core.testing.conformance_batches import BatchCases
from gnl_core.testing.conformance_races import RaceCases
from gnl_core.testing.conformance_scans import ScanCases
from gnl_core.testing.conformance_values import ValueCases

__all__ = ["JournalConformance"]


class JournalConformance(BatchCases, ScanCases, ValueCases, RaceCases):
    """Every sentence of `gnl_core.journal.port.Journal` over one store.

    `make_journal` is the only thing to write: it returns a new, empty, unscoped journal whose `aclose` releases
    everything. Some tests open two at once, which must not be one store.
    """
