"""Promises of records in parts: each part has the fields and the key of the first, goes where that goes, and no batch cuts elsewhere."""

from __future__ import annotations

import functools
import json
import os
import pickle
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.batch.run import BatchRun
from copycat_agent.batch.sql_run import SqlRun
from copycat_agent.batch.sql_table import FAILED
from copycat_agent.encoding.window import WindowedDefinition, WindowOptions
from copycat_agent.executor import run_batch
from copycat_agent.formats.records import FORMATS
from copycat_agent.model import Counts, SourceOffset, Split
from copycat_agent.sources import SOURCES
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS
from copycat_agent.workbench.trying import RecordingProducerPool
from tests.unit.batch.rig import batch_of, definition, never, split_of
from tests.unit.batch.test_sql_ways import Kafka, Query
from tests.unit.sources.packing import PACK

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.model import SplitResult
    from copycat_agent.options import Definition

GROUPS = {"start": r"^\d\d:", "max_lines": 2}
PATTERN = {"regex": r"(?s)^(?P<at>\S+) (?P<level>\S+) (?P<text>.*)"}
TRACE = b"10:00 ERROR boom\n\tat a\n\tat b 4111111111111111\n\tat c\n\tat d\n"
QUIET = b"10:01 DEBUG fine\n\tat a\n\tat b\n\tat c\n11:00 INFO end\n"


class Got:
    """What became of a file, batch after batch until nothing is left."""

    def __init__(
        self, connector: Definition, path: Path, *, query: type[Query] | None = None, split: Split | None = None, **limits: Any
    ) -> None:
        self.kafka = Kafka()
        self.counts = Counts()
        self.errors: list[str] = []
        self.results: list[SplitResult] = []
        make: Any = BatchRun if query is None else functools.partial(SqlRun)
        split = split or split_of(path, final=True)
        for _ in range(200):
            run = make if query is None else functools.partial(make, query=query())
            (result,) = run_batch(batch_of(connector, split, **limits), RecordingProducerPool(lambda _: self.kafka), never, make_run=run)
            self.counts += result.counts
            self.results.append(result)
            split = self._next(split, result)
            if result.error is not None:
                self.errors.append(str(result.error))
            if result.error is not None or result.at_end:
                break
        counts = self.counts
        assert counts.read == counts.acknowledged + counts.dead_lettered + counts.dropped + counts.rejected
        assert counts.acknowledged + counts.dead_lettered <= len(self.kafka.messages)

    @staticmethod
    def _next(split: Split, result: SplitResult) -> Split:
        return replace(split, offset=pickle.loads(pickle.dumps(replace(result.offset, done=False))))

    def values(self) -> list[Any]:
        return [json.loads(value) if value[:1] == b"{" else value for _, value, *_ in self.kafka.messages]

    def headers(self, name: str) -> list[str | None]:
        return [None if (found := dict(headers or ()).get(name)) is None else found.decode() for *_, headers in self.kafka.messages]

    def of(self, index: int) -> list[Any]:
        return [message[index] for message in self.kafka.messages]


def connector(**how: Any) -> Definition:
    return definition("127.0.0.1:1", "t", **{"multiline": GROUPS, **how})


def file(path: Path, data: bytes) -> Path:
    (path / "f").write_bytes(data)
    return path / "f"


def test_parts_are_records_with_headers_that_say_so(tmp_path: Path) -> None:
    got = Got(connector(), file(tmp_path, TRACE + QUIET))
    assert b"".join(got.of(1)[:3]) == TRACE[:-1]
    assert got.headers("copycat.part") == ["1", "2", "3", "1", "2", None]
    assert got.headers("copycat.parts") == [None, None, "3", None, "2", None], "the last one tells how many there are"
    assert got.headers("copycat.part_of") == ["f@0"] * 3 + [f"f@{len(TRACE)}"] * 2 + [None]
    assert (got.counts.read, got.counts.acknowledged, got.counts.too_long) == (6, 6, 2)
    assert not got.results[0].losses


@pytest.mark.parametrize(("codec", "by_task"), [("", False), ("gzip", False), ("gzip", True)])
@pytest.mark.parametrize("start", [0, len(QUIET)])
def test_parts_that_are_read_from_a_copy_are_of_the_same_record(tmp_path: Path, codec: str, by_task: bool, start: int) -> None:
    """`by_task`: a task finds out what the archive is the rest of; else the source has."""
    text = (QUIET if start else b"") + TRACE + QUIET
    first = split_of(file(tmp_path, text), start=start, final=True)
    (result,) = run_batch(batch_of(connector(), first, max_bytes=1), RecordingProducerPool(lambda _: Kafka()), never)
    assert result.counts.acknowledged == 1
    copy = tmp_path / "copy"
    copy.write_bytes(PACK[codec](text) if codec else text)
    offset = replace(result.offset, compression=codec, size=copy.stat().st_size)
    rest = replace(split_of(copy, end=2**30 if codec else len(text), final=True), offset=offset)
    if by_task:
        rest = replace(rest, offset=SourceOffset(0, compression=codec, size=offset.size), origins=(offset,))
    got = Got(connector(), copy, split=rest, max_bytes=1)
    assert got.headers("copycat.part") == ["2", "3", "1", "2", None]
    assert got.headers("copycat.part_of") == [f"f@{start}"] * 2 + [f"copy@{start + len(TRACE)}"] * 2 + [None]


