"""Files in an object store, read once and whole by a run to the end: a real S3 protocol over HTTP, a real broker."""

from __future__ import annotations

import bz2
import gzip
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from copycat_agent.definitions import load_file
from copycat_agent.errors import BlockedError, FatalError, RetriableError
from copycat_agent.executor import InlineExecutor
from copycat_agent.model import SourceOffset
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.sources import SOURCES
from copycat_agent.sources.files.reading.address import parse_address
from copycat_agent.sources.files.reading.remote_objects import BLOCK_BYTES, RemoteHandle, list_files
from copycat_agent.sources.remote import maker
from copycat_agent.worker import Status, Worker
from tests.rig.kafka import values
from tests.rig.object_store import CREDENTIALS, ObjectStore, object_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.watch import Watcher

SECONDS = 60.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 server; each test has a prefix of its own."""
    with object_store(tmp_path_factory.mktemp("store")) as store:
        yield store


class Run:
    """Runs to the end over addresses, with one state directory."""

    def __init__(self, root: Path, broker: DevBroker, topic: str, watcher: Watcher) -> None:
        self.topic = topic
        self._root = root
        self._broker = broker
        self._watcher = watcher

    def __call__(self, *patterns: str, **sections: Any) -> Status:
        """One run, to its end."""
        source = {"type": "log_file", "include": ["/unused/*"]}
        record = {"topic": self.topic, "key": "{@file.path}"}
        path = self._root / "app.yaml"
        path.write_text(yaml.safe_dump({"name": "app", "source": source, "record": record, **sections}), "utf-8")
        loaded = load_file(path, AgentOptions(kafka=KafkaOptions(bootstrap_servers=(self._broker.bootstrap,))))
        assert loaded.definition is not None, loaded.problems
        make = maker(SOURCES[loaded.definition.source.type], patterns)
        executor = InlineExecutor()
        offsets = OffsetStore.open(self._root / "state")
        worker = Worker(offsets, executor, self._watcher, until_idle=True, make_source=make)
        try:
            worker.apply([loaded.definition])
            assert worker.wait(SECONDS), worker.statuses()
            return worker.statuses()[0]
        finally:
            worker.stop(5.0)
            self.offsets = {one.path: one for one in offsets.read("app").values()}
            offsets.close()
            executor.close()

    offsets: dict[str, SourceOffset]

    def lines(self) -> list[bytes | None]:
        """All that arrived."""
        return values(self._broker.bootstrap, self.topic)


@pytest.fixture
def run(tmp_path: Path, broker: DevBroker, topic: str, watcher: Watcher) -> Run:
    """A connector named app."""
    return Run(tmp_path, broker, topic, watcher)


def _lines(name: str, count: int) -> list[bytes]:
    return [b"%s %06d" % (name.encode(), number) for number in range(count)]


def _text(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def test_plain_and_packed_objects_arrive_once_also_when_the_run_is_repeated(run: Run, store: ObjectStore) -> None:
    plain, zipped, other = _lines("plain", 3000), _lines("gzip", 3000), _lines("bz2", 10)
    store.put("mixed/2026-11-01.jsonl", _text(plain)[:-1])  # the last line has no delimiter: nobody will finish it
    store.put("mixed/2026-11-02 a+b%20.jsonl.gz", gzip.compress(_text(zipped)))
    store.put("mixed/deep/2026-11-03.jsonl.bz2", bz2.compress(_text(other)))
    store.put("mixed/2026-10-31.jsonl", b"not asked for\n")
    store.put("mixed/2026-11-04.jsonl", b"")
    pattern = store.uri("mixed/**/2026-11-*")
    assert run(pattern).state == "stopped"
    assert sorted(run.lines()) == sorted(plain + zipped + other)  # type: ignore[type-var]
    assert all(offset.done and not offset.trouble for path, offset in run.offsets.items() if path)
    assert all("endpoint_override" not in path for path in run.offsets)
    assert run(pattern).state == "stopped"
    assert len(run.lines()) == 6010


def test_a_directory_is_everything_below_it(run: Run, store: ObjectStore) -> None:
    store.put("tree/a/one", b"1\n")
    store.put("tree/b/two", b"2\n")
    store.put("treetop", b"3\n")
    run(store.uri("tree/"))
    assert sorted(run.lines()) == [b"1", b"2"]  # type: ignore[type-var]


def test_what_the_definition_excludes_is_not_read(run: Run, store: ObjectStore) -> None:
    store.put("some/a.log", b"a\n")
    store.put("some/a.bak", b"excluded by name\n")
    store.put("some/deep/b.log", b"excluded by path\n")
    run(store.uri("some"), source={"type": "log_file", "include": ["/unused/*"], "exclude": ["*.bak", "/**/deep/*"]})
    assert run.lines() == [b"a"]


def test_lines_that_belong_together_are_one_record(run: Run, store: ObjectStore) -> None:
    store.put("multi/app.log", b"ERROR one\n  at a\n  at b\nINFO two\n")
    source = {"type": "log_file", "include": ["/unused/*"], "multiline": {"continues": r"^\s"}}
    run(store.uri("multi/app.log"), source=source)
    assert run.lines() == [b"ERROR one\n  at a\n  at b", b"INFO two"]


def test_a_format_reads_objects_as_it_reads_spooled_files(run: Run, store: ObjectStore) -> None:
    rows = [b'{"n": %d}' % number for number in range(100)]
    store.put("spool/a.jsonl.gz", gzip.compress(_text(rows)))
    source = {"type": "spool_dir", "dir": "/unused", "format": "lines"}
    run(store.uri("spool/*.gz"), source=source)
    assert run.lines() == rows


def test_a_format_that_begins_at_the_end_of_a_file_reads_objects(run: Run, store: ObjectStore, tmp_path: Path) -> None:
    table = pa.table({"n": list(range(5000)), "word": [f"w{number}" for number in range(5000)]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=1000)
    store.put("spool/a.parquet", (tmp_path / "a.parquet").read_bytes())
    source = {"type": "spool_dir", "dir": "/unused", "format": "parquet"}
    run(store.uri("spool/a.parquet"), source=source)
    rows = [json.loads(line or b"") for line in run.lines()]
    assert [(row["n"], row["word"]) for row in rows] == [(number, f"w{number}") for number in range(5000)]


def test_an_object_larger_than_a_block_is_read_in_few_requests(store: ObjectStore) -> None:
    data = bytes(range(256)) * (2 * BLOCK_BYTES // 256 + 1000)
    store.put("large/a", data)
    handle = RemoteHandle(store.uri("large/a"))
    asked = []
    fetch = handle._fetch

    def counted(position: int, size: int) -> bytes:
        asked.append(size)
        return fetch(position, size)

    handle._fetch = counted  # type: ignore[method-assign]
    got = b""
    while more := handle.pread(2**20, len(got)):
        got += more
    assert got == data
    assert len(asked) < 6
    assert handle.stat().st_size == len(data)
    handle.close()


def test_an_object_that_is_replaced_while_it_is_read_is_no_longer_what_was_opened(store: ObjectStore) -> None:
    """Also within the second that is the finest the store's clock shows, and of the same size: its tag says so."""
    store.put("replaced/a", b"x" * 100)
    handle = RemoteHandle(store.uri("replaced/a"))
    assert handle.pread(10, 0) == b"x" * 10
    assert handle.stat().st_size == 100
    store.put("replaced/a", b"y" * 100)
    handle._head = handle._block = b""
    handle.pread(10, 50)
    assert handle.stat().st_size == -1
    handle.close()


