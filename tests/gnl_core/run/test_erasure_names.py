"""Whatever names runs, conversations and persons have: an erasure takes all of what was named and nothing beside it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gnl_core import InMemoryStorage, keys, purge_resource, purge_run, purge_thread
from gnl_core.journal import Put, new_batch, scan_all
from gnl_core.outcome import head_ops, new_head
from gnl_core.segments import segments_of

names = st.text(alphabet="ab-.:~/%0_é", min_size=1, max_size=4)
runs = st.dictionaries(names, st.tuples(names, names), min_size=1, max_size=8)


async def fill(journal, wanted):
    """Write a head with its indexes, an input and a marker for each run."""
    for root, (thread, person) in wanted.items():
        head = new_head(now=5, model="m", thread=thread, resource=person)
        place = {"f": 1, "run": root, "call": "s0p0"}
        ops = [
            *head_ops(root, keys.ROOT, None, head),
            Put(keys.input_of(root), {"f": 1}),
            Put(keys.ask(5, root, keys.ROOT, "s0p0"), {}),
            Put(keys.worked(thread, person), {"f": 1}),
            Put(keys.marker(keys.thread_scope(thread), "pay", root.encode().hex()), place),
            Put(keys.person_identity(person, "pay", "ab"), place),
        ]
        await journal.apply(ops, batch=new_batch())


async def rows(journal):
    return {entry.key async for entry in scan_all(journal, ())}


@settings(max_examples=60, deadline=None)
@given(runs, st.data())
async def test_l74_a_run_of_any_name_goes_alone(wanted, data):
    root = data.draw(st.sampled_from(sorted(wanted)))
    async with InMemoryStorage() as storage:
        await fill(storage.runs, wanted)
        before = await rows(storage.runs)
        assert [one async for one in segments_of(storage.runs, ("run",))] == sorted(
            wanted, key=lambda name: keys.encode_segment(name) + "/"
        )
        await purge_run(storage.runs, root)
        gone = {key for key in before if key[:2] == ("run", root) or (key[0] == "ix" and root in (key[3], key[4]))}
        named = {key for key in gone if key[0] != "ix" or (key[3] if key[1] == "ask" else key[4]) == root}
        assert before - await rows(storage.runs) == named


@settings(max_examples=60, deadline=None)
@given(runs, st.data())
async def test_l74_a_conversation_of_any_name_goes_alone(wanted, data):
    thread = data.draw(st.sampled_from(sorted(thread for thread, _ in wanted.values())))
    async with InMemoryStorage() as storage:
        await fill(storage.runs, wanted)
        before = await rows(storage.runs)
        await purge_thread(storage.runs, thread)
        assert before - await rows(storage.runs) == {
            key for key in before if key[0] in ("xthr", "mem") and key[1] == thread
        }


@settings(max_examples=60, deadline=None)
@given(runs, st.data())
async def test_l74_a_person_of_any_name_goes_alone(wanted, data):
    person = data.draw(st.sampled_from(sorted(person for _, person in wanted.values())))
    theirs = {root for root, (_, one) in wanted.items() if one == person}
    others = {root: pair for root, pair in wanted.items() if root not in theirs}
    async with InMemoryStorage() as storage, InMemoryStorage() as without:
        await fill(storage.runs, wanted)
        await fill(without.runs, others)
        await purge_resource(storage.runs, person)
        assert await rows(storage.runs) == await rows(without.runs), "as if they had never been there"
