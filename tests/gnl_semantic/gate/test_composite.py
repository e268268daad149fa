"""A judge's verdicts in a store of their own: a lost one costs one more answer of the judge, and changes no call."""

import logging

import pytest
import redis

from gnl_core import (
    RedisStorage,
    SqliteStorage,
    composite,
    decide,
    keys,
    purge_organization,
    purge_resource,
    purge_thread,
    resume_run,
    sweep_threads,
)
from gnl_core.errors import StoreUnavailableError
from gnl_core.journal import scan_all

TV, SMSNG = {"sku": "Samsung 42 inch TV"}, {"sku": "SMSNG TV42"}
SHARED = {"shared_thread": True}


@pytest.fixture
def server(new_redis):
    return new_redis()


@pytest.fixture
async def stores(tmp_path, server):
    """The storages of runs and of the cache."""
    async with (
        SqliteStorage(tmp_path / "runs.db") as runs,
        RedisStorage(server.url, accept_async_replication=True) as cache,
    ):
        yield runs, cache


@pytest.fixture
def journal(stores):
    runs, cache = stores
    return composite(runs=runs.runs, cache=cache.runs)


@pytest.fixture
def judged(shop, judge_that):
    """Give the shop a gate with rules and a judge that says these words; return the judge."""

    def give(*words):
        judge = judge_that(*words)
        shop.gate = shop.gated(rules=True, judge=judge)
        return judge

    return give


def statuses(result):
    return [call.status for step in result.steps for call in step.calls]


async def parts(storage, *prefix, org=""):
    """Return the families of conversations in one of the stores."""
    journal = storage.runs.scoped(org) if org else storage.runs
    return {entry.key[2] async for entry in scan_all(journal, ("xthr", *prefix))}


def raw(server, text):
    """Say whether a text stands in any row on a server, read beside the store."""
    with redis.Redis.from_url(server.url) as client:
        held = [client.hgetall(key) for key in client.scan_iter(_type="hash")]
    return any(text.encode() in name + value for rows in held for name, value in rows.items())


def verdicts_of(server):
    """Return the names of the verdicts on a server, as it holds them."""
    with redis.Redis.from_url(server.url) as client:
        held = [client.hkeys(key) for key in client.scan_iter(_type="hash")]
    return {name for names in held for name in names if b"semjudge" in name}


def warnings_of(caplog):
    return [record.message for record in caplog.records if "counts as empty" in record.message]


async def test_verdicts_stand_in_the_cache_and_everything_else_beside_the_runs(shop, judged, asked, stores):
    runs, cache = stores
    judge = judged("SAME")
    await shop.run(TV, run="first")
    assert asked(await shop.run(SMSNG, run="second")).prior["run_id"] == "first"
    assert await parts(cache) == {"semjudge"}
    assert await parts(runs) >= {"sem", "semfold", "semgen", "semvec", "dup"}
    assert "semjudge" not in await parts(runs)
    assert {entry.key[0] async for entry in scan_all(cache.runs, ())} == {"xthr"}
    assert asked(await shop.run(SMSNG, run="third")).kind == "semantic"
    assert len(judge.says.sent) == 1, "the third run was served the second one's verdict"


@pytest.mark.parametrize("word", ["SAME", "DIFFERENT"])
async def test_a_cache_that_dies_changes_no_call(shop, judged, server, caplog, word):
    judge = judged(word)
    await shop.run(TV, run="first")
    wanted = statuses(await shop.run(SMSNG, run="before"))
    assert wanted == (["suspended"] if word == "SAME" else ["succeeded"])
    assert verdicts_of(server)
    server.kill()
    with caplog.at_level(logging.WARNING):
        for number in (2, 3):
            other = {"sku": f"SMSNG TV42 no {number}"} if word == "DIFFERENT" else SMSNG
            result = await shop.run(other, run=f"down-{number}")
            assert statuses(result) == wanted
    assert len(judge.says.sent) >= 3, "each pair was judged anew"
    assert len(warnings_of(caplog)) == 1
    server.start()
    count = len(judge.says.sent)
    if word == "SAME":  # what the cache had kept is served again
        assert statuses(await shop.run(SMSNG, run="after")) == wanted
        assert len(judge.says.sent) == count


async def test_a_cache_that_was_emptied_changes_no_call(shop, judged, asked, server, caplog):
    judge = judged("SAME")
    await shop.run(TV, run="first")
    before = asked(await shop.run(SMSNG, run="second"))
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    with caplog.at_level(logging.WARNING):
        after = asked(await shop.run(SMSNG, run="third"))
    assert (after.kind, after.prior["run_id"]) == (before.kind, "first")
    assert (len(judge.says.sent), shop.effects.count()) == (2, 1)
    assert [record.message for record in caplog.records if "begun anew" in record.message] != []
    asked(await shop.run(SMSNG, run="fourth"))
    assert len(judge.says.sent) == 2, "the cache that was begun anew serves what was judged since"


