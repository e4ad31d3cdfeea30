"""Journal export format, read in bounded memory whatever stands in it."""

from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.sources.journald.export_format import ExportReader, LargeEntry
from tests.rig.journals import exported

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = st.from_regex(r"\A_?[A-Z][A-Z0-9_]{0,20}\Z")
VALUES = st.one_of(st.text(max_size=60), st.binary(max_size=60), st.lists(st.text(max_size=20), min_size=2, max_size=4))


def read(data: bytes, sizes: list[int] | None = None, most_bytes: int = 2**20) -> list[Any]:
    """Entries, with the bytes cut into chunks at these places; without the fields that every entry has."""
    places = [0, *sorted({size % (len(data) + 1) for size in sizes or []}), len(data)]
    reader = ExportReader((data[a:b] for a, b in pairwise(places) if b > a), most_bytes)
    found = [_own(entry) for entry in reader]
    assert not reader.is_torn
    return found


def _own(entry: Any) -> Any:
    return entry if isinstance(entry, LargeEntry) else {name: value for name, value in entry.items() if not name.startswith("__")}


def _expected(fields: dict[str, Any]) -> dict[str, Any]:
    return {"_BOOT_ID": "0123456789abcdef0123456789abcdef", **{name: _text(value) for name, value in fields.items()}}


def _text(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


@given(entries=st.lists(st.dictionaries(NAMES, VALUES, max_size=5), max_size=5), sizes=st.lists(st.integers(0, 5000), max_size=12))
def test_fields_are_what_was_written_however_the_bytes_come(entries: list[dict[str, Any]], sizes: list[int]) -> None:
    entries = [{name: value for name, value in fields.items() if name != "_BOOT_ID"} for fields in entries]
    data = b"".join(exported(fields, number) for number, fields in enumerate(entries))
    assert read(data, sizes) == [_expected(fields) for fields in entries]


@given(data=st.binary(max_size=3000), sizes=st.lists(st.integers(0, 3000), max_size=5))
def test_random_bytes_end(data: bytes, sizes: list[int]) -> None:
    places = [0, *sorted({size % (len(data) + 1) for size in sizes}), len(data)]
    for _ in ExportReader((data[a:b] for a, b in pairwise(places) if b > a), 1024):
        pass


@pytest.mark.parametrize("other", ["text", b"\xff bytes"])
def test_names_that_are_none_are_names_all_the_same_and_forge_no_entry(other: str | bytes) -> None:
    names = ["with space", "esc\x1b[31m", "\u00e9", "e\u0301", "dot.ted", "{@file.path}", "__proto__", "x" * 300, "tab\t", "'\"`$(x)"]
    hostile = {name: f"value {number}" for number, name in enumerate(names)}
    data = exported({**hostile, "OTHER": other}, 0) + exported({"MESSAGE": "next"}, 1)
    first, second = read(data)
    assert first == {**_expected({"OTHER": other}), **{name: value for name, value in hostile.items() if not name.startswith("__")}}
    assert second["MESSAGE"] == "next"


@pytest.mark.parametrize("end", [1, 30, 100, -1, -2])
def test_an_entry_that_is_cut_off_is_none_and_that_is_told(end: int) -> None:
    data = exported({"MESSAGE": "whole"}, 0) + exported({"MESSAGE": b"\x00" * 50}, 1)[:end]
    reader = ExportReader(iter([data]), 2**20)
    assert [_own(entry)["MESSAGE"] for entry in reader] == ["whole"]
    assert reader.is_torn


@pytest.mark.parametrize("value", ["x" * 3000, b"\x00" * 3000, ["y" * 800] * 3])
def test_an_entry_over_the_limit_is_passed_over_and_the_next_one_is_read(value: Any) -> None:
    head = b"__CURSOR=s=1;i=2\n"
    data = head + exported({"A": "1", "CORE": value, "B": "2"}, 0) + exported({"MESSAGE": "next"}, 1)
    for size in (10_000, 7, 100):
        (large, small) = read(data, list(range(0, len(data), size)), most_bytes=2048)
        assert (large.field, large.cursor) == ("CORE", "s=1;i=2")
        assert large.size_bytes > 2048
        assert small["MESSAGE"] == "next"


def test_a_field_of_64_mib_costs_no_memory_unless_it_is_wanted() -> None:
    def chunks(length: int) -> Iterator[bytes]:
        yield b"__CURSOR=c\nA=1\nBLOB\n" + length.to_bytes(8, "little")
        yield from (b"\0" * 2**16 for _ in range(length // 2**16))
        yield b"\n\n" + exported({"MESSAGE": "next"}, 1)

    tracemalloc.start()
    large, small = ExportReader(chunks(2**26), 2**20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(large, LargeEntry)
    assert (large.field, _own(small)["MESSAGE"]) == ("BLOB", "next")
    assert peak < 4 * 2**20
    whole, _ = ExportReader(chunks(2**26), 2**27)
    assert isinstance(whole, dict)
    assert len(whole["BLOB"]) == 2**26


def test_a_size_that_nobody_could_hold_is_the_end_of_a_torn_entry() -> None:
    reader = ExportReader(iter([b"A=1\nB\n" + b"\xff" * 8 + random.Random(1).randbytes(5000)]), 2**20)
    assert list(reader) == []
    assert reader.is_torn
