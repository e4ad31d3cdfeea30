"""The record of a dead letter, as its format found it in its file."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, cast

from copycat_agent.dlq.letter import Letter
from copycat_agent.errors import DamageError, DataError
from copycat_agent.formats import Frames, Parsed, RecordFormat, Row

_ENTIRE = "its format cannot read this record without the rest of its file"


class _Alone:
    """A file that holds one record's bytes. See `RecordFile`."""

    def __init__(self, letter: Letter) -> None:
        self._raw = letter.raw or b""
        self.name = letter.path
        self.memo: dict[str, Any] = {}

    @property
    def size(self) -> int:
        return len(self._raw)

    def __call__(self, position: int, size: int, /) -> bytes:
        return self._raw[position : position + size]


def row_of(letter: Letter, frames: Frames | RecordFormat) -> Row:
    """The row of a letter that is whole: bytes as framed, or fields where the format makes those.

    A format whose records mean nothing without their file's header has a method `alone(raw, columns)`, which gets the names that the
    letter carries; its `as_is` see `Parsed`. Raises DataError for a record that cannot be read by itself.
    """
    raw = letter.raw or b""
    row = Row(raw, letter.start, letter.end, 0)
    if letter.is_rendered:
        return row._replace(value=_fields(raw))
    if not getattr(frames, "makes_fields", False):
        return row
    alone = getattr(frames, "alone", None)
    if alone is not None:
        return row._replace(value=alone(raw, letter.columns), raw=raw, as_is=getattr(frames, "as_is", False))
    return _read(letter, cast("RecordFormat", frames))._replace(start=letter.start, end=letter.end, ordinal=0)


def _fields(raw: bytes) -> dict[str, Any]:
    """Numbers keep all their digits; times and bytes are the text that JSON has for them."""
    try:
        fields = json.loads(raw, parse_float=Decimal)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        msg = "its bytes are no JSON object, though its header says so"
        raise DataError(msg, "somebody has changed the letter: drop the record in a file of its own instead")
    return fields


def _read(letter: Letter, form: RecordFormat) -> Row:
    file = _Alone(letter)
    try:
        frames = list(form.frames(file, 0, file.size, final=True))
    except DamageError as error:
        raise DataError(f"{_ENTIRE}: {error.message}", error.hint) from None
    rows = [row for frame in frames if isinstance(frame, Parsed) for row in frame.rows()]
    if len(rows) != 1:
        raise DataError(_ENTIRE, "drop it in a file of its own, with all that the format needs")
    return rows[0]
