"""Whatever of the layer fails, hangs or lies: the call goes on within a stated time, and operators can read of it."""

import asyncio
import threading

import pytest

from gnl_core.errors import StoreUnavailableError
from gnl_core.testing import FaultyJournal

ABC, SPACED = {"sku": "abc"}, {"sku": " ABC "}


class Hangs(FaultyJournal):
    """A journal of which one kind of read of earlier work never returns."""

    def __init__(self, inner, stage):
        super().__init__(inner)
        self.stage, self.entered = stage, 0

    async def scan(self, prefix, **options):
        if self.stage in prefix:
            await self._hang()
        return await super().scan(prefix, **options)

    async def get_many(self, keys):
        if self.stage == "semgen" and any(self.stage in key for key in keys):
            await self._hang()
        return await super().get_many(keys)

    async def _hang(self):
        self.entered += 1
        await asyncio.Event().wait()


@pytest.fixture
def hangs_at():
    return Hangs


def outages(noted):
    return [detail for _, _, detail in noted if detail.get("embedder_outage")]


# The embedder --------------------------------------------------------------------------------------------------------


async def test_l18_s86_three_failures_are_three_runs_and_one_outage_told_with_the_third(shop):
    shop.embed.error = RuntimeError("the key is wrong: sk-123")
    for number in range(1, 6):
        result = await shop.run({"sku": f"product {number}"}, run=f"r{number}")
        assert result.text == "done"
        assert sum("failed three times in a row" in text for text in result.warnings) == (number == 3)
    assert shop.effects.count() == 5
    assert len(shop.embed.sent) == 3, "none is tried again to be kept, and after an outage it is left alone"
    entries = (await shop.rows("xthr", "t", "sem")).values()
    assert [entry.blob for entry in entries] == [None] * 5
    told = {run: outages(await shop.noted(run)) for run in ("r1", "r2", "r3", "r4", "r5")}
    assert [run for run, found in told.items() if found] == ["r3"]
    assert len(told["r3"]) == 1


async def test_s86_a_success_between_begins_the_count_anew(shop):
    for number, fails in enumerate([True, True, False, True, True, True]):
        shop.embed.error = RuntimeError("down") if fails else None
        await shop.run({"sku": f"product {number}"}, run=f"r{number}")
    assert [number for number in range(6) if outages(await shop.noted(f"r{number}"))] == [5]


async def test_s86_two_gates_over_one_embedder_share_its_streak_and_its_texts(shop):
    one, other = shop.gate, shop.gated()
    await shop.run(ABC)
    shop.gate = other
    await shop.run(ABC, thread_id="u")
    assert shop.embed.sent == ["createProduct: abc"]
    shop.embed.error = RuntimeError("down")
    for number, gate in enumerate([one, other, one]):
        shop.gate = gate
        await shop.run({"sku": f"product {number}"}, run=f"down-{number}")
    assert [number for number in range(3) if outages(await shop.noted(f"down-{number}"))] == [2]


async def test_with_the_embedder_down_nothing_is_asked_even_about_an_equal_identity(shop, asked):
    await shop.run(ABC)
    shop.embed.error, shop.embed.sent = RuntimeError("down"), []
    made = shop.tool(declared={"keys": ("sku",), "describe": lambda args: f"{args['sku']} {args['note']}"})
    assert (await shop.run(SPACED | {"note": "in other words"}, tools=[made])).text == "done"
    assert shop.effects.count() == 2
    shop.embed.error = None
    assert asked(await shop.run({"sku": "Abc", "note": ""}, tools=[made])).kind == "semantic"


@pytest.mark.parametrize(
    "answer",
    [
        "0.1 0.2",
        b"0",
        None,
        [0.1, 0.2],
        [[0.1, 0.2], [0.3, 0.4]],
        [],
        [[]],
        [[0.1, 0.2], [0.3]],
        [["x", "y"]],
        [[float("nan"), 1.0]],
        [[float("inf"), 1.0]],
        [[0.0, 0.0]],
        [[1.0, 2.0, 3.0]],
        [[1e300, 1.0]],
    ],
    ids=str,
)
async def test_s86_an_answer_that_is_no_vector_costs_no_call(shop, asked, answer):
    await shop.run(ABC)
    shop.embed.answer = answer
    result = await shop.run({"sku": "another"}, run="second")
    assert (result.text, shop.effects.count()) == ("done", 2)
    assert [record["run"] for record in await shop.records()] == ["r1", "second"]
    shop.embed.answer = None
    assert asked(await shop.run(SPACED)).prior["run_id"] == "r1", "and what was there is found as before"


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_s86_an_embedder_that_hangs_costs_its_time_once_a_call(shop, kind):
    calls, never = [], threading.Event()

    def block(texts):
        calls.append(texts)
        never.wait(30)

    async def wait(texts):
        calls.append(texts)
        await asyncio.Event().wait()

    shop.gate = shop.gated(embed=block if kind == "sync" else wait, embed_timeout=0.2)
    try:
        async with asyncio.timeout(10):
            result = await shop.run(ABC, {"sku": "x"})
    finally:
        never.set()
    assert (result.text, shop.effects.count(), len(calls)) == ("done", 2, 2)
    assert len(await shop.records()) == 2


async def test_an_embedders_exit_is_not_the_programs(shop):
    shop.embed.error = SystemExit(3)
    assert (await shop.run(ABC)).text == "done"


