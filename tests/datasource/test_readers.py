"""What a reader may do wrong, seen from the source that asks it: no connector, no broker."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.masks import Mask
from copycat_agent.sources.datasource.options import DataSourceOptions
from copycat_agent.sources.datasource.planner import ReaderFaultError, ReaderProcess
from copycat_agent.sources.datasource.source import DataSourceReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.sources.contract import Found

HEAD = """
from pathlib import Path
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader

SCHEMA = Path(__file__).with_name("schema")

class Source(DataSource):
    def schema(self):
        return SCHEMA.read_text() if SCHEMA.exists() else "id INT"
    def {method}(self, schema):
        return Reader()

class Reader({base}):
    def initialOffset(self):
        return {{"n": 0}}
"""
PLANS = """
    def latestOffset(self):
        return {"n": 5}
    def partitions(self, start, end):
        return [InputPartition(0)]
"""
READS = "    def read(self, partition):\n        yield (1,)\n"
BEGIN: dict[str, Any] = {"offset": {"n": 0}}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DataSourceOptions]:
    """Writes a data source with these methods of its reader."""

    def write(methods: str, *, simple: bool = False, **more: Any) -> DataSourceOptions:
        method, base = ("simpleStreamReader", "SimpleDataSourceStreamReader") if simple else ("streamReader", "DataSourceStreamReader")
        (tmp_path / "wrong.py").write_text(HEAD.format(method=method, base=base) + ("" if simple else PLANS) + methods, "utf-8")
        return DataSourceOptions.model_validate({"type": "datasource", "class": "wrong:Source", **more})

    monkeypatch.delitem(sys.modules, "wrong", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    return write


def found(options: DataSourceOptions, position: Any = BEGIN) -> Found:
    """What a look finds behind a saved position."""
    reader = DataSourceReader(options)
    try:
        (one,) = reader.look({"stream": position}, to_the_end=False)
    finally:
        reader.close()
    return one


def read(task: DataSourceReader, options: DataSourceOptions) -> list[Any]:
    """What a task reads of what a look finds."""
    stretch = task.plan(found(options), BEGIN)
    assert stretch is not None
    return [record for record, _ in task.read(stretch)]


def test_a_read_that_returns_none_is_refused_and_its_range_is_not_passed(write: Callable[..., DataSourceOptions]) -> None:
    options = write("    def read(self, partition):\n        return None\n")
    with pytest.raises(FatalError, match=r"read\(\) returned nothing; return an iterator, or an empty list"):
        read(DataSourceReader(options), options)


def test_a_simple_reader_that_returns_none_is_refused(write: Callable[..., DataSourceOptions]) -> None:
    options = write("    def read(self, start):\n        return None, {'n': 5}\n", simple=True)
    with pytest.raises(FatalError, match=r"read\(\) returned nothing; return an iterator, or an empty list"):
        found(options)


def test_a_task_makes_its_reader_anew_after_it_failed(write: Callable[..., DataSourceOptions], tmp_path: Path) -> None:
    options = write("    def read(self, partition):\n        yield tuple(range(len(SCHEMA.read_text().split(','))))\n")
    (tmp_path / "schema").write_text("a INT")
    task = DataSourceReader(options)
    assert read(task, options) == [{"a": 0}]
    (tmp_path / "schema").write_text("a INT, b INT")
    with pytest.raises(FatalError, match="a record of 2 values, and its schema has 1: a"):
        read(task, options)
    assert read(task, options) == [{"a": 0, "b": 1}]


def test_an_end_that_is_too_large_to_be_saved_is_refused_before_anything_is_planned(
    write: Callable[..., DataSourceOptions],
) -> None:
    large = "    def latestOffset(self):\n        return {'n': 'x' * 140_000}\n    def read(self, partition):\n        yield (1,)\n"
    found(write(large))
    start = {"offset": {"n": "y" * 140_000}}
    with pytest.raises(FatalError, match=r"a position of the source has 280,0[0-9]+ bytes as JSON, 262,144 are the most"):
        found(write(large, replayable=True), start)
    with pytest.raises(FatalError, match="262,144 are the most"):
        found(write(large.replace("140_000", "300_000")))


def test_what_an_exception_says_is_cut_after_secrets_are_hidden(write: Callable[..., DataSourceOptions]) -> None:
    secret = "hunter2-secret-token-0123456789"
    options = write(f"{READS}    def commit(self, end):\n        raise ValueError('x' * 490 + '{secret}')\n")
    planner = ReaderProcess(options.class_, {}, 30)
    try:
        with pytest.raises(ReaderFaultError) as raised:
            planner.ask("commit", end={"n": 1})
    finally:
        planner.close()
    shown = raised.value.shown(Mask([secret]))
    assert "hunter" not in shown
    assert 490 < len(shown) <= 500


def test_an_exception_that_cannot_be_told_leaves_the_planner_alive(write: Callable[..., DataSourceOptions]) -> None:
    options = write(
        f"{READS}    def commit(self, end):\n"
        "        class Odd(Exception):\n"
        "            def __str__(self):\n"
        "                raise ValueError('no')\n"
        "        raise Odd\n"
    )
    planner = ReaderProcess(options.class_, {}, 30)
    try:
        with pytest.raises(ReaderFaultError, match=r"failed \(commit\): Odd at wrong.py:"):
            planner.ask("commit", end={"n": 1})
        assert planner.ask("initial").values == {"offset": {"n": 0}}
    finally:
        planner.close()
