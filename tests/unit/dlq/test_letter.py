"""A dead letter reads back as what it was written; anything else in its topic is told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.dlq import parse
from copycat_agent.encoding.letters import dead_letter, with_raw
from copycat_agent.errors import DataError
from copycat_agent.formats import Draft, Envelope
from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.producer.topic_reader import Received
from tests.unit.batch.rig import definition

CONNECTOR = definition("b:1", "t", errors={"tolerance": "all", "dlq": {"topic": "d"}})
SPLIT = Split(SourcePartition("app", "1:2f:3:0"), "/logs/caf\udce9", "", SourceOffset(0), 99, inode=0x2F, mtime_ms=1_700_000_000_123)


def written(raw: bytes | None = b"raw", said: bytes | None = None, **parts: bool) -> Received:
    record = Draft(b"raw", 7, 11, 5)
    record.partial = parts.get("partial", False)
    letter = dead_letter(CONNECTOR, SPLIT, record, "record", DataError("why \udce9"))
    topic, value, *_, headers = with_raw(letter, raw, said)
    assert topic == "d"
    return Received(3, 42, value, tuple(headers), 1234)


def test_everything_that_was_written_is_read_back() -> None:
    letter = parse(written())
    assert letter is not None
    assert (letter.partition, letter.offset, letter.at_ms, letter.raw, letter.said) == (3, 42, 1234, b"raw", "")
    assert (letter.connector, letter.path, letter.file_key, letter.file_time_ms) == ("app", r"/logs/caf\xe9", "1:2f:3:0", 1_700_000_000_123)
    assert (letter.start, letter.end, letter.number, letter.partial) == (7, 11, 5, False)
    assert (letter.stage, letter.error, letter.message) == ("record", "DataError", r"why \udce9")
    assert letter.host
    assert letter.is_whole


def test_an_unfinished_last_line_stays_one() -> None:
    letter = parse(written(partial=True))
    assert letter is not None
    assert letter.partial


@pytest.mark.parametrize(("raw", "said"), [(None, None), (None, b"omitted: x"), (b"ra", b"cut: x")])
def test_a_letter_that_lacks_bytes_is_not_whole(raw: bytes | None, said: bytes | None) -> None:
    letter = parse(written(raw, said))
    assert letter is not None
    assert not letter.is_whole
    assert letter.said


def test_an_empty_line_is_whole() -> None:
    letter = parse(written(b""))
    assert letter is not None
    assert letter.is_whole


@pytest.mark.parametrize("name", ["copycat.connector", "copycat.file", "copycat.offset", "copycat.end", "copycat.stage"])
@pytest.mark.parametrize("value", [None, "absent"])
def test_a_record_without_what_makes_a_letter_is_none(name: str, value: str | None) -> None:
    record = written()
    headers = [(key, (None if key == name else content)) for key, content in record.headers if key != name or value is None]
    assert parse(record._replace(headers=tuple(headers))) is None


@pytest.mark.parametrize(
    ("name", "value"), [("copycat.offset", b"-1"), ("copycat.end", b"x"), ("copycat.end", b"3"), ("copycat.offset", b"9" * 30)]
)
def test_a_record_with_numbers_that_cannot_be_is_none(name: str, value: bytes) -> None:
    record = written()
    headers = tuple((key, value if key == name else content) for key, content in record.headers)
    assert parse(record._replace(headers=headers)) is None


def test_a_letter_of_an_earlier_version_has_no_more_than_it_says() -> None:
    old = {"copycat.connector", "copycat.file", "copycat.offset", "copycat.end", "copycat.length", "copycat.stage", "copycat.error"}
    record = written()
    letter = parse(record._replace(headers=tuple(pair for pair in record.headers if pair[0] in old)))
    assert letter is not None
    assert (letter.host, letter.file_key, letter.number, letter.file_time_ms, letter.is_whole) == ("", "", 0, 0, True)


@given(st.lists(st.tuples(st.sampled_from([name for name, _ in written().headers]), st.none() | st.binary(max_size=30)), max_size=15))
def test_no_header_breaks_reading(headers: list[tuple[str, bytes | None]]) -> None:
    parse(written()._replace(headers=tuple(headers)))


def test_a_letter_from_a_file_older_than_1970_is_a_letter() -> None:
    record = written()
    old = tuple((name, b"-5" if name == "copycat.file_time" else value) for name, value in record.headers)
    letter = parse(record._replace(headers=old))
    assert letter is not None
    assert letter.file_time_ms == -5


def test_the_key_and_headers_of_a_record_older_than_1970_are_in_its_letter() -> None:
    record = Draft(b"raw", 7, 8, 5).within(Envelope(b"key", (("a", None),), -5))
    *_, headers = with_raw(dead_letter(CONNECTOR, SPLIT, record, "record", DataError("why")), b"raw", None)
    letter = parse(Received(3, 42, b"raw", tuple(headers), 1234, b"key"))
    assert letter is not None
    assert letter.envelope == record.envelope
