"""Rows of Arrow columns become the messages that each of them makes by itself, whatever beside the value is made of a record."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from copycat_agent.encoding.encoder import Encoder
from copycat_agent.formats import Parsed
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.producer import Message
from tests.unit.batch.rig import definition

if TYPE_CHECKING:
    from copycat_agent.encoding.encoder import SplitEncoder

USUAL: Message = (None, -1, None, None, 0, None)
BATCH = pa.RecordBatch.from_pylist(
    [
        {"id": number, "user.name": f"u{number}", "user": {"id": number % 3}, "at": datetime(2024, 1, number + 1, tzinfo=UTC), "note": note}
        for number, note in enumerate(["plain", 'with "quotes"', None, "ünicode", "line\nend", "last"])
    ]
)


def bound(value: str, record: dict[str, Any], steps: list[dict[str, Any]]) -> SplitEncoder:
    split = Split(SourcePartition("app", "t"), "t", "public.t", SourceOffset(0), 10**9, final=False)
    connector = definition("127.0.0.1:1", record.pop("topic", "t"), record=record, value=value, steps=steps)
    return Encoder(connector).bind(split, lambda _: 3, 0, host="h")


def at_once(encoder: SplitEncoder, chunk: Parsed) -> list[Message]:
    assert encoder.bulk is not None
    if (values := encoder.bulk.values(chunk)) is not None:
        tail = encoder.bulk.tail
        assert tail is not None
        return [(encoder.bulk.literal_topic, value, *(tail or USUAL)) for value in values]
    encoding = encoder.bulk.begin(chunk, 1)
    assert encoding is not None
    encoded = encoding.take(10**9, float("inf"))
    assert encoded.error is None
    messages: list[Message] = encoded.messages
    return (
        messages
        if not encoder.layout.is_steady
        else [(encoder.layout.literal_topic, one, *(encoder.layout.tail or USUAL)) for one in messages]
    )


@pytest.mark.parametrize("value", ["json", "string"])
@pytest.mark.parametrize("steps", [[], [{"set": {"env": "prod"}}]], ids=["no step", "a step"])
@pytest.mark.parametrize(
    "record",
    [
        {},
        {"key": "k"},
        {"key": "{id}"},
        {"key": "{user.id}-{user.name}-{@offset}"},
        {"topic": "shop.{@file.name}", "key": "{id}"},
        {"topic": "t.{user.id}"},
        {"headers": {"number": "{@record.number}", "who": "{user.name}"}},
        {"headers": {"host": "{@host}"}, "origin_headers": True},
        {"value": "{user}", "key": "{id}"},
        {"timestamp": "event", "partition": "sticky", "key": "{id}"},
    ],
    ids=str,
)
def test_rows_make_the_messages_that_each_makes_by_itself(value: str, steps: list[dict[str, Any]], record: dict[str, Any]) -> None:
    encoder = bound(value, dict(record), steps)
    chunk = Parsed(ArrowRows(BATCH), range(BATCH.num_rows + 1), 100)
    wanted = [message for draft in chunk.rows() for message in encoder.encode(draft)]
    assert at_once(encoder, chunk) == wanted


def test_only_the_fields_that_are_asked_for_are_made_of_rows_that_go_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    made: Any = ArrowRows.fields

    def noted(rows: ArrowRows) -> Any:
        asked.append(rows.batch.schema.names)
        return made.func(rows)

    monkeypatch.setattr(ArrowRows, "fields", property(noted))
    at_once(bound("json", {"key": "{id}"}, []), Parsed(ArrowRows(BATCH), range(BATCH.num_rows + 1), 100))
    at_once(bound("json", {}, []), Parsed(ArrowRows(BATCH), range(BATCH.num_rows + 1), 100))
    assert asked == [["id"]]


def test_a_row_of_which_no_key_can_be_made_is_left_to_be_found() -> None:
    encoder = bound("json", {"key": "{note}"}, [])
    assert encoder.bulk is not None
    encoding = encoder.bulk.begin(Parsed(ArrowRows(BATCH), range(BATCH.num_rows + 1), 100), 1)
    assert encoding is not None
    encoded = encoding.take(10**9, float("inf"))
    assert (len(encoded.messages), encoding.draft().number) == (2, 3)
    assert encoded.error is not None


def test_a_part_of_rows_is_rows_again_and_all_parts_are_one() -> None:
    chunk = Parsed(ArrowRows(BATCH), range(10, 17), 100)
    first, rest = chunk.cut(2)
    parts = [one.values for one in (first, rest) if isinstance(one.values, ArrowRows)]
    assert [list(one) for one in parts] == [list(chunk.values[0:2]), [chunk.values[index] for index in range(2, 6)]]
    joined = ArrowRows.joined(parts)
    assert joined is not None
    assert joined.fields == list(chunk.values)
    assert ArrowRows.joined([parts[0], ArrowRows(BATCH.select(["id"]))]) is None
