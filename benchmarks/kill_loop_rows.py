"""A data source for the kill loop: the whole lines of a file that only grows, by PySpark's interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

_MOST_BYTES = 16 * 2**10
"""A range is no larger, so that a kill falls between ranges as well as into one."""


class LedgerRows(DataSource):
    """One column, `line`. Option `path` names the file."""

    def schema(self) -> str:
        """One column."""
        return "line STRING"

    def streamReader(self, _schema: Any) -> DataSourceStreamReader:  # noqa: ANN401, N802 - PySpark's interface
        """See `DataSource.streamReader`."""
        return _Reader(Path(self.options["path"]))


class _Reader(DataSourceStreamReader):
    """Offsets are bytes. The partitions of a range are its two halves."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's interface
        return {"byte": 0}

    def latestOffset(self, start: dict[str, int], _limit: Any) -> dict[str, int]:  # type: ignore[override]  # noqa: ANN401, N802 - as above
        block = self._bytes(start["byte"], start["byte"] + _MOST_BYTES)
        return {"byte": start["byte"] + block.rfind(b"\n") + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # type: ignore[override]
        block = self._bytes(start["byte"], end["byte"])
        middle = start["byte"] + block.find(b"\n", len(block) // 2) + 1
        return [InputPartition((start["byte"], middle)), InputPartition((middle, end["byte"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield from ((line.decode(),) for line in self._bytes(*partition.value).splitlines())

    def _bytes(self, begin: int, end: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin)
