"""A dead letter becomes the record it was: bytes, fields, or fields that its format reads from its bytes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from copycat_agent.dlq.letter import DeadLetter, parse, record_of
from copycat_agent.encoding.letters import COLUMNS, PLACES, RENDERED, dead_letter, rendered, with_raw
from copycat_agent.errors import DataError
from copycat_agent.formats import Draft, LineFrames, LineOptions, Unparsed
from copycat_agent.formats.records import AvroOptions, build_format
from copycat_agent.formats.records.json_format import JsonlOptions
from copycat_agent.model import Column, Schema, SourceOffset, SourcePartition, Split
from copycat_agent.producer.topic_reader import Received
from tests.unit.batch.rig import definition

CONNECTOR = definition("b:1", "t", errors={"tolerance": "all", "dlq": {"topic": "d"}})
SPLIT = Split(SourcePartition("app", "1:2f:3:0"), "/spool/a", "", SourceOffset(0), 99)
AVRO, JSONL, LINES = build_format(AvroOptions()), build_format(JsonlOptions()), LineFrames(LineOptions())


def letter_of(record: Draft, said: bytes | None = None, *, by_record: bool = False, stage: str = "record") -> DeadLetter:
    record.number = record.start + 1
    made = dead_letter(CONNECTOR, SPLIT, record, stage, DataError("why"), by_record=by_record)
    _, value, *_, headers = with_raw(made, record.raw, said)
    letter = parse(Received(0, 7, value, tuple(headers), 1234))
    assert letter is not None
    return letter


def test_fields_of_a_record_without_bytes_are_rendered_and_come_back() -> None:
    fields = {"a": Decimal("1.10"), "b": [1, None, {"c": "é"}]}
    draft = rendered(Draft(fields, 4, 5, 0))
    assert draft.raw == '{"a":1.10,"b":[1,null,{"c":"é"}]}'.encode()
    letter = letter_of(draft, RENDERED, by_record=True)
    assert (letter.is_whole, letter.is_rendered, letter.by_record, letter.place) == (True, True, True, "record 5")
    found = record_of(letter, AVRO)
    assert (found.framed, found.start, found.end, found.number, found.raw) == (fields, 4, 5, 5, None)


def test_a_record_with_bytes_or_without_fields_is_rendered_as_it_is() -> None:
    for draft in (
        Draft({"a": 1}, 0, 9, 0, b"{'a':1}"),
        Draft(b"line", 0, 5, 0),
        Draft(Unparsed("why"), 0, 1, 0),
        Draft({"a": object()}, 0, 1, 0),
    ):
        assert rendered(draft) is draft


def test_lines_are_their_bytes_and_json_lines_are_read_again() -> None:
    assert record_of(letter_of(Draft(b"x", 3, 9, 0, b"a line")), LINES).value == b"a line"
    draft = record_of(letter_of(Draft(Unparsed("bad"), 3, 13, 0, b'{"a": 1.5}'), stage="parse"), JSONL)
    assert (draft.start, draft.end, draft.number) == (3, 13, 4)
    assert draft.value == {"a": 1.5}


@pytest.mark.parametrize("raw", [b"", b'{"a":1}\n{"a":2}'])
def test_what_is_not_one_record_is_left(raw: bytes) -> None:
    with pytest.raises(DataError, match="cannot read this record without the rest of its file"):
        record_of(letter_of(Draft(Unparsed("bad"), 3, 13, 0, raw)), JSONL)


@pytest.mark.parametrize("raw", [b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_a_rendering_that_somebody_changed_is_left(raw: bytes) -> None:
    with pytest.raises(DataError, match="no JSON object"):
        record_of(letter_of(Draft({}, 3, 4, 0, raw), RENDERED), AVRO)


def test_a_format_that_needs_the_header_gets_the_columns_of_the_letter() -> None:
    class Table:
        makes_fields = True

        def alone(self, raw: bytes, columns: tuple[str, ...]) -> dict[str, Any]:
            return dict(zip(columns, raw.decode().split(","), strict=True))

    schema = Schema((Column("a"), Column("b é")))
    letter = letter_of(Draft({"a": "1"}, 3, 7, 0, b"1,2", schema))
    assert letter.columns == ("a", "b é")
    assert record_of(letter, Table()).value == {"a": "1", "b é": "2"}  # type: ignore[arg-type]
    wide = Schema(tuple(Column("x" * 100) for _ in range(200)))
    assert letter_of(Draft({}, 3, 7, 0, b"1,2", wide)).columns == ()


@pytest.mark.parametrize("text", [b"", b"{", b"5", b'["a", 1]', b"\xff", b"[" * 100_000])
def test_a_broken_header_of_columns_is_none(text: bytes) -> None:
    made = dead_letter(CONNECTOR, SPLIT, Draft(b"x", 0, 1), "record", DataError("why"))
    _, value, *_, headers = with_raw(made, b"x", None)
    letter = parse(Received(0, 7, value, ((COLUMNS, text), (PLACES, text), *headers), 1234))
    assert letter is not None
    assert letter.columns == (("a",) if b"a" in text else ())
    assert not letter.by_record
