"""A URL that names a store: what cannot be told apart for certain is refused, and nothing of a password is shown."""

import pytest

from gnl_core import PostgresStorage, RedisStorage
from gnl_core.errors import ConfigError

STORES = [
    lambda rest: PostgresStorage(f"postgresql://{rest}"),
    lambda rest: RedisStorage(f"redis://{rest}", accept_async_replication=True),
]


@pytest.mark.parametrize("store", STORES, ids=["postgres", "redis"])
@pytest.mark.parametrize(
    "rest", ["u:top/secret@h/0", "u:top@secret@h/0", "u:top?secret@h/0", "u:top secret@h/0", "u:topsecret\n@h/0"]
)
def test_a_password_that_is_not_encoded_is_refused_and_not_shown(store, rest):
    with pytest.raises(ConfigError, match="percent-encoded") as refused:
        store(rest)
    assert not any(piece in str(refused.value) for piece in ("top", "secret"))


@pytest.mark.parametrize(
    "url",
    [
        "redis://[",
        "redis://h:port/0",
        "http://h/0",
        "redis://h/0#x",
        "redis://h:99999999/0",
        "rediss://h/0?ssl_cert_reqs=x",
    ],
)
def test_what_is_no_address_is_a_clear_error(url):
    with pytest.raises(ConfigError):
        RedisStorage(url, accept_async_replication=True)


@pytest.mark.parametrize("dsn", ["postgresql://u:p%2Fq@one:5432,two:5432/db", "postgresql:///db?host=/tmp", "dbname=x"])
def test_what_the_server_s_library_reads_is_taken(dsn):
    PostgresStorage(dsn).close()
