"""The formats `jsonl`, `lines` and `binary`: values one after the other. The package's docstring says which values fit."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from copycat_agent.converters.base import kind
from copycat_agent.converters.plain import dump
from copycat_agent.errors import DataError
from copycat_agent.sinks.files_options import Compression
from copycat_agent.sinks.formats.local_files import PACKERS, SUFFIXES, DirectoryFiles, GrowingFile, NewPath, WrittenFile

SPILL_BYTES = 4 * 2**20
"""Size at which held data is compressed as one piece and written."""
_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class TextFormat(NamedTuple):
    """`each` returns the bytes of a value, its end included, or raises DataError. `bulk` returns those of many, None if it cannot."""

    extension: str
    each: Callable[[Any], bytes]
    bulk: Callable[[Sequence[Any]], bytes | None]


def null_value() -> DataError:
    """Returns the error for a tombstone."""
    return DataError("the value is null, which no file holds", "drop such records with a filter, or let them go to the dead letters")


def _json_line(value: object) -> bytes:
    if isinstance(value, str | dict):
        return dump(value) + b"\n"
    data = _bytes(value)
    try:
        orjson.loads(data)
    except (orjson.JSONDecodeError, RecursionError):
        raise DataError("the value is no JSON", "read it with a converter, or write format lines or binary") from None
    return data.translate(_BREAKS) + b"\n"  # valid JSON has them only between tokens


def _json_lines(values: Sequence[Any]) -> bytes | None:
    kinds = set(map(type, values))
    try:
        if kinds == {dict}:
            return b"\n".join([*map(dump, values), b""])
        if kinds != {bytes}:
            return None
        deque(map(orjson.loads, values), 0)
    except (DataError, orjson.JSONDecodeError, RecursionError):
        return None
    return _whole_lines(values, b"\r")


def _whole_lines(values: Sequence[bytes], refused: bytes = b"\n") -> bytes | None:
    lines = b"\n".join([*values, b""])
    return lines if lines.count(b"\n") == len(values) and (refused == b"\n" or refused not in lines) else None


def _line(value: object) -> bytes:
    data = _bytes(value)
    if b"\n" in data:
        raise DataError("the value holds a line feed, it would be several lines", "write format binary, jsonl or parquet")
    return data + b"\n"


def _lines(values: Sequence[Any]) -> bytes | None:
    return _whole_lines(values) if set(map(type, values)) == {bytes} else None


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace")  # as the bytes converter does
    if value is None:
        raise null_value()
    raise DataError(f"the format takes bytes or text, not {kind(value)}", "write format jsonl, or one with columns")


def _joined(values: Sequence[Any]) -> bytes | None:
    return b"".join(values) if set(map(type, values)) == {bytes} else None


FORMATS = {
    "jsonl": TextFormat("jsonl", _json_line, _json_lines),
    "lines": TextFormat("txt", _line, _lines),
    "binary": TextFormat("bin", _bytes, _joined),
}


class TextFiles(DirectoryFiles):
    """Writes all records of a directory to one file."""

    def __init__(self, format_: TextFormat, compression: Compression, directory: str, new_path: NewPath) -> None:
        self._format = format_
        self._pack = PACKERS[compression]
        self._extension = format_.extension + SUFFIXES[compression]
        self._directory = directory
        self._new_path = new_path
        self._file: GrowingFile | None = None
        self._held: list[bytes] = []
        self._records = 0

    def take(self, values: Sequence[Any]) -> int:
        data, taken = self._format.bulk(values), len(values)
        if data is None:
            made = self._each(values)
            data, taken = b"".join(made), len(made)
        if taken:
            self._held.append(data)
            self._records += taken
            self.held_bytes += len(data)
            if self.held_bytes >= SPILL_BYTES:
                self.spill()
        return taken

    def _each(self, values: Sequence[Any]) -> list[bytes]:
        made: list[bytes] = []
        with contextlib.suppress(DataError):  # `made` has those before it
            made.extend(map(self._format.each, values))
        return made

    def why(self, value: Any) -> DataError:  # noqa: ANN401 - any value
        try:
            self._format.each(value)
        except DataError as error:
            return error
        raise AssertionError("it fits")

    def spill(self) -> None:
        self._write(is_last=False)

    def _write(self, *, is_last: bool) -> GrowingFile:
        if self._file is None:
            self._file = GrowingFile(self._new_path())
        data = self._pack(b"".join(self._held)) if self._records else b""
        self._file.append(data, self._records, is_last=is_last)
        self._held, self._records, self.held_bytes = [], 0, 0
        return self._file

    def roll(self) -> None:
        pass  # none is open

    def finish(self) -> list[WrittenFile]:
        if self._file is None and not self._records:
            return []
        return [self._write(is_last=True).finished(self._directory, self._extension)]

    def abandon(self) -> None:
        self._held, self._records, self.held_bytes = [], 0, 0
