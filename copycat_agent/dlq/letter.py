"""One dead letter, as its topic holds it."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from copycat_agent.encoding import letters
from copycat_agent.producer.consuming import Received

_NUMBER = re.compile(rb"\d{1,19}")
_TIME = re.compile(rb"-?\d{1,19}")


class Letter(NamedTuple):
    """A dead letter. `raw` are the record's bytes, None when they were left out; `said` says why they are not all, "" when they are.

    `partition` and `offset` are its place in the dead-letter topic; `start` and `end` the record's bytes in the file `path` on
    `host`, or record numbers from 0 where `by_record`. `number` counts records in that file. `columns` are the file's, where the
    letter names them. `part`: it is this part of the record `part_of`, which begins at byte `part_start`, and `is_last` the last one; 0
    for a whole record. What a letter of an earlier version does not say is 0 or "".
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

    @property
    def is_whole(self) -> bool:
        """Whether it carries all bytes of its record, or all its fields."""
        return self.raw is not None and (not self.said or self.is_rendered)

    @property
    def is_rendered(self) -> bool:
        """Whether `raw` are its fields as JSON, for its file holds no bytes of it alone."""
        return self.said == letters.RENDERED.decode()

    @property
    def place(self) -> str:
        """Where it lies in its file, for people."""
        return f"record {self.number}" if self.by_record else f"bytes {self.start} to {self.end}, record {self.number}"


def parse(record: Received) -> Letter | None:
    """The dead letter that `record` is; None for anything else that lies in the topic, one with broken headers included."""
    headers = {name: value for name, value in record.headers if value is not None}
    start, end, record_number = (_number(headers, name) for name in (letters.OFFSET, letters.END, letters.RECORD))
    file_time = _number(headers, letters.FILE_TIME, _TIME)  # files may be older than 1970
    needed = all(name in headers for name in (letters.CONNECTOR, letters.FILE, letters.OFFSET, letters.END, letters.STAGE))
    if not needed or start is None or end is None or record_number is None or file_time is None or end < start:
        return None
    texts = {name: value.decode("utf-8", "backslashreplace") for name, value in headers.items()}
    return Letter(
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
    )


def _columns(text: str) -> tuple[str, ...]:
    """Names of columns; none where the header is broken."""
    try:
        names = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return ()
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _part_start(headers: dict[str, bytes]) -> int:
    """Where the record begins that a letter is a part of; 0 where the header is broken."""
    start = headers.get(letters.PART_OF, b"").rpartition(b"@")[2]
    return int(start) if _NUMBER.fullmatch(start) else 0


def _number(headers: dict[str, bytes], name: str, form: re.Pattern[bytes] = _NUMBER) -> int | None:
    """A header that counts; 0 where there is none, None when it is no number."""
    text = headers.get(name, b"0")
    return int(text) if form.fullmatch(text) else None
