"""`gnl purge` and `gnl sweep`: told beforehand, done with --yes, and nothing left to read in the files."""

import asyncio
import re
import shlex
import subprocess
import sys

import pytest

from gnl_core import Duplicates, RunLimits, SqliteStorage, create_batch, keys, run_durable, tool
from gnl_core.journal import Put
from gnl_core.owner import new_owner, register, unregister
from gnl_core.testing.scripted import ScriptedModel

MARK = "iban-TR55-0006-marker"


@tool
def pay(iban: str) -> str:
    return f"paid {iban}"


@pytest.fixture
def journal(tmp_path):
    """A journal in which ann paid to a marked account in 'r-1', and bob in 'r-10'."""
    path = tmp_path / "journal.sqlite"

    async def fill():
        async with SqliteStorage(path) as storage:
            for run, person, thread, iban in (("r-1", "ann", "t", MARK), ("r-10", "bob", "t2", "other-account")):
                await run_durable(
                    run_id=run,
                    journal=storage.runs,
                    model=ScriptedModel([[("pay", {"iban": iban})], "done"]),
                    tools=[pay],
                    prompt=f"pay {iban}",
                    thread_id=thread,
                    resource_id=person,
                    limits=RunLimits(side_effect_duplicates=Duplicates(action="suspend", scope="thread")),
                )

    asyncio.run(fill())
    return path


