"""The semantic gate in real runs: a store of each kind, a witness outside of it, an embedder of chosen cosines."""

import math
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from gnl_core import (
    Context,
    Duplicates,
    RunLimits,
    SemanticIdentity,
    keys,
    read_incidents,
    run_durable,
    tool,
)
from gnl_core.errors import StoreUnavailableError
from gnl_core.journal import Put, get, new_batch, scan_all
from gnl_core.testing import EffectLog, FaultyJournal, ScriptedModel
from gnl_semantic import Judge, SemanticGate
from gnl_semantic.judge import Certificate, read_certificate
from gnl_semantic.judge.qualification import SHIPPED
from gnl_semantic.vectors import VectorCache

STAMP = "fake@1"
DECLARED = {"keys": ("sku",), "amount_fields": ("price",), "discriminator_fields": ("cancel",)}


@pytest.fixture
def place():
    """A folder in memory where there is one: journals are synced at every write."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


@pytest_asyncio.fixture
async def storage(any_store):
    """An empty store of each kind that the test is for."""
    async with any_store.open() as storage:
        yield storage


@pytest.fixture
def journal(storage, clock):
    """Its journal, with times that a test moves."""
    return clock.moved(storage.runs)


@pytest.fixture
def effects(place):
    """The witness: one line for each effect that happened, whatever the journal believes."""
    return EffectLog(place / "effects.jsonl")


class Plane:
    """An embedder of vectors in a plane. A text lies where it was placed, every other one in one direction: so that
    whatever a test leaves alone has the cosine 1, and identity alone decides."""

    def __init__(self):
        self.angles, self.sent, self.error, self.answer = {}, [], None, None

    def place(self, text, cosine):
        """Give a text this cosine with every text that was not placed."""
        self.angles[text] = math.acos(cosine)

    async def __call__(self, texts):
        self.sent += texts
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            return self.answer
        return [[2 * math.cos(angle), 2 * math.sin(angle)] for angle in (self.angles.get(text, 0.0) for text in texts)]


@pytest.fixture
def embed():
    return Plane()


class Says:
    """A judge that answers by a list, the last word again and again, and remembers what it was sent."""

    def __init__(self, *words):
        self.words, self.sent = list(words), []

    async def __call__(self, system, user):
        self.sent.append((system, user))
        word = self.words.pop(0) if len(self.words) > 1 else self.words[0]
        if isinstance(word, BaseException):
            raise word
        return word


def issue(**changes):
    """Issue a certificate for judge 'judge@1': the shipped one's numbers, passed just now."""
    fields = read_certificate(SHIPPED["builtin:local"]).model_dump()
    now = datetime.now(UTC).isoformat()
    return Certificate.issue(**fields | {"judge_model_id": "judge@1", "passed_at": now} | changes)


@pytest.fixture(scope="session")
def issued():
    return issue


@pytest.fixture(scope="session")
def judge_that():
    """Make a judge that says these words, with a certificate of its own; `.says` is what it was sent."""
    certificate = issue()

    def make(*words, **options):
        says = Says(*words)
        judge = Judge(says, judge_model_id="judge@1", qualification=certificate, **options)
        judge.says = says
        return judge

    return make


class Shop:
    """Products that are created, run by run, in conversations that a semantic gate looks at.

    Attributes:
        journal: Where the runs stand.
        effects: What has happened.
        embed: The embedder of its gates.
        gate: The gate of its runs, without rules and without a judge unless a test sets another.
        model: The model of the last run: what it was sent.
    """

    def __init__(self, journal, effects, embed):
        self.journal, self.effects, self.embed = journal, effects, embed
        self.gate, self.model, self.ttl_ms, self.runs = self.gated(), None, None, 0

    def gated(self, **options):
        """Return a gate over the shop's embedder, with nothing in memory."""
        options = {"embed": self.embed, "embed_model_id": STAMP, "cache": VectorCache()} | options
        return SemanticGate(**options)

    def limits(self, **others):
        """Return limits with the shop's gate."""
        ask = Duplicates(action="suspend", scope="thread", ttl_ms=self.ttl_ms, semantic=self.gate)
        return RunLimits(side_effect_duplicates=ask, **others)

    def tool(self, name="createProduct", *, fails=0, declared=DECLARED, **options):
        """Return a tool that makes products, and witnesses each."""
        identity = SemanticIdentity(**declared) if declared is not None else None

        @tool(name=name, **{"side_effect": True, "semantic_identity": identity} | options)
        async def make(
            ctx: Context,
            sku: object = None,
            price: object = None,
            cancel: object = None,
            warehouse: object = None,
            note: str = "",
        ) -> str:
            """Make a product."""
            self.effects.fire(name, ctx)
            if self.effects.fired <= fails:
                raise RuntimeError("the line went dead")
            return f"made {self.effects.fired}"

        return make

    async def run(self, *calls, run=None, tools=None, turns=None, **options):
        """Drive one run that makes these calls, one a step; arguments alone call createProduct. Return its result."""
        self.runs += 1
        script = [[call if isinstance(call, tuple) else ("createProduct", call)] for call in calls]
        self.model = ScriptedModel(turns if turns is not None else [*script, "done"])
        options = {"limits": self.limits(), "thread_id": "t", "prompt": "go"} | options
        return await run_durable(
            run_id=run or f"r{self.runs}",
            journal=options.pop("journal", self.journal),
            model=self.model,
            tools=[self.tool()] if tools is None else tools,
            **options,
        )

    async def rows(self, *prefix):
        """Return rows as {key: entry}."""
        return {entry.key: entry async for entry in scan_all(self.journal, prefix, blobs=True)}

    async def records(self, thread="t", tool="createProduct"):
        """Return the values of a conversation's semantic records, oldest first."""
        found = await self.rows(*keys.similar_of(keys.thread_scope(thread), tool))
        return [entry.value for entry in sorted(found.values(), key=lambda entry: entry.version)]

    async def tombstones(self, thread="t"):
        return list(await self.rows(*keys.thread_scope(thread), "semtomb"))

    async def noted(self, run=None):
        """Return (source, action, what tells one from another) of each incident but the exact layer's."""
        found = [one for one in await read_incidents(self.journal, run) if one.source != "duplicate-guard"]
        return [(one.source, one.action, one.detail) for one in found]

    async def put(self, key, value, blob=None):
        await self.journal.apply((Put(key, value, blob),), batch=new_batch())

    async def get(self, key):
        return await get(self.journal, key)


class Broken(FaultyJournal):
    """A journal of which one kind of read of earlier work fails."""

    def __init__(self, inner, broken):
        super().__init__(inner)
        self.broken = broken

    async def scan(self, prefix, **options):
        if self.broken in prefix:
            raise StoreUnavailableError("the store is away")
        return await super().scan(prefix, **options)

    async def get_many(self, keys):
        if any(self.broken in key for key in keys):
            raise StoreUnavailableError("the store is away")
        return await super().get_many(keys)


@pytest.fixture(scope="session")
def broken_at():
    return Broken


@pytest.fixture
def shop(journal, effects, embed):
    return Shop(journal, effects, embed)


@pytest.fixture
def shop_of(effects, embed):
    """Open the shop over another journal."""
    return lambda journal: Shop(journal, effects, embed)


def question_of(result):
    """Return the one question of a result."""
    (question,) = result.interrupts
    return question


@pytest.fixture(scope="session")
def asked():
    return question_of
