"""What a reader may do wrong, seen from the source that asks it: no connector, no broker."""

from __future__ import annotations

import errno
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from copycat_agent import logs
from copycat_agent.display import SecretMask
from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.options import DeliveryOptions
from copycat_agent.sources.datasource.reader_process import ReaderFaultError, ReaderProcess
from copycat_agent.sources.datasource.source import DATASOURCE, DataSourceOptions, DataSourceReader
from tests.datasource.conftest import UnhurriedStart
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.sources import Source
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
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # else another text of the same length within a second counts as the same module
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
    mood = tmp_path / "mood"
    options = write(
        f"    def __init__(self):\n        self.mood = Path({str(mood)!r}).read_text()\n"
        f"    def read(self, partition):\n        int(Path({str(mood)!r}).read_text())\n        yield (int(self.mood),)\n"
    )
    task = DataSourceReader(options)
    for text in ("1", "bad", "2"):
        mood.write_text(text)
        if text == "bad":
            with pytest.raises(RetriableError, match=r"failed \(read\): ValueError at wrong.py:"):
                read(task, options)
        else:
            assert read(task, options) == [{"id": int(text)}]


def test_a_task_has_the_schema_with_which_a_range_was_planned(write: Callable[..., DataSourceOptions], tmp_path: Path) -> None:
    options = write("    def read(self, partition):\n        yield tuple(range(len(SCHEMA.read_text().split(','))))\n")
    task = DataSourceReader(options)
    for schema, record in (("a INT", {"a": 0}), ("b INT", {"b": 0}), ("a INT, b INT", {"a": 0, "b": 1})):
        (tmp_path / "schema").write_text(schema)
        assert read(task, options) == [record]
    stretch = task.plan(found(options), BEGIN)
    assert stretch is not None
    (tmp_path / "schema").write_text("b INT, a INT")
    words = r"the schema of wrong:Source was \(a int, b int\) when its connector began, and is \(b int, a int\) now"
    with pytest.raises(FatalError, match=f"{words}; copycat ctl restart NAME"):
        list(DataSourceReader(options).read(stretch))


def test_partitions_that_are_too_much_for_the_driver_are_refused(write: Callable[..., DataSourceOptions]) -> None:
    options = write(READS + "    def partitions(self, start, end):\n        while True:\n            yield InputPartition('x' * 2**20)\n")
    with pytest.raises(FatalError, match=r"partitions\(\) returns more than 16,777,216 bytes, pickled, after 16 partitions"):
        found(options)


def test_the_end_of_a_run_is_where_the_data_ended_at_its_beginning_however_it_grows(
    write: Callable[..., DataSourceOptions], tmp_path: Path
) -> None:
    """Each look finds more than the one before, in portions of `most` rows or without a limit."""
    grows = (
        "    asked = 0\n"
        "    def latestOffset(self, start, limit):\n"
        "        self.asked += STEP\n"
        "        return {{'n': min(1000 + self.asked, start['n'] + getattr(limit, 'max_rows', 10**9))}}\n"
        "    def partitions(self, start, end):\n"
        "        return [InputPartition((start['n'], end['n']))]\n"
        "    def read(self, partition):\n"
        "        yield from ((one,) for one in range(*partition.value))\n"
    )
    limit = (
        "    def getDefaultReadLimit(self):\n"
        "        from pyspark.sql.streaming.datasource import ReadMaxRows\n"
        "        return ReadMaxRows(300)\n"
    )
    for step, most, ranges in ((7, "", [1007]), (7, limit, [1007]), (0, limit, [300, 600, 900, 1000])):
        options = write(grows.replace("{{", "{").replace("}}", "}").replace("STEP", str(step)) + most)
        reader, position, ends = DataSourceReader(options), BEGIN, []
        while (one := next(iter(reader.look({"stream": position}, to_the_end=True)))).end is not None:
            ends.append(one.end["end"]["n"])
            position = {"offset": one.end["end"]}
        reader.close()
        assert ends == ranges


