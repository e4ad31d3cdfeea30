"""A batch with a query makes the same of its records in the quick ways as when each is looked at by itself, whatever stands in a file.

The query is a stand-in here: what Spark makes of one is the affair of tests/spark.
"""

from __future__ import annotations

import functools
import gc
import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.batch.sql_answers import fields_of
from copycat_agent.batch.sql_encoding import AnsweredEncoder, QueryRowEncoder
from copycat_agent.batch.sql_run import SqlRun
from copycat_agent.batch.sql_table import FAILED, Table
from copycat_agent.definitions import load_file
from copycat_agent.encoding.encoder import Encoder, StageError
from copycat_agent.errors import CopycatError
from copycat_agent.executor import run_batch
from copycat_agent.formats import Envelopes
from copycat_agent.model import Column, SourceOffset, SourcePartition, Split, Stretch
from copycat_agent.options import AgentOptions
from copycat_agent.sources.contract import ENDLESS, EnvelopedRun
from copycat_agent.sources.contract_offsets import OffsetRecords
from copycat_agent.templates.metadata import TopicPlace
from copycat_agent.workbench.trying import RecordingProducer, RecordingProducerPool
from tests.rig.examples import examples
from tests.unit.batch.rig import batch_of, definition, never, split_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from copycat_agent.batch.progress import SplitProgress
    from copycat_agent.encoding.encoder import SplitEncoder
    from copycat_agent.formats import Chunk, Parsed
    from copycat_agent.model import SplitResult
    from copycat_agent.options import Definition

SCHEMA = "n int, word string, items array<int>, deep struct<a: double>"
QUERY = {"sql": {"query": "SELECT * FROM records", "schema": SCHEMA}}
BEFORE: list[list[dict[str, Any]]] = [
    [{"json": {}}],
    [{"json": {}, "on_error": "keep"}],
    [{"json": {}, "on_error": "drop"}],
    [{"json": {}}, {"drop_if": {"word": "drop"}}],
    [{"json": {}}, {"timestamp": {"field": "word", "format": "rfc3339"}, "on_error": "keep"}],
]
AFTER: list[list[dict[str, Any]]] = [[], [{"drop_if": {"word": "late"}}, {"set": {"twice": "{n}{n}"}}], [{"convert": {"word": "int"}}]]
RECORDS: list[dict[str, Any]] = [
    {},
    {"key": "{n}", "timestamp": "event"},
    {"value": "{items}"},
    {"timestamp": "event", "headers": {"at": "{@offset}"}},
]

AT = "2026-11-22T10:00:00Z"

_numbers = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, None, 2**31, 2**70, True, "7", 1.5])
_words = st.sampled_from([None, "plain", "drop", "late", "12", AT, AT, AT, "\ud800x", "ü", 3])
_items = st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3) | st.just("text") | st.just(["text"])
_deep = st.none() | st.just({"a": 1.5}) | st.just({"a": 10**400}) | st.just({"b": 1})
_objects = st.fixed_dictionaries({"n": _numbers, "word": _words}, optional={"items": _items, "deep": _deep, "more": st.just(1)})
_lines = st.one_of(
    _objects.map(lambda fields: json.dumps(fields).encode()),
    st.builds(lambda n: json.dumps({"n": n, "word": AT}).encode(), st.integers(0, 9)),
    st.sampled_from([b"", b"not json", b"[1]", b"7", b"\xff", b'\xef\xbb\xbf{"n": 1}', b'{"n": 1, "n": 2}', b'{"n": 1e400}', b"null"]),
)


class Kafka(RecordingProducer):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Any] = []

    def send(self, topic: str, values: list[bytes], tail: tuple[Any, ...]) -> None:
        self.messages += [_whole((topic, value, *tail)) for value in values]

    def send_each(self, messages: Any) -> None:
        self.messages += map(_whole, messages)


def _whole(message: tuple[Any, ...]) -> tuple[Any, ...]:
    usual = (None, None, None, -1, None, None, 0, None)
    return (*message, *usual[len(message) :])


class Query:
    """By a record's `n`: 3 is dropped, 5 fails, 7 and 8 become two; the others are as they are. Answers come in batches of 4 rows."""

    condemned = why = ""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._schema = pa.schema([])

    def put(self, batch: pa.RecordBatch) -> None:
        self._schema = batch.schema
        for row in batch.to_pylist():
            copies = 0 if row["n"] == 3 else 2 if row["n"] in (7, 8) else 1
            self._rows += [{**row, FAILED: "n" if row["n"] == 5 else None}] * copies

    def results(self) -> Iterator[pa.RecordBatch]:
        schema = self._schema.append(pa.field(FAILED, pa.string()))
        for at in range(0, len(self._rows), 4):
            yield pa.RecordBatch.from_pylist(self._rows[at : at + 4], schema=schema)
        self._rows = []


class OneByOne(SqlRun):
    """Looks at each record by itself, before the query and after it."""

    def _bind(self, progress: SplitProgress) -> SplitEncoder:
        encoder = super()._bind(progress)
        assert isinstance(encoder, AnsweredEncoder)
        encoder.bulk, encoder.asking.chunk = None, functools.partial(_each, encoder.asking)  # type: ignore[method-assign]
        return encoder


