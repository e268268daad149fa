"""A request that holds its lock, calls and records of past work, and certificates for judges that only tests know."""

from datetime import UTC, datetime

import pytest

from gnl_core import keys
from gnl_core.identity import Identity
from gnl_core.journal import Put, get, new_batch, scan_all
from gnl_core.prior import Subject
from gnl_semantic.judge import Certificate, Judge, read_certificate
from gnl_semantic.judge.qualification import SHIPPED
from gnl_semantic.past import Past

SCOPE = keys.thread_scope("t-1")
TOOL = "order"


def issue(**changes):
    """Issue a certificate for judge 'judge@1': the shipped one's numbers, passed just now."""
    fields = read_certificate(SHIPPED["builtin:local"]).model_dump()
    now = datetime.now(UTC).isoformat()
    return Certificate.issue(**fields | {"judge_model_id": "judge@1", "passed_at": now} | changes)


class Desk:
    """One request with its journal.

    Attributes:
        journal: Where it stands.
        fence: Of its lock.
    """

    def __init__(self, journal, root, fence):
        self.journal, self.root, self.fence = journal, root, fence

    @classmethod
    async def open(cls, journal, root="run-1"):
        lock = {"f": 1, "owner": None, "ttl_ms": 1000, "released": False}
        return cls(journal, root, (await journal.apply([Put(keys.lock(root), lock)], batch=new_batch())).version)

    def subject(self, sentence="order: tv 42", *, args_hash="a" * 16, call="s0p0", journal=None):
        identity = Identity(
            values={"sku": sentence}, amounts={"price": 987654}, discriminators={"cancel": "verily"}, sentence=sentence
        )
        return Subject(
            journal=journal or self.journal,
            scope=SCOPE,
            root=self.root,
            fence=self.fence,
            run=self.root,
            call=call,
            tool=TOOL,
            args_hash=args_hash,
            identity=identity,
            now=1,
        )

    @staticmethod
    def past(sentence="order: television 42", *, args_hash="b" * 16):
        return Past(
            args_hash=args_hash,
            model="m",
            template="1",
            sentence=sentence,
            identity={"sku": sentence},
            amounts={"price": "987654"},
            discriminators={"cancel": "verily"},
            run="run-0",
            call="s9p9",
            at=1,
        )

    async def ask(self, judge, *, pair=0, rules="1", score=0.75, **subject):
        """Ask about pair number `pair`; a fresh number is a fresh pair."""
        mine, other = f"{pair:015d}a", f"{pair:015d}b"
        subject = self.subject(**{"args_hash": mine, "call": f"s{pair}p0", **subject})
        return await judge.ask(subject, self.past(args_hash=other), score=score, ruleset_version=rules)

    def key(self, pair=0):
        return keys.judged(SCOPE, TOOL, f"{pair:015d}a", f"{pair:015d}b")

    async def row(self, pair=0):
        return await get(self.journal, self.key(pair))

    async def rows(self):
        """Every verdict."""
        return [entry async for entry in scan_all(self.journal, (*SCOPE, "semjudge"))]

    async def slots(self):
        """The calls the request has paid for, by number."""
        rows = [entry async for entry in scan_all(self.journal, ("run", self.root, "req", "slot"))]
        return {int(entry.key[-1]): entry.value["call"] for entry in rows}


@pytest.fixture
async def desk(any_store):
    """A request in a journal in memory, in one on disk, and where a test says so on servers."""
    async with any_store.open() as storage:
        yield await Desk.open(storage.runs)


@pytest.fixture(scope="session")
def new_desk():
    """Open a request in a journal."""
    return Desk.open


@pytest.fixture(scope="session")
def issued():
    return issue


@pytest.fixture(scope="session")
def judge_of(issued):
    """Make a judge of a function; 'judge@1' unless named."""
    certificate = issued()

    def make(complete, **options):
        known = {"judge_model_id": "judge@1", "qualification": certificate}
        if "judge_model_id" in options:
            known["qualification"] = issued(judge_model_id=options["judge_model_id"])
        return Judge(complete, **known | options)

    return make


class Says:
    """A judge that answers by a list, the last word again and again, and remembers what it was sent."""

    def __init__(self, *words):
        self.words, self.sent = list(words), []

    async def __call__(self, system, user):
        self.sent.append((system, user))
        return self.words.pop(0) if len(self.words) > 1 else self.words[0]

    @property
    def calls(self):
        return len(self.sent)


@pytest.fixture(scope="session")
def says():
    return Says