async def test_an_open_question_does_not_hang_on_the_verdict_that_asked_it(shop, judged, asked, server):
    judged("SAME")
    await shop.run(TV, run="first")
    question = asked(await shop.run(SMSNG, run="second"))
    server.kill()
    again = judged("DIFFERENT")
    options = {"journal": shop.journal, "model": shop.model, "tools": [shop.tool()], "limits": shop.limits()}
    result = await resume_run(run_id="second", **options)
    assert (asked(result).tool_call_id, statuses(result)) == (question.tool_call_id, ["suspended"])
    assert (again.says.sent, shop.effects.count()) == ([], 1)
    await decide(shop.journal, question.question, True, actor="deniz")
    assert statuses(await resume_run(run_id="second", **options)) == ["succeeded"]
    assert shop.effects.count() == 2


# Erasure -------------------------------------------------------------------------------------------------------------


async def pair(shop, org="", thread="t", person="ann", **options):
    journal = shop.journal.scoped(org) if org else shop.journal
    options |= {"journal": journal, "thread_id": thread, "resource_id": person}
    await shop.run(TV, run=f"{person}-{thread}-1", **options)
    result = await shop.run(SMSNG, run=f"{person}-{thread}-2", **options)
    return result.interrupts[0].question if result.interrupts else None


async def test_a_purged_conversation_is_gone_from_both_stores(shop, judged, stores, server):
    runs, cache = stores
    judged("SAME")
    await pair(shop)
    await pair(shop, thread="t-2", person="bob")
    assert {name.decode().split("/")[1] for name in verdicts_of(server)} == {"t", "t-2"}
    counted = await purge_thread(shop.journal, "t", dry_run=True)
    erased = await purge_thread(shop.journal, "t")
    assert (erased.rows, erased.rows["xthr/semjudge"]) == (counted.rows, 1)
    assert await parts(runs, "t") == await parts(cache, "t") == set()
    assert {name.decode().split("/")[1] for name in verdicts_of(server)} == {"t-2"}
    assert "semjudge" in await parts(cache, "t-2")


async def test_an_erasure_that_cannot_reach_the_cache_says_so_and_is_called_again(shop, judged, stores, server):
    runs, cache = stores
    judged("SAME")
    await pair(shop)
    server.kill()
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await purge_thread(shop.journal, "t")
    server.start()
    assert verdicts_of(server), "what could not be reached is still there"
    await purge_thread(shop.journal, "t")
    assert await parts(runs, "t") == await parts(cache, "t") == set()
    assert verdicts_of(server) == set()


async def test_a_persons_verdicts_go_from_a_conversation_that_others_go_on_with(shop, judged, server):
    judged("DIFFERENT")
    await pair(shop, **SHARED)
    await shop.run({"sku": "LG 60 inch TV"}, run="bob-1", thread_id="t", resource_id="bob", **SHARED)
    assert raw(server, "ann-t-2")
    await purge_resource(shop.journal, "ann")
    gone = {keys.encode(key) for key in await shop.rows(*keys.thread_scope("t"), "semjudge")}
    assert {name.decode() for name in verdicts_of(server)} == gone
    assert not raw(server, "ann-t-2")
    assert len(await shop.records()) == 1, "bob's record stays"


async def test_an_organisation_and_old_conversations_go_from_both_stores(shop, judged, stores, server):
    runs, cache = stores
    judged("SAME")
    await pair(shop, org="bank")
    question = await pair(shop)
    assert await parts(cache, org="bank") == {"semjudge"}
    await purge_organization(shop.journal, "bank", force=True)
    assert [entry async for entry in scan_all(runs.runs.scoped("bank"), ())] == []
    assert [entry async for entry in scan_all(cache.runs.scoped("bank"), ())] == []
    assert list(await shop.journal.scopes()) == [""]
    await shop.run({"sku": "Radio"}, run="radio", thread_id="t-3")
    await decide(shop.journal, question, False, actor="deniz")
    await resume_run(
        run_id="ann-t-2", journal=shop.journal, model=shop.model, tools=[shop.tool()], limits=shop.limits()
    )
    swept = await sweep_threads(shop.journal, older_than_ms=0)
    assert swept.purged == 2
    assert await parts(runs) == await parts(cache) == set()
    assert verdicts_of(server) == set()
