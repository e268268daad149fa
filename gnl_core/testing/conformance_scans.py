"""Conformance: scans, bounded deletes, organisations and the clock."""

from __future__ import annotations

from gnl_core.errors import ConfigError, IdInvalidError
from gnl_core.journal.port import Add, Create, Journal, Key, Put
from gnl_core.keys import encode
from gnl_core.testing.conformance_base import JournalCase, absent, everything, keys_of, raises, row, value, write

TRICKY: tuple[Key, ...] = (
    ("r-1",),
    ("r-1", "a"),
    ("r-1", "b", "c"),
    ("r-1", "ü", "日本"),
    ("r-1.x",),
    ("r-1-x", "a"),
    ("r-10", "a"),
    ("r-2", "a"),
    ("r%", "a"),
    ("r_1", "a"),
    ("r*", "a"),
    ("r[1]", "a"),
    ("r/1", "a"),
    ("R-1", "a"),
    ("r-1\u0000", "a"),
    ("r-1💸", "a"),
    ("~", "a"),
    ("r",),
)


async def _pages(journal: Journal, prefix: Key, *, limit: int, reverse: bool = False) -> list[list[Key]]:
    pages: list[list[Key]] = []
    after: Key | None = None
    while True:
        page = await journal.scan(prefix, after=after, limit=limit, reverse=reverse)
        pages.append(list(keys_of(page)))
        after = page.after
        if after is None:
            return pages