def test_an_object_that_was_replaced_after_it_was_listed_is_read_as_it_is_now(
    run: Run, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("late/a", b"old\n")
    found = list_files(parse_address(store.uri("late/a")))
    store.put_elsewhere_in_time("late/a", b"newer\n")
    monkeypatch.setattr("copycat_agent.sources.remote.list_files", lambda _: found)
    with caplog.at_level(logging.WARNING):
        run(store.uri("late/a"))
    assert run.lines() == [b"newer"]
    assert "was replaced while it was read" in caplog.text


def test_a_damaged_object_gives_what_comes_before_and_is_reported(run: Run, store: ObjectStore) -> None:
    lines = _lines("cut", 50_000)
    store.put("damaged/a.gz", gzip.compress(_text(lines))[:-2000])
    store.put("damaged/b", b"good\n")
    status = run(store.uri("damaged/*"))
    arrived = run.lines()
    assert b"good" in arrived
    assert [line for line in arrived if line != b"good"] == lines[: len(arrived) - 1]
    assert len(arrived) > 1000
    assert status.troubled_files == 1
    assert "before its end" in run.offsets["s3://logs/damaged/a.gz"].trouble


def test_an_object_that_went_away_is_given_up_and_counted(run: Run, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.sources.remote._RETRY_SECONDS", (0.01, 30.0))
    store.put("gone/a", b"1\n")
    store.put("gone/b", b"2\n")
    found = list_files(parse_address(store.uri("gone/*")))
    store.delete("gone/a")
    monkeypatch.setattr("copycat_agent.sources.remote.list_files", lambda _: found)
    status = run(store.uri("gone/*"))
    assert run.lines() == [b"2"]
    assert status.troubled_files == 1
    assert not run.offsets["s3://logs/gone/a"].done


@pytest.mark.parametrize("name", ["nothing/here/*", "nothing", "spool/*.nothing"])
def test_an_address_of_nothing_says_so(store: ObjectStore, name: str) -> None:
    with pytest.raises(FatalError, match=r"no file|cannot be listed: there is no such file"):
        list_files(parse_address(store.uri(name)))


def test_a_bucket_that_is_not_there_is_told(store: ObjectStore) -> None:
    with pytest.raises(FatalError, match="no such"):
        list_files(parse_address(f"s3://other/a/*{store.query}"))


@pytest.mark.long  # the SDK tries for 6 s
def test_a_store_that_does_not_answer_is_no_fault_of_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    store = ObjectStore(tmp_path)  # never started
    with pytest.raises(RetriableError, match="NETWORK_CONNECTION") as caught:
        list_files(parse_address(store.uri("a")))
    assert store.query not in str(caught.value)
    assert not isinstance(caught.value, BlockedError)


def test_files_of_a_mount_have_addresses_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "a.log").write_bytes(b"1\n2\n")
    run(f"file://{tmp_path}/mount/*.log")
    assert run.lines() == [b"1", b"2"]
