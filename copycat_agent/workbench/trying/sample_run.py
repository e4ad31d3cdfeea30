"""A sample through the real pipeline: `run_batch` over a file, with a stand-in for producers that keeps what would be sent.

The samples of a source without files are what it gives next, or records that somebody wrote down, one JSON object a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

from copycat_agent import logs
from copycat_agent.batch.policy import RAW_BYTES_CUT
from copycat_agent.batch.run import BatchRun
from copycat_agent.encoding import letters
from copycat_agent.encoding.files_layout import shown_value
from copycat_agent.errors import DataError, FatalError, FileError
from copycat_agent.executor import run_batch
from copycat_agent.model import Batch, SourceOffset, SourcePartition, Split, Stretch, TaskId
from copycat_agent.options import Definition, DlqOptions, ErrorsOptions, KafkaOptions, LimitsOptions
from copycat_agent.producer import Intact, Message, Producers, TaskProducer
from copycat_agent.sources import SOURCES, LooksLater, create_source
from copycat_agent.sources.contract import ENDLESS, PolledOptions, Position, Record
from copycat_agent.sources.contract_stream import Records
from copycat_agent.sources.files.packing.compressions import MAGIC_BYTES
from copycat_agent.sources.files.packing.unpacking import codec_of
from copycat_agent.transforms import StepError
from copycat_agent.workbench.trying.results import Fate, Output, TrialResult, TriedRecord, Where, likely_path
from copycat_agent.workbench.trying.tracing import QueryStep, RowTrace, TracedEncoder, TracedMessage

_RUN_BYTES = 2**20
"""What is taken comes in runs of this size, once the pipeline has settled them."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_SECONDS = 600.0
_ANY_DLQ = DlqOptions(topic="dead-letters")
MOST_RECORDS = 10_000
"""Of a sample that should be taken: each is kept with all its steps."""
_ANY_BYTES = 2**20
"""Of a sample that is no file."""
_HERE = Where()
_run = partial(BatchRun)
"""Without Spark, also where the definition has a query: the encoder keeps what waits for it, see `TracedSplit.ask`."""


def _nothing(*_: object, **__: object) -> None:
    """What a stand-in does where a producer would talk to Kafka."""


class _AnyTopic:
    """Every topic is there, as far as anyone can tell without Kafka."""

    def partitions(self, topic: str) -> int:
        """One, so that no record is held back."""
        del topic
        return 1


class StandIn(TaskProducer):
    """Stands in for a task's producer: all has arrived, as far as the pipeline is told. `kept` is what would have been sent, in order."""

    run_bytes = _RUN_BYTES
    tracked = False
    batch_bytes = 0
    topics = cast("Any", _AnyTopic())
    hand_over = begin = attribute = flush = weigh = partly_sent = cast("Any", _nothing)
    smaller_batches = take_view = attend = on_delivery = on_statistics = close = cast("Any", _nothing)

    def __init__(self) -> None:
        self.kept: list[Message] = []
        self.broken = False
        self.next_batch_bytes = 0

    def send(self, topic: str, values: list[bytes], tail: Message) -> None:
        """Keep a message for each value."""
        self.send_each((topic, value, *tail) for value in values)

    def send_each(self, messages: Iterable[Message]) -> None:
        """Keep the messages."""
        self.kept += messages

    def may_send(self, source: Intact, end: int) -> bool:  # noqa: ARG002 - no file changes meanwhile
        """Always."""
        return True


class StandIns(Producers):
    """Hands out what `make(connector)` makes instead of producers, anew for each batch."""

    def __init__(self, make: Callable[[str], TaskProducer]) -> None:
        super().__init__()
        self._make = make

    def take(self, task: TaskId, options: KafkaOptions, *, tracked: bool = False) -> TaskProducer:
        """Make one, whatever the options."""
        del options, tracked
        return self._make(task.connector)

    give_back = cast("Any", _nothing)


