"""However a batch works through a file, it sends the same records in the same order, and counts the same.

Quickly or row by row, at once or in many small batches, told to stop again and again, whatever Kafka refuses, on the spot or later.
"""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from copycat_agent.batch import sending
from copycat_agent.encoding.encoder import Encoder
from copycat_agent.errors import DataError
from copycat_agent.executor import run_batch
from copycat_agent.formats.records import FORMATS
from copycat_agent.model import Batch, Counts, SourceOffset, SourcePartition, Split, TaskId
from copycat_agent.producer import Message, RefusedRecordError
from copycat_agent.sources import SOURCES
from copycat_agent.workbench.trying import RecordingProducer, RecordingProducerPool
from tests.rig.examples import examples
from tests.unit.batch.rig import OneByOne, definition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from copycat_agent.options import Definition

ANY = 10**9
NOW = 1_800_000_000.0
DLQ = "dlq"
USUAL: Message = (None, -1, None, None, 0, None)


class Kafka(RecordingProducer):
    """Refuses values with `refuse` on the spot, and those with `later` when it is asked to flush. `taken` is what has arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Message] = []
        self.failed = False

    def send_each(self, messages: Iterable[Message]) -> None:
        for number, message in enumerate(messages):
            full = message + USUAL[len(message) - 2 :]
            if b"refuse" in (message[1] or b"") and message[0] != DLQ:
                raise RefusedRecordError(number, DataError("refused"))
            self.kept.append((*full[:6], full[6], tuple(full[7] or ())))

    def flush(self) -> None:
        going, self.kept[:] = list(self.kept), []
        if any(b"later" in (message[1] or b"") and message[0] != DLQ for message in going):
            raise DataError("refused later")
        self.taken += going


STEPS: list[dict[str, Any]] = [
    {"regex": r"^(?P<word>\S+) (?P<n>\d+)(?: (?P<rest>.*))?"},
    {"grok": "%{WORD:word} %{INT:n}"},
    {"json": {}},
    {"logfmt": {}},
    {"csv": {"columns": ("a", "b", "c")}},
    {"key_value": {}},
    {"syslog": {}},
    {"cri": {}},
    {"docker": {}},
    {"timestamp": {"field": "n", "format": "unix"}},
    {"timestamp": {"field": "ts", "format": "%Y-%m-%d"}},
    {"convert": {"n": "int", "a": "float"}},
    {"rename": {"word": "renamed"}},
    {"set": {"env": "prod", "where": "{@offset}"}},
    {"set": {"copy": "{word}"}},
    {"default": {"word": "none", "n": 0}},
    {"drop_fields": ("rest",)},
    {"keep_fields": ("word", "n", "message")},
    {"flatten": {}},
    {"nest": {"fields": ("word", "n"), "into": "inner"}},
    {"hash": {"field": "word"}},
    {"mask": {"message": {"pattern": r"\d", "with": "#"}}},
    {"replace": {"word": {"pattern": "o", "with": "0"}}},
    {"keep_if": {"message": {"matches": "o"}}},
    {"drop_if": {"word": {"matches": "^f"}}},
    {"drop_if": {"message": {"matches": "drop"}}},
    {"sample": {"rate": 0.5}},
]
RECORDS: list[dict[str, Any]] = [
    {},
    {"key": "{word}"},
    {"key": "{@offset}"},
    {"headers": {"at": "{@offset}-{@record.number}", "host": "{@host}"}},
    {"headers": {"host": "{@connector}"}},
    {"origin_headers": True},
    {"topic": "t.{word}"},
    {"topic": "t.{word}", "allowed_topics": ("t.foo", "t.bar")},
    {"timestamp": "event"},
    {"timestamp": "event", "headers": {"time": "{@timestamp:%Y-%m-%d}"}},
    {"timestamp": "file"},
    {"timestamp": "broker"},
    {"value": "{word}"},
    {"value": "{message}"},
    {"value": "<{word} {n}>", "key": "{@record.number}"},
    {"partition": "file"},
    {"partition": 2, "key": "k"},
]
ERRORS: list[dict[str, Any]] = [{"tolerance": "all"}, *[{"tolerance": "all", "dlq": {"topic": DLQ}}] * 2, {}, {"dlq": {"topic": DLQ}}]
GROUPS: list[dict[str, Any]] = [
    {"start": "^(foo|bar)"},
    {"start": "^foo", "max_lines": 2},
    {"continues": "^[^f]", "max_bytes": 40},
    {"preset": "container", "max_lines": 3, "on_too_long": "truncate"},
]
LINES = [
    b"foo 1",
    b"foo 2 drop",
    b"bar 17 refuse",
    b"bar -3",
    b"bar 18 later",
    b"foo 1700000000 rest of it",
    b"",
    b"\r",
    b"word",
    b'{"word":"foo","n":1}',
    b'{"word":null,"n":[1,{"a":2}],"message":"x"}',
    b'{"word":"../a","ts":"2024-01-01"}',
    b'{"word":"bar","refuse":1}',
    b"[1,2]",
    b"a=b word=foo n=12",
    b"x,y,z",
    b"\xff\xfe bad \xc3",
    "wörd 5 ünicode".encode(),
    b"<34>1 2003-10-11T22:14:15.003Z host app - ID47 - text",
    b"2024-01-01T00:00:00.000000000Z stdout F foo 1",
    b'{"log":"foo 1\\n","stream":"stdout","time":"2024-01-01T00:00:00Z"}',
    b"long " * 30,
    bytes(70),
    b"foo" + bytes(600) + b"bar 3",
    b"foo" + bytes(3) + b"bar 3",
]


def of_lines(draw: Callable[[Any], Any]) -> tuple[bytes, bool]:
    """A file, and whether it ends for good."""
    lines = draw(st.lists(st.sampled_from(LINES), min_size=draw(st.sampled_from([0, 6, 12])), max_size=25))
    delimiter = draw(st.sampled_from([b"\n", b"\r\n"]))
    data = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf", bytes(80)])) + b"".join(line + delimiter for line in lines)
    return data + draw(st.sampled_from([b"", b"foo 9", b"refuse", b"\0\0"])), draw(st.booleans())


@st.composite
def files(draw: Callable[[Any], Any]) -> tuple[bytes, bool]:
    """See `of_lines`."""
    return of_lines(draw)


@st.composite
def steps(draw: Callable[[Any], Any]) -> list[dict[str, Any]]:
    """A few steps, with their conditions and policies."""
    chosen = draw(st.lists(st.sampled_from(STEPS), max_size=4))
    made = []
    for one in chosen:
        more: dict[str, Any] = {}
        if policy := draw(st.sampled_from([None, None, None, "keep", "keep", "drop", "dlq", "stop"])):
            more["on_error"] = policy
        if draw(st.integers(0, 4)) == 0:
            more["if"] = {draw(st.sampled_from(["message", "word"])): {"matches": "o"}}
        made.append({**one, **more})
    return made


def connector(draw: Callable[[Any], Any]) -> Definition:
    """A definition of log files."""
    record = {**draw(st.sampled_from(RECORDS)), **draw(st.sampled_from(RECORDS))}
    line = {
        "skip_empty": draw(st.booleans()),
        "max_bytes": draw(st.sampled_from([100, 1000])),
        "on_too_long": draw(st.sampled_from(["dlq", "truncate", "drop", "split"])),
    }
    errors = draw(st.sampled_from(ERRORS))
    chosen = [{**one, "on_error": "keep"} if one.get("on_error") == "dlq" and "dlq" not in errors else one for one in draw(steps())]
    made = definition(
        "127.0.0.1:9",
        str(record.pop("topic", "t")),
        line=line,
        multiline=draw(st.sampled_from([None, None, None, *GROUPS])),
        record=record,
        steps=chosen,
        value=draw(st.sampled_from(["", "", "json", "string"])),
        errors=errors,
    )
    event(f"{len(chosen)} steps")
    if draw(st.integers(0, 3)) == 0:
        form = draw(st.sampled_from(["jsonl", "csv"]))
        source = SOURCES["spool_dir"].options.model_validate({"type": "spool_dir", "dir": "/x", "format": FORMATS[form].options(type=form)})
        made = made.model_copy(update={"source": source})
        event(form)
    return made


@st.composite
def connectors(draw: Callable[[Any], Any]) -> Definition:
    """See `connector`."""
    return connector(draw)


def asked_more_than(times: int) -> Callable[[], bool]:
    """A stop request that comes when it has been asked for so often."""
    asked = iter(range(ANY))
    return lambda: next(asked) >= times


class Shipped:
    """What became of a file, batch after batch until nothing is left."""

    def __init__(
        self,
        connector: Definition,
        path: Path,
        *,
        final: bool,
        stops: Iterator[int] | None = None,
        encoder: type[Encoder] = Encoder,
        **limits: Any,
    ) -> None:
        self.kafka = Kafka()
        self.counts = Counts()
        self.named: list[Any] = []
        offset = SourceOffset(0)
        made = encoder(connector)
        made.clock = lambda: NOW
        size = path.stat().st_size
        self.errors: list[str] = []
        for _ in range(400):
            split = Split(SourcePartition("app", "f"), str(path), str(path), offset, size, final, mtime_ms=1_700_000_000_000)
            most = {"max_bytes": 2**26, "max_seconds": 60.0, "max_records": 0, "samples": 0, **limits}
            batch = Batch(TaskId("app", 0), pickle.dumps(connector), (split,), *most.values())
            left = next(stops) if stops is not None else ANY
            (result,) = run_batch(batch, RecordingProducerPool(lambda _: self.kafka), asked_more_than(left), made)
            if result.error is not None:
                self.errors.append(f"{type(result.error).__name__}: {result.error}")
            is_stuck = result.offset.position == offset.position and left == ANY  # what is left there is unfinished
            self.counts += result.counts
            self.named += [*result.rejections, *result.step_failures]
            offset = replace(result.offset, done=False)
            if result.at_end or is_stuck or self.errors:
                break
        self.offset = offset
        counts = self.counts
        assert counts.read == counts.acknowledged + counts.dead_lettered + counts.dropped + counts.rejected
        assert counts.kept <= counts.acknowledged
        assert len(self.kafka.taken) == counts.acknowledged + counts.dead_lettered

    def told(self) -> tuple[Any, ...]:
        """What has to be the same."""
        return self.kafka.taken, self.counts, self.offset, self.errors


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(connectors(), files(), st.integers(1, 7), st.integers(1, 300), st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_all_ways(connector: Definition, file: tuple[bytes, bool], records: int, size: int, stops: list[int]) -> None:
    data, final = file
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "f"
        path.write_bytes(data)
        quick = Shipped(connector, path, final=final)
        slow = Shipped(connector, path, final=final, encoder=OneByOne)
        assert quick.told() == slow.told()
        assert sorted(quick.named) == sorted(slow.named)
        assert quick.told() == Shipped(connector, path, final=final, samples=2).told()
        if not quick.errors:
            assert quick.told() == Shipped(connector, path, final=final, max_records=records).told()
            assert quick.told() == Shipped(connector, path, final=final, max_bytes=size).told()
            with pytest.MonkeyPatch.context() as monkeypatch:
                monkeypatch.setattr(sending, "LOOK_SECONDS", -1)  # after each record
                for encoder in (Encoder, OneByOne):
                    again = iter([*stops, *[ANY] * 400])
                    assert quick.told() == Shipped(connector, path, final=final, stops=again, encoder=encoder).told()
