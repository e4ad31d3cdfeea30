"""A data source that Spark's workers can import: numbers from 1 to 1000, in ranges of 300."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

LAST = 1000


class Numbers(DataSource):
    """Rows `id`, `name`."""

    def schema(self) -> str:
        return "id BIGINT, name STRING"

    def streamReader(self, schema: Any) -> NumbersReader:  # noqa: N802 - PySpark's name
        return NumbersReader()


class NumbersReader(DataSourceStreamReader):
    """Its offset is the number that comes next."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"next": 1}

    def getDefaultReadLimit(self) -> ReadMaxRows:  # noqa: N802 - PySpark's name
        return ReadMaxRows(300)

    def latestOffset(self, start: Any, limit: Any) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"next": min(start["next"] + getattr(limit, "max_rows", LAST), LAST + 1)}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return [InputPartition((start["next"], end["next"]))]

    def read(self, partition: Any) -> Iterator[tuple[int, str]]:
        begin, end = partition.value
        return ((one, f"n{one}") for one in range(begin, end))
