"""Files of a range in a directory of their own, and what others read in them."""

from __future__ import annotations

import csv
import gzip
import io
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from copycat_agent.errors import DataError
from copycat_agent.formats.records.parquet_values import rows_of, values
from copycat_agent.model import Column, Schema
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sinks.formats import RangeFiles, WrittenFile


def options(format_: str, compression: str = "none") -> FilesSinkOptions:
    return FilesSinkOptions.model_validate({"uri": "file:///lake", "format": format_, "compression": compression})


def schema_of(avro: str = "", **types: str) -> Schema:
    return Schema(tuple(Column(name, type_) for name, type_ in types.items()), avro)


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that hypothesis can have one of for each example."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / "range"


def add_each(files: RangeFiles, records: Sequence[Any], schema: Schema | None = None, directory: str = "d") -> list[int]:
    """Add records by themselves. Returns the indexes of those that fit."""
    fit = []
    for index, record in enumerate(records):
        try:
            files.add(directory, record, schema)
        except DataError:
            continue
        fit.append(index)
    return fit


def add_in_bulk(files: RangeFiles, records: Sequence[Any], schema: Schema | None = None, directory: str = "d") -> list[int]:
    """The same with `add_all`, which is called again behind each record that does not fit."""
    fit: list[int] = []
    done = 0
    while done < len(records):
        taken = files.add_all(directory, records[done:], schema)
        fit += range(done, done + taken)
        done += taken + 1
    return fit


def content(file: WrittenFile) -> bytes:
    """Unpacked by others than those that packed it: pyarrow's own zstd, and gzip."""
    data = file.path.read_bytes()
    assert len(data) == file.size_bytes
    if file.extension.endswith(".gz"):
        return gzip.decompress(data)
    if file.extension.endswith(".zst"):
        found: bytes = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
        return found
    return data


def read(file: WrittenFile) -> list[Any]:
    """The records of a file."""
    kind = file.extension.split(".")[0]
    if kind == "parquet":
        table = pq.read_table(file.path, partitioning=None)
        found = rows_of(table.column_names, [values(column.combine_chunks()) for column in table.columns], table.num_rows)
    elif kind == "avro":
        with file.path.open("rb") as stream:
            found = list(fastavro.reader(stream))  # type: ignore[arg-type]
    elif kind == "csv":
        limit = csv.field_size_limit(2**24)
        found = list(csv.DictReader(io.StringIO(content(file).decode(), newline="")))
        csv.field_size_limit(limit)
    elif kind == "jsonl":
        found = list(map(orjson.loads, content(file).splitlines()))
    else:
        return [content(file)] if kind == "bin" else content(file).split(b"\n")[:-1]
    assert len(found) == file.records
    return found


def read_all(written: Sequence[WrittenFile]) -> list[Any]:
    return [record for file in written for record in read(file)]


def plain(value: Any) -> Any:
    """A value without what columns leave out: null where nothing is in an object or a list. NaN is equal to itself."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {name: inner for name, one in value.items() if (inner := plain(one)) is not None} or None
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value]
        return items if any(item is not None for item in items) else None
    return value
