"""Parquet files of several ranges as one table, read by others: every record, with its columns of the directory's name."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from copycat_agent.model import Column, Schema
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sinks.formats import RangeFiles

READ = """
import pickle, sys
from pathlib import Path
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
session = builder.getOrCreate()
files = session.read.option("mergeSchema", "true").parquet(sys.argv[1])
rows = [row.asDict(recursive=True) for row in files.collect()]
found = dict(files.dtypes), rows, files.where("late = 'late 5000'").count()
Path(sys.argv[2]).write_bytes(pickle.dumps(found))
"""
START = datetime(2026, 11, 28, 12, tzinfo=UTC)
SCHEMA = Schema((Column("id", "bigint"), Column("price", "decimal(10,2)"), Column("tags", "map<string, string>")))
ROWS = 6000
RANGE = 2500


def record(number: int) -> dict[str, Any]:
    """`inner.late` and `late` come while a file is under way; `never` is null everywhere, and `odd` is a text of any sign."""
    row: dict[str, Any] = {
        "id": number,
        "price": Decimal(number) / 100,
        "tags": {"k": f"v{number}"} if number % 3 else None,
        "at": START + timedelta(seconds=number * 7, microseconds=number),
        "ratio": number / 7 if number % 2 else None,
        "odd": ["é世🙂", "", "\0", "a\nb", None][number % 5],
        "items": [{"sku": f"s{number}", "n": number}] * (number % 3),
        "inner": {"flag": number % 2 == 0},
        "never": None,
    }
    if number >= 4000:
        row["late"] = f"late {number}"
        row["inner"]["late"] = number
    return row


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ranges of one partition, two directories."""
    root = tmp_path_factory.mktemp("lake")
    for first in range(0, ROWS, RANGE):
        options = FilesSinkOptions.model_validate({"uri": f"file://{root}", "format": "parquet", "compression": "zstd"})
        files = RangeFiles(options, root.with_name(f"scratch-{first}"))
        for number in range(first, min(ROWS, first + RANGE)):
            row = record(number)
            files.add(f"orders/dt={row['at']:%Y-%m-%d}", row, SCHEMA)
        for index, file in enumerate(files.close()):
            target = root / file.directory / f"orders+0+{first}+{index}.{file.extension}"
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(file.path, target)
        files.abandon()
    return root / "orders"


def test_arrow_reads_every_record(table: Path) -> None:
    files = ds.dataset(table, partitioning="hive")
    schema = pa.unify_schemas([ds.dataset(path).schema for path in files.files] + [files.schema], promote_options="permissive")
    check(ds.dataset(table, partitioning="hive", schema=schema).to_table().to_pylist(), dict)


def test_duckdb_reads_every_record(table: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    session = duckdb.connect()
    session.execute("SET TimeZone = 'UTC'")
    files = session.read_parquet(f"{table}/**/*.parquet", hive_partitioning=True, union_by_name=True)
    check(files.to_arrow_table().to_pylist(), dict)


@pytest.mark.timeout(400)
def test_spark_reads_every_record(table: Path, tmp_path: Path) -> None:
    """In a process of its own: the session of other tests here belongs to an agent's host."""
    command = [sys.executable, "-c", READ, str(table), str(tmp_path / "found")]
    subprocess.run(command, check=True, timeout=380, capture_output=True, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"})
    types, rows, count = pickle.loads((tmp_path / "found").read_bytes())
    assert types | {"inner": ""} == {
        "id": "bigint", "price": "decimal(10,2)", "tags": "map<string,string>", "at": "timestamp", "ratio": "double", "odd": "string",
        "items": "array<struct<sku:string,n:bigint>>", "inner": "", "late": "string", "dt": "date",
    }  # fmt: skip
    check(rows, dict)
    assert count == 1


def check(rows: list[dict[str, Any]], tags: Callable[[Any], dict[str, str]]) -> None:
    rows.sort(key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(ROWS))
    for row, number in zip(rows, itertools.count(), strict=False):
        expected = record(number)
        assert str(row.pop("dt")) == f"{expected['at']:%Y-%m-%d}"
        found = row | {"tags": row["tags"] and tags(row["tags"]), "at": _utc(row["at"]), "never": None}
        assert found == expected | {"late": expected.get("late"), "inner": {"flag": number % 2 == 0, "late": expected["inner"].get("late")}}


def _utc(moment: datetime) -> datetime:
    """Spark gives times without a zone, in this process's."""
    return moment.astimezone(UTC)
