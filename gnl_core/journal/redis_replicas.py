"""Waiting for replicas: the write stands, and what is asked is only whether others have it too."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from gnl_core.errors import ConfigError, StoreUnknownError
from gnl_core.journal.redis_errors import is_answer
from gnl_core.journal.redis_wire import Line

logger = logging.getLogger("gnl_core.journal.redis_replicas")


@dataclass(frozen=True, slots=True)
class WaitReplicas:
    """How many replicas must have a batch before it is acknowledged.

    Attributes:
        replicas: At least 1.
        timeout_ms: Milliseconds to wait for them, at least 1.
        on_timeout: 'warn' logs and goes on. 'throw' raises `StoreUnknownError` AFTER the write: it stands on the
            primary, nothing is undone, and a fail-over may lose it.

    Raises:
        ConfigError: A value is out of range.
    """

    replicas: int
    timeout_ms: int = 1000
    on_timeout: Literal["warn", "throw"] = "warn"

    def __post_init__(self) -> None:
        if (
            type(self.replicas) is not int
            or type(self.timeout_ms) is not int
            or min(self.replicas, self.timeout_ms) < 1
        ):
            raise ConfigError(
                f"WaitReplicas replicas {self.replicas!r} and timeout_ms {self.timeout_ms!r} must be ints of at least 1"
            )
        if self.on_timeout not in ("warn", "throw"):
            raise ConfigError(f"on_timeout of WaitReplicas is {self.on_timeout!r}, must be 'warn' or 'throw'")


async def wait_for_replicas(line: Line, wanted: WaitReplicas, where: str) -> bool:
    """Wait until replicas have what this connection wrote last.

    Returns:
        Whether the server can wait at all; one that cannot is not asked again.

    Raises:
        StoreUnknownError: Too few have it in time, and the caller wants to know. It is this error and no other, since
            what is to be done is the same: the batch may be gone later, and sending it again under its tag is safe and
            asks the replicas once more.
    """
    try:
        count = await line.ask(
            "WAIT", wanted.replicas, wanted.timeout_ms, writes=True, patience=wanted.timeout_ms / 1000
        )
    except Exception as error:
        if not is_answer(error):
            raise
        logger.warning(
            "the server %s cannot wait for replicas (%s): batches are acknowledged without, and a fail-over may lose "
            "them",
            where,
            error,
        )
        return False
    if count >= wanted.replicas:
        return True
    if wanted.on_timeout == "warn":
        logger.warning(
            "%d of %d replicas of %s have the batch after %d ms; it is written, and a fail-over may lose it",
            count,
            wanted.replicas,
            where,
            wanted.timeout_ms,
        )
        return True
    raise StoreUnknownError(
        f"the batch is written at {where}, and is not known to be replicated: {count} of {wanted.replicas} replicas "
        f"had it after {wanted.timeout_ms} ms. The write stands and was not undone; a fail-over may lose it. "
        "Sending it again is safe, and asks the replicas again",
        server=where,
        written=True,
        replicas=count,
        wanted=wanted.replicas,
    )
