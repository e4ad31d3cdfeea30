"""Parquet files of several ranges as one table, read by others: every record, with its columns of the directory's name."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from copycat_agent.model import Column, Schema
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sinks.formats import RangeFiles
from copycat_agent.spark.host import SparkHost

START = datetime(2026, 11, 28, 12, tzinfo=UTC)
SCHEMA = Schema((Column("id", "bigint"), Column("price", "decimal(10,2)"), Column("tags", "map<string, string>")))
ROWS = 1500
RANGE = 625


def record(number: int) -> dict[str, Any]:
    """`inner.late` and `late` come while a file is under way; `never` is null everywhere, and `odd` is a text of any sign."""
    row: dict[str, Any] = {
        "id": number,
        "price": Decimal(number) / 100,
        "tags": {"k": f"v{number}"} if number % 3 else None,
        "at": START + timedelta(seconds=number * 28, microseconds=number),
        "ratio": number / 7 if number % 2 else None,
        "odd": ["é世🙂", "", "\0", "a\nb", None][number % 5],
        "items": [{"sku": f"s{number}", "n": number}] * (number % 3),
        "inner": {"flag": number % 2 == 0},
        "never": None,
    }
    if number >= 1000:
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


def test_spark_reads_every_record(table: Path, host: SparkHost) -> None:
    frame = SparkSession(host.session(60).context).read.option("mergeSchema", True).parquet(str(table))
    assert dict(frame.dtypes) | {"inner": ""} == {
        "id": "bigint", "price": "decimal(10,2)", "tags": "map<string,string>", "at": "timestamp", "ratio": "double", "odd": "string",
        "items": "array<struct<sku:string,n:bigint>>", "inner": "", "late": "string", "dt": "date",
    }  # fmt: skip
    check([row.asDict(recursive=True) for row in frame.collect()], dict)
    assert frame.where("late = 'late 1250'").count() == 1


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
