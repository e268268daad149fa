"""The store on a server."""

import pytest
from psycopg.pq import TransactionStatus

from gnl_core.journal.postgres import PostgresStorage
from gnl_core.journal.postgres_pool import Connections
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


class TestPostgresStorageBehindAPooler(TestPostgresStorage):
    """S72: between two calls nothing of a session may be relied upon, as behind a pooler in transaction mode."""

    pool_size = 2

    @pytest.fixture(autouse=True)
    def _forget(self, monkeypatch):
        real = Connections._take_back

        async def take_back(pool, connection):
            if not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE:
                await connection.execute("DISCARD ALL")
            await real(pool, connection)

        monkeypatch.setattr(Connections, "_take_back", take_back)
