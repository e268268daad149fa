"""The store in a file."""

import pytest

from gnl_core.journal.memory import InMemoryStorage
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


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (SqliteStorage, [("synchronous", "FULL", "ok")]),
        (lambda path: SqliteStorage(path, durability="normal"), [("synchronous", "NORMAL", "fault")]),
        (lambda _: InMemoryStorage(), [("memory", "", "note")]),
    ],
)
async def test_every_store_says_what_keeps_what_it_acknowledged(tmp_path, made, found):
    async with made(tmp_path / "runs.db") as storage:
        report = await storage.durability_report()
        assert [(one.setting, one.value, one.level) for one in report] == found
        assert ("durable" in storage.runs.capabilities) == (report[0].level == "ok")
