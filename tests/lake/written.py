"""What a connector has written below a directory, read by libraries that know nothing of it, file by file."""

from __future__ import annotations

import csv
import io
import json
import os
from collections import defaultdict
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest
from pyarrow import parquet

from copycat_agent.sinks.file_names import FileName, parse_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.rig.kafka import Consumed

_PACKED = {".gz": "gzip", ".zst": "zstd"}


class Written(NamedTuple):
    """A file that is visible: its directory below the root, what its name says, and its rows."""

    path: Path
    directory: str
    name: FileName
    rows: Sequence[Any]


def files_below(root: Path) -> list[Path]:
    """All files that readers see."""
    found = []
    for where, directories, files in os.walk(root):
        directories[:] = [name for name in directories if name[0] not in "._"]
        found += [Path(where, name) for name in files if name[0] not in "._"]
    return sorted(found)


def written(root: Path) -> list[Written]:
    """All that readers see, in the order of offsets. AssertionError for a file whose name says nothing."""
    made = []
    for path in files_below(root):
        name = parse_name(str(path.relative_to(root)))
        assert name is not None, path
        directory = str(path.parent.relative_to(root))
        made.append(Written(path, "" if directory == "." else directory, name, rows_of(path)))
    return sorted(made, key=lambda one: (one.name, one.path))


def rows_of(path: Path) -> Sequence[Any]:
    """The rows of one file: fields or, of `lines`, bytes. They are read once for as long as the file is the same."""
    state = path.stat()
    return _rows_of(path, (state.st_ino, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=4096)
def _rows_of(path: Path, state: tuple[int, ...]) -> list[Any]:
    if path.suffix == ".parquet":
        return list(parquet.ParquetFile(path).read().to_pylist())
    if path.suffix == ".avro":
        with path.open("rb") as file:
            return list(fastavro.reader(file))
    data = path.read_bytes()
    if path.suffix in _PACKED:
        data = pa.CompressedInputStream(pa.BufferReader(data), _PACKED[path.suffix]).read()
    if path.name.count(".jsonl"):
        return [json.loads(line) for line in data.splitlines()]
    if path.name.count(".csv"):
        return list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    return data.split(b"\n")[:-1]


def duckdb_rows(columns: str, where: str) -> list[dict[str, Any]]:
    """What DuckDB selects; the test is skipped where it is not installed."""
    found = pytest.importorskip("duckdb").sql(f"SELECT {columns} FROM {where}")  # noqa: S608 - ours
    return list(found.to_arrow_table().to_pylist())


def assert_each_once(found: Iterable[Written], records: Iterable[Consumed], identity: Callable[[Any], Any]) -> None:
    """Each record is in one file, whose name says its partition and a range that its offset is in; ranges of a partition do not overlap.

    `identity` tells a record from all others, by its value in Kafka as well as by its row.
    """
    places = {identity(one.value): (one.partition, one.offset) for one in records}
    ranges: dict[int, set[tuple[int, int]]] = defaultdict(set)
    seen: set[Any] = set()
    for file in found:
        ranges[file.name.partition].add((file.name.first, file.name.last))
        for row in file.rows:
            one = identity(row)
            assert one in places, f"{file.path}: {row} was never sent"
            assert one not in seen, f"{file.path}: {row} is there twice"
            seen.add(one)
            partition, offset = places[one]
            assert partition == file.name.partition, f"{file.path}: {row} is of partition {partition}"
            assert file.name.first <= offset <= file.name.last, f"{file.path}: {row} has offset {offset}"
    assert not (missing := places.keys() - seen), f"{len(missing)} are missing, such as {sorted(missing)[:5]}"
    for partition, some in ranges.items():
        for before, behind in pairwise(sorted(some)):
            assert before[1] < behind[0], f"partition {partition}: {before} and {behind} overlap"
