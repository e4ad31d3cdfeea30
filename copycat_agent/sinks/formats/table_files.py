"""`parquet`, `csv` and `avro`: records become rows of columns, which are held in memory until they are packed into a file.

A directory's columns are those of the schema, then others in the order in which records bring them; see `column_types` for what fits. Until
rows of a file are packed, new columns and wider types apply to the whole file, and earlier rows have null there. After that they complete
the file, and later rows go to another one in the same directory. So what fits depends only on the records, not on what is held in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from copycat_agent.converters.base import UnfitValueError
from copycat_agent.errors import DataError
from copycat_agent.model import Schema
from copycat_agent.sinks.formats.column_types import LEAVES_MAX, FittedColumn, SpellingClashError, Types, too_many_columns, transposed
from copycat_agent.sinks.formats.local_files import DirectoryFiles, NewPath, WrittenFile
from copycat_agent.sinks.formats.stored_types import leaves
from copycat_agent.sinks.formats.text_files import null_value
from copycat_agent.sql_types import SqlType, parse_type

VALUE = "value"
"""Name of the column of values that are bytes or text."""
PACK_ROWS = 8192
PACK_BYTES = 4 * 2**20
"""Rows are packed when there are this many, or when their Python objects take this much memory."""
_PACKED_SHARE = 0.5
"""If packing leaves more than this share of the memory, the packed rows are written."""


class TableFile(ABC):
    """One file, with fixed columns."""

    held_bytes = 0
    is_open = False

    @abstractmethod
    def pack(self, columns: Mapping[str, Sequence[Any]], rows: int) -> None:
        """Adds rows, with values as `TableFormat.fit` returned them."""

    @abstractmethod
    def spill(self) -> None:
        """Writes what is held in memory."""

    @abstractmethod
    def finish(self) -> int:
        """Completes the file and returns its size in bytes."""

    @abstractmethod
    def abandon(self) -> None:
        """Closes the file as it is."""


class TableFormat(ABC):
    """The differences between the formats. One object serves all files of a range."""

    extension: str

    @abstractmethod
    def fit(self, type_: SqlType, values: Sequence[Any], *, grows: bool) -> FittedColumn:
        """See `column_types.fitted`."""

    @abstractmethod
    def check(self, types: Types) -> None:
        """Raises UnfitValueError for columns that a file cannot have."""

    @abstractmethod
    def begin(self, path: Path, types: Types) -> TableFile:
        """Returns a new file at `path`, where none exists yet."""


class TableFiles(DirectoryFiles):
    """The files of one directory with one schema."""

    def __init__(self, form: TableFormat, directory: str, schema: Schema | None, new_path: NewPath) -> None:
        self._form = form
        self._directory = directory
        self._new_path = new_path
        self._fixed = _declared(schema)
        self._types = self._fixed
        self._is_checked = False
        self._rows = self._rows_bytes = 0
        self._columns: dict[str, list[Any]] = {name: [] for name in self._types}
        self._file: TableFile | None = None
        self._file_rows = 0
        self._path: Path | None = None
        self._done: list[WrittenFile] = []

    def take(self, values: Sequence[Any]) -> int:
        try:
            self._accept(values)
            return len(values)
        except (UnfitValueError, DataError):
            half = len(values) // 2
        if not half:
            return 0
        first = self.take(values[:half])
        return first if first < half else half + self.take(values[half:])

    def why(self, value: Any) -> DataError:  # noqa: ANN401 - any value
        try:
            self._accept((value,))
        except UnfitValueError as unfit:
            return unfit.as_data_error("write format jsonl, which takes any fields, or make the field fit in transforms")
        except DataError as error:
            return error
        raise AssertionError("it fits")

    def clashes(self, value: Any) -> bool:  # noqa: ANN401 - any value
        try:
            self._check(self._fit(_rows((value,)))[0])
        except SpellingClashError:
            return True
        except (UnfitValueError, DataError):
            pass
        return False

    def _accept(self, values: Sequence[Any]) -> None:
        """Adds rows to those held. Raises UnfitValueError or DataError if one does not fit; then nothing has changed."""
        types, columns, size = self._fit(_rows(values))
        if types != self._types or not self._is_checked:
            self._check(types)
            self._is_checked = True
            self._change(types)
        step = max(1, len(values) * PACK_BYTES // max(size, PACK_BYTES))
        for first in range(0, len(values), step):
            rows = min(step, len(values) - first)
            for name, column in columns.items():
                self._columns[name].extend(column if rows == len(values) else column[first : first + rows])
            self._rows += rows
            self._hold(size * rows // len(values))
            if self._rows >= PACK_ROWS or self._rows_bytes >= PACK_BYTES:
                self._pack()

    def _fit(self, rows: Sequence[dict[str, Any]]) -> tuple[dict[str, SqlType], dict[str, Sequence[Any]], int]:
        types, columns, size = {}, {}, 0
        try:
            for name, (type_, values) in transposed(self._types, rows, grows=True).items():
                try:
                    types[name], columns[name], more = self._form.fit(type_, values, grows=name not in self._fixed)
                except UnfitValueError as unfit:
                    raise unfit.within(name) from None
                size += more
        except RecursionError:
            raise UnfitValueError("the record is nested too deeply") from None
        return types, columns, size

    def _check(self, types: Types) -> None:
        if sum(map(leaves, types.values())) > max(LEAVES_MAX, sum(map(leaves, self._fixed.values()))):
            raise too_many_columns()
        self._form.check(types)

    def _change(self, types: dict[str, SqlType]) -> None:
        """Changes the columns: of the same file if nothing of it is packed and all its rows fit, else of a new one."""
        if self._file is not None or not self._refit(types):
            self._complete()
        for name in types:
            self._columns.setdefault(name, [None] * self._rows)
        self._types = types

    def _refit(self, types: Types) -> bool:
        changed = {name: type_ for name, type_ in types.items() if self._types.get(name, type_) != type_}
        try:
            found = {name: self._form.fit(type_, self._columns[name], grows=True) for name, type_ in changed.items()}
        except UnfitValueError:
            return False
        if any(fitted.type != changed[name] for name, fitted in found.items()):
            return False
        self._columns.update({name: list(fitted.values) for name, fitted in found.items()})
        return True

    def _hold(self, more_bytes: int) -> None:
        self._rows_bytes += more_bytes
        self.held_bytes = self._rows_bytes + (self._file.held_bytes if self._file else 0)
        self.is_open = self._file is not None and self._file.is_open

    def _pack(self) -> None:
        if self._rows:
            if self._file is None:
                self._path = self._new_path()
                self._file = self._form.begin(self._path, self._types)
            self._file.pack(self._columns, self._rows)
            self._file_rows += self._rows
            self._columns = {name: [] for name in self._types}
            self._rows = self._rows_bytes = 0
        self._hold(0)

    def _complete(self) -> None:
        """Finishes the present file with all rows so far."""
        self._pack()
        if self._file is not None:
            assert self._path is not None
            size = self._file.finish()
            self._done.append(WrittenFile(self._path, self._directory, self._form.extension, self._file_rows, size))
            self._file, self._path, self._file_rows = None, None, 0
        self._hold(0)

    def spill(self) -> None:
        before = self.held_bytes
        self._pack()
        if self.held_bytes > before * _PACKED_SHARE and self._file is not None:
            self._file.spill()
            self._hold(0)

    def roll(self) -> None:
        self._complete()

    def finish(self) -> list[WrittenFile]:
        self._complete()
        return self._done

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()
        self._columns = {}


def _declared(schema: Schema | None) -> dict[str, SqlType]:
    """Returns the columns of a schema. One with an unknown type is text."""
    return {} if schema is None else {column.name: _parsed(column.type) for column in schema.columns}


def _parsed(text: str) -> SqlType:
    try:
        return parse_type(text)
    except ValueError:
        return SqlType("variant")


def _rows(values: Sequence[Any]) -> Sequence[dict[str, Any]]:
    if set(map(type, values)) != {dict}:
        if None in values:
            raise null_value()
        values = [value if isinstance(value, dict) else {VALUE: value} for value in values]
    if not all(values):
        raise UnfitValueError("the record has no fields, so it cannot be a row")
    return values
