"""The store in memory."""

from gnl_core.journal.memory import InMemoryStorage
from gnl_core.testing.conformance import JournalConformance


class TestInMemoryStorage(JournalConformance):
    async def make_journal(self):
        return InMemoryStorage().runs
