"""Records of a fixed length, one behind the other, with nothing between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.model import TAIL_BYTES, Frame, Gap, Parsed, RecordFile
from copycat_agent.formats.records.tables.fixed_cutter import Cutter, FixedWidthOptions
from copycat_agent.formats.records.tables.runs import BLOCK_BYTES

_STEP_BYTES = 2**20
_FILE_ENDS = b"\r\n\x1a"


class ByteWidths:
    """Each `record_bytes` bytes are a record. See `RecordFormat`."""

    counts_records = False
    finds_end = False
    makes_fields = True
    on_too_long: Literal["dlq", "truncate", "drop"] = "dlq"

    def __init__(self, options: FixedWidthOptions) -> None:
        assert options.record_bytes is not None, "see `_build`"
        self._size = options.record_bytes
        self._skipped = options.skip_lines * self._size
        self._codec = "utf-8" if options.encoding == "auto" else options.encoding
        self._cutter = Cutter(options)

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
        """See `RecordFormat.frames`. What is left at the end of the file is a bad record."""
        del skipping, flush
        position = start
        for position in self._passed(file, start, min(end, self._skipped), final=final):
            begin = max(start, position - TAIL_BYTES)
            yield Gap(start, position, file(begin, position - begin), "header")
            start = position
        count = max(1, (BLOCK_BYTES if block_bytes is None else block_bytes) // self._size)
        while self._skipped <= position < end:
            data = file(position, min(end - position, count * self._size))
            whole = len(data) - len(data) % self._size
            if whole:
                yield self._run(data[:whole], position)
                position += whole
            if len(data) > whole or not data:
                yield from self._rest(data[whole:], position) if final else ()
                return

    def _passed(self, file: RecordFile, position: int, end: int, *, final: bool) -> Iterator[int]:
        """How far what is skipped has been passed, in steps."""
        while position < end:
            data = file(position, min(end - position, _STEP_BYTES))
            if not data or (len(data) < min(end - position, _STEP_BYTES) and not final):
                return
            position += len(data)
            yield position

    def _rest(self, rest: bytes, position: int) -> Iterator[Frame]:
        """What is left at the end of the file: a bad record, or what editors put there."""
        if rest and not rest.strip(_FILE_ENDS):
            yield Gap(position, position + len(rest), rest[-TAIL_BYTES:], "header")
        elif rest:
            bad = Unparsed(f"the file ends after {len(rest)} of {self._size} bytes of a record", "see record_bytes")
            yield Parsed([bad], [position, position + len(rest)], len(rest), [rest], rest[-TAIL_BYTES:], self._cutter.columns.schema)

    def _run(self, data: bytes, position: int) -> Parsed:
        raw = [data[place : place + self._size] for place in range(0, len(data), self._size)]
        places = list(range(position, position + len(data) + 1, self._size))
        return Parsed(self._cutter.records(raw, self._codec), places, len(data), raw, data[-TAIL_BYTES:], self._cutter.columns.schema)

    def alone(self, raw: bytes, columns: tuple[str, ...]) -> dict[str, Any] | Unparsed:
        """One record by its bytes, as a dead letter has them; the options name its columns."""
        del columns
        return self._cutter.records([raw], self._codec)[0]

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """See `RecordFormat.cuts`."""
        places = (file.size * part // parts // self._size * self._size for part in range(1, parts))
        return tuple(dict.fromkeys(place for place in places if self._skipped < place < file.size))
