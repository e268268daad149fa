"""Two organisations in one store and one process, with the same ids everywhere: neither ever meets the other.

Equal runs, persons, conversations, orders, channels, embedder, gate and judge. What each of them has recorded is its
own: matrices of vectors, verdicts, keys at the provider, tombstones, refusals.
"""

import pytest

from gnl_core import (
    Context,
    Gnl,
    decide,
    keys,
    list_interrupts,
    list_runs,
    purge_organization,
    purge_resource,
    read_idem_ledger,
    read_incidents,
    sweep_runs,
    tool,
)
from gnl_core.errors import RunSweptError
from gnl_core.journal import scan_all
from gnl_core.testing import ScriptedModel
from gnl_semantic.vectors import VectorCache

pytestmark = pytest.mark.stores()

ORGS = ("acme", "bolt")
TV, SHORT = {"sku": "Samsung 42 inch TV"}, {"sku": "SMSNG TV42"}
ABC, SPACED = {"sku": "abc"}, {"sku": " ABC "}
HERE = {"thread_id": "t", "resource_id": "ann", "channel": "chat", "agent": "clerk"}


class Provider:
    """A service that does each job once by its key, and is asked for a job of the same key never again."""

    def __init__(self):
        self.jobs = []

    def tool(self, name, window):
        @tool(name=name, idempotency="args", window=window)
        async def act(order: int, ctx: Context) -> str:
            """Do it."""
            assert ctx.idempotency_key not in self.jobs, "swallowed by the provider"
            self.jobs.append(ctx.idempotency_key)
            return f"job {len(self.jobs)}"

        return act


@pytest.fixture
def tenants(journal, shop_of):
    """A shop of each organisation, over one gate with one cache."""
    shops = [shop_of(journal.scoped(org)) for org in ORGS]
    gate = shops[0].gated(cache=VectorCache())
    for shop in shops:
        shop.gate, shop.journal_of_all = gate, journal
    return shops


async def entries(journal):
    """Return every row, byte for byte: values, blobs, versions, batches, times."""
    return [entry async for entry in scan_all(journal, (), blobs=True)]


def named(rows):
    """Return the keys of rows, without the times that stand in those of indexes."""
    return {tuple("" if len(part) == 13 and part.isdecimal() else part for part in one.key) for one in rows}


async def test_work_across_runs_is_done_once_in_each_under_keys_of_its_own(tenants):
    provider = Provider()
    tools = [provider.tool("charge", "cross-run"), provider.tool("book", "thread")]
    for number in range(3):
        for shop in tenants:
            calls = [("charge", {"order": 1}), ("book", {"order": 1})]
            assert (await shop.run(*calls, run=f"r{number}", tools=tools, **HERE)).text == "done"
    charges, books = provider.jobs[::2], provider.jobs[1::2]
    assert len(charges) == len(books) == 2, "once in each organisation, whatever the run"
    for one, other in (charges, books):
        assert one.replace("acme", "bolt") == other != one, "the same job, and no key of it in common"


async def test_what_one_remembers_is_never_asked_about_in_the_other(tenants, asked):
    acme, bolt = tenants
    nobody = {"thread_id": "u"}
    for where in (HERE, nobody):
        await acme.run(ABC, run=f"order-{where['thread_id']}", **where)
        for args, run in ((ABC, "equal"), (SPACED, "alike")):  # what the exact layer knows, and the semantic one
            assert (await bolt.run(args, run=run, **where)).interrupts == ()
            await purge_organization(bolt.journal_of_all, "bolt")
    for where in (HERE, nobody):
        assert (await bolt.run(ABC, run=f"order-{where['thread_id']}", **where)).text == "done"
    for shop in tenants:
        question = asked(await shop.run(SPACED, run="order-2", **nobody))
        assert (question.kind, question.prior["run_id"]) == ("semantic", "order-u")
        elsewhere = asked(await shop.run(SPACED, run="order-3", **HERE | {"thread_id": "mail", "channel": "mail"}))
        assert (elsewhere.prior["origin"], elsewhere.prior["run_id"]) == ("channel", "order-t")
    assert acme.effects.count() == 8


async def test_a_matrix_of_vectors_is_one_organisations_in_one_process(tenants, asked):
    acme, bolt = tenants
    cache = VectorCache()
    acme.gate = bolt.gate = acme.gated(cache=cache)
    acme.embed.place("createProduct: mine", 0.9)
    for number in range(5):
        acme.embed.place(f"createProduct: acme {number}", 0.99)
        await acme.run({"sku": f"acme {number}"}, run=f"a{number}", thread_id="t")
    await bolt.run({"sku": "other"}, run="a0", thread_id="t")
    for shop, count in ((acme, 5), (bolt, 1)):
        assert len(await shop.records()) == count
        generation = await shop.get(keys.generation(("xthr", "t"), "createProduct"))
        assert generation.value == {"n": count}
        shop.embed.place("createProduct: OTHER", 0.99)
    assert (await acme.run({"sku": "OTHER"}, run="ask", thread_id="t")).interrupts == ()
    assert asked(await bolt.run({"sku": "OTHER"}, run="ask", thread_id="t")).prior["run_id"] == "a0"
    assert len(cache) == 2


