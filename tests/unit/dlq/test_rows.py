"""A dead letter becomes the record it was: bytes, fields, or fields that its format reads from its bytes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from copycat_agent.batch.letters import COLUMNS, PLACES, RENDERED, dead_letter, rendered, with_raw
from copycat_agent.dlq.letter import Letter, parse
from copycat_agent.dlq.rows import row_of
from copycat_agent.errors import DataError
from copycat_agent.formats import LineFrames, LineOptions, Row, Unparsed
from copycat_agent.formats.records import build_format
from copycat_agent.formats.records.container_formats import AvroOptions
from copycat_agent.formats.records.trees.json_format import JsonlOptions
from copycat_agent.model import Column, Schema, SourceOffset, SourcePartition, Split
from copycat_agent.producer.consuming import Received
from tests.unit.batch.rig import definition

CONNECTOR = definition("b:1", "t", errors={"tolerance": "all", "dlq": {"topic": "d"}})
SPLIT = Split(SourcePartition("app", "1:2f:3:0"), "/spool/a", "", SourceOffset(0), 99)
AVRO, JSONL, LINES = build_format(AvroOptions()), build_format(JsonlOptions()), LineFrames(LineOptions())


def letter_of(row: Row, said: bytes | None = None, *, by_record: bool = False, stage: str = "record") -> Letter:
    made = dead_letter(CONNECTOR, SPLIT, row, row.start + 1, stage, DataError("why"), partial=False, by_record=by_record)
    _, value, *_, headers = with_raw(made, row.raw, said)
    letter = parse(Received(0, 7, value, tuple(headers), 1234))
    assert letter is not None
    return letter


def test_fields_of_a_record_without_bytes_are_rendered_and_come_back() -> None:
    fields = {"a": Decimal("1.10"), "b": [1, None, {"c": "é"}]}
    row = rendered(Row(fields, 4, 5, 0))
    assert row.raw == '{"a":1.10,"b":[1,null,{"c":"é"}]}'.encode()
    letter = letter_of(row, RENDERED, by_record=True)
    assert (letter.is_whole, letter.is_rendered, letter.by_record, letter.place) == (True, True, True, "record 5")
    assert row_of(letter, AVRO) == Row(fields, 4, 5, 0)


def test_a_record_with_bytes_or_without_fields_is_rendered_as_it_is() -> None:
    for row in (Row({"a": 1}, 0, 9, 0, b"{'a':1}"), Row(b"line", 0, 5, 0), Row(Unparsed("why"), 0, 1, 0), Row({"a": object()}, 0, 1, 0)):
        assert rendered(row) is row


def test_lines_are_their_bytes_and_json_lines_are_read_again() -> None:
    assert row_of(letter_of(Row(b"x", 3, 9, 0, b"a line")), LINES).value == b"a line"
    row = row_of(letter_of(Row(Unparsed("bad"), 3, 13, 0, b'{"a": 1.5}'), stage="parse"), JSONL)
    assert (row.start, row.end, row.ordinal) == (3, 13, 0)
    assert row.value == {"a": 1.5}


@pytest.mark.parametrize("raw", [b"", b'{"a":1}\n{"a":2}'])
def test_what_is_not_one_record_is_left(raw: bytes) -> None:
    with pytest.raises(DataError, match="cannot read this record without the rest of its file"):
        row_of(letter_of(Row(Unparsed("bad"), 3, 13, 0, raw)), JSONL)


@pytest.mark.parametrize("raw", [b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_a_rendering_that_somebody_changed_is_left(raw: bytes) -> None:
    with pytest.raises(DataError, match="no JSON object"):
        row_of(letter_of(Row({}, 3, 4, 0, raw), RENDERED), AVRO)


def test_a_format_that_needs_the_header_gets_the_columns_of_the_letter() -> None:
    class Table:
        makes_fields = True

        def alone(self, raw: bytes, columns: tuple[str, ...]) -> dict[str, Any]:
            return dict(zip(columns, raw.decode().split(","), strict=True))

    schema = Schema((Column("a"), Column("b é")))
    letter = letter_of(Row({"a": "1"}, 3, 7, 0, b"1,2", schema))
    assert letter.columns == ("a", "b é")
    assert row_of(letter, Table()).value == {"a": "1", "b é": "2"}  # type: ignore[arg-type]
    wide = Schema(tuple(Column("x" * 100) for _ in range(200)))
    assert letter_of(Row({}, 3, 7, 0, b"1,2", wide)).columns == ()


@pytest.mark.parametrize("text", [b"", b"{", b"5", b'["a", 1]', b"\xff", b"[" * 100_000])
def test_a_broken_header_of_columns_is_none(text: bytes) -> None:
    made = dead_letter(CONNECTOR, SPLIT, Row(b"x", 0, 1, 0), 1, "record", DataError("why"), partial=False)
    _, value, *_, headers = with_raw(made, b"x", None)
    letter = parse(Received(0, 7, value, ((COLUMNS, text), (PLACES, text), *headers), 1234))
    assert letter is not None
    assert letter.columns == (("a",) if b"a" in text else ())
    assert not letter.by_record
