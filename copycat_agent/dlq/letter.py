"""One dead letter: parses it from its topic, and restores the record that it was made from."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, NamedTuple, cast

from copycat_agent.encoding import letters
from copycat_agent.errors import DamageError, DataError
from copycat_agent.formats import Draft, Envelope, Frames, Parsed, RecordFormat
from copycat_agent.producer.topic_reader import Received

_NUMBER = re.compile(rb"\d{1,19}")
_TIME = re.compile(rb"-?\d{1,19}")


class DeadLetter(NamedTuple):
    """A dead letter. `raw` are the record's bytes, None when they were left out; `said` says why they are not all, "" when they are.

    `partition` and `offset` are its place in the dead-letter topic; `start` and `end` the record's bytes in the file `path` on
    `host`, or record numbers from 0 where `by_record`. `number` counts records in that file. `columns` are the file's, where the
    letter names them. `part`: it is this part of the record `part_of`, which begins at byte `part_start`, and `is_last` the last one; 0
    for a whole record. `envelope`: what came with a record from Kafka. What a letter of an earlier version does not say is 0 or "".
    """

    partition: int
    offset: int
    at_ms: int | None
    raw: bytes | None
    said: str
    connector: str
    host: str
    path: str
    file_key: str
    file_time_ms: int
    start: int
    end: int
    number: int
    partial: bool
    stage: str
    error: str
    message: str
    by_record: bool = False
    columns: tuple[str, ...] = ()
    part: int = 0
    part_of: str = ""
    part_start: int = 0
    is_last: bool = False
    envelope: Envelope | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the letter holds all bytes of its record, or all its fields."""
        return self.is_null or (self.raw is not None and (not self.said or self.is_rendered))

    @property
    def is_null(self) -> bool:
        """Whether the record's value is null."""
        return self.said == letters.NULL.decode()

    @property
    def is_rendered(self) -> bool:
        """Whether `raw` holds the record's fields as JSON, because its file format does not store records as separate bytes."""
        return self.said == letters.RENDERED.decode()

    @property
    def place(self) -> str:
        """The record's position in its file or Kafka partition, to be shown."""
        if self.envelope is not None:
            return f"offset {self.end - 1}"
        return f"record {self.number}" if self.by_record else f"bytes {self.start} to {self.end}, record {self.number}"


def parse(record: Received) -> DeadLetter | None:
    """Returns the dead letter in `record`, None if it is something else or has broken headers."""
    headers = {name: value for name, value in record.headers if value is not None}
    start, end, record_number = (_number(headers, name) for name in (letters.OFFSET, letters.END, letters.RECORD))
    file_time = _number(headers, letters.FILE_TIME, _TIME)  # files may be older than 1970
    needed = all(name in headers for name in (letters.CONNECTOR, letters.FILE, letters.OFFSET, letters.END, letters.STAGE))
    if not needed or start is None or end is None or record_number is None or file_time is None or end < start:
        return None
    texts = {name: value.decode("utf-8", "backslashreplace") for name, value in headers.items()}
    return DeadLetter(
        partition=record.partition,
        offset=record.offset,
        at_ms=record.timestamp_ms,
        raw=record.value,
        said=texts.get(letters.RAW, "" if record.value is not None else "omitted"),
        connector=texts[letters.CONNECTOR],
        host=texts.get(letters.HOST, ""),
        path=texts[letters.FILE],
        file_key=texts.get(letters.FILE_KEY, ""),
        file_time_ms=file_time,
        start=start,
        end=end,
        number=record_number,
        partial=letters.PARTIAL in headers,
        stage=texts[letters.STAGE],
        error=texts.get(letters.ERROR, ""),
        message=texts.get(letters.MESSAGE, ""),
        by_record=texts.get(letters.PLACES) == "records",
        columns=_columns(texts.get(letters.COLUMNS, "")),
        part=_number(headers, letters.PART) or 0,
        part_of=texts.get(letters.PART_OF, ""),
        part_start=_part_start(headers),
        is_last=letters.PARTS in headers,
        envelope=_envelope(record, headers),
    )


def _envelope(record: Received, headers: dict[str, bytes]) -> Envelope | None:
    """Returns what came with the record beside its value; None if nothing did, or the headers are broken."""
    count, at_ms = _number(headers, letters.HEADERS), _number(headers, letters.TIME, _TIME)
    if letters.HEADERS not in headers or count is None or at_ms is None:
        return None
    return Envelope(record.key, tuple(record.headers[:count]), at_ms if letters.TIME in headers else None)


def _columns(text: str) -> tuple[str, ...]:
    """Returns the names of columns, empty if the header is broken."""
    try:
        names = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return ()
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _part_start(headers: dict[str, bytes]) -> int:
    """Returns where the record begins that the letter is a part of; 0 when the header is broken."""
    start = headers.get(letters.PART_OF, b"").rpartition(b"@")[2]
    return int(start) if _NUMBER.fullmatch(start) else 0


def _number(headers: dict[str, bytes], name: str, form: re.Pattern[bytes] = _NUMBER) -> int | None:
    """Returns the number in a header, 0 if it is absent, None if it is not a number."""
    text = headers.get(name, b"0")
    return int(text) if form.fullmatch(text) else None


_ENTIRE = "its format cannot read this record without the rest of its file"


class _SingleRecordFile:
    """A `RecordFile` that holds the bytes of one record."""

    def __init__(self, letter: DeadLetter) -> None:
        self._raw = letter.raw or b""
        self.name = letter.path
        self.memo: dict[str, Any] = {}

    @property
    def size(self) -> int:
        return len(self._raw)

    def __call__(self, position: int, size: int, /) -> bytes:
        return self._raw[position : position + size]


def record_of(letter: DeadLetter, frames: Frames | RecordFormat) -> Draft:
    """Returns the record of a letter that is whole: bytes as framed, or fields if the format parses them.

    A format whose records need their file's header has a method `alone(raw, columns)`, which gets the column names in the letter; for
    its `as_is` see `Parsed`. Raises DataError for a record that cannot be read by itself.
    """
    raw = letter.raw or b""
    place = letter.start, letter.end, letter.number
    alone = getattr(frames, "alone", None)
    if letter.envelope is not None and not letter.is_rendered:
        draft = Draft(None if letter.is_null else raw, *place)
    elif letter.is_rendered:
        draft = Draft(_fields(raw), *place)
    elif not getattr(frames, "makes_fields", False):
        draft = Draft(raw, *place)
    elif alone is not None:
        draft = Draft(alone(raw, letter.columns), *place, raw, as_is=getattr(frames, "as_is", False))
    else:
        draft = _read(letter, cast("RecordFormat", frames))
        draft.start, draft.end, draft.number = place
    draft.partial = letter.partial
    return draft.within(letter.envelope)


def _fields(raw: bytes) -> dict[str, Any]:
    """Returns the fields of a record. Numbers keep all digits; times and bytes stay JSON text."""
    try:
        fields = json.loads(raw, parse_float=Decimal)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise DataError(
            "its bytes are no JSON object, though its header says so",
            "somebody has changed the letter: drop the record in a file of its own instead",
        )
    return fields


def _read(letter: DeadLetter, form: RecordFormat) -> Draft:
    file = _SingleRecordFile(letter)
    try:
        frames = list(form.frames(file, 0, file.size, final=True))
    except DamageError as error:
        raise DataError(f"{_ENTIRE}: {error.message}", error.hint) from None
    found = [draft for frame in frames if isinstance(frame, Parsed) for draft in frame.rows()]
    if len(found) != 1:
        raise DataError(_ENTIRE, "drop it in a file of its own, with all that the format needs")
    return found[0]
