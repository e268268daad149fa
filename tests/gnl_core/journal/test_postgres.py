"""The store on a server."""

import pytest

from gnl_core.journal.postgres import PostgresStorage
from gnl_core.testing.conformance import JournalConformance


class TestPostgresStorage(JournalConformance):
    pool_size = 4

    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn, new_schema):
        self.dsn, self.new_schema = postgres_dsn, new_schema

    async def make_journal(self):
        return PostgresStorage(self.dsn, schema=self.new_schema(), pool_size=self.pool_size).runs


class TestPostgresStorageOfOneConnection(TestPostgresStorage):
    pool_size = 1