def _each(asking: QueryRowEncoder, chunk: Chunk | Parsed, number: int, first: int) -> tuple[list[dict[str, Any]], int]:
    found: list[dict[str, Any]] = []
    for draft in chunk.rows(number):
        found += asking.record(draft, first + len(found))
    return found, chunk.total


def ran(way: type[SqlRun], connector: Definition, path: Path, query: type[Query] = Query) -> tuple[list[Any], SplitResult, Any]:
    """What Kafka got, and the account."""
    kafka = Kafka()
    make = functools.partial(way, query=query())
    (result,) = run_batch(batch_of(connector, split_of(path, final=True)), RecordingProducerPool(lambda _: kafka), never, make_run=make)
    losses = tuple(loss._replace(at_ms=0) for loss in result.losses)
    return kafka.messages, replace(result, losses=losses, error=None), result.error and (type(result.error), str(result.error))


@settings(deadline=None, max_examples=examples(150))
@given(
    st.lists(_lines, max_size=30), st.sampled_from(BEFORE), st.sampled_from(AFTER), st.sampled_from(RECORDS),
    st.sampled_from(["all", "dlq", "none"]), st.sampled_from([None, "keep", "drop", "dlq"]), st.booleans(),
)  # fmt: skip
def test_quick_ways_make_what_a_look_at_each_record_makes(
    tmp_path_factory: Any, lines: Sequence[bytes], before: list[Any], after: list[Any], record: dict[str, Any],
    tolerance: str, on_error: str | None, ends: bool,
) -> None:  # fmt: skip
    path = tmp_path_factory.getbasetemp() / "ways.log"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ends else b""))
    errors = {"tolerance": "none" if tolerance == "none" else "all", **({"dlq": {"topic": "letters"}} if tolerance != "all" else {})}
    steps = [*before, {**QUERY, **({"on_error": on_error} if on_error else {})}, *after]
    connector = definition("127.0.0.1:1", "t", steps=steps, record=record, errors=errors)
    assert ran(SqlRun, connector, path) == ran(OneByOne, connector, path)


def test_a_number_of_a_huge_exponent_is_a_bad_record_and_not_the_end_of_the_process() -> None:
    rows = [{"price": Decimal("1E-8000000")}, {"price": Decimal("1E+8000000")}, {"price": Decimal("1.25")}]
    batch, bad = Table((Column("price", "decimal(10,2)"),)).batch(rows, [0, 1, 2])
    assert sorted(bad) == [0, 1]
    assert batch.column("price").to_pylist() == [Decimal("1.25")]


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        ("float", [3.4028235677973362e38, Decimal("1e-400"), float("inf"), Decimal("-Infinity"), float("nan"), 7],
         [3.4028235677973366e38, -1e300, Decimal("1e39"), 10**39, 10**400]),
        ("double", [1e308, Decimal("1e308"), float("-inf"), Decimal("Infinity"), Decimal("nan"), 10**308],
         [Decimal("1e400"), Decimal("-1e400"), 10**400]),
    ],
)  # fmt: skip
def test_a_number_that_its_column_would_make_infinite_is_a_bad_record(type_: str, good: list[Any], bad: list[Any]) -> None:
    for kind in (type_, f"array<{type_}>"):
        rows = [{"n": value if kind == type_ else [value]} for value in [*good, *bad]]
        batch, refused = Table((Column("n", kind),)).batch(rows, range(len(rows)))
        assert list(refused) == list(range(len(good), len(rows)))
        assert all(str(error).startswith("field 'n' is a number beyond it, ") for error in refused.values())
        assert batch.num_rows == len(good)


def test_an_object_in_a_column_of_texts_is_its_json_and_one_that_is_too_deep_is_a_bad_record() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    rows: list[dict[str, Any]] = [{"word": {"a": "\ud800"}}, {"word": deep}, {"word": {"\ud800": [1]}}]
    batch, bad = Table((Column("word", "string"),)).batch(rows, [0, 1, 2])
    assert {record: error.message.partition(",")[0] for record, error in bad.items()} == {1: "field 'word' is nested too deeply"}
    assert batch.column("word").to_pylist() == ['{"a": "?"}', '{"?": [1]}']


@pytest.mark.parametrize("on_error", [None, "keep", "drop", "dlq"])
@pytest.mark.parametrize("place", ["before", "behind"])
def test_many_bad_records_leave_few_errors_in_memory(tmp_path: Path, place: str, on_error: str | None) -> None:
    """The cycle collector is off meanwhile: an error that its own frame holds would stay."""
    path = tmp_path / "app.log"
    path.write_text('{"n": 1, "word": "x"}\n' * 3000)
    alive: list[int] = []

    def look() -> None:
        alive.append(sum(isinstance(each, CopycatError | StageError) for each in gc.get_objects()))

    class Looking(Query):
        def results(self) -> Iterator[pa.RecordBatch]:
            look()
            return super().results()

    class Run(SqlRun):
        def _send_answers(self) -> None:
            super()._send_answers()
            look()

    convert = {"convert": {"word": "int"}, **({"on_error": on_error} if on_error else {})}
    steps: list[dict[str, Any]] = [{"json": {}}, convert, QUERY] if place == "before" else [{"json": {}}, QUERY, convert]
    connector = definition("127.0.0.1:1", "t", steps=steps, errors={"tolerance": "all", "dlq": {"topic": "letters"}})
    gc.collect()
    look()
    _, result, error = ran(Run, connector, path, Looking)
    assert (result.counts.read, error) == (3000, None)
    assert max(alive) < min(alive) + 100


