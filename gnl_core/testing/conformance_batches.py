"""Conformance: what a batch writes, what refuses it, and what its rows carry."""

from __future__ import annotations

from typing import Any, cast

from gnl_core.errors import IdInvalidError
from gnl_core.journal.port import Add, Create, Delete, Expect, JsonValue, Op, Put, Replace, new_batch
from gnl_core.testing.conformance_base import JournalCase, absent, everything, raises, refused, row, value, write

A, B, C = ("a",), ("b", "x"), ("c",)


class BatchCases(JournalCase):
    """One verb: `apply`."""

    async def test_create_inserts_and_refuses_a_present_row(self) -> None:
        """Create: absent row written; present row refuses, is returned and is left alone."""
        async with self.opened() as journal:
            first = await write(journal, Create(A, {"n": 1}, b"blob"))
            found = await refused(journal, Put(B, 1), Create(A, {"n": 2}))
            assert found.op == 1
            assert found.found == await row(journal, *A)
            assert found.found is not None
            assert found.found.value == {"n": 1}
            assert found.found.blob == b"blob"
            assert found.found.version == first.version
            assert await absent(journal, *B)

    async def test_create_keep_leaves_a_present_row_and_writes_the_rest(self) -> None:
        """Create(keep): named in `kept`; the other operations are written."""
        async with self.opened() as journal:
            await write(journal, Create(A, "old"))
            before = await row(journal, *A)
            result = await write(
                journal, Put(B, 1), Create(A, "new", if_present="keep"), Create(C, 3, if_present="keep")
            )
            assert result.kept == (1,)
            assert await row(journal, *A) == before
            assert await value(journal, *B) == 1
            assert await value(journal, *C) == 3

    async def test_replace_asks_for_the_very_version(self) -> None:
        """Replace: absent or another version refuses; `created_at` stays; a blob not given is gone."""
        async with self.opened() as journal:
            assert (await refused(journal, Replace(A, 1, "x"))).found is None
            first = await write(journal, Create(A, "one", b"blob"))
            before = await row(journal, *A)
            assert (await refused(journal, Replace(A, first.version + 1, "x"))).found == before
            second = await write(journal, Replace(A, first.version, "two"))
            after = await row(journal, *A)
            assert (after.value, after.blob, after.version) == ("two", None, second.version)
            assert after.created_at == before.created_at
            assert after.updated_at >= before.updated_at
            assert (await refused(journal, Replace(A, first.version, "x"))).found == after

    async def test_put_writes_without_a_condition(self) -> None:
        """Put: inserts or replaces; `created_at` of a present row stays."""
        async with self.opened() as journal:
            await write(journal, Put(A, 1, b"1"))
            before = await row(journal, *A)
            await write(journal, Put(A, 2))
            after = await row(journal, *A)
            assert (after.value, after.blob, after.created_at) == (2, None, before.created_at)
            assert after.version > before.version

    async def test_delete_with_and_without_a_version(self) -> None:
        """Delete: an absent row is no matter, unless a version was asked for."""
        async with self.opened() as journal:
            await write(journal, Delete(A))
            assert (await refused(journal, Delete(A, 1))).found is None
            first = await write(journal, Create(A, 1))
            assert (await refused(journal, Delete(A, first.version + 7))).found == await row(journal, *A)
            await write(journal, Delete(A, first.version))
            assert await absent(journal, *A)
            await write(journal, Create(A, 2))
            await write(journal, Delete(A))
            assert await absent(journal, *A)

    async def test_expect_absent_present_and_a_version(self) -> None:
        """Expect: writes nothing, refuses in any other state."""
        async with self.opened() as journal:
            assert (await refused(journal, Expect(A, "present"))).found is None
            assert (await refused(journal, Expect(A, 1))).found is None
            await write(journal, Expect(A, "absent"))
            assert await absent(journal, *A)
            first = await write(journal, Create(A, 1))
            before = await row(journal, *A)
            assert (await refused(journal, Expect(A, "absent"))).found == before
            assert (await refused(journal, Expect(A, first.version + 1))).found == before
            await write(journal, Expect(A, "present"))
            await write(journal, Expect(A, first.version), Create(B, 1))
            assert await row(journal, *A) == before
            assert await value(journal, *B) == 1

    async def test_the_first_failing_operation_is_named_and_nothing_is_written(self) -> None:
        """Conditions are checked in the order given, all before any write."""
        async with self.opened() as journal:
            await write(journal, Create(A, 1))
            before = await everything(journal)
            found = await refused(
                journal, Put(("p",), 1), Delete(A), Expect(B, "present"), Create((*A, "x"), 1), Expect(A, "absent")
            )
            assert found.op == 2
            assert found.found is None
            found = await refused(journal, Add(("n",), {"n": 1}), Expect(A, "absent"), Expect(B, "present"))
            assert found.op == 1
            assert await everything(journal) == before

    async def test_conditions_see_the_rows_before_the_batch(self) -> None:
        """An Expect beside a write of the same key sees the row as it was, wherever it stands."""
        async with self.opened() as journal:
            first = await write(journal, Create(A, 1), Expect(A, "absent"))
            await write(journal, Delete(A), Expect(A, first.version))
            assert await absent(journal, *A)

    async def test_a_key_is_written_once_in_a_batch(self) -> None:
        """Two writing operations, or two Expects, on one key: ValueError before anything is written."""
        async with self.opened() as journal:
            for pair in ([Put(A, 1), Put(A, 2)], [Create(A, 1), Delete(A)], [Add(A, {"n": 1}), Put(A, 1)],
                         [Expect(A, "absent"), Expect(A, "absent")]):  # fmt: skip
                with raises(ValueError, naming="a"):
                    await journal.apply([Put(B, 1), *pair], batch=new_batch())
            assert await everything(journal) == {}

    async def test_every_row_of_a_batch_has_its_version_tag_and_time(self) -> None:
        """Rows written together are told by version, tag and time; the answer has them too."""
        async with self.opened() as journal:
            await write(journal, Put(B, 0))
            result = await write(journal, Create(A, 1), Put(B, 2), Add(C, {"n": 1}), batch=77)
            rows = [await row(journal, *key) for key in (A, B, C)]
            assert {entry.version for entry in rows} == {result.version}
            assert {entry.batch for entry in rows} == {77}
            assert {entry.updated_at for entry in rows} == {result.now}
            assert rows[0].created_at == result.now
            assert rows[1].created_at <= result.now

    async def test_versions_only_grow_and_are_never_reused(self) -> None:
        """Store-wide, also after a delete of everything."""
        async with self.opened() as journal:
            seen = [(await write(journal, Create(A, 1))).version, (await write(journal, Create(B, 1))).version]
            await write(journal, Delete(A))
            await journal.delete_prefix(("b",))
            seen.append((await write(journal, Create(A, 1))).version)
            seen.append((await write(journal.scoped("org-1"), Create(A, 1))).version)
            seen.append((await write(journal, Put(A, 1))).version)
            assert seen == sorted(set(seen))
            assert (await refused(journal, Replace(A, seen[0], 2))).found is not None

    async def test_counters_add_up_and_refuse_what_is_no_counter(self) -> None:
        """Add: fields start at 0, integers of any size; the sums are in the answer."""
        async with self.opened() as journal:
            result = await write(journal, Add(A, {"n": 2, "m": -1}), Add(B, {}))
            assert result.counters == {A: {"n": 2, "m": -1}, B: {}}
            result = await write(journal, Add(A, {"n": 10**30, "k": 0}))
            assert result.counters == {A: {"n": 10**30 + 2, "m": -1, "k": 0}}
            assert await value(journal, *A) == {"n": 10**30 + 2, "m": -1, "k": 0}
            others: tuple[JsonValue, ...] = ([1], {"n": "1"}, {"n": True}, {"n": 1.5}, "x", None)
            for other in others:
                await write(journal, Put(C, other))
                found = await refused(journal, Put(B, 1), Add(C, {"n": 1}))
                assert found.op == 1
                assert found.found is not None
                assert found.found.value == other
            assert await value(journal, *B) == {}

    async def test_a_counter_keeps_its_blob_and_its_birth(self) -> None:
        """Add changes the value alone."""
        async with self.opened() as journal:
            await write(journal, Put(A, {"n": 1}, b"blob"))
            before = await row(journal, *A)
            await write(journal, Add(A, {"n": 1}))
            after = await row(journal, *A)
            assert (after.value, after.blob, after.created_at) == ({"n": 2}, b"blob", before.created_at)

    async def test_a_batch_sent_again_under_its_tag_is_done(self) -> None:
        """After an error of unknown outcome the same batch answers Applied, and changes nothing a second time."""
        async with self.opened() as journal:
            lock = await write(journal, Create(("lock",), "me"))
            tag = new_batch()
            ops: list[Op] = [Expect(("lock",), lock.version), Create(A, "claim"), Put(B, 1), Add(C, {"n": 5})]
            first = await write(journal, *ops, batch=tag)
            again = await write(journal, *ops, batch=tag)
            assert again.version == first.version
            assert again.counters == {C: {"n": 5}}
            # Others have gone on meanwhile: what they wrote stays, and the lost lock refuses nothing any more.
            await write(journal, Put(B, "later"), Add(C, {"n": 1}), Delete(("lock",)))
            late = await write(journal, *ops, batch=tag)
            assert late.version == first.version
            assert await value(journal, *B) == "later"
            assert await value(journal, *C) == {"n": 6}
            assert (await row(journal, *A)).version == first.version

    async def test_a_replace_sent_again_is_done(self) -> None:
        """The row's version is the batch's own by then, and no refusal."""
        async with self.opened() as journal:
            first = await write(journal, Create(A, 1))
            done = await write(journal, Replace(A, first.version, 2), batch=5)
            assert (await write(journal, Replace(A, first.version, 2), batch=5)).version == done.version
            assert await value(journal, *A) == 2
            assert (await refused(journal, Replace(A, first.version, 2))).found is not None

    async def test_a_create_that_was_kept_or_written_says_the_same_again(self) -> None:
        """`kept` names the rows of others, never the batch's own."""
        async with self.opened() as journal:
            await write(journal, Create(A, "old"))
            ops = [Create(A, "new", if_present="keep"), Create(B, "new", if_present="keep")]
            first = await write(journal, *ops, batch=8)
            again = await write(journal, *ops, batch=8)
            assert (first.kept, again.kept) == ((0,), (0,))
            assert first.version == again.version

    async def test_a_refused_batch_may_be_sent_again_under_its_tag(self) -> None:
        """It wrote nothing, so it is no done batch."""
        async with self.opened() as journal:
            await write(journal, Create(A, 1))
            assert not isinstance(await journal.apply([Create(A, 2), Create(B, 2)], batch=9), type(None))
            assert await absent(journal, *B)
            await write(journal, Delete(A))
            await write(journal, Create(A, 2), Create(B, 2), batch=9)
            assert await everything(journal) == {A: 2, B: 2}

    async def test_a_batch_without_writes_is_applied(self) -> None:
        """No operations, or conditions alone, write nothing."""
        async with self.opened() as journal:
            await write(journal)
            await write(journal, Expect(A, "absent"), Delete(B))
            assert await everything(journal) == {}

    async def test_what_is_no_key_or_operation_is_refused_before_any_write(self) -> None:
        """A clear error names it."""
        async with self.opened() as journal:
            for key in (("a", ""), (), ("\ud800",), ("x" * 3000,)):
                with raises(IdInvalidError):
                    await journal.apply([Put(B, 1), Put(key, 1)], batch=new_batch())
                with raises(IdInvalidError):
                    await journal.get_many([key])
            with raises(TypeError):
                await journal.apply([Put(cast("Any", "run/x"), 1)], batch=new_batch())
            with raises(TypeError):
                await journal.apply([Put(B, 1), cast("Any", "no operation")], batch=new_batch())
            with raises(TypeError):
                await journal.apply([Put(B, 1, cast("Any", "no bytes"))], batch=new_batch())
            with raises(TypeError):
                await journal.apply([Add(B, {"n": cast("Any", 1.5)})], batch=new_batch())
            for tag in (-1, 1 << 63, cast("Any", "tag")):
                with raises(ValueError, TypeError):
                    await journal.apply([Put(B, 1)], batch=tag)
            assert await everything(journal) == {}

    async def test_a_batch_of_many_operations_is_one_batch(self) -> None:
        """Hundreds of rows, all or nothing."""
        async with self.opened() as journal:
            many = [Create(("many", f"{number:04d}"), number) for number in range(500)]
            result = await write(journal, *many)
            page = await journal.scan(("many",), limit=1000)
            assert {entry.version for entry in page.entries} == {result.version}
            assert len(page.entries) == 500
            found = await refused(journal, *[Delete(op.key) for op in many], Create(A, 1), Expect(B, "present"))
            assert found.op == 501
            assert len((await journal.scan(("many",), limit=1000)).entries) == 500
            read = await journal.get_many([op.key for op in reversed(many)])
            assert [entry.value for entry in read.entries if entry] == list(reversed(range(500)))