def take(
    definition: Definition, content: bytes | Path | None, *, most: int = 0, where: Where = _HERE, query: QueryStep | None = None
) -> TrialResult:
    """The records of a file as `definition` makes them: the first `most`, or all (0). Asks neither Kafka nor a registry, moves nothing.

    `content`: the file's bytes, or where it lies; bytes are called like a file that the source would read, unless `where` says another
    name. None: what a source without files gives first, had it never run. `query` answers its `sql` step, if it has one. Raises
    FileError when the file cannot be read, other CopycatErrors for a definition that cannot work.
    """
    encoder = _encoder(definition, where)
    keeper, trace = StandIn(), encoder.trace
    with _sample(definition, encoder, content, where) as (split, size_bytes):
        batch = Batch(TaskId(definition.name, 0), b"", (split,), max(size_bytes, 1) * 2**12, _SECONDS, max_records=most and most + 1)
        with contextlib.closing(StandIns(lambda _: keeper)) as producers:
            (result,) = run_batch(batch, producers, lambda: 0 < most < len(trace.entries), encoder, _run)
    _ask(encoder, query)
    records = _Results(definition, encoder).of(trace.entries, keeper.kept)
    taken = records[:most] if most else records
    has_more = result.error is None and not result.damage and (not result.at_end or len(taken) < len(records))
    dropped = result.counts.too_long if encoder.frames.on_too_long == "drop" else 0
    return TrialResult(taken, result.error, result.damage, has_more, encoder.unchecked, dropped)


@contextlib.contextmanager
def _sample(definition: Definition, encoder: TracedEncoder, content: bytes | Path | None, where: Where) -> Iterator[tuple[Split, int]]:
    """What to read, and how large it is, packed or not."""
    if content is None:
        yield upcoming(definition), _ANY_BYTES
        return
    name = where.path or (str(content.absolute()) if isinstance(content, Path) else likely_path(definition))
    if isinstance(definition.source, PolledOptions):
        split, encoder.frames = given(definition, content, name)  # type: ignore[assignment]
        yield split, _ANY_BYTES
        return
    with _opened(content) as fd:
        info = os.fstat(fd)
        mtime_ms = info.st_mtime_ns // 1_000_000 if where.mtime_ms is None else where.mtime_ms
        yield _split(definition, encoder, fd, name, mtime_ms), info.st_size


def _encoder(definition: Definition, where: Where) -> TracedEncoder:
    """Raises FatalError for what only shows when the definition is put to work."""
    try:
        return TracedEncoder(_harmless(definition), where)
    except ValueError as error:
        raise FatalError(f"the definition cannot work: {error}", "correct it") from None


def _ask(encoder: TracedEncoder, query: QueryStep | None) -> None:
    """Let the records go on through the `sql` step. Raises FatalError where nobody can answer it."""
    if encoder.bound is not None and len(encoder.stages) > 1:
        if query is None:
            raise FatalError("a sql step needs Spark to be looked at", "use copycat try or copycat test")
        encoder.bound.ask(query)


def _harmless(definition: Definition) -> Definition:
    """As it is, but telling where each record comes from, going on behind bad ones, which leave a letter, and at full speed."""
    dlq = definition.errors.dlq or _ANY_DLQ
    errors = ErrorsOptions(tolerance="all", dlq=dlq.model_copy(update={"include_raw": True}))
    return definition.model_copy(update={"errors": errors, "limits": LimitsOptions()})


