"""Every record of a topic is in one file, with its values: in all formats and compressions, and as a table of others' libraries."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import dataset, schema, string, unify_schemas

from copycat_agent.sinks.files_options import COMPRESSIONS
from tests.lake.conftest import BEGIN_MS, DAY_MS, Lake, as_json, number_of
from tests.lake.written import duckdb_rows, files_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
HIVE = "hive_partitioning=true, hive_types_autocast=false"
ROWS = 600
PARTITIONS = 3
PATH_VALUES = [
    "plain",
    "with blank",
    "a/b",
    "../../up",
    "..",
    ".",
    ".hidden",
    "_under",
    "a=b",
    "100%",
    "%41",
    "a%2Fb",
    "ünï€😀",
    "e\u0301",
    "new\nline",
    "tab\tand\x01control\x7f",
    "quote'\"`",
    "back\\slash",
    "colon:star*?<>|",
    "{curly}[square]",
    "plus+and&more#",
    " blanks around ",
    "x" * 150,
    "__HIVE_DEFAULT_PARTITION__x",
    "NULL",
    "1e3",
    "007",
]


def row(number: int) -> dict[str, Any]:
    return {
        "n": number,
        "text": f'line {number}, "quoted"; ü € 😀\n\ttwo' if number % 7 else "",
        "amount": number / 8,
        "big": 2**53 + number,
        "is_odd": number % 2 == 1,
        "maybe": None if number % 3 else f"x{number}",
        "nested": {"a": number, "b": {"c": [number, number + 1]}},
        "list": [{"k": f"v{number}"}] * (number // 3 % 3),
        "late": number if number > ROWS // 2 else None,
    }


def known(row: dict[str, Any]) -> dict[str, Any]:
    """What of a row is not null: a file has no column of which it knows no value."""
    return {name: value for name, value in row.items() if value is not None}


def day(number: int) -> str:
    return datetime.fromtimestamp((BEGIN_MS + number % 3 * DAY_MS + number) / 1000, UTC).strftime("%Y-%m-%d")


@pytest.fixture
def filled(make_lake: Callable[..., Lake]) -> Lake:
    lake = make_lake(PARTITIONS)
    lake.send(as_json(map(row, range(ROWS)), PARTITIONS))
    return lake


@pytest.mark.parametrize(("kind", "compression"), [(kind, one) for kind in ("jsonl", "parquet", "avro") for one in COMPRESSIONS[kind]])
def test_rows_of_all_formats_hold_what_the_records_hold(filled: Lake, kind: str, compression: str) -> None:
    found = filled.run(sink={"format": kind, "compression": compression})
    filled.assert_each_once(found)
    rows = {one["n"]: one for file in found for one in file.rows}
    assert [known(rows[number]) for number in range(ROWS)] == [known(row(number)) for number in range(ROWS)]


@pytest.mark.parametrize("compression", COMPRESSIONS["csv"])
def test_csv_holds_texts_of_all_values(filled: Lake, compression: str) -> None:
    found = filled.run(sink={"format": "csv", "compression": compression})
    filled.assert_each_once(found)
    rows = {int(one["n"]): one for file in found for one in file.rows}
    expected = {
        name: "" if value is None else value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for name, value in row(20).items()
    }
    assert rows[20] == expected
    assert [rows[number]["text"] for number in range(ROWS)] == [row(number)["text"] for number in range(ROWS)]


@pytest.mark.parametrize("compression", COMPRESSIONS["lines"])
def test_lines_are_the_values_as_they_are_in_kafka(filled: Lake, compression: str) -> None:
    found = filled.run(sink={"format": "lines", "compression": compression}, converters={})
    filled.assert_each_once(found)
    assert {line for file in found for line in file.rows} == {one.value for one in filled.sent()}


def test_others_read_parquet_as_one_partitioned_table(filled: Lake, spark: SparkSession) -> None:
    filled.run(sink={"format": "parquet", "compression": "zstd"})
    root = filled.root / filled.topic
    expected = [known(row(number)) | {"dt": day(number)} for number in range(ROWS)]
    hive = dataset.partitioning(schema([("dt", string())]), flavor="hive")
    whole = unify_schemas([dataset.dataset(path).schema for path in files_below(root)])
    table = dataset.dataset(root, dataset.dataset(root, partitioning=hive).schema, partitioning=hive)
    by_pyarrow = dataset.dataset(root, unify_schemas([whole, table.schema]), format="parquet", partitioning=hive).to_table()
    assert [known(one) for one in sorted(by_pyarrow.to_pylist(), key=number_of)] == expected
    by_duckdb = duckdb_rows("*", f"read_parquet('{root}/**/*.parquet', {HIVE}, union_by_name=true)")
    assert [known(one) for one in sorted(by_duckdb, key=number_of)] == expected
    frame = spark.read.option("mergeSchema", True).parquet(str(root))
    by_spark = [one.asDict(recursive=True) for one in frame.withColumn("dt", frame.dt.cast("string")).collect()]
    assert [known(one) for one in sorted(by_spark, key=number_of)] == expected


def test_others_read_the_whole_store_as_a_table_and_pass_over_what_the_agent_keeps_there(filled: Lake, spark: SparkSession) -> None:
    filled.run(sink={"format": "parquet", "path": "topic={@topic}/dt={@timestamp:%Y-%m-%d}"})
    assert [path.name for path in filled.root.iterdir() if path.name[0] == "_"] == ["_copycat"]
    assert dataset.dataset(filled.root, partitioning="hive").count_rows() == ROWS
    assert duckdb_rows("count(*) AS rows", f"read_parquet('{filled.root}/**/*.parquet')") == [{"rows": ROWS}]
    assert spark.read.parquet(str(filled.root)).groupBy("topic").count().collect() == [(filled.topic, ROWS)]


def test_spark_reads_names_that_differ_only_in_case(lake: Lake, spark: SparkSession) -> None:
    lake.send(as_json([{"n": 0, "id": 0}, {"n": 1, "ID": 1}, {"n": 2, "o": {"a": 2}}, {"n": 3, "o": {"A": 3}}, {"n": 4, "id": 4}]))
    found = lake.run(sink={"format": "parquet", "path": "t"})
    lake.assert_each_once(found)
    for merges in (False, True):
        rows = spark.read.option("mergeSchema", merges).parquet(str(lake.root / "t")).select("n", "id", "o.a").collect()
        assert sorted((row[0], row[1], row[2]) for row in rows) == [(0, 0, None), (1, 1, None), (2, None, 2), (3, None, 3), (4, 4, None)]


def test_others_read_json_lines_and_csv_as_tables(filled: Lake, spark: SparkSession) -> None:
    expected = [(number, row(number)["text"], day(number)) for number in range(ROWS)]
    for kind, read in (("jsonl", "read_json"), ("csv", "read_csv")):
        filled.name = kind
        filled.run(sink={"format": kind, "compression": "zstd", "uri": f"file://{filled.root}/{kind}"})
        how = f"{HIVE}, allow_quoted_nulls=false" if kind == "csv" else HIVE
        rows = duckdb_rows("n, text, dt", f"{read}('{filled.root}/{kind}/**/*.{kind}.zst', {how}) ORDER BY n")
        assert [tuple(one.values()) for one in rows] == expected, kind
    # Spark reads zstd of text only with Hadoop's native library
    filled.name = "plain"
    filled.run(sink={"format": "jsonl", "compression": "gzip", "uri": f"file://{filled.root}/plain"})
    frame = spark.read.json(str(filled.root / "plain" / filled.topic))
    assert [tuple(one) for one in frame.select("n", "text", frame.dt.cast("string")).orderBy("n").collect()] == expected


@pytest.fixture
def paths(lake: Lake) -> Lake:
    lake.send(as_json({"n": number, "name": value} for number, value in enumerate(PATH_VALUES)))
    return lake


def test_readers_get_back_what_the_field_held(paths: Lake, spark: SparkSession) -> None:
    found = paths.run(sink={"format": "parquet", "path": "t/part={name}"})
    paths.assert_each_once(found)
    root = paths.root / "t"
    assert {len(one.directory.split("/")) for one in found} == {2}, "no value makes directories of its own"
    expected = dict(enumerate(PATH_VALUES))
    frame = spark.read.option("basePath", str(root)).parquet(str(root))
    assert {row.n: row.part for row in frame.select("n", frame.part.cast("string").alias("part")).collect()} == expected
    by_duckdb = duckdb_rows("n, part", f"read_parquet('{root}/**/*.parquet', hive_partitioning=true, hive_types_autocast=false)")
    assert {row["n"]: row["part"] for row in by_duckdb} == expected
    table = dataset.dataset(root, partitioning="hive").to_table(columns=["n", "part"])
    assert {row["n"]: str(row["part"]) for row in table.to_pylist()} == expected
