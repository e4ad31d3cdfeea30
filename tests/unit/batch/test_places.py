"""Where a bad record lies: bytes of most files, a record's number in those of formats that count records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.batch.items import Item, Items, StopAt, kept_bytes
from copycat_agent.batch.passing import count
from copycat_agent.batch.progress import Progress
from copycat_agent.errors import DataError
from copycat_agent.formats import Row, Unparsed
from copycat_agent.model import SourceOffset, SourcePartition, Split
from tests.unit.batch.rig import definition

if TYPE_CHECKING:
    from typing import Any

BAD = DataError("why")
ALL = {"tolerance": "all", "dlq": {"topic": "d"}}


def bad(row: Row, *, by_record: bool = True, **errors: Any) -> tuple[Item, Progress]:
    progress = Progress(Split(SourcePartition("app", "k"), "/spool/a.parquet", "", SourceOffset(0), 99))
    items = Items(definition("b:1", "t", errors=errors or ALL), "dlq", by_record=by_record)
    return items.bad(progress, Item(row, None, "rejected", 8), "record", BAD), progress


def losses(item: Item, progress: Progress) -> list[tuple[int, int, int, int]]:
    count(progress, [item])
    return [(loss.start, loss.end, loss.size_bytes, loss.records) for loss in progress._unsettled_losses]


def headers(item: Item) -> dict[str, bytes]:
    assert item.message is not None
    return dict(item.message[-1])


def test_a_record_without_bytes_is_lettered_with_its_fields_and_nothing_is_lost() -> None:
    item, progress = bad(Row({"a": 1}, 7, 8, 0))
    assert item.message is not None
    assert item.message[1] == b'{"a":1}'
    assert (headers(item)["copycat.length"], headers(item)["copycat.places"]) == (b"7", b"records")
    assert headers(item)["copycat.raw"].startswith(b"rendered: ")
    assert (kept_bytes(item), losses(item, progress)) == (None, [])


def test_what_the_letter_leaves_out_is_lost_as_one_record() -> None:
    item, progress = bad(Row({"a": 1}, 7, 8, 0), tolerance="all", dlq={"topic": "d", "include_raw": False})
    assert losses(item, progress) == [(7, 8, 7, 1)]
    item, progress = bad(Row(Unparsed("no text"), 7, 8, 0))
    assert headers(item)["copycat.raw"] == b"omitted: the file holds no bytes of this record alone"
    assert losses(item, progress) == [(7, 8, 0, 1)]
    item, progress = bad(Row({"a": 1}, 7, 8, 0), tolerance="all")
    assert (item.outcome, losses(item, progress)) == ("rejected", [(7, 8, 7, 1)])


def test_bytes_are_lettered_as_before() -> None:
    item, progress = bad(Row({"a": "1"}, 70, 74, 0, b"1\n"), by_record=False)
    assert item.message is not None
    assert item.message[1] == b"1\n"
    assert headers(item)["copycat.length"] == b"4"
    assert not {"copycat.raw", "copycat.places"} & set(headers(item))
    assert losses(item, progress) == []


@pytest.mark.parametrize(("by_record", "place"), [(True, "record 8"), (False, "bytes 7 to 9")])
def test_words_name_the_place(by_record: bool, place: str) -> None:
    with pytest.raises(StopAt) as stop:
        bad(Row({"a": 1}, 7, 9, 0), by_record=by_record, tolerance="none")
    assert stop.value.error.message == f"'/spool/a.parquet', {place}, stage record: why"