def test_a_simple_reader_that_grows_and_whose_range_failed_is_asked_for_the_same_range_again(
    write: Callable[..., DataSourceOptions],
) -> None:
    options = write(
        "    end = 5\n"
        "    def read(self, start):\n"
        "        self.end += 1\n"
        "        return [(one,) for one in range(start['n'], self.end)], {'n': self.end}\n"
        "    def readBetweenOffsets(self, start, end):\n"
        "        return ((one,) for one in range(start['n'], end['n']))\n",
        simple=True,
    )
    reader = DataSourceReader(options)
    try:
        (first,) = reader.look({"stream": BEGIN}, to_the_end=True)
        (again,) = reader.look({"stream": BEGIN}, to_the_end=True)
        assert again.end == first.end == {"start": {"n": 0}, "end": {"n": 6}}
        stretch = reader.plan(again, BEGIN)
        assert stretch is not None
        assert [record for record, _ in reader.read(stretch)] == [{"id": one} for one in range(6)]
        (last,) = reader.look({"stream": {"offset": {"n": 6}}}, to_the_end=True)
        assert last.end is None
    finally:
        reader.close()


def test_a_planner_that_does_not_even_read_a_question_is_killed(write: Callable[..., DataSourceOptions]) -> None:
    planner = UnhurriedStart(write(READS).class_, {}, 2)
    try:
        psutil.Process(planner.pid).suspend()
        with pytest.raises(RetriableError, match=r"has not answered \(commit\) within 2 s: its process was killed"):
            planner.ask("commit", end="x" * 2**24)
        assert planner.is_gone
    finally:
        planner.close()


def test_a_process_that_cannot_be_started_now_is_tried_again(
    write: Callable[..., DataSourceOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    class_ = write(READS).class_
    with monkeypatch.context() as exhausted:
        exhausted.setattr("subprocess.Popen", fails)
        with pytest.raises(RetriableError, match="cannot be started: Resource temporarily unavailable"):
            ReaderProcess(class_, {}, 100)
    ReaderProcess(class_, {}, 100).kill()


def test_offsets_are_compared_as_json(write: Callable[..., DataSourceOptions]) -> None:
    """An offset whose keys come in another order is the same one: nothing lies between them."""
    shuffled = "    def latestOffset(self):\n        return {'b': 1, 'a': [None, 'x']}\n"
    assert found(write(READS + shuffled), {"offset": {"a": [None, "x"], "b": 1}}).end is None
    assert found(write(READS + shuffled), {"offset": {"a": [None, "x"], "b": True}}).end is not None


def test_a_reader_is_told_of_ends_of_ranges_only(write: Callable[..., DataSourceOptions], tmp_path: Path) -> None:
    told = tmp_path / "told"
    options = write(f"{READS}    def commit(self, end):\n        Path({str(told)!r}).open('a').write(repr(end))\n")
    reader = DataSourceReader(options)
    try:
        reader.committed({"stream": {"offset": {"n": 0}, "end": {"n": 5}, "records": 1}})
        assert not told.exists()
        reader.committed({"stream": {"offset": {"n": 5}}})
        assert told.read_text() == "{'n': 5}"
    finally:
        reader.close()


def is_planned(source: Source) -> bool:
    """Whether the reader has answered by now, and there is something to read."""
    source.end_timed_out(at_once=False)
    if source.needs_scan:
        source.finish((), source.scan())
    return bool(source.plan(1).splits)


def test_an_offset_of_another_class_is_neither_gone_on_from_nor_told(write: Callable[..., DataSourceOptions]) -> None:
    options = write(READS)
    words = (
        r"the saved offset is one of old:Source, and source.class is wrong:Source: .*; copycat offsets reset NAME .*"
        r"copycat offsets set NAME --key stream .*; or set source.class back to old:Source"
    )
    partition = SourcePartition("app", "stream")
    for path, is_refused in (("old:Source", True), ("wrong:Source", False), ("stream", False)):
        offsets = {partition: SourceOffset(4, records=4, path=path, cursor='{"offset":{"n":1}}')}
        source = DATASOURCE.make("app", options, DeliveryOptions(), offsets, logs.get("test"))
        with pytest.raises(FatalError, match=words) if is_refused else nullcontext():
            source.finish((), source.scan())
            wait_until(lambda source=source: is_planned(source), 60)  # type: ignore[misc]
        source.close()


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
    planner = ReaderProcess(options.class_, {}, 100)
    try:
        with pytest.raises(ReaderFaultError) as raised:
            planner.ask("commit", end={"n": 1})
    finally:
        planner.close()
    shown = raised.value.shown(SecretMask([secret]))
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
    planner = ReaderProcess(options.class_, {}, 100)
    try:
        with pytest.raises(ReaderFaultError, match=r"failed \(commit\): Odd at wrong.py:"):
            planner.ask("commit", end={"n": 1})
        assert planner.ask("initial").values == {"offset": {"n": 0}}
    finally:
        planner.close()
