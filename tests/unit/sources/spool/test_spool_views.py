"""What is said of the files of a spool directory."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.sources.spool.rig import Spool

if TYPE_CHECKING:
    from pathlib import Path

BAD = b"PAR1 and no more"


def table(rows: int) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(rows))}), stream)
    return stream.getvalue()


def test_a_bad_file_that_stays_counts_as_troubled_until_somebody_takes_it_away(tmp_path: Path) -> None:
    spool = Spool(tmp_path, format="parquet")
    path = spool.drop("a.parquet", BAD)
    spool.drop("b.parquet", table(3))
    assert spool.source.lag().troubled_files == 0
    spool.drain()
    assert spool.source.lag().troubled_files == 1
    spool.restart()
    spool.scan()
    assert spool.source.lag().troubled_files == 1
    path.unlink()
    spool.scan()
    assert spool.source.lag().troubled_files == 0


@pytest.mark.parametrize(("form", "content", "counts", "unread"), [("parquet", table(3), True, 0), ("lines", b"a\nb\nc\n", False, 0)])
def test_a_view_says_what_its_position_counts(tmp_path: Path, form: str, content: bytes, counts: bool, unread: int) -> None:
    spool = Spool(tmp_path, format=form)
    spool.drop("a", content)
    spool.scan()
    (before,) = spool.source.files()
    assert (before.counts_records, before.unread) == (counts, len(content))
    spool.drain()
    (after,) = spool.source.files()
    assert (after.counts_records, after.unread, after.position) == (counts, unread, 3 if counts else len(content))