class ScanCases(JournalCase):
    """Reading and deleting by prefix."""

    async def test_a_prefix_is_whole_segments(self) -> None:
        """'r-1' is no prefix of 'r-10' and no character is a wildcard; keys ascend by their encoded bytes."""
        async with self.opened() as journal:
            for key in TRICKY:
                await write(journal, Create(key, "/".join(key)))
            for prefix in [(), *[key[:length] for key in TRICKY for length in range(1, len(key) + 1)], ("none",)]:
                expected = sorted((key for key in TRICKY if key[: len(prefix)] == prefix), key=encode)
                if prefix in expected:  # the row at the prefix itself comes first
                    expected.remove(prefix)
                    expected.insert(0, prefix)
                assert keys_of(await journal.scan(prefix)) == expected, prefix
                assert keys_of(await journal.scan(prefix, reverse=True)) == expected[::-1], prefix

    async def test_pages_neither_lose_nor_repeat_a_row(self) -> None:
        """Forward and back, with any page length; `after` is None on the last page alone."""
        async with self.opened() as journal:
            for key in TRICKY:
                await write(journal, Put(key, 1))
            for prefix in ((), ("r-1",)):
                for reverse in (False, True):
                    whole = list(keys_of(await journal.scan(prefix, reverse=reverse)))
                    for limit in (1, 2, 3, len(whole), len(whole) + 1):
                        pages = await _pages(journal, prefix, limit=limit, reverse=reverse)
                        assert [key for page in pages for key in page] == whole
                        assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
                        assert len(pages) == -(-len(whole) // limit)

    async def test_a_scan_of_several_pages_goes_on_where_it_was(self) -> None:
        """Rows deleted or written meanwhile never make a key appear twice, or hide one that stays."""
        async with self.opened() as journal:
            await write(journal, *[Create(("p", f"{number:02d}"), number) for number in range(10)])
            page = await journal.scan(("p",), limit=4)
            await journal.delete_prefix(("p", "03"))
            await write(journal, Create(("p", "00x"), 1), Create(("p", "03x"), 1))
            rest = await journal.scan(("p",), after=page.after)
            assert keys_of(rest) == [("p", "03x"), *[("p", f"{number:02d}") for number in range(4, 10)]]

    async def test_newer_than_sees_only_later_versions(self) -> None:
        """Also of rows that were there before; a page holds `limit` rows that fit, not rows looked at."""
        async with self.opened() as journal:
            await write(journal, *[Create(("p", str(number)), number) for number in range(5)])
            mark = (await write(journal, Put(("q",), 1))).version
            assert keys_of(await journal.scan(("p",), newer_than=mark)) == []
            await write(journal, Put(("p", "3"), "new"), Create(("p", "9"), 9))
            later = await write(journal, Put(("p",), "at the prefix"))
            assert keys_of(await journal.scan(("p",), newer_than=mark)) == [("p",), ("p", "3"), ("p", "9")]
            page = await journal.scan(("p",), newer_than=mark, limit=2)
            assert keys_of(page) == [("p",), ("p", "3")]
            assert keys_of(await journal.scan(("p",), newer_than=mark, limit=2, after=page.after)) == [("p", "9")]
            assert keys_of(await journal.scan(("p",), newer_than=later.version)) == []

    async def test_a_page_ends_after_the_row_that_reaches_its_bytes(self) -> None:
        """Blobs count where they are asked for."""
        async with self.opened() as journal:
            await write(journal, *[Create(("p", str(number)), "x" * 98, b"y" * 900) for number in range(6)])
            page = await journal.scan(("p",), max_bytes=250)
            assert len(page.entries) == 3
            assert page.after == ("p", "2")
            page = await journal.scan(("p",), max_bytes=1001, blobs=True)
            assert len(page.entries) == 2
            page = await journal.scan(("p",), max_bytes=1, after=("p", "4"))
            assert (keys_of(page), page.after) == ([("p", "5")], None)

    async def test_blobs_are_read_only_where_asked_for(self) -> None:
        """`get_many` always brings them."""
        async with self.opened() as journal:
            await write(journal, Put(("a",), 1, b"\x00\xff" * 500), Put(("b",), 1, b""), Put(("c",), 1))
            assert [entry.blob for entry in (await journal.scan(())).entries] == [None, None, None]
            assert [entry.blob for entry in (await journal.scan((), blobs=True)).entries] == [
                b"\x00\xff" * 500,
                b"",
                None,
            ]
            assert (await row(journal, "a")).blob == b"\x00\xff" * 500
            assert (await row(journal, "b")).blob == b""

    async def test_bounds_of_a_scan_are_checked(self) -> None:
        """At least one row, at least one byte."""
        async with self.opened() as journal:
            for limit, max_bytes in ((0, 1), (-1, 1), (1, 0)):
                with raises(ValueError):
                    await journal.scan((), limit=limit, max_bytes=max_bytes)
            with raises(IdInvalidError):
                await journal.scan(("a", ""))
            await write(journal, Put(("a",), 1))
            huge = 1 << 70
            assert keys_of(await journal.scan((), limit=huge, max_bytes=huge, newer_than=-huge)) == [("a",)]
            assert keys_of(await journal.scan((), newer_than=huge)) == []
            assert list(await journal.scopes(limit=huge)) == [""]
            assert await journal.delete_prefix(("a",), limit=huge) == 1

    async def test_delete_prefix_is_bounded_and_whole(self) -> None:
        """At most `limit` rows a call, until it returns 0; nothing beside the prefix goes, counters do."""
        async with self.opened() as journal:
            for key in TRICKY:
                await write(journal, Put(key, 1))
            await write(journal, Add(("r-1", "count"), {"n": 1}))
            counts = []
            while count := await journal.delete_prefix(("r-1",), limit=2):
                counts.append(count)
            assert counts == [2, 2, 1]
            assert set(await everything(journal)) == {key for key in TRICKY if key[0] != "r-1"}
            for bad in (0, -1):
                with raises(ValueError):
                    await journal.delete_prefix(("r",), limit=bad)
            with raises(ConfigError, ValueError):
                await journal.delete_prefix(())
            assert len(await everything(journal)) == sum(key[0] != "r-1" for key in TRICKY)

    async def test_get_many_answers_in_the_order_asked(self) -> None:
        """Absent rows are None, a key asked twice is answered twice, with two private copies."""
        async with self.opened() as journal:
            await write(journal, Put(("a",), [1]), Put(("b",), 2))
            read = await journal.get_many([("b",), ("x",), ("a",), ("a",)])
            assert [entry and entry.value for entry in read.entries] == [2, None, [1], [1]]
            first, second = read.entries[2:]
            assert first is not None
            assert second is not None
            assert isinstance(first.value, list)
            first.value.append("mine")
            assert second.value == [1]
            assert (await journal.get_many([])).entries == ()

    async def test_organisations_see_their_own_rows_only(self) -> None:
        """Same keys, other rows; a scoped journal is not scoped again and lists no organisations."""
        async with self.opened() as journal:
            one, two = journal.scoped("org-1"), journal.scoped("org-2")
            assert [each.org for each in (journal, one, two)] == ["", "org-1", "org-2"]
            assert list(await journal.scopes()) == []
            assert keys_of(await one.scan(())) == []
            await write(one, Create(("a",), 1), Create(("b",), 1))
            await write(two, Create(("a",), 2))
            assert await absent(journal, "a")
            await write(journal, Create(("a",), 0))
            assert [await value(each, "a") for each in (journal, one, two, journal.scoped("org-1"))] == [0, 1, 2, 1]
            assert list(await journal.scopes()) == ["", "org-1", "org-2"]
            assert list(await journal.scopes(after="", limit=1)) == ["org-1"]
            assert list(await journal.scopes(after="org-1")) == ["org-2"]
            assert list(await journal.scopes(limit=1)) == [""]
            assert await one.delete_prefix(("a",)) == 1
            assert await two.delete_prefix(("a",)) == 1
            assert list(await journal.scopes()) == ["", "org-1"]
            assert await value(journal, "a") == 0
            assert one.store_id == journal.store_id
            with raises(ConfigError):
                one.scoped("org-3")
            with raises(ConfigError):
                await one.scopes()
            for name in ("", "a b", "\ud800"):
                with raises(ConfigError):
                    journal.scoped(name)

    async def test_the_clock_goes_forward_and_is_told_with_every_answer(self) -> None:
        """No age computed from `now` and a row of the same answer is negative."""
        async with self.opened() as journal:
            times = [await journal.now()]
            applied = await write(journal, Create(("a",), 1))
            times.append(applied.now)
            read = await journal.get_many([("a",)])
            times.append(read.now)
            page = await journal.scan(())
            times += [page.now, await journal.now()]
            assert times == sorted(times)
            for entry in (*read.entries, *page.entries):
                assert entry is not None
                assert entry.created_at <= entry.updated_at <= read.now