@pytest.mark.parametrize("size", [1, 10, 25, 40, 2**26])
def test_each_part_carries_the_fields_and_the_key_of_the_first_and_its_own_text(tmp_path: Path, size: int) -> None:
    record = {"key": "{at} {level}", "headers": {"at": "{@offset}"}, "timestamp": "event"}
    steps = [
        PATTERN,
        {"set": {"day": "2026-11-23T{at}:00Z"}},
        {"timestamp": {"field": "day", "format": "rfc3339"}},
        {"drop_if": {"level": "DEBUG"}},
    ]
    got = Got(connector(steps=steps, record=record), file(tmp_path, TRACE + QUIET), max_bytes=size)
    assert not got.errors
    fields = {"at": "10:00", "level": "ERROR", "day": "2026-11-23T10:00:00Z"}
    texts = ["boom\n\tat a\n", "\tat b 4111111111111111\n\tat c\n", "\tat d"]
    assert got.values()[:3] == [{**fields, "text": text} for text in texts]
    assert got.of(2) == [b"10:00 ERROR"] * 3 + [b"11:00 INFO"]
    assert got.of(6)[:3] == [1_795_428_000_000] * 3
    assert got.headers("at")[:3] == ["0", "23", str(len(TRACE) - 6)], "a part's place is its own"
    assert got.counts.dropped == 2, "what was decided of the first part holds for all"


def test_what_is_to_be_masked_is_masked_in_every_part(tmp_path: Path) -> None:
    steps = [PATTERN, {"mask": {"text": r"\d{12}(\d{4})"}}, {"rename": {"text": "message"}}]
    got = Got(connector(steps=steps), file(tmp_path, TRACE), max_bytes=1)
    assert not any("411111111111" in value["message"] for value in got.values())
    assert "1111" in got.values()[1]["message"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"regex": r"^(?P<at>\S+) (?P<level>\S+)"}, {"at": "10:00", "level": "ERROR"}),
        ({"regex": r"^(?P<at>\S+) (?P<level>\S+) (?P<text>.*)"}, {"at": "10:00", "level": "ERROR", "text": "\tat d"}),
        ({"grok": "%{NOTSPACE:at} %{GREEDYDATA:message}"}, {"at": "10:00", "message": "\tat d"}),
        ({"regex": {"pattern": r"(?s)^(?P<at>\S+) (?P<m>.*)", "into": "found"}}, {"found": {"at": "10:00", "m": "\tat d"}}),
        ({"regex": {"pattern": r"(?s)^(?P<at>\S+) (?P<m>.*)", "keep_source": True}}, {"message": "\tat d", "at": "10:00", "m": "\tat d"}),
        ({"key_value": {"field_split": "|", "value_split": " ", "prefix": "m."}}, {"m.10:00": "\tat d"}),
        ({"json": {}, "on_error": "keep"}, {"message": "\tat d"}),
        ({"regex": r"^(?P<at>\S+)", "if": {"message": {"matches": "never"}}}, {"message": "\tat d"}),
        ({"set": {"env": "prod"}}, {"message": "\tat d", "env": "prod"}),
    ],
)  # fmt: skip
def test_the_text_of_a_part_stands_where_the_end_of_the_first_part_s_text_stood(
    tmp_path: Path, step: dict[str, Any], expected: dict[str, Any]
) -> None:
    got = Got(connector(steps=[step], value="json"), file(tmp_path, TRACE), max_bytes=1)
    assert got.values()[2] == expected


def test_text_that_the_steps_leave_out_of_a_record_does_not_come_back_in_its_parts(tmp_path: Path) -> None:
    steps = [{"regex": r"^(?P<at>\S+) (?P<level>\S+) (?P<text>.*)"}, {"mask": {"text": r"\d{12}(\d{4})"}}]
    got = Got(connector(steps=steps), file(tmp_path, TRACE), max_bytes=1)
    assert not any(b"411111111111" in value for value in got.of(1))
    assert "1111" in got.values()[1]["text"]


