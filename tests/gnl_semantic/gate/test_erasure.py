"""What a semantic gate remembers is erased with its person, from rows and caches; test_erasure_raw.py greps."""

import pytest

from gnl_core import keys, purge_resource, purge_thread
from gnl_core.errors import StoreUnavailableError
from gnl_core.testing import Fault, FaultyJournal
from gnl_semantic.vectors import VectorCache

pytestmark = pytest.mark.stores()


async def test_a_cache_forgets_a_purged_conversation_at_its_next_call(shop, asked):
    cache = VectorCache()
    shop.gate = shop.gated(cache=cache)
    await shop.run({"sku": "one"})
    assert asked(await shop.run({"sku": "ONE"})).kind == "semantic"
    assert (len(cache), cache.held_bytes > 0) == (1, True)
    done = await purge_thread(shop.journal, "t")
    assert done.rows["xthr/sem"] == 1
    assert any("looks like them" in sentence for sentence in done.windows)
    result = await shop.run({"sku": "One"})
    assert (result.interrupts, result.text) == ((), "done")
    assert len(cache) == 0, "its generation is gone, and with it what was held"
    assert len(await shop.records()) == 1
    assert asked(await shop.run({"sku": "oNE"})).prior["run_id"] == "r3"


@pytest.mark.stores("memory", "sqlite")
async def test_the_generation_goes_first_so_that_no_cache_believes_what_is_half_gone(shop):
    """Broken off before any of its writes, only records that still stand are asked about."""
    shop.gate = shop.gated(cache=VectorCache())
    broken = 0
    for number in range(1, 20):
        await shop.run({"sku": "one"}, run=f"first-{number}")
        faulty = FaultyJournal(shop.journal, fault=Fault(number=number, action="unavailable"))
        try:
            await purge_thread(faulty, "t")
        except StoreUnavailableError:
            broken += 1
            left = {key[2] for key in await shop.rows(*keys.thread_scope("t"))}
            assert "semgen" not in left or number == 1
            standing = await shop.records()
            result = await shop.run({"sku": "ONE"}, run=f"second-{number}")
            assert bool(result.interrupts) == bool(standing), "asked about what still stands whole, and nothing else"
        await purge_thread(shop.journal, "t")
        assert await shop.rows(*keys.thread_scope("t")) == {}
    assert broken > 8


async def test_in_a_shared_conversation_the_others_records_stay_and_are_found(shop, asked):
    shop.gate = shop.gated(cache=VectorCache())
    await shop.run({"sku": "one"}, run="a", resource_id="ann")
    await shop.run({"sku": "two"}, run="b", resource_id="bob", shared_thread=True)
    assert asked(await shop.run({"sku": "ONE"}, run="c", resource_id="cem", shared_thread=True)).prior["run_id"] == "a"
    await purge_resource(shop.journal, "ann")
    assert not [key for key, row in (await shop.rows()).items() if "'ann'" in f"{key} {row.value}"]
    (record,) = await shop.records()
    generation = await shop.get(keys.generation(keys.thread_scope("t"), "createProduct"))
    assert (record["run"], generation.value["n"]) == ("b", 1)
    assert len(await shop.rows("xthr", "t", "semfold")) == 1
    assert asked(await shop.run({"sku": "TWO"}, run="d", resource_id="cem", shared_thread=True)).prior["run_id"] == "b"
    free = await shop.run({"sku": "One"}, run="e", resource_id="cem", shared_thread=True)
    assert free.interrupts == (), "what the erased one did is no earlier work any more"