def test_what_steps_before_the_query_found_comes_back_with_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("".join(f'{{"n": {n}, "word": "1970-01-01T00:00:0{n}Z"}}\n' for n in (1, 3, 7, 9)))
    times = {"timestamp": {"field": "word", "format": "rfc3339"}}
    connector = definition("127.0.0.1:1", "t", steps=[{"json": {}}, times, QUERY], record={"key": "{n}", "timestamp": "event"})
    messages, result, error = ran(SqlRun, connector, path)
    assert [(key, at) for _, _, key, _, _, _, at, _ in messages] == [(b"1", 1000), (b"7", 7000), (b"7", 7000), (b"9", 9000)]
    assert (result.counts.acknowledged, result.counts.dropped, result.offset.records, error) == (3, 1, 4, None)


class Topic:
    """An `OffsetSource` with these values."""

    def __init__(self, *values: bytes | None) -> None:
        self._values = values

    def place(self, stretch: Stretch) -> TopicPlace:
        return TopicPlace(stretch.name, 0)

    def read(self, stretch: Stretch) -> Iterator[tuple[EnvelopedRun, int]]:
        read = [value and json.loads(value) for value in self._values] if stretch.work else self._values
        total = len(read)
        yield EnvelopedRun(read, Envelopes([b"k"] * total, [()] * total, [1] * total), range(1, total + 1), 1, self._values), total

    def apply(self, stretch: Stretch, position: int | None, *, finished: bool) -> int:
        return stretch.end if finished else position or 0


LAKE = {"sink": {"type": "files", "uri": "file:///lake", "path": "a", "format": "jsonl"}, "converters": {"value": "json"}}


@pytest.mark.parametrize("way", [SqlRun, OneByOne])
@pytest.mark.parametrize("is_lake", [False, True])
@pytest.mark.parametrize("values", [(b'{"n": 1}', None, b'{"n": 2}'), (None, None)])
def test_nulls_go_round_the_query(tmp_path: Path, way: type[SqlRun], *, is_lake: bool, values: tuple[bytes | None, ...]) -> None:
    steps = [QUERY] if is_lake else [{"json": {}}, QUERY]
    where = LAKE if is_lake else {"record": {"topic": "t"}}
    (tmp_path / "app.yaml").write_text(
        json.dumps({"name": "app", "source": {"type": "kafka", "topics": ["x"]}, "transforms": steps, **where})
    )
    connector = load_file(tmp_path / "app.yaml", AgentOptions(), environ={}).definition
    assert connector is not None
    encoder, kafka, make = Encoder(connector), Kafka(), functools.partial(way, query=Query())
    encoder.frames = OffsetRecords(Topic(*values), "test")  # type: ignore[assignment]
    stretch = Stretch("x/0", "x", 0, len(values), work=b"fields" if is_lake else b"")
    split = Split(SourcePartition("app", "x/0"), "x", "", SourceOffset(0), ENDLESS, stretch=stretch)
    (result,) = run_batch(batch_of(connector, split), RecordingProducerPool(lambda _: kafka), never, encoder, make)
    nulls = values.count(None)
    sent = [value for _, value, *_ in kafka.messages]
    assert result.error is None
    assert (result.counts.acknowledged, result.counts.dropped) == ((len(values) - nulls, nulls) if is_lake else (len(values), 0))
    assert [value is None for value in sent] == [value is None for value in values if not (is_lake and value is None)]


@pytest.mark.parametrize(
    ("type_", "counts", "wanted"),
    [(pa.timestamp("us", "UTC"), [0, None, 1_790_000_000_000 * 10**6],
      [datetime(1970, 1, 1, tzinfo=UTC), None, "+58692-11-03T14:13:20+00:00"]),
     (pa.timestamp("us"), [-62_135_596_800_000_001], ["0000-12-31T23:59:59.999999"]), (pa.date32(), [2_932_897], ["+10000-01-01"])],
)  # fmt: skip
def test_times_beyond_the_years_that_python_has_come_as_text(type_: pa.DataType, counts: list[int | None], wanted: list[Any]) -> None:
    column = pa.array(counts, pa.int32() if type_ == pa.date32() else pa.int64()).view(type_)
    rows = fields_of(pa.RecordBatch.from_arrays([column, pa.StructArray.from_arrays([column], ["at"])], ["a", "b"]))
    assert rows == [{"a": one, "b": {"at": one}} for one in wanted]
