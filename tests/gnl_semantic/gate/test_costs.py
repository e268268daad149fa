"""What a guarded call costs, as counts: embeddings, reads, batches, rows. No clock is looked at."""

import pytest

from gnl_core import InMemoryStorage, SqliteStorage, args_hash, decide, keys
from gnl_core.testing import FaultyJournal

ABC, SPACED = {"sku": "abc"}, {"sku": " ABC "}


class Counted:
    """A shop whose journal is counted."""

    def __init__(self, shop):
        self.shop = shop

    async def cost(self, *calls, **options):
        """Return (reads, scans, applies) of one run."""
        counted = FaultyJournal(self.shop.journal)
        await self.shop.run(*calls, journal=counted, **options)
        return counted.reads, counted.scans, counted.applies


@pytest.fixture
def counted(shop):
    return Counted(shop)


async def test_one_embedding_a_guarded_call_that_serves_finding_and_keeping(shop):
    await shop.run({"sku": "one"}, {"sku": "two"}, {"sku": "three"}, run="first")
    assert shop.embed.sent == ["createProduct: one", "createProduct: two", "createProduct: three"]
    counts = (await shop.get(keys.semantic_counts("first"))).value
    assert (counts["guarded"], counts["embedded"], "embed_hits" in counts) == (3, 3, False)


async def test_a_known_text_is_embedded_by_nobody_again(shop, asked):
    await shop.run(ABC)
    asked(await shop.run(SPACED, run="second"))
    assert shop.embed.sent == ["createProduct: abc"]
    assert (await shop.get(keys.semantic_counts("second"))).value == {"guarded": 1, "embed_hits": 1}


async def test_l11_neither_replay_nor_resume_of_a_recorded_call_embeds_or_looks(shop, counted):
    await shop.run(ABC, {"sku": "x"}, run="first")
    shop.embed.sent.clear()
    shop.gate = shop.gated()
    guarded = await counted.cost(ABC, {"sku": "x"}, run="first")
    assert shop.embed.sent == []
    shop.gate = None
    assert guarded == await counted.cost(ABC, {"sku": "x"}, run="first")
    assert (await shop.get(keys.semantic_counts("first"))).value["guarded"] == 2


async def test_a_question_that_waits_is_not_looked_for_again(shop, counted, asked):
    await shop.run(ABC)
    asked(await shop.run(SPACED, run="second"))
    shop.embed.sent.clear()
    before = (await shop.get(keys.semantic_counts("second"))).value
    asked(await shop.run(SPACED, run="second"))
    assert shop.embed.sent == []
    assert (await shop.get(keys.semantic_counts("second"))).value == before


async def test_a_guarded_call_writes_in_the_two_batches_that_every_call_has(shop, counted):
    plain = shop.tool(declared=None)
    bare = await counted.cost({"sku": "a"}, tools=[plain], thread_id="plain")
    first = await counted.cost({"sku": "a"})
    gray = await counted.cost({"sku": "b"})
    assert [applies for _, _, applies in (first, gray)] == [bare[2], bare[2]]


async def test_on_disk_a_guarded_call_syncs_no_more_often(place, effects, embed, shop_of):
    spent = []
    for guarded in (False, True):
        async with SqliteStorage(place / f"{guarded}.db") as storage:
            shop = shop_of(storage.runs)
            made = shop.tool(declared={"keys": ("sku",)} if guarded else None)
            before = storage.statistics
            await shop.run({"sku": "a"}, {"sku": "b"}, {"sku": "c"}, tools=[made])
            after = storage.statistics
            spent.append((after.batches - before.batches, after.transactions - before.transactions))
    assert spent[0] == spent[1]


async def test_what_a_guarded_call_reads_does_not_grow_with_what_is_remembered(shop, counted):
    """With nothing to be found a call reads the generation, its tombstones, its fold and its own row; then what is new
    since the last call, and the candidates it found."""
    plain = shop.tool(declared=None)
    bare = await counted.cost({"sku": "a"}, tools=[plain], thread_id="plain")
    first = await counted.cost({"sku": "a"})
    assert (first[0] - bare[0], first[1] - bare[1]) == (2, 2)
    costs = []
    for number in range(2, 40):
        reads, scans, applies = await counted.cost({"sku": f"product {number}"})
        costs.append((reads - bare[0], scans - bare[1], applies - bare[2]))
    assert set(costs) == {(3, 3, 0)}


async def test_a_new_process_reads_the_whole_scope_once(shop, counted):
    await shop.run(*({"sku": f"product {number}"} for number in range(20)))
    shop.gate = shop.gated()
    first = await counted.cost({"sku": "x"})
    second = await counted.cost({"sku": "y"})
    assert first == second, "twenty records are one page"


async def test_keeping_costs_four_rows_and_a_vector_twice(place, effects, embed, shop_of):
    async with InMemoryStorage() as storage:
        shop = shop_of(storage.runs)
        await shop.run(ABC, run="first")
        rows = await shop.rows("xthr", "t")
        assert sorted(key[2] for key in rows) == ["dup", "sem", "semfold", "semgen", "semvec"]
        assert len(rows[keys.similar(("xthr", "t"), "createProduct", args_hash(ABC))].blob) == 8


async def test_a_confirm_question_costs_one_search_and_its_answer_none(shop, asked):
    made = shop.tool(confirm=True)
    question = asked(await shop.run(ABC, tools=[made], run="first"))
    counts = (await shop.get(keys.semantic_counts("first"))).value
    assert (counts["guarded"], counts["embedded"]) == (1, 1)
    await decide(shop.journal, question.question, True, actor="deniz")
    await shop.run(ABC, tools=[made], run="first")
    assert (await shop.get(keys.semantic_counts("first"))).value == counts
    assert shop.embed.sent == ["createProduct: abc"]