def raw(path, text):
    """Return in which files beside the journal a text stands, byte by byte; asked in another process."""
    code = (
        "import pathlib, sys; path = pathlib.Path(sys.argv[1])\n"
        "print(*(one.name for one in sorted(path.parent.iterdir()) if sys.argv[2].encode() in one.read_bytes()))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path), text], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_without_yes_it_tells_and_deletes_nothing(gnl, journal):
    told = gnl("purge", "person", "ann", "--db", journal)
    assert (told.code, "would be deleted" in told.out, "--yes deletes it" in told.err) == (0, True, True)
    assert raw(journal, MARK), "a marker that could never be found would prove nothing"
    assert [run["run_id"] for run in gnl("runs", "list", "--db", journal, "--json").json["runs"]] == ["r-10", "r-1"]


def test_s74_a_purged_person_stands_in_no_file(gnl, journal):
    would = gnl("purge", "person", "ann", "--db", journal, "--json").json
    done = gnl("purge", "person", "ann", "--db", journal, "--json", "--yes").json
    assert (done["rows"], would["dry_run"], done["dry_run"]) == (would["rows"], True, False)
    assert (done["runs"], done["threads"]) == (1, 1)
    assert raw(journal, MARK) == []
    assert raw(journal, "other-account") == [journal.name]
    assert gnl("purge", "person", "ann", "--db", journal, "--yes").err == "nothing of that name is in this journal\n"
    assert gnl("doctor", "--db", journal).code == 0


@pytest.mark.parametrize(
    "names", [("run", "r-1"), ("thread", "t"), ("cross-run", "--tool", "pay"), ("org", "nobody")], ids=lambda n: n[0]
)
def test_each_kind_is_told_before_and_done(gnl, journal, names):
    told = gnl("purge", *names, "--db", journal, "--json")
    done = gnl("purge", *names, "--db", journal, "--json", "--yes")
    assert (told.code, done.code, told.json["rows"]) == (0, 0, done.json["rows"])
    assert gnl("purge", *names, "--db", journal, "--json").json["deleted"] == 0
    assert gnl("runs", "list", "--db", journal, "--json").json["runs"][0]["run_id"] == "r-10"


def test_a_driven_run_is_refused_unless_forced(gnl, shelf):
    owner = new_owner()
    register(owner)
    try:
        shelf.write(*shelf.head("r-1", status="running"), shelf.lock("r-1", owner))
        refused = gnl("purge", "run", "r-1", *shelf.db, "--yes")
        assert (refused.code, "being driven" in refused.err) == (2, True)
        assert gnl("purge", "run", "r-1", *shelf.db, "--yes", "--force").code == 0
        assert gnl("runs", "list", *shelf.db, "--json").json["runs"] == []
    finally:
        unregister(owner)


def test_a_sweep_tells_what_it_would_delete_and_why_it_keeps(gnl, shelf):
    shelf.write(*shelf.head("old"), *shelf.head("waits", status="suspended"))
    told = gnl("sweep", "runs", "--older-than", "0s", *shelf.db)
    assert (told.code, "2 runs looked at, 1 would be deleted" in told.out) == (0, True)
    assert "1 kept: they wait for a person's answer" in told.out
    done = gnl("sweep", "runs", "--older-than", "0s", "--tombstones", *shelf.db, "--json", "--yes").json
    assert (done["purged"], done["tombstones"], done["kept_suspended"]) == (1, 1, 1)
    done = gnl("sweep", "runs", "--older-than", "0s", "--suspended-ttl", "0ms", *shelf.db, "--json", "--yes")
    assert done.json["purged"] == 1


def test_a_sweep_of_conversations_and_of_the_ledger(gnl, journal):
    told = gnl("sweep", "threads", "--older-than", "1d", "--db", journal, "--json").json
    assert (told["scanned"], told["kept_active"], told["purged"]) == (2, 2, 0)
    done = gnl("sweep", "threads", "--older-than", "0ms", "--db", journal, "--json", "--yes").json
    assert done["purged"] == 2
    assert gnl("sweep", "log", "conflict", "--older-than", "1d", "--db", journal, "--json").json["scanned"] == 0


@pytest.mark.parametrize("age", ["90", "-1d", "1 week", "", "1.5h"])
def test_an_age_that_is_none_is_refused(gnl, journal, age):
    refused = gnl("sweep", "runs", "--older-than", age, "--db", journal)
    assert (refused.code, "write for instance 90d" in refused.err) == (2, True)


# Doctor --------------------------------------------------------------------------------------------------------------


def test_doctor_counts_what_broken_off_erasures_left_and_what_is_nobodys(gnl, shelf):
    half = {"erasing": True, "agent": "shop"}
    shelf.write(*shelf.head("half", **half), *shelf.head("sound"), shelf.call("gone", "s0p0"))
    shelf.write(Put(keys.marker(keys.thread_scope("t"), "pay", "ab"), {"f": 1, "run": "x", "call": "s0p0"}))
    shelf.write(
        Put(keys.erased_org("a"), {"f": 1, "state": "begun"}), Put(keys.erased_org("b"), {"f": 1, "state": "done"})
    )
    found = {(one["check"], one["org"]): one for one in gnl("doctor", *shelf.db, "--json").json["findings"]}
    assert found["erasure.leftovers", ""]["text"] == (
        "1 runs are half erased; rows of 1 runs stand without their head: 'half', 'gone'"
    )
    assert found["threads.orphans", ""]["text"].startswith("1 conversations, 1 rows, name no person")
    assert found["erasure.leftovers", "a"]["advice"] == "end it: gnl purge org a --yes"
    assert ("erasure.leftovers", "b") not in found
    for names in (("run", "half"), ("run", "gone"), ("thread", "t"), ("org", "a")):
        assert gnl("purge", *names, *shelf.db, "--yes").code == 0
    left = {one["check"] for one in gnl("doctor", *shelf.db, "--json").json["findings"]}
    assert not left & {"erasure.leftovers", "threads.orphans"}


def test_the_commands_that_doctor_names_find_what_they_are_about(gnl, shelf):
    marker = keys.marker(keys.thread_scope("it's"), "pay", "ab")
    shelf.write(
        *shelf.head("half", erasing=True, agent="shop"),
        *shelf.head("batch:b:item"),
        Put(marker, {"f": 1, "run": "x", "call": "s0p0"}),
        org="acme",
    )
    found = {one["check"]: one for one in gnl("doctor", *shelf.db, "--json").json["findings"] if one["org"] == "acme"}
    for check, words in (
        ("erasure.leftovers", ["run", "half", "--org", "acme", "--yes"]),
        ("batches.orphans", ["batch", "b", "--org", "acme", "--yes"]),
        ("threads.orphans", ["thread", "it's", "--org", "acme"]),
    ):
        (command,) = re.findall(r"gnl purge .*?(?=, and so on| one of them|$)", found[check]["advice"])
        assert shlex.split(command) == ["gnl", "purge", *words]
        yes = [] if "--yes" in words else ["--yes"]
        assert gnl(*shlex.split(command)[1:], *yes, *shelf.db).code == 0
    left = {one["check"] for one in gnl("doctor", *shelf.db, "--json").json["findings"]}
    assert not left & found.keys() - {"runs"}


def test_a_batch_goes_with_its_items_and_its_neighbour_stays(gnl, journal):
    async def fill():
        async with SqliteStorage(journal) as storage:
            paying = tool(side_effect=True)(pay.function)
            batch = create_batch(journal=storage.runs, tool=paying, item_key="iban")
            for name in ("a", "a-b"):
                items = [{"iban": "TR-1"}, {"iban": "TR-2"}]
                await batch.run(name, items, plan_token=(await batch.preflight(name, items)).token)

    asyncio.run(fill())
    told = gnl("purge", "batch", "a", "--db", journal)
    assert (told.code, "batch 'a'" in told.out, "--yes deletes it" in told.err) == (0, True, True)
    done = gnl("purge", "batch", "a", "--yes", "--db", journal, "--json").json
    assert (done["runs"], done["rows"]["batch"]) == (2, 2)
    left = [run["run_id"] for run in gnl("runs", "list", "--db", journal, "--json").json["runs"]]
    assert sorted(left) == ["batch:a-b:TR-1", "batch:a-b:TR-2", "r-1", "r-10"]
    assert gnl("purge", "batch", "a:b", "--db", journal).code == 2