async def test_a_verdict_of_one_answers_no_question_of_the_other(tenants, judge_that, asked):
    acme, bolt = tenants
    same, different = judge_that("SAME"), judge_that("DIFFERENT")
    acme.gate = acme.gated(rules=True, judge=same)
    bolt.gate = bolt.gated(rules=True, judge=different)
    for shop in tenants:
        await shop.run(TV, run="order-1", **HERE)
    for _ in range(2):  # the second time from what is kept of the verdict
        assert asked(await acme.run(SHORT, run="order-2", **HERE)).kind == "semantic"
        assert (await bolt.run(SHORT, run="order-2", **HERE)).text == "done"
    assert (len(same.says.sent), len(different.says.sent)) == (1, 1)
    for shop in tenants:
        assert len(await shop.rows("xthr", "t", "semjudge")) == 1


async def test_lists_questions_and_incidents_are_its_own(tenants, judge_that, asked):
    acme, bolt = tenants
    for shop, word in zip(tenants, ("SAME", "DIFFERENT"), strict=True):
        shop.gate = shop.gated(rules=True, judge=judge_that(word))
        await shop.run(TV, run="order-1", **HERE)
    question = asked(await acme.run(SHORT, run="order-2", **HERE))
    await bolt.run(SHORT, run="order-2", **HERE)
    assert [one.question for one in await list_interrupts(acme.journal)] == [question.question]
    assert await list_interrupts(bolt.journal) == []
    for named in ({"thread_id": "t"}, {"resource_id": "ann"}, {"agent": "clerk"}, {}):
        found = [(await list_runs(shop.journal, **named)).runs for shop in tenants]
        assert [len(runs) for runs in found] == [2, 2]
        assert [{run.run_id: run.status for run in runs}["order-2"] for runs in found] == ["suspended", "completed"]
    told = [{one.action for one in await read_incidents(shop.journal, "order-2")} for shop in tenants]
    assert ("suspend" in told[0], "suspend" in told[1]) == (True, False)
    await decide(acme.journal, question.question, True, actor="deniz", relation="deliberate_repeat")
    await acme.run(SHORT, run="order-2", **HERE)
    assert (len(await acme.tombstones()), len(await bolt.tombstones())) == (1, 0)


async def test_a_swept_run_and_a_refusal_are_known_in_one_alone(tenants, clock):
    acme, bolt = tenants
    for shop in tenants:
        await shop.run(ABC, run="order-1", **HERE)
    before = await entries(bolt.journal)
    clock.days(10)
    assert (await sweep_runs(acme.journal, older_than_ms=86_400_000, tombstones=True)).tombstones == 1
    guarded = {"tombstone_policy": "reject", "conflict_ledger": True}
    with pytest.raises(RunSweptError):
        await acme.run(ABC, run="order-1", **HERE, **guarded)
    assert [one.key for one in await entries(bolt.journal)] == [one.key for one in before]
    assert len((await bolt.run(ABC, run="order-1", **HERE)).replayed_tool_calls) == 1
    assert len(await read_idem_ledger(acme.journal)) == 1
    assert len(await read_idem_ledger(bolt.journal)) == 0
    assert (await bolt.run({"sku": "new"}, run="order-9", **HERE, **guarded)).text == "done"


@pytest.mark.parametrize("scope", ["org", "resource"])
async def test_one_name_of_work_is_work_of_each(tenants, journal, effects, scope):
    found = []
    for place in (journal, *(shop.journal for shop in tenants)):
        made = tenants[0].tool("charge", declared=None)
        model = ScriptedModel([[("charge", {"sku": "7"})], "done"])
        agents = Gnl(place, agents={"billing": {"model": model, "tools": [made], "work_scope": scope}})
        for _ in range(2):
            result = await agents.run("billing", work_key="order-7", resource_id="ann", prompt="Go.")
            assert result.text == "done"
        found.append(result.run_id)
    assert effects.count("charge") == 3
    assert len(set(found)) == (3 if scope == "org" else 1), "the organisation is part of its own work's name"


async def test_erasing_one_leaves_the_other_byte_for_byte(tenants, journal, judge_that, asked):
    provider = Provider()
    acme, bolt = tenants
    for shop in tenants:
        shop.gate = shop.gated(rules=True, judge=judge_that("SAME"))
        tools = [shop.tool(), provider.tool("charge", "cross-run"), provider.tool("book", "thread")]
        calls = [("createProduct", TV), ("charge", {"order": 1}), ("book", {"order": 1})]
        await shop.run(*calls, run="order-1", tools=tools, **HERE)
        asked(await shop.run(SHORT, run="order-2", **HERE))
    rows = await entries(bolt.journal)
    assert {key[2] for key in await acme.rows("xthr")} >= {"args", "dup", "sem", "semfold", "semgen", "semjudge"}
    assert named(rows) == named(await entries(acme.journal)), "a twin of every row stands in the other"
    await purge_resource(acme.journal, "ann")
    assert await entries(bolt.journal) == rows
    await acme.run(ABC, run="order-8", **{**HERE, "thread_id": "t8", "resource_id": "bob"})
    assert (await purge_organization(journal, "acme")).runs == 1
    assert await entries(acme.journal) == []
    assert await entries(bolt.journal) == rows
    # What the shared cache holds of the erased one is believed by nobody, and the other's is still found.
    assert (await acme.run(SHORT, run="order-3", **HERE)).text == "done"
    assert asked(await bolt.run(SHORT | {"note": "again"}, run="order-3", **HERE)).kind == "semantic"