def test_what_a_runtime_wraps_around_each_line_is_taken_off_in_every_part(tmp_path: Path) -> None:
    lines = [f"2026-11-23T10:00:0{n}Z stdout F {text}\n" for n, text in enumerate(TRACE.decode().split("\n")[:-1])]
    got = Got(connector(steps=[{"cri": {}}, PATTERN]), file(tmp_path, "".join(lines).encode()), max_bytes=1)
    assert [value["text"] for value in got.values()] == ["boom\n\tat a\n", "\tat b 4111111111111111\n\tat c\n", "\tat d"]
    assert {value["time"] for value in got.values()} == {"2026-11-23T10:00:00Z"}


@pytest.mark.parametrize("size", [1, 2**26])
def test_parts_of_a_bad_record_are_dead_letters_all_of_them(tmp_path: Path, size: int) -> None:
    errors = {"tolerance": "all", "dlq": {"topic": "dead"}}
    got = Got(connector(steps=[{"regex": "^(?P<x>never)"}], errors=errors), file(tmp_path, TRACE), max_bytes=size)
    assert got.of(0) == ["dead"] * 3
    assert b"".join(got.of(1)) == TRACE[:-1]
    assert got.headers("copycat.part") == ["1", "2", "3"]
    assert got.headers("copycat.step") == ["transforms[0] regex"] * 3
    assert len(set(got.of(2))) == 1, "one key, so that they stand one behind the other"
    without = Got(connector(steps=[{"regex": "^(?P<x>never)"}], errors={"tolerance": "all"}), file(tmp_path, TRACE), max_bytes=size)
    assert without.counts.rejected == 3
    assert sum(loss.size_bytes for result in without.results for loss in result.losses) == len(TRACE)


def test_a_first_part_that_stops_the_connector_keeps_the_offset_before_it(tmp_path: Path) -> None:
    got = Got(connector(steps=[{"regex": "^(?P<x>never)"}]), file(tmp_path, b"09:00 INFO x\n" + TRACE))
    assert len(got.errors) == 1
    assert (got.results[-1].offset.position, got.results[-1].offset.cut) == (0, "")


@pytest.mark.parametrize("partition", ["key", "sticky"])
def test_parts_without_a_key_go_into_one_partition(tmp_path: Path, partition: str) -> None:
    key = {"key": "{@connector}"} if partition == "sticky" else {}
    record: dict[str, Any] = {"partition": partition, **key}
    got = Got(connector(record=record), file(tmp_path, TRACE), max_bytes=1)
    assert got.of(3) == [0, 0, 0], "the stand-in's topics have one"


def test_an_offset_between_two_parts_says_what_has_to_be_known(tmp_path: Path) -> None:
    got = Got(connector(), file(tmp_path, TRACE + QUIET), max_bytes=1)
    first = got.results[0].offset
    assert (first.position, first.skipping, first.cut.split(" ")[:3]) == (23, True, ["1", "0", "23"])
    assert (got.results[-1].offset.skipping, got.results[-1].offset.cut) == (False, "")


def test_a_definition_that_splits_no_more_passes_the_rest_and_says_so(tmp_path: Path) -> None:
    path = file(tmp_path, TRACE + QUIET)
    begun = Got(connector(), path, max_bytes=1).results[0]
    other = connector(multiline={**GROUPS, "on_too_long": "drop"})
    (result,) = run_batch(
        batch_of(other, replace(split_of(path, final=True), offset=begun.offset)), RecordingProducerPool(lambda _: Kafka()), never
    )
    assert [(loss.start, loss.end, loss.reason) for loss in result.losses] == [(23, len(TRACE + QUIET) - 15, "too_long")]


def test_a_first_part_that_is_gone_when_it_is_read_again_is_the_file_s_trouble(tmp_path: Path) -> None:
    path = file(tmp_path, TRACE)
    begun = Got(connector(), path, max_bytes=1).results[0]
    with path.open("r+b") as opened:
        os.ftruncate(opened.fileno(), 10)
    split = replace(split_of(path, end=len(TRACE), final=True), offset=replace(begun.offset, fingerprint=type(begun.offset.fingerprint)()))
    (result,) = run_batch(batch_of(connector(steps=[PATTERN]), split), RecordingProducerPool(lambda _: Kafka()), never)
    assert result.changed or result.error is not None
    assert result.offset.position == 23


def test_a_backfill_by_time_takes_all_parts_of_a_record_or_none(tmp_path: Path) -> None:
    path = file(tmp_path, b"2026-11-23T10:00:00Z a\n b\n c\n d\n e\n2026-11-23T12:00:00Z f\n g\n h\n")
    plain = definition("127.0.0.1:1", "t", multiline={"continues": "^ ", "max_lines": 2})
    since = WindowOptions(since_ms=1_795_431_600_000)
    for size in (1, 2**26):
        windowed = WindowedDefinition.model_validate({**dict(plain), "window": since})
        assert Got(windowed, path, max_bytes=size).of(1) == [b"2026-11-23T12:00:00Z f\n g\n", b" h"]


