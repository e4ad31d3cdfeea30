"""CSV files as in RFC 4180, in UTF-8, with line feeds and a header.

Values are written as by the json converter, and quoted where needed; NaN and infinities are `NaN`, `Infinity` and `-Infinity`, lists and
objects are JSON text. Null is an empty field, empty text is `""`; in rows of one column null is `""` as well, since an empty line is no
row. The columns of a file are fixed: a new column of a directory begins another file, see `table_files`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from copycat_agent.converters.base import UnfitValueError
from copycat_agent.converters.plain import dump
from copycat_agent.errors import DataError
from copycat_agent.sinks.files_options import Compression
from copycat_agent.sinks.formats.column_types import STRING, FittedColumn, Types, text_bytes
from copycat_agent.sinks.formats.local_files import PACKERS, SUFFIXES, GrowingFile
from copycat_agent.sinks.formats.table_files import TableFile, TableFormat
from copycat_agent.sinks.formats.text_files import SPILL_BYTES
from copycat_agent.sql_types import SqlType

_QUOTED = re.compile(r'[",\r\n]|\A[ \t]|[ \t]\Z|\A\Z')
_EMPTY = '""'
_SIGNS = ('"', ",", "\r", "\n\n", "\n ", " \n", "\t")
"""If none of them occurs in texts joined by line feeds, no text needs quotes."""


class CsvColumns(TableFormat):
    """Makes CSV files. Their columns have no types: values become text when they are added."""

    def __init__(self, compression: Compression) -> None:
        self.extension = "csv" + SUFFIXES[compression]
        self._compression = compression

    def fit(self, type_: SqlType, values: Sequence[Any], *, grows: bool) -> FittedColumn:
        del grows
        fields = _fields(values)
        size = text_bytes([field for field in fields if field is not None]) + 8 * len(values)
        return FittedColumn(STRING if type_.word == "void" else type_, fields, size)

    def check(self, types: Types) -> None:
        del types  # any name is valid

    def begin(self, path: Path, types: Types) -> TableFile:
        return _CsvFile(path, types, self._compression)


def _fields(values: Sequence[Any]) -> Sequence[str | None]:
    """Returns the values as fields of a line; None for null. Raises UnfitValueError."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return list(map(str, values))
    texts: Sequence[str | None] = values
    if not kinds <= {str, NoneType}:
        try:
            texts = [value if value is None or isinstance(value, str) else _text(value) for value in values]
        except DataError as error:
            raise UnfitValueError(error.message) from None
    present = [text for text in texts if text is not None]
    together = "\n".join(["", *present, ""])
    if together.count("\n") == len(present) + 1 and not any(sign in together for sign in _SIGNS):
        return texts
    return [text if text is None or not _QUOTED.search(text) else quoted_field(text) for text in texts]


def _text(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = dump(value).decode()  # type: ignore[arg-type] # any value that JSON has
    return text[1:-1] if text.startswith('"') else text


def quoted_field(text: str) -> str:
    """Returns a field in quotes."""
    return '"' + text.replace('"', '""') + '"'


class _CsvFile(TableFile):
    def __init__(self, path: Path, types: Types, compression: Compression) -> None:
        self._file = GrowingFile(path)
        self._names = list(types)
        self._squeeze = PACKERS[compression]
        self._lines = [",".join(quoted_field(name) if _QUOTED.search(name) else name for name in types)]

    def pack(self, columns: Mapping[str, Sequence[Any]], rows: int) -> None:
        del rows
        nothing = "" if len(self._names) > 1 else _EMPTY
        texts = [[nothing if field is None else field for field in columns[name]] for name in self._names]
        lines = "\n".join(map(",".join, zip(*texts, strict=True)))
        self._lines.append(lines)
        self.held_bytes += len(lines)
        if self.held_bytes >= SPILL_BYTES:
            self.spill()

    def spill(self) -> None:
        self._write(is_last=False)

    def _write(self, *, is_last: bool) -> None:
        data = self._squeeze("\n".join([*self._lines, ""]).encode()) if self._lines else b""
        self._file.append(data, 0, is_last=is_last)
        self._lines, self.held_bytes = [], 0

    def finish(self) -> int:
        self._write(is_last=True)
        return self._file.size_bytes

    def abandon(self) -> None:
        self._lines = []
