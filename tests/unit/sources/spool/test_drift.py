"""Columns that come and go between files: one warning that names them, at most one a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.model import Column, Schema
from copycat_agent.sources.spool_dir.views import TELL_SECONDS, ColumnDrift

if TYPE_CHECKING:
    import pytest


def test_other_columns_are_told_with_both_files_and_not_too_often(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    drift = ColumnDrift(logs.get("test"), lambda: now[0])
    for path, names in (("a", "xy"), ("b", "xy"), ("c", "xz"), ("d", "x")):
        drift.note(path, Schema(tuple(Column(name) for name in names)))
    drift.note("e", None)
    assert len(caplog.records) == 1
    words = str(caplog.records[0].__dict__)
    assert all(f"'{key}': '{value}'" in words for key, value in {"path": "c", "before": "b", "new": "z", "missing": "y"}.items())
    now[0] += TELL_SECONDS
    drift.note("f", Schema((Column("x"), Column("q"))))
    assert len(caplog.records) == 2
