"""Makes dead letters: the value is the raw bytes; headers say where they come from, and why they were not sent.

`docs/errors.md` lists the headers; `copycat_agent.dlq` reads them back.
"""

from __future__ import annotations

import json

from copycat_agent.converters import CONVERTERS, build_converter
from copycat_agent.encoding.layout import Headers, host_name, origin_headers
from copycat_agent.errors import DataError
from copycat_agent.formats import Draft, Envelope
from copycat_agent.model import Split
from copycat_agent.options import Definition
from copycat_agent.producer import Message
from copycat_agent.transforms import StepError

CONNECTOR = "copycat.connector"
HOST = "copycat.host"
FILE = "copycat.file"
FILE_KEY = "copycat.file_key"
FILE_TIME = "copycat.file_time"
OFFSET = "copycat.offset"
END = "copycat.end"
LENGTH = "copycat.length"
RECORD = "copycat.record"
STAGE = "copycat.stage"
STEP = "copycat.step"
"""Header of stage transform: the step that failed, as in `transforms[1] regex`."""

ERROR = "copycat.error"
MESSAGE = "copycat.message"
PARTIAL = "copycat.partial"
RAW = "copycat.raw"
"""Header that says why the value is not exactly the raw bytes; absent when it is."""

PLACES = "copycat.places"
"""`records` where the file's positions are record numbers; absent where they are bytes."""

PART, PARTS, PART_OF = "copycat.part", "copycat.parts", "copycat.part_of"
"""Headers of a part of a record over the limit: its number, their count (last part only), and the record it belongs to."""

COLUMNS = "copycat.columns"
"""Header with the names of the file's columns, a JSON array, where the record's bytes cannot be read without them."""
HEADERS, TIME = "copycat.headers", "copycat.timestamp"
"""Headers of a record that comes from Kafka: the number of its own headers, which come first, and its time, if it had one."""
_COLUMNS_BYTES = 2**14

OMITTED = b"omitted: refused by the topic"
RENDERED = b"rendered: the file holds no bytes of this record alone, these are its fields as JSON"
NULL = b"null: so is the record's value"
NO_BYTES = b"omitted: the file holds no bytes of this record alone"

_json = build_converter(CONVERTERS["json"].options(type="json"))


def record_of(file_key: str, start: int) -> bytes:
    """Returns a name for the record that begins at byte `start` of a file, which no other record of this host has."""
    return f"{file_key}@{start}".encode()


def part_headers(number: int, record: bytes, *, is_last: bool) -> Headers:
    """Returns the headers of a part of a record, for messages and dead letters."""
    count = b"%d" % number
    return ((PART, count), (PART_OF, record), *(((PARTS, count),) if is_last else ()))


def rendered(record: Draft) -> Draft:
    """Returns the record with bytes: if the file has none, a copy with its fields as JSON, or without bytes if that is not possible."""
    if record.raw is not None or not isinstance(record.framed, dict):
        return record
    full = record.anew()
    try:
        full.raw = _json(record.framed)
    except DataError:
        return record
    return full


def dead_letter(definition: Definition, split: Split, record: Draft, stage: str, error: DataError, *, by_record: bool = False) -> Message:
    """Returns the dead letter of a bad record, without its raw bytes: see `with_raw`. The definition has a dead-letter topic.

    A record that comes from Kafka keeps its key, and its headers come first.
    `by_record`: positions in the file are record numbers.
    """
    dlq = definition.errors.dlq
    assert dlq is not None
    envelope = record.envelope
    headers: list[tuple[str, bytes | None]] = [
        *(() if envelope is None else envelope.headers),
        (CONNECTOR, definition.name.encode()),
        (HOST, host_name().encode("utf-8", "backslashreplace")),
        *origin_headers(split.path, record.first, record.end),
        (LENGTH, b"%d" % (len(record.bytes) if by_record else record.end - record.start)),
        (RECORD, b"%d" % record.number),
        (FILE_KEY, split.partition.key.encode()),
        (FILE_TIME, b"%d" % split.mtime_ms),
        *(((PARTIAL, b"true"),) if record.partial else ()),
        *(((PLACES, b"records"),) if by_record else _columns(record)),
        *(() if envelope is None else _of_envelope(envelope)),
        (STAGE, stage.encode()),
        *(((STEP, error.step.encode()),) if isinstance(error, StepError) else ()),
        (ERROR, (DataError if isinstance(error, StepError) else type(error)).__name__.encode()),
        (MESSAGE, error.message.encode("utf-8", "backslashreplace")),
    ]
    return dlq.topic, None, None if envelope is None else envelope.key, -1, None, None, 0, headers


def _of_envelope(envelope: Envelope) -> Headers:
    count = (HEADERS, b"%d" % len(envelope.headers))
    return (count,) if envelope.timestamp_ms is None else (count, (TIME, b"%d" % envelope.timestamp_ms))


def _columns(record: Draft) -> tuple[tuple[str, bytes], ...]:
    """Returns the header with the columns' names, unless there are none, or too many for a header."""
    if record.schema is None or record.raw is None:
        return ()
    names = json.dumps([column.name for column in record.schema.columns]).encode()
    return ((COLUMNS, names),) if len(names) <= _COLUMNS_BYTES else ()


def with_raw(letter: Message, raw: bytes | None, said: bytes | None) -> Message:
    """Returns the letter with these raw bytes; `said` explains why they are not exactly the record's, None when they are."""
    topic, _, *rest, headers = letter
    others = [pair for pair in headers if pair[0] != RAW]
    return topic, raw, *rest, [*others, *([(RAW, said)] if said is not None else [])]
