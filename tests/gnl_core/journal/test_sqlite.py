"""The store in a file."""

import pytest

from gnl_core.journal.sqlite import SqliteStorage
from gnl_core.testing.conformance import JournalConformance


class TestSqliteStorage(JournalConformance):
    durability = "full"

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path
        self.made = 0

    async def make_journal(self):
        self.made += 1
        return SqliteStorage(self.folder / f"{self.made} ü%.db", self.durability).runs


class TestSqliteStorageNormal(TestSqliteStorage):
    durability = "normal"
