"""An incident is written once, read in order, and never trusted when it comes from disk."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from gnl_core import keys
from gnl_core.incidents import Incident, incident_ops, read_incidents
from gnl_core.journal import Applied, Journal, JsonValue, Op, Put, new_batch, scan_all

CHILD = keys.child_id("order-1", keys.ROOT, "s0p0")


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def journal(request: pytest.FixtureRequest, new_store: Callable[[str], Any]) -> AsyncIterator[Journal]:
    """Yield each store's runs; the one in memory has a clock that moves on by a second whenever it is looked at."""
    ticks = itertools.count(1_000)
    options = {"clock": lambda: float(next(ticks))} if request.param == "memory" else {}
    async with new_store(request.param).open(**options) as storage:
        yield storage.runs


def incident(run_id: str = "order-1", call: str = "s0p0", **change: object) -> Incident:
    """Return an incident."""
    made = Incident(
        run_id=run_id,
        tool_call_id=call,
        source="duplicate-guard",
        action="warn",
        message="charge ran before in this request",
        detail={"first": "s0p0", "age_ms": 12},
    )
    return replace(made, **change)  # type: ignore[arg-type]


async def write(journal: Journal, *incidents: Incident) -> None:
    """Record incidents, a batch each."""
    for one in incidents:
        root, part = keys.split_run_id(one.run_id)
        await do(journal, *incident_ops(root, part, one.tool_call_id, one))


async def do(journal: Journal, *ops: Op) -> None:
    """Apply operations in one batch."""
    assert isinstance(await journal.apply(ops, batch=new_batch()), Applied)


async def test_an_incident_comes_back_as_it_was_written(journal: Journal) -> None:
    await write(journal, incident())

    (read,) = await read_incidents(journal, "order-1")
    assert replace(read, at=0) == incident()
    assert read.at >= 1_000_000  # the store's clock
    assert read.to_json()["detail"] == {"first": "s0p0", "age_ms": 12}


async def test_a_replay_writes_no_second_incident_and_changes_nothing(journal: Journal) -> None:
    await write(journal, incident())
    before = await read_incidents(journal, "order-1")
    await write(journal, incident(message="said otherwise on replay"))

    assert await read_incidents(journal, "order-1") == before


async def test_one_call_may_draw_several_incidents_in_the_order_of_writing(journal: Journal) -> None:
    await write(
        journal,
        incident(source="taint-guard"),
        incident(call="s1p0"),
        incident(source="duplicate-guard"),
        incident(action="block"),
    )

    read = await read_incidents(journal, "order-1")
    assert [(one.tool_call_id, one.source, one.action) for one in read] == [
        ("s0p0", "taint-guard", "warn"),
        ("s1p0", "duplicate-guard", "warn"),
        ("s0p0", "duplicate-guard", "warn"),
        ("s0p0", "duplicate-guard", "block"),
    ]
    assert [one.at for one in read] == sorted(one.at for one in read)


async def test_a_root_reads_its_whole_request_and_a_child_its_own_part(journal: Journal) -> None:
    await write(journal, incident(CHILD), incident(), incident("order-10"), incident("order"))

    assert [one.run_id for one in await read_incidents(journal, "order-1")] == [CHILD, "order-1"]
    assert [one.run_id for one in await read_incidents(journal, CHILD)] == [CHILD]
    assert await read_incidents(journal, "order-2") == []


async def test_without_a_run_id_every_run_is_read_page_by_page(journal: Journal) -> None:
    await write(journal, *(incident(f"order-{number}") for number in range(600)))
    await do(journal, Put(keys.head("order-5"), {"f": 1}))

    read = await read_incidents(journal)
    assert [one.run_id for one in read] == [f"order-{number}" for number in range(600)]


async def test_an_incident_is_found_by_its_time(journal: Journal) -> None:
    await write(journal, incident(at=2_000), incident(call="s1p0", at=1_000))

    index = [entry.key async for entry in scan_all(journal, keys.index_of_incidents())]
    found = [keys.incident_of_index(key) for key in index]
    assert found == [
        keys.incident("order-1", keys.ROOT, call, "duplicate-guard", "warn") for call in ("s1p0", "s0p0")
    ], "the older one first, whichever was written first"
    assert all([(await journal.get_many([key])).entries[0] for key in found if key is not None])


async def test_an_incident_about_a_run_has_no_call(journal: Journal) -> None:
    await write(journal, incident(call="", source="limit-guard", action="block"))

    (read,) = await read_incidents(journal, "order-1")
    assert read.tool_call_id == ""


async def test_other_rows_of_a_request_are_no_incidents(journal: Journal) -> None:
    await do(journal, Put(keys.lock("order-1"), {"f": 1, "message": "x", "detail": {}}))
    await do(journal, Put(("run", "order-1", "~", "answer", "incident", "confirm", "000"), {"f": 1, "message": "x"}))

    assert await read_incidents(journal, "order-1") == []


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        {},
        {"f": 2, "message": "x"},
        {"f": 1},
        {"f": 1, "message": 3},
        {"f": 1, "message": "x", "detail": []},
    ],
)
async def test_a_row_that_cannot_be_read_is_left_out_with_a_note(
    journal: Journal, caplog: pytest.LogCaptureFixture, value: JsonValue
) -> None:
    caplog.set_level(logging.WARNING)
    await write(journal, incident())
    await do(journal, Put(keys.incident("order-1", "~", "s9p0", "taint-guard", "warn"), value))

    assert [one.tool_call_id for one in await read_incidents(journal, "order-1")] == ["s0p0"]
    assert "run/order-1/~/incident/s9p0/taint-guard/warn is left out" in caplog.text


async def test_an_incident_is_made_of_a_call() -> None:
    @dataclass(frozen=True)
    class Call:
        run: str
        id: str

    made = Incident.of(Call(CHILD, "s2p1"), "taint-guard", "warn", "untrusted content", 5, tool="charge")

    assert (made.run_id, made.tool_call_id, made.at, made.detail) == (CHILD, "s2p1", 5, {"tool": "charge"})
