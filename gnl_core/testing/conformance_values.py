"""Conformance: values come back as they were written, and what is no value is refused."""

from __future__ import annotations

from collections import ChainMap
from types import MappingProxyType
from typing import Any, cast

from gnl_core.journal.port import Create, JsonValue, Put, Replace, new_batch
from gnl_core.testing.conformance_base import JournalCase, everything, raises, row, value, write

ROUND: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**63,
    -(2**64),
    10**400,
    0.1,
    -0.0,
    1e300,
    5e-324,
    1.0,
    "",
    "text",
    "Zürich 日本 💸",
    "a\u0000b",
    "a\\u0000b",
    "\u2028\u2029\ufeff\ufffe",
    "lone \ud800 and \udfff",
    '"quoted" \\ / \b\f\n\r\t',
    [],
    {},
    {"": {"": []}},
    {"\ud800": "\u0000", "é": 1, "e\u0301": 2, "__proto__": 3, "$type": "x"},
    [None, [True, [1, ["x"]]], {"a": [{"b": 1.5}]}],
)


def _same(left: object, right: object) -> bool:
    # 1, 1.0 and True are equal to Python, and three values to JSON; -0.0 is another than 0.0.
    return repr(left) == repr(right)


class ValueCases(JournalCase):
    """What may stand in a row."""

    async def test_values_come_back_as_they_were_written(self) -> None:
        """Type by type, by `get_many` and by `scan`."""
        async with self.opened() as journal:
            await write(journal, *[Create(("v", f"{number:03d}"), each) for number, each in enumerate(ROUND)])
            page = await journal.scan(("v",))
            for expected, entry in zip(ROUND, page.entries, strict=True):
                assert _same(entry.value, expected)
                assert _same(await value(journal, *entry.key), expected)

    async def test_mappings_and_tuples_become_objects_and_arrays(self) -> None:
        """Any Mapping, also inside others."""
        async with self.opened() as journal:
            given: object = MappingProxyType({"a": (1, (2,)), "m": ChainMap({"x": 1}), "l": [MappingProxyType({})]})
            await write(journal, Put(("a",), cast("JsonValue", given)))
            assert await value(journal, "a") == {"a": [1, [2]], "m": {"x": 1}, "l": [{}]}

    async def test_what_is_no_json_is_refused_before_anything_is_written(self) -> None:
        """The error names the key."""
        endless: list[object] = []
        endless.append(endless)
        deep: list[object] = []
        for _ in range(100_000):
            deep = [deep]
        bad: tuple[object, ...] = (
            float("nan"),
            [float("inf")],
            {"a": -float("inf")},
            {1: "a"},
            [{None: 1}],
            {("a",): 1},
            b"bytes",
            {1, 2},
            object(),
            [{"a": 1j}],
            10**5000,
            endless,
            deep,
        )
        async with self.opened() as journal:
            first = await write(journal, Put(("old",), 1))
            for each in bad:
                for op in (
                    Create(("bad", "key"), cast("JsonValue", each)),
                    Replace(("bad", "key"), 1, cast("JsonValue", each)),
                    Put(("bad", "key"), cast("JsonValue", each)),
                ):
                    with raises(ValueError, TypeError, naming="bad/key"):
                        await journal.apply([Put(("a",), 1), op], batch=new_batch())
            assert await everything(journal) == {("old",): 1}
            assert (await row(journal, "old")).version == first.version

    async def test_deep_values_come_back(self) -> None:
        """Two hundred levels."""
        deep: JsonValue = "core"
        for number in range(100):
            deep = {"n": number, "in": [deep]}
        async with self.opened() as journal:
            await write(journal, Put(("deep",), deep))
            assert await value(journal, "deep") == deep

    async def test_twenty_megabytes_come_back(self) -> None:
        """As a value and as a blob, in one batch with a small row."""
        text = "0123456789abcdeé" * (20 * 1024 * 64)
        blob = bytes(range(256)) * (20 * 4096)
        async with self.opened() as journal:
            await write(journal, Create(("large",), {"output": text}), Create(("blob",), None, blob), Create(("s",), 1))
            assert await value(journal, "large") == {"output": text}
            assert (await row(journal, "blob")).blob == blob
            page = await journal.scan((), max_bytes=5)
            assert [entry.key for entry in page.entries] == [("blob",), ("large",)]
            assert page.after == ("large",)

    async def test_what_is_returned_or_was_given_is_a_private_copy(self) -> None:
        """Changing either never changes the store."""
        async with self.opened() as journal:
            given: dict[str, Any] = {"list": [1], "object": {"a": 1}}
            await write(journal, Create(("a",), given))
            given["list"].append(2)
            given["object"]["b"] = 2
            for _ in range(2):
                got = cast("dict[str, Any]", await value(journal, "a"))
                assert got == {"list": [1], "object": {"a": 1}}
                got["list"].clear()
            scanned = cast("dict[str, Any]", (await journal.scan(())).entries[0].value)
            scanned["object"].clear()
            found = await journal.apply([Create(("a",), 1)], batch=new_batch())
            cast("dict[str, Any]", found.found.value)["list"].clear()  # type: ignore[union-attr] # Refused, with the row
            assert await value(journal, "a") == {"list": [1], "object": {"a": 1}}

    async def test_a_value_is_read_when_apply_is_called(self) -> None:
        """What the caller changes while it waits is not written."""
        async with self.opened() as journal:
            given = {"n": 1}
            call = journal.apply([Create(("a",), cast("JsonValue", given))], batch=new_batch())
            await call
            given["n"] = 2
            assert await value(journal, "a") == {"n": 1}
