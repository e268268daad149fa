"""Organisations share a store and, at their providers, one account: what each hands out names its own jobs alone."""

import pytest

from gnl_core import Context, args_hash, compensate_run, run_durable, tool, with_idempotency
from gnl_core.testing.faulty import FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

DIGEST = args_hash({"order": 1})
TURNS = [[("charge", {"order": 1})], "Done."]

# Golden: a key that was handed out names a job for ever.
KEYS = [
    ({}, "order-1:s0p0"),
    ({"idempotency": "args"}, f"order-1:charge:{DIGEST}"),
    ({"idempotency": "args", "window": "thread"}, f"thr:t:charge:{DIGEST}"),
    ({"idempotency": "args", "window": "cross-run"}, f"charge:{DIGEST}"),
]


class Provider:
    """A service that does each job once by its idempotency key, as payment services do."""

    def __init__(self):
        self.jobs = []

    def charging(self, **options):
        def undo(ctx: Context, order: int):
            self.jobs.append(ctx.idempotency_key)

        @tool(compensate=undo, **options)
        async def charge(ctx: Context, order: int) -> str:
            """Charge an order."""
            assert ctx.idempotency_key not in self.jobs, "swallowed"
            self.jobs.append(ctx.idempotency_key)
            return "ok"

        return charge


def drive(journal, charge):
    model = ScriptedModel(TURNS)
    return run_durable(run_id="order-1", journal=journal, model=model, tools=[charge], prompt="Go.", thread_id="t")


@pytest.mark.parametrize(("options", "key"), KEYS)
async def test_two_organisations_with_one_run_id_hand_out_different_keys(journal, options, key):
    provider = Provider()
    for scope in (journal, journal.scoped("a"), FaultyJournal(journal).scoped("b")):
        await drive(scope, provider.charging(**options))
    assert provider.jobs == [key, f"org:a:{key}", f"org:b:{key}"]


async def test_the_undoing_of_two_organisations_has_different_keys(journal):
    provider = Provider()
    for scope in (journal, journal.scoped("a")):
        charge = provider.charging()
        await drive(scope, charge)
        await compensate_run(scope, "order-1", [charge])
    assert provider.jobs[1::2] == ["order-1:comp:s0p0", "org:a:order-1:comp:s0p0"]


async def test_idempotency_without_a_run_is_of_one_organisation_too(journal):
    provider = Provider()
    for scope in (journal, journal.scoped("a"), journal.scoped("a")):
        assert await with_idempotency(provider.charging(), scope)(order=1) == "ok"
    assert provider.jobs == [f"charge:{DIGEST}", f"org:a:charge:{DIGEST}"]


async def test_no_name_of_an_organisation_ends_inside_another_ones_run_id(journal):
    provider = Provider()
    for org, run_id in (("a", "b:c"), ("a:b", "c"), ("a%3Ab", "c")):
        await run_durable(
            run_id=run_id,
            journal=journal.scoped(org),
            model=ScriptedModel(TURNS),
            tools=[provider.charging()],
            prompt="Go.",
        )
    assert provider.jobs == ["org:a:b:c:s0p0", "org:a%3Ab:c:s0p0", "org:a%253Ab:c:s0p0"]
