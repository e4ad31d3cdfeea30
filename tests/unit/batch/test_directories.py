"""Messages of records that go into files, made at once, are the same as those that are made one by one."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from copycat_agent.encoding.files_layout import FilesLayout
from copycat_agent.errors import DataError
from copycat_agent.formats import Draft, Envelopes, Parsed
from copycat_agent.formats.draft import Envelope
from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.options import SinkOptions
from copycat_agent.templates import SplitMeta
from tests.unit.batch.rig import definition

END_MS = 253_402_300_800_000
"""The year 10000, of which no template makes a text."""


def layout_of(path: str) -> Any:
    """The layout of one split whose files go to `path`."""
    split = Split(SourcePartition("app", "t/0"), "t/0", "", SourceOffset(0), 1)
    meta = SplitMeta("t/0", 1, "host", "app")
    return FilesLayout(definition("127.0.0.1:1", path), has_fields=True, has_envelopes=True).bind(split, meta, lambda _: 1, 0)


def chunk_of(times: list[int | None]) -> Parsed:
    """Records of these times."""
    values = [{"n": number} for number in range(len(times))]
    nothing = [None] * len(times)
    return Parsed(values, range(len(times) + 1), len(times), envelopes=Envelopes(nothing, [()] * len(times), times))


@pytest.mark.parametrize("path", ["dt={@timestamp:%Y-%m-%d}", "{@connector}/s={@timestamp:%H:%M:%S}/x"])
def test_directories_are_those_of_single_records(path: str) -> None:
    dice, layout = random.Random(4), layout_of(path)
    times: list[int | None] = [dice.choice((dice.randrange(10_000), dice.randrange(END_MS))) for _ in range(500)]
    chunk = chunk_of(times)
    messages = layout.messages(chunk)
    one_by_one = []
    for draft in chunk.rows():
        directory, key, partition, timestamp, headers = layout.outline(draft)
        one_by_one.append((directory, layout.value(draft, directory), key, partition, None, None, timestamp, headers))
    assert messages == one_by_one


def test_a_path_that_is_too_long_below_its_prefix_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    draft, parts = Draft({"n": "k" * 190}), "/".join(["{n}"] * 3)
    layout_of(parts).outline(draft)
    monkeypatch.setattr(SinkOptions, "prefix_bytes", 200)
    with pytest.raises(DataError, match="500 in all"):
        layout_of(parts).outline(draft)


@pytest.mark.parametrize("path", ["{@timestamp:%S.%f}", "{@timestamp}", "{n}/{@timestamp:%S}", "{@key}"])
def test_directories_that_depend_on_more_than_the_second_are_made_one_by_one(path: str) -> None:
    assert layout_of(path).messages(chunk_of([1])) is None


@pytest.mark.parametrize("time", [None, END_MS])
def test_a_time_that_is_unknown_or_out_of_range_is_looked_at_by_itself(time: int | None) -> None:
    layout = layout_of("{@timestamp:%S}")
    assert layout.messages(chunk_of([1, 2])) is not None
    assert layout.messages(chunk_of([1, time])) is None


@pytest.mark.parametrize("path", ["orders", "{@connector}"])
def test_where_there_is_one_directory_messages_are_values_alone(path: str) -> None:
    layout, chunk = layout_of(path), chunk_of([1, None])
    assert layout.is_steady
    assert layout.messages(chunk) == [layout.value(draft, "") for draft in chunk.rows()] == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("path", ["r={r}", "{r}/x", "x/{r}", "x/{@key}", "{r}={n}", "/{r}/"])
def test_an_empty_value_makes_a_bad_record(path: str) -> None:
    layout = layout_of(path)
    for empty, key in (("", b""), ("0", b"k")):
        draft = Draft({"r": empty, "n": 1}).within(Envelope(key))
        with contextlib.ExitStack() as stack:
            if not empty:
                stack.enter_context(pytest.raises(DataError, match="empty part"))
            assert layout.outline(draft)[0] == path.strip("/").replace("{r}", "0").replace("{n}", "1").replace("{@key}", "k") + "/"


def test_envelopes_are_cut_as_records_are() -> None:
    envelopes = Envelopes([b"a", None, b"c"], [(), (("h", b"1"),), ()], [1, None, 3])
    assert list(envelopes) == [envelopes[0], envelopes[1], envelopes[2]]
    assert list(envelopes[1:]) == [(None, (("h", b"1"),), None), (b"c", (), 3)]
    assert Draft(b"").within(envelopes[0]).timestamp_ms == 1