@contextlib.contextmanager
def _opened(content: bytes | Path) -> Iterator[int]:
    """The file, or one in memory with these bytes. Raises FileError."""
    if isinstance(content, bytes):
        fd = os.memfd_create("sample", os.MFD_CLOEXEC)
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
    else:
        try:
            fd = os.open(content, _FLAGS)
        except OSError as error:
            raise FileError(f"{str(content)!r} cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileError(f"{str(content)!r} is not a regular file")
        yield fd
    finally:
        os.close(fd)


def _split(definition: Definition, encoder: TracedEncoder, fd: int, name: str, mtime_ms: int) -> Split:
    """All of the file, as nobody will finish what is unfinished in it."""
    info = os.fstat(fd)
    codec = codec_of(os.pread(fd, MAGIC_BYTES, 0), definition.source)
    is_plain = not (codec or getattr(encoder.frames, "counts_records", False))
    partition = SourcePartition(definition.name, f"sample:{info.st_dev}:{info.st_ino}")
    offset = SourceOffset(0, path=name, size=info.st_size, compression=codec, mtime_ns=info.st_mtime_ns)
    end, opened = info.st_size if is_plain else ENDLESS, f"/proc/{os.getpid()}/fd/{fd}"
    return Split(partition, name, opened, offset, end, final=True, inode=info.st_ino, mtime_ms=mtime_ms, flush=True)


class _Results:
    """Makes results of what was noted and what was sent."""

    def __init__(self, definition: Definition, encoder: TracedEncoder) -> None:
        self._definition = definition
        self._encoder = encoder
        self._by_record = bool(getattr(encoder.frames, "counts_records", False))

    def of(self, entries: list[RowTrace], sent: list[Message]) -> tuple[TriedRecord, ...]:
        """In the file's order. What has no entry never came as far as the steps: an over-long line; its letter tells of it."""
        known = {entry.draft.number for entry in entries}
        found = [self._sampled(entry) for entry in entries]
        said = [(message, _headers(message)) for message in sent]
        found += [self._lettered(*one) for one in said if letters.STAGE in one[1] and int(one[1][letters.RECORD]) not in known]
        return tuple(sorted(found, key=lambda one: (one.start, one.number)))

    def _sampled(self, entry: RowTrace) -> TriedRecord:
        draft, bad = entry.draft, entry.error
        outputs = tuple(map(self._output, entry.made))
        value = draft.framed if isinstance(draft.framed, bytes | dict) else None
        raw = draft.raw if draft.raw is not None else value if isinstance(value, bytes) else None
        fate: Fate = "stops" if entry.halts else self._fate(bad.error) if bad else "sent" if outputs else "dropped"
        stage, error = (bad.stage, bad.error) if bad else ("", None)
        place = (draft.number, draft.start, draft.end, self._by_record, raw, value)
        return TriedRecord(*place, fate, tuple(entry.steps), outputs, stage, error)

    def _lettered(self, letter: Message, said: dict[str, bytes]) -> TriedRecord:
        """From a dead letter alone."""
        error = DataError(said[letters.MESSAGE].decode("utf-8", "replace"), "raise the limit, or set on_too_long")
        number, start, end = (int(said[name]) for name in (letters.RECORD, letters.OFFSET, letters.END))
        raw = letter[1][:RAW_BYTES_CUT] if letter[1] is not None else None
        return TriedRecord(number, start, end, self._by_record, raw, None, self._fate(error), (), (), said[letters.STAGE].decode(), error)

    def _fate(self, error: DataError) -> Fate:
        """What becomes of a bad record, by the step that failed and by `errors`."""
        policy, errors = getattr(error, "policy", "") if isinstance(error, StepError) else "", self._definition.errors
        if policy == "stop" or (errors.tolerance == "none" and policy != "dlq"):
            return "stops"
        return "dead-lettered" if errors.dlq is not None else "passed over"

    def _output(self, made: TracedMessage) -> Output:
        topic, payload, key, _, _, _, timestamp_ms, headers = made.message + (None,) * (8 - len(made.message))
        chosen = self._definition.record.partition
        sent = None if self._encoder.has_schema else shown_value(payload)
        partition = chosen if isinstance(chosen, int) else None
        return Output(topic, key, made.value, made.fields, sent, tuple(headers or ()), timestamp_ms or None, partition)


def _headers(message: Message) -> dict[str, bytes]:
    """The first of each name: what the agent says goes before what a template makes."""
    headers = message[7] if len(message) > 7 and message[7] else ()  # noqa: PLR2004 - its place in a message
    return dict(reversed(list(headers)))


KEY = "sample"


class _Given:
    """An `AuthorSource` of which only `read` is asked, for the lines in the stretch's `work`."""

    look = plan = apply = committed = close = cast("Any", _nothing)

    def read(self, stretch: Stretch) -> Iterator[tuple[Record, Position]]:
        for number, line in enumerate(stretch.work.splitlines(), 1):
            if line.strip():
                yield _fields(line, number), number


def _fields(line: bytes, number: int) -> dict[str, Any]:
    """Raises FatalError for a line that is no JSON object."""
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise FatalError(f"line {number} of the sample is no JSON object", "a record of this source is written as one, on a line")
    return fields


def given(definition: Definition, content: bytes | Path, name: str) -> tuple[Split, Records]:
    """Lines of JSON as what a task of the source would be given. Raises FileError."""
    try:
        lines = content if isinstance(content, bytes) else content.read_bytes()
    except OSError as error:
        raise FileError(f"{str(content)!r} cannot be read: {error.strerror}") from None
    stretch = Stretch(KEY, name, 0, work=lines)
    split = Split(SourcePartition(definition.name, KEY), name, "", SourceOffset(0, path=name), ENDLESS, stretch=stretch)
    return split, Records(_Given(), "the sample")


def upcoming(definition: Definition) -> Split:
    """What a task of the source would be given first, had it never run. Raises what the source does; FatalError where nothing is there."""
    kind, log = SOURCES[definition.source.type], logs.get("try")
    with contextlib.closing(create_source(kind.make, definition, {}, log, only_looks=True)) as source:
        if isinstance(source, LooksLater):
            source.look_now()
        splits = source.plan(1).splits
    if not splits:
        raise FatalError("the source has nothing to read", "give a file with sample records, a JSON object a line")
    return splits[0]
