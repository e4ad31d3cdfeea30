"""`json`: the elements of an array, or values one behind the other, whatever white space stands between them.

Positions are the bytes where records begin; what separates two belongs to the first one. So the format of the file, an array or
not, and such a position are all that is needed to go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeGuard

from copycat_agent.errors import DamageError
from copycat_agent.formats.model import Frame, Parsed, RecordFile
from copycat_agent.formats.records.base import FormatKind
from copycat_agent.formats.records.fields.typed import TreeOptions, Typing
from copycat_agent.formats.records.trees.json_elements import Elements, Limits, UnfinishedError, skip_mark
from copycat_agent.formats.records.trees.json_scan import NOTHING, OPEN_ARRAY, Cursor, last_before
from copycat_agent.formats.records.trees.json_values import Value, parse
from copycat_agent.formats.records.trees.jsonl import BLOCK_BYTES
from copycat_agent.options import ByteSize, Field

_LEAST_BLOCK_BYTES = 4096


class JsonFileOptions(TreeOptions):
    """JSON that is not one value per line."""

    type: Literal["json"] = Field("json", description="Each element of an array, or each of the values in the file, is a record.")
    path: str | None = Field(
        None, min_length=1, max_length=255, description='Keys from the object that the file is to the array of records: "data.items".'
    )
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Largest record as it stands in the file.")
    on_too_long: Literal["dlq", "drop"] = Field(
        "dlq", description="dlq: a bad record, as `errors` says, its first max_bytes as raw bytes. drop: counted and passed."
    )


class JsonFormat:
    """See `RecordFormat`."""

    counts_records = False
    finds_end = True
    makes_fields = True

    def __init__(self, options: JsonFileOptions) -> None:
        self._path = tuple(options.path.split(".")) if options.path else ()
        self._max_bytes = options.max_bytes
        self._typing = Typing(options)
        self.as_is = not self._typing.changes
        self.on_too_long: Literal["dlq", "truncate", "drop"] = options.on_too_long

    def frames(
        self,
        file: RecordFile,
        start: int,
        end: int,
        *,
        skipping: bool = False,
        final: bool = True,
        flush: bool = False,
        block_bytes: int | None = None,
    ) -> Iterator[Frame]:
        """See `RecordFormat.frames`."""
        del skipping, flush
        cursor = Cursor(file, start, end, max(_LEAST_BLOCK_BYTES, block_bytes or BLOCK_BYTES))
        is_array = self._is_array(file, end)  # reads the beginning: of a packed file, before what lies behind it
        before = last_before(file, start) if start else NOTHING
        limits = Limits(self._max_bytes, block_bytes or BLOCK_BYTES, final=final)
        elements = Elements(cursor, limits, self._path, is_array=is_array)
        try:
            yield from elements.begin(before) if start else elements.header()
            for frame in elements.frames():
                yield frame._replace(values=self._typing.read(frame.values), as_is=False) if self._changes(frame) else frame
        except UnfinishedError as error:
            if final:
                raise DamageError(error.message) from None

    def _changes(self, frame: Frame) -> TypeGuard[Parsed]:
        return isinstance(frame, Parsed) and not self.as_is

    def alone(self, raw: bytes, columns: tuple[str, ...]) -> Value:
        """One record by its bytes, as a dead letter has them."""
        del columns
        return self._typing.read([parse(raw)])[0]

    def _is_array(self, file: RecordFile, end: int) -> bool:
        """Whether the records are an array's elements."""
        if self._path:
            return True
        if "is_array" not in file.memo:
            cursor = Cursor(file, 0, end, _LEAST_BLOCK_BYTES)
            skip_mark(cursor)
            file.memo["is_array"] = cursor.skip_blanks() == OPEN_ARRAY
        return bool(file.memo["is_array"])

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """See `RecordFormat.cuts`: where a record begins shows only from the beginning."""
        del file, parts
        return ()


JSON = FormatKind(JsonFileOptions, JsonFormat)
