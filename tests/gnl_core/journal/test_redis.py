"""The store on a Redis server."""

import pytest

from gnl_core.journal.redis import RedisStorage
from gnl_core.testing.conformance import JournalConformance


class TestRedisStorage(JournalConformance):
    connections = 8

    @pytest.fixture(autouse=True)
    def _server(self, redis_url, new_prefix):
        self.url, self.new_prefix = redis_url, new_prefix

    async def make_journal(self):
        return RedisStorage(
            self.url, accept_async_replication=True, prefix=self.new_prefix(), connections=self.connections
        ).runs


class TestRedisStorageOneConnection(TestRedisStorage):
    connections = 1
