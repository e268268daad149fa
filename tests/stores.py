"""Where stores of each kind are, and a clock that a test moves for whatever store it uses."""

from dataclasses import dataclass, field, replace
from types import MappingProxyType

import gnl_core
from gnl_core.testing.faulty import FaultyJournal


@dataclass(frozen=True, slots=True)
class Store:
    """One store that nobody else uses; any number of storage objects, also of other processes, may open it.

    Attributes:
        kind: 'memory', 'sqlite', 'postgres' or 'redis'.
        storage: Name of the class in gnl_core that opens it.
        arguments: What that class takes by position.
        options: What it takes by name.
    """

    kind: str
    storage: str
    arguments: tuple[str, ...] = ()
    options: MappingProxyType = field(default_factory=lambda: MappingProxyType({}))

    def open(self, **others):
        """Open it; the storage is a context manager."""
        return getattr(gnl_core, self.storage)(*self.arguments, **self.options | others)

    @property
    def spelled(self):
        """The expression that opens it in a program that has imported gnl_core; a store in memory has none."""
        assert self.kind != "memory", "a store in memory is one process's own"
        return f"gnl_core.{self.storage}(*{self.arguments!r}, **{dict(self.options)!r})"


class Clock:
    """Lets time pass for the journals that it moves, in milliseconds of their stores' clocks.

    A store takes its time from where it will: from a callable, from its server. What a test moves is what the runtime
    is told: each `moved` journal shows the store's times as if so much had passed at the moments when the test said so.
    """

    def __init__(self):
        self._pending = 0
        self._jumps = []

    def pass_ms(self, number):
        """Let so many milliseconds pass: whatever is written from now on is so much younger."""
        self._pending += number

    def seconds(self, number):
        """Let so many seconds pass."""
        self.pass_ms(int(number * 1000))

    def days(self, number):
        """Let so many days pass."""
        self.pass_ms(number * 86_400_000)

    def moved(self, journal):
        """Return a journal whose times this clock moves."""
        return Moved(journal, self)

    def shown(self, real):
        """Return the time that stands for one of the store's own; 0 is no time, and stays."""
        return real and real + sum(ahead for since, ahead in self._jumps if real > since)

    def aged(self, entry):
        """Return a row with its times as this clock shows them."""
        if entry is None:
            return None
        return replace(entry, created_at=self.shown(entry.created_at), updated_at=self.shown(entry.updated_at))

    async def settle(self, journal):
        """Note when, by the store's clock, time has passed: every row so far is of that millisecond or older."""
        ahead, self._pending = self._pending, 0
        if ahead:
            since = await journal.now()
            while await journal.now() == since:
                pass
            self._jumps.append((since, ahead))


class Moved(FaultyJournal):
    """A journal whose times a test's clock moves; everything else is the store's."""

    def __init__(self, inner, clock):
        super().__init__(inner)
        self._clock = clock

    async def get_many(self, keys):
        await self._clock.settle(self._inner)
        read = await super().get_many(keys)
        return replace(read, entries=tuple(map(self._clock.aged, read.entries)), now=self._clock.shown(read.now))

    async def scan(self, prefix, **options):
        await self._clock.settle(self._inner)
        page = await super().scan(prefix, **options)
        return replace(page, entries=tuple(map(self._clock.aged, page.entries)), now=self._clock.shown(page.now))

    async def apply(self, ops, *, batch):
        await self._clock.settle(self._inner)
        answer = await super().apply(ops, batch=batch)
        found = {"found": self._clock.aged(answer.found)} if hasattr(answer, "found") else {}
        return replace(answer, now=self._clock.shown(answer.now), **found)

    async def now(self):
        await self._clock.settle(self._inner)
        return self._clock.shown(await super().now())

    def scoped(self, org):
        return Moved(self._inner.scoped(org), self._clock)
