"""The record of a dead letter, as its format found it in its file."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, cast

from copycat_agent.dlq.letter import Letter
from copycat_agent.errors import DamageError, DataError
from copycat_agent.formats import Draft, Frames, Parsed, RecordFormat

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


def record_of(letter: Letter, frames: Frames | RecordFormat) -> Draft:
    """The record of a letter that is whole: bytes as framed, or fields where the format makes those.

    A format whose records mean nothing without their file's header has a method `alone(raw, columns)`, which gets the names that the
    letter carries; its `as_is` see `Parsed`. Raises DataError for a record that cannot be read by itself.
    """
    raw = letter.raw or b""
    place = letter.start, letter.end, letter.number
    alone = getattr(frames, "alone", None)
    if letter.is_rendered:
        draft = Draft(_fields(raw), *place)
    elif not getattr(frames, "makes_fields", False):
        draft = Draft(raw, *place)
    elif alone is not None:
        draft = Draft(alone(raw, letter.columns), *place, raw, as_is=getattr(frames, "as_is", False))
    else:
        draft = _read(letter, cast("RecordFormat", frames))
        draft.start, draft.end, draft.number = place
    draft.partial = letter.partial
    return draft


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


def _read(letter: Letter, form: RecordFormat) -> Draft:
    file = _Alone(letter)
    try:
        frames = list(form.frames(file, 0, file.size, final=True))
    except DamageError as error:
        raise DataError(f"{_ENTIRE}: {error.message}", error.hint) from None
    found = [draft for frame in frames if isinstance(frame, Parsed) for draft in frame.rows()]
    if len(found) != 1:
        raise DataError(_ENTIRE, "drop it in a file of its own, with all that the format needs")
    return found[0]