async def test_the_callers_cancellation_goes_through_and_the_call_has_not_run(shop):
    entered = asyncio.Event()

    async def wait(texts):
        entered.set()
        await asyncio.Event().wait()

    shop.gate = shop.gated(embed=wait)
    task = asyncio.create_task(shop.run(ABC, run="first"))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert shop.effects.count() == 0
    shop.gate = shop.gated()
    assert (await shop.run(ABC, run="first")).text == "done"
    assert shop.effects.count() == 1


# The store -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["semtomb", "semfold", "semgen", "sem"])
async def test_s86_earlier_work_that_cannot_be_read_costs_no_call(shop, shop_of, broken_at, broken):
    await shop.run(ABC)
    sick = shop_of(broken_at(shop.journal, broken))
    result = await sick.run(SPACED, run="second", journal=sick.journal)
    assert (result.text, shop.effects.count()) == ("done", 2)
    ((source, action, detail),) = await shop.noted("second")
    assert (source, action, detail["no_scan"], detail["cause"]) == (
        "semantic-guard",
        "warn",
        True,
        "StoreUnavailableError",
    )
    assert detail["identity_keys"] == ["sku"]


async def test_s86_an_outage_is_told_beside_a_scan_that_broke_too(shop, shop_of, broken_at):
    sick = shop_of(broken_at(shop.journal, "semtomb"))
    shop.embed.error = RuntimeError("down")
    for number in range(4):
        await sick.run({"sku": f"product {number}"}, run=f"r{number}")
    told = [(await shop.noted(f"r{number}"))[0][2] for number in range(4)]
    assert [one.get("embedder_outage", False) for one in told] == [False, False, True, False]
    assert all(one["no_scan"] for one in told)


@pytest.mark.parametrize("stage", ["semtomb", "semfold", "semgen", "sem"])
async def test_s86_a_search_that_hangs_is_given_up_and_the_call_goes_on(shop, shop_of, hangs_at, monkeypatch, stage):
    monkeypatch.setattr("gnl_semantic.similar.SEARCH_SECONDS", 0.2, raising=False)
    await shop.run(ABC)
    sick = shop_of(hangs_at(shop.journal, stage))
    async with asyncio.timeout(20):
        result = await sick.run(SPACED, run="second")
    assert (result.text, result.interrupts, shop.effects.count()) == ("done", (), 2)
    assert sick.journal.entered, "the search was at it"
    ((source, action, detail),) = await shop.noted("second")
    assert (source, action, detail["no_scan"], detail["cause"]) == ("semantic-guard", "warn", True, "TimeoutError")
    assert [record["run"] for record in await shop.records()] == ["r1", "second"], "and what it did is kept"


@pytest.mark.parametrize("stage", ["semtomb", "sem"])
async def test_s86_a_search_that_hangs_leaves_the_question_that_is_asked_anyway_plain(
    shop, shop_of, hangs_at, asked, monkeypatch, stage
):
    monkeypatch.setattr("gnl_semantic.similar.SEARCH_SECONDS", 0.2, raising=False)
    await shop.run(ABC)
    sick = shop_of(hangs_at(shop.journal, stage))
    async with asyncio.timeout(20):
        question = asked(await sick.run(SPACED, run="second", tools=[sick.tool(confirm=True)]))
    assert (question.kind, question.prior, shop.effects.count()) == ("confirm", None, 1)


async def test_s86_after_a_search_that_hung_the_next_one_finds(shop, shop_of, hangs_at, asked, monkeypatch):
    monkeypatch.setattr("gnl_semantic.similar.SEARCH_SECONDS", 0.2, raising=False)
    await shop.run(ABC)
    sick = shop_of(hangs_at(shop.journal, "sem"))
    async with asyncio.timeout(20):
        await sick.run({"sku": "x"}, run="second")
    monkeypatch.undo()
    sick.journal.stage = "nothing"
    assert asked(await sick.run(SPACED)).prior["run_id"] == "r1", "what hung is held against nobody"


async def test_s86_a_broken_scan_does_not_embed_the_text_twice(shop, shop_of, broken_at):
    sick, sent, failed = shop_of(broken_at(shop.journal, "semtomb")), [], asyncio.Event()
    scan = sick.journal.scan

    async def scanned(prefix, **options):
        try:
            return await scan(prefix, **options)
        except StoreUnavailableError:
            failed.set()
            raise

    async def slow(texts):
        sent.extend(texts)
        await failed.wait()
        return [[1.0, 0.0]]

    sick.journal.scan = scanned
    sick.gate = sick.gated(embed=slow)
    await sick.run(ABC)
    assert sent == ["createProduct: abc"]
    assert len(await shop.records()) == 1


async def test_s86_a_finder_that_breaks_in_an_unforeseen_way_costs_no_call(shop, monkeypatch):
    await shop.run(ABC)
    monkeypatch.setattr("gnl_semantic.similar.decide", lambda *_, **__: 1 / 0)
    result = await shop.run(SPACED, run="second")
    assert (result.text, shop.effects.count()) == ("done", 2)
    assert (await shop.noted("second"))[0][2]["cause"] == "ZeroDivisionError"


@pytest.mark.parametrize("text", ["\ud800", "x\ud800y", "a" * 5_000_000], ids=["lone", "among", "huge"])
async def test_a_sentence_that_cannot_be_stored_costs_no_record_of_the_call(shop, text):
    made = shop.tool(declared={"keys": ("sku",), "describe": lambda _: text})
    result = await shop.run(ABC, {"sku": "x"}, tools=[made], run="first")
    assert (result.text, shop.effects.count()) == ("done", 2)
    again = await shop.run(ABC, {"sku": "x"}, tools=[made], run="first")
    assert [call.status for call in again.replayed_tool_calls] == ["succeeded", "succeeded"]
    assert shop.effects.count() == 2
