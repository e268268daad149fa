"""The journal that fails on demand."""

import pytest

from gnl_core import InMemoryStorage
from gnl_core.errors import ConfigError, StoreBusyError, StoreUnavailableError, StoreUnknownError
from gnl_core.journal import Create, Put, get, new_batch
from gnl_core.testing.faulty import Fault, FaultyJournal

KEY = ("note", "a")


def faulty(**fault):
    return FaultyJournal(InMemoryStorage().runs, fault=Fault(**fault) if fault else None)


async def write(journal, key=KEY, value=1):
    return await journal.apply([Put(key, value)], batch=new_batch())


async def test_without_a_fault_it_only_counts():
    journal = faulty()
    await write(journal)
    await journal.get_many([KEY])
    await journal.scan(())
    await journal.delete_prefix(("note",))
    assert (journal.applies, journal.reads, journal.scans, journal.writes, journal.hit) == (1, 1, 1, 2, 0)
    assert await get(journal, KEY) is None


@pytest.mark.parametrize(("action", "error"), [("unavailable", StoreUnavailableError), ("busy", StoreBusyError)])
async def test_a_store_that_says_no_has_written_nothing(action, error):
    journal = faulty(number=2, action=action)
    await write(journal, ("note", "first"))
    with pytest.raises(error):
        await write(journal)
    assert await get(journal, KEY) is None
    await write(journal)
    assert (await get(journal, KEY)).value == 1
    assert journal.hit == 1


@pytest.mark.parametrize(("when", "there"), [("before", False), ("after", True)])
async def test_an_unknown_outcome_is_either(when, there):
    journal = faulty(when=when, action="unknown")
    with pytest.raises(StoreUnknownError):
        await write(journal)
    assert (await get(journal, KEY) is not None) == there


async def test_a_fault_lasts_as_long_as_told_and_counts_only_what_matches():
    def creates(ops):
        return any(isinstance(op, Create) for op in ops)

    journal = faulty(action="unavailable", times=2, match=creates)
    await write(journal)
    for name in ("b", "c"):
        with pytest.raises(StoreUnavailableError):
            await journal.apply([Create(("note", name), 1)], batch=new_batch())
        await write(journal)
    await journal.apply([Create(("note", "d"), 1)], batch=new_batch())
    assert journal.hit == 2


async def test_a_deletion_is_a_write():
    journal = faulty(number=2, action="unavailable")
    await write(journal)
    with pytest.raises(StoreUnavailableError):
        await journal.delete_prefix(("note",))
    assert await get(journal, KEY) is not None


async def test_an_organisations_view_shares_fault_and_counts():
    journal = faulty(number=2, action="unavailable")
    view = journal.scoped("acme")
    await write(view)
    with pytest.raises(StoreUnavailableError):
        await write(journal)
    assert (view.applies, journal.applies) == (2, 2)
    assert (await get(view, KEY)).value == 1


async def test_the_hook_sees_each_write_before_it_happens():
    seen = []
    journal = FaultyJournal(InMemoryStorage().runs, on_write=lambda number, ops: seen.append((number, len(ops))))
    await write(journal)
    await journal.delete_prefix(("note",))
    assert seen == [(1, 1), (2, 0)]


async def test_it_is_the_inner_store_to_whoever_asks():
    inner = InMemoryStorage().runs
    journal = FaultyJournal(inner)
    assert (journal.store_id, journal.capabilities) == (inner.store_id, inner.capabilities)
    await write(journal.scoped("acme"))
    assert list(await journal.scopes()) == list(await inner.scopes())
    assert await journal.now() <= await inner.now()
    await journal.aclose()


@pytest.mark.parametrize(
    "fault",
    [
        {"number": 0},
        {"times": 0},
        {"when": "after", "action": "unavailable"},
        {"when": "after", "action": "busy"},
        {"at": "effect", "action": "unknown"},
    ],
)
def test_a_fault_that_cannot_be_is_refused(fault):
    with pytest.raises(ConfigError):
        Fault(**fault)