SQL = {"sql": {"query": "SELECT * FROM records WHERE level <> 'DEBUG'", "schema": "at string, level string, text string"}}


@pytest.mark.parametrize("codec", ["", "gzip"])
@pytest.mark.parametrize("size", [1, 2**26])
def test_lines_of_a_dropped_file_go_in_parts_packed_or_not(tmp_path: Path, codec: str, size: int) -> None:
    text = "kurz\n" + "ä" * 700 + "\nlast, without end " + "x" * 30
    path = tmp_path / "f"
    path.write_bytes(PACK[codec](text.encode()) if codec else text.encode())
    form = {"type": "lines", "line": {"max_bytes": 25, "on_too_long": "split"}}
    made = connector(multiline=None).model_copy(update={"source": spooled(form)})
    offset = SourceOffset(0, compression=codec, size=path.stat().st_size, mtime_ns=path.stat().st_mtime_ns)
    got = Got(made, path, split=replace(split_of(path, end=ENDLESS if codec else None, final=True), offset=offset), max_bytes=size)
    values = [value.decode() for value in got.of(1)]
    assert "".join(values) == text.replace("\n", "")
    assert got.headers("copycat.part")[:3] == [None, "1", "2"]
    assert got.headers("copycat.parts")[-1] == "2"
    assert got.headers("copycat.partial")[-1] == "true"


def test_parts_before_the_damage_of_an_archive_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "f"
    text = random.Random(7).randbytes(200_000).hex().encode()
    path.write_bytes(PACK["gzip"](text + b"\n")[:60_000])
    form = {"type": "lines", "line": {"max_bytes": 1000, "on_too_long": "split"}}
    made = connector(multiline=None).model_copy(update={"source": spooled(form)})
    offset = SourceOffset(0, compression="gzip", size=path.stat().st_size, mtime_ns=path.stat().st_mtime_ns)
    got = Got(made, path, split=replace(split_of(path, end=ENDLESS, final=True), offset=offset))
    assert got.results[-1].damage
    sent = b"".join(got.of(1))
    assert text.startswith(sent)
    assert len(sent) > 50_000
    assert got.headers("copycat.part") == [str(number) for number in range(1, len(got.of(1)) + 1)]


def spooled(form: dict[str, Any]) -> Any:
    options = FORMATS["lines"].options.model_validate(form)
    return SOURCES["spool_dir"].options.model_validate({"type": "spool_dir", "dir": "/x", "format": options})


class ByLevel(Query):
    """A query that keeps what is not DEBUG, two of WARN, and fails for FATAL."""

    def put(self, batch: Any) -> None:
        self._schema = batch.schema
        for row in batch.to_pylist():
            copies = {"DEBUG": 0, "WARN": 2}.get(row["level"], 1)
            self._rows += [{**row, FAILED: "text" if row["level"] == "FATAL" else None}] * copies


@pytest.mark.parametrize("size", [1, 2**26])
def test_a_query_sees_each_part_with_the_fields_of_the_first(tmp_path: Path, size: int) -> None:
    data = TRACE + QUIET.replace(b"11:00", b"10:02 WARN w\n\tat a\n\tat b\n10:03 FATAL x\n\ty\n\tz\n11:00")
    errors = {"tolerance": "all", "dlq": {"topic": "dead"}}
    how: dict[str, Any] = {"steps": [PATTERN, SQL, {"set": {"more": "{level}"}}], "record": {"key": "{at}"}, "errors": errors}
    got = Got(connector(**how), file(tmp_path, data), query=ByLevel, max_bytes=size)
    sent = [message for message in got.kafka.messages if message[0] == "t"]
    assert [(json.loads(value)["text"], json.loads(value)["more"], key) for _, value, key, *_ in sent] == [
        ("boom\n\tat a\n", "ERROR", b"10:00"), ("\tat b 4111111111111111\n\tat c\n", "ERROR", b"10:00"), ("\tat d", "ERROR", b"10:00"),
        *[("w\n\tat a\n", "WARN", b"10:02")] * 2, *[("\tat b", "WARN", b"10:02")] * 2,
        ("end", "INFO", b"11:00"),
    ]  # fmt: skip
    dead = [message for message in got.kafka.messages if message[0] == "dead"]
    assert [dict(headers)["copycat.part"] for *_, headers in dead] == [b"1", b"2"]
    assert got.counts.dropped == 2
