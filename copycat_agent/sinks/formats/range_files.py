"""The files of one range of offsets: which file a record goes to, how much memory all files hold, and their removal after a failure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from copycat_agent.errors import DataError, RetriableError
from copycat_agent.model import Schema
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sinks.formats import text_files
from copycat_agent.sinks.formats.csv_fields import CsvColumns
from copycat_agent.sinks.formats.local_files import DirectoryFiles, NewPath, WrittenFile
from copycat_agent.sinks.formats.table_files import TableFiles


class RangeLimits(NamedTuple):
    """Limits of a range.

    `held_bytes` is the memory that all its files may hold; that of Python's objects is estimated. When they hold more, files are written
    until `left_bytes` remain. At most `open_files` hold a descriptor; a Parquet file does from its first write on. A range with more
    `directories` is full.
    """

    held_bytes: int = 64 * 2**20
    left_bytes: int = 48 * 2**20
    open_files: int = 200
    directories: int = 2000


_SMALL_BYTES = 2**20
"""A row group with fewer bytes is small."""
_SLICE = 4096
"""Records that are added at a time."""
_CAREFUL_SLICE = 16
"""Records added at a time after one that did not fit: a slice may be checked twice to find the next such record."""

_LIMITS = RangeLimits()
Make = Callable[[str, Schema | None, NewPath], DirectoryFiles]
"""Makes the files of one directory and one schema."""


class RangeFiles:
    """Takes the records of one range of offsets of a Kafka partition, in their order, and returns complete files in `scratch`.

    Called from one thread. Usually there is one file per directory and schema; a format with columns begins another file when the columns
    change, and has a second one beside it for records with names that may not be among the columns of the first (`DirectoryFiles.clashes`).
    Any exception but DataError removes all files, as `abandon` does: RetriableError if the disk cannot be written to.
    """

    def __init__(self, options: FilesSinkOptions, scratch: Path, limits: RangeLimits = _LIMITS) -> None:
        """`scratch` is a directory for these files alone; the first record creates it if it is missing."""
        self._make = _maker(options)
        self._scratch = scratch
        self._limits = limits
        self._parts: dict[tuple[str, Schema | None, int], DirectoryFiles] = {}
        """Numbered from 0: another one is for records whose names clash with those of the ones before."""
        self._latest: dict[tuple[str, Schema | None], int] = {}
        """The number of the part that took the latest record, where it is not the first."""
        self._slices: dict[DirectoryFiles, int] = {}
        self._open: dict[DirectoryFiles, None] = {}
        self._paths: list[Path] = []
        self._held_bytes = 0
        self._is_spent = False

    def add(self, directory: str, value: Any, schema: Schema | None = None) -> None:  # noqa: ANN401 - bytes, text or fields
        """Adds one record. Raises DataError if it does not fit; then nothing of it is in any file."""
        with self._removing():
            part = self._part(directory, schema)
            if not self._take(part, (value,)) and (refusing := self._elsewhere(directory, schema, value, part)):
                raise refusing.why(value)

    def add_all(self, directory: str, values: Sequence[Any], schema: Schema | None = None) -> int:
        """Adds records of one directory. Returns how many were taken: all, or those before the first that does not fit.

        Up to 4096 of them are copied at a time, beside what is held: the caller bounds how many it passes at once.
        """
        with self._removing():
            done = 0
            while done < len(values):
                part = self._part(directory, schema)
                size = self._slices.get(part, _SLICE)
                some = values[done : done + size]
                taken = self._take(part, some)
                done += taken
                if taken < len(some):
                    self._slices[part] = _CAREFUL_SLICE
                    if self._elsewhere(directory, schema, values[done], part):
                        return done
                    done += 1
                elif size < _SLICE:
                    self._slices[part] = size * 2
            return done

    def _elsewhere(self, directory: str, schema: Schema | None, value: Any, tried: DirectoryFiles) -> DirectoryFiles | None:  # noqa: ANN401 - any value
        """Adds a record that one part did not take to the first that does. Returns the one that says why not, if none does."""
        for number in count():
            is_new = (directory, schema, number) not in self._parts
            part = self._part(directory, schema, number)
            if part is not tried and self._take(part, (value,)):
                self._latest[directory, schema] = number
                self._slices[part] = 1  # the next one may be for the first part again
                return None
            if is_new:
                del self._parts[directory, schema, number]
            if is_new or not part.clashes(value):
                return part
        raise AssertionError

    @property
    def is_full(self) -> bool:
        """Whether the range should end here: more would make many small files, or more files than may be open."""
        return self._is_spent or len(self._parts) > self._limits.directories

    def close(self) -> list[WrittenFile]:
        """Completes and returns all files, which the caller moves or removes. Nothing is added afterwards."""
        with self._removing():
            files = [file for part in self._parts.values() for file in part.finish()]
        self._forget()
        return files

    def abandon(self) -> None:
        """Removes all files that still exist, completed ones too, as far as the file system lets it. Calling it again does nothing."""
        for part in self._parts.values():
            part.abandon()
        self._forget()
        for path in self._paths:
            with contextlib.suppress(OSError):  # what cannot be removed goes with the scratch directory
                path.unlink()
        self._paths = []

    def _forget(self) -> None:
        self._parts, self._latest, self._slices, self._open, self._held_bytes = {}, {}, {}, {}, 0

    def _part(self, directory: str, schema: Schema | None, number: int | None = None) -> DirectoryFiles:
        key = directory, schema, self._latest.get((directory, schema), 0) if number is None else number
        part = self._parts.get(key)
        if part is None:
            if not self._parts:
                self._scratch.mkdir(parents=True, exist_ok=True)
            part = self._parts[key] = self._make(directory, schema, self._new_path)
        return part

    def _take(self, part: DirectoryFiles, values: Sequence[Any]) -> int:
        before = part.held_bytes
        taken = part.take(values)
        self._held_bytes += part.held_bytes - before
        if self._held_bytes > self._limits.held_bytes:
            self._spill()
        self._limit_open(part)
        return taken

    def _spill(self) -> None:
        """Spills the largest files until `left_bytes` remain. If even those are small, the range is full, to avoid many small files."""
        for part in sorted(self._parts.values(), key=lambda part: part.held_bytes, reverse=True):
            before = part.held_bytes
            assert before, "what is held is held by the first of them"
            part.spill()
            self._held_bytes -= before - part.held_bytes
            self._is_spent |= part.is_open and before < _SMALL_BYTES
            self._limit_open(part)
            if self._held_bytes <= self._limits.left_bytes:
                break

    def _limit_open(self, part: DirectoryFiles) -> None:
        """Completes the file that was opened first, if too many are open."""
        if part.is_open:
            self._open[part] = None
        else:
            self._open.pop(part, None)
        self._is_spent |= len(self._open) >= self._limits.open_files
        while len(self._open) > self._limits.open_files:
            oldest = next(iter(self._open))
            del self._open[oldest]
            self._held_bytes -= oldest.held_bytes
            oldest.roll()
            self._held_bytes += oldest.held_bytes

    def _new_path(self) -> Path:
        path = self._scratch / f"{len(self._paths) + 1:06d}.part"
        self._paths.append(path)
        return path

    @contextlib.contextmanager
    def _removing(self) -> Iterator[None]:
        try:
            yield
        except DataError:
            raise
        except OSError as error:
            self.abandon()
            why = error.strerror or type(error).__name__
            raise RetriableError(f"{self._scratch} cannot be written to: {why}", "make room there, or correct its permissions") from None
        except BaseException:
            self.abandon()
            raise


def _maker(options: FilesSinkOptions) -> Make:
    """Returns what makes the files of a directory. Imports the library of a format with columns only if it is used."""
    if options.format == "avro":
        from copycat_agent.sinks.formats.avro_files import AvroFiles  # noqa: PLC0415 - imports fastavro

        return lambda *of: AvroFiles(options.compression, *of)
    if options.format == "parquet":
        from copycat_agent.sinks.formats.parquet_files import ParquetTable  # noqa: PLC0415 - imports pyarrow

        parquet = ParquetTable(options.compression)
        return lambda *of: TableFiles(parquet, *of)
    if options.format == "csv":
        csv = CsvColumns(options.compression)
        return lambda *of: TableFiles(csv, *of)
    text = text_files.FORMATS[options.format]
    return lambda directory, _, new_path: text_files.TextFiles(text, options.compression, directory, new_path)
