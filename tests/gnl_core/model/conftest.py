import pytest


@pytest.fixture
def drain():
    """Read a stream to its end: (its events, the error it ended with or None)."""

    async def read(stream):
        events = []
        try:
            async for event in stream:
                events.append(event)  # noqa: PERF401 - what came before an error is kept
        except Exception as error:
            return events, error
        return events, None

    return read
