"""Runs a sample through the real pipeline: `run_batch` over a file, with a stand-in for the producer that keeps the messages.

Samples of a source without files are its next records, or records in a file (`given_samples`).
"""

from __future__ import annotations

import contextlib
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
from copycat_agent.encoding.files_layout import shown_value, unshaped
from copycat_agent.errors import DataError, FatalError, FileError
from copycat_agent.executor import run_batch
from copycat_agent.model import Batch, SourceOffset, SourcePartition, Split, TaskId
from copycat_agent.options import Definition, DlqOptions, ErrorsOptions, KafkaOptions, LimitsOptions
from copycat_agent.producer import Message, ProducerPool, ReplacementGuard, TaskProducer
from copycat_agent.sources import SOURCES, LooksLater, create_source
from copycat_agent.sources.contract import ENDLESS, PolledOptions
from copycat_agent.sources.contract_files import FilesOptions
from copycat_agent.sources.files.packing.compressions import MAGIC_BYTES
from copycat_agent.sources.files.packing.unpacking import codec_of
from copycat_agent.transforms import StepError
from copycat_agent.workbench.trying.given_samples import give, nothing
from copycat_agent.workbench.trying.results import Fate, Output, SampleContext, TrialResult, TriedRecord, likely_path
from copycat_agent.workbench.trying.tracing import QueryStep, RowTrace, TracedEncoder, TracedMessage

_RUN_BYTES = 2**20
"""The pipeline settles records in runs of this size."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_SECONDS = 600.0
_ANY_DLQ = DlqOptions(topic="dead-letters")
MOST_RECORDS = 10_000
"""Most records of a test's sample, each of which is kept with all its steps."""
_ANY_BYTES = 2**20
"""Assumed size of a sample that is no file."""
_HERE = SampleContext()
_run = partial(BatchRun)
"""Runs without Spark also if the definition has a query: the encoder keeps the records that wait for it (`TracedSplit.ask`)."""


class _AnyTopic:
    """Topic metadata in which every topic exists."""

    def partitions(self, topic: str) -> int:
        """Returns 1, so that no record is held back."""
        del topic
        return 1


class RecordingProducer(TaskProducer):
    """Replaces a task's producer. It reports everything as acknowledged; `kept` are the messages that it was to send, in order."""

    run_bytes = _RUN_BYTES
    tracked = False
    batch_bytes = 0
    topics = cast("Any", _AnyTopic())
    reassign = begin = attribute = flush = weigh = partly_sent = cast("Any", nothing)
    smaller_batches = take_view = poll_idle = on_delivery = on_statistics = close = cast("Any", nothing)

    def __init__(self) -> None:
        self.kept: list[Message] = []
        self.broken = False
        self.next_batch_bytes = 0

    def send(self, topic: str, values: list[bytes], tail: Message) -> None:
        """Keeps a message for each value."""
        self.send_each((topic, value, *tail) for value in values)

    def send_each(self, messages: Iterable[Message]) -> None:
        """Keeps the messages."""
        self.kept += messages

    def may_send(self, source: ReplacementGuard, end: int) -> bool:  # noqa: ARG002 - no file changes meanwhile
        """Returns True."""
        return True


class RecordingProducerPool(ProducerPool):
    """Hands out results of `make(connector)` instead of producers, a new one for each batch."""

    def __init__(self, make: Callable[[str], TaskProducer]) -> None:
        super().__init__()
        self._make = make

    def take(self, task: TaskId, options: KafkaOptions, *, tracked: bool = False) -> TaskProducer:
        """Returns a new one, whatever the options."""
        del options, tracked
        return self._make(task.connector)

    give_back = cast("Any", nothing)


def take(
    definition: Definition, content: bytes | Path | None, *, most: int = 0, where: SampleContext = _HERE, query: QueryStep | None = None
) -> TrialResult:
    """Returns the first `most` records (0: all) of a file, as `definition` makes them. Uses neither Kafka nor a registry, saves nothing.

    `content` is the file's path, or its bytes, for which a likely path is assumed unless `where` has one. With None the records are the
    first ones of a source without files. `query` answers the `sql` step, if there is one. Raises FileError if the file cannot be read,
    other CopycatErrors for a definition that cannot work.
    """
    encoder = _encoder(definition, where)
    keeper, trace = RecordingProducer(), encoder.trace
    with _sample(definition, encoder, content, where) as (split, size_bytes):
        batch = Batch(TaskId(definition.name, 0), b"", (split,), max(size_bytes, 1) * 2**12, _SECONDS, max_records=most and most + 1)
        with contextlib.closing(RecordingProducerPool(lambda _: keeper)) as producers:
            (result,) = run_batch(batch, producers, lambda: 0 < most < len(trace.entries), encoder, _run)
    _ask(encoder, query)
    records = _Results(definition, encoder).of(trace.entries, keeper.kept)
    taken = records[:most] if most else records
    has_more = result.error is None and not result.damage and (not result.at_end or len(taken) < len(records))
    dropped = result.counts.too_long if encoder.frames.on_too_long == "drop" else 0
    return TrialResult(taken, result.error, result.damage, has_more, encoder.unchecked, dropped)


@contextlib.contextmanager
def _sample(
    definition: Definition, encoder: TracedEncoder, content: bytes | Path | None, where: SampleContext
) -> Iterator[tuple[Split, int]]:
    """Yields a split for the sample, and its size in bytes, packed or not."""
    if content is None:
        yield upcoming(definition), _ANY_BYTES
        return
    if isinstance(definition.source, PolledOptions) and not isinstance(definition.source, FilesOptions):
        yield give(encoder, content, where), _ANY_BYTES
        return
    name = where.path or (str(content.absolute()) if isinstance(content, Path) else likely_path(definition))
    with _opened(content) as fd:
        info = os.fstat(fd)
        mtime_ms = info.st_mtime_ns // 1_000_000 if where.mtime_ms is None else where.mtime_ms
        yield _split(definition, encoder, fd, name, mtime_ms), info.st_size


def _encoder(definition: Definition, where: SampleContext) -> TracedEncoder:
    """Returns an encoder. Raises FatalError for problems of the definition that show only now."""
    try:
        return TracedEncoder(_harmless(definition), where)
    except ValueError as error:
        raise FatalError(f"the definition cannot work: {error}", "correct it") from None


def _ask(encoder: TracedEncoder, query: QueryStep | None) -> None:
    """Sends the records through the `sql` step. Raises FatalError if there is one but no `query`."""
    if encoder.bound is not None and len(encoder.stages) > 1:
        if query is None:
            raise FatalError("a sql step needs Spark to be looked at", "use copycat try or copycat test")
        encoder.bound.ask(query)


def _harmless(definition: Definition) -> Definition:
    """Returns the definition, but with dead letters that contain the bad record, tolerant of all of them, and without limits of speed."""
    dlq = definition.errors.dlq or _ANY_DLQ
    errors = ErrorsOptions(tolerance="all", dlq=dlq.model_copy(update={"include_raw": True}))
    return definition.model_copy(update={"errors": errors, "limits": LimitsOptions()})


@contextlib.contextmanager
def _opened(content: bytes | Path) -> Iterator[int]:
    """Yields a descriptor of the file, or of one in memory with these bytes. Raises FileError."""
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
    """Returns a split of the whole file, whose last line counts as complete."""
    info = os.fstat(fd)
    codec = codec_of(os.pread(fd, MAGIC_BYTES, 0), definition.source)
    is_plain = not (codec or getattr(encoder.frames, "counts_records", False))
    partition = SourcePartition(definition.name, f"sample:{info.st_dev}:{info.st_ino}")
    offset = SourceOffset(0, path=name, size=info.st_size, compression=codec, mtime_ns=info.st_mtime_ns)
    end, opened = info.st_size if is_plain else ENDLESS, f"/proc/{os.getpid()}/fd/{fd}"
    return Split(partition, name, opened, offset, end, final=True, inode=info.st_ino, mtime_ms=mtime_ms, flush=True)


class _Results:
    """Combines traces and messages into results."""

    def __init__(self, definition: Definition, encoder: TracedEncoder) -> None:
        self._definition = definition
        self._encoder = encoder
        self._by_record = bool(getattr(encoder.frames, "counts_records", False))

    def of(self, entries: list[RowTrace], sent: list[Message]) -> tuple[TriedRecord, ...]:
        """Returns results in the file's order. A record that never reached the steps, such as a too long line, has only a dead letter."""
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
        """Returns a result from a dead letter alone."""
        error = DataError(said[letters.MESSAGE].decode("utf-8", "replace"), "raise the limit, or set on_too_long")
        number, start, end = (int(said[name]) for name in (letters.RECORD, letters.OFFSET, letters.END))
        raw = letter[1][:RAW_BYTES_CUT] if letter[1] is not None else None
        return TriedRecord(number, start, end, self._by_record, raw, None, self._fate(error), (), (), said[letters.STAGE].decode(), error)

    def _fate(self, error: DataError) -> Fate:
        """Returns what becomes of a bad record, by the step that failed and by `errors`."""
        policy, errors = getattr(error, "policy", "") if isinstance(error, StepError) else "", self._definition.errors
        if policy == "stop" or (errors.tolerance == "none" and policy != "dlq"):
            return "stops"
        return "dead-lettered" if errors.dlq is not None else "passed over"

    def _output(self, made: TracedMessage) -> Output:
        topic, payload, key, _, _, _, timestamp_ms, headers = made.message + (None,) * (8 - len(made.message))
        chosen = self._definition.record.partition
        sent = None if self._encoder.has_schema else shown_value(payload)
        partition = chosen if isinstance(chosen, int) else None
        return Output(topic, key, unshaped(made.value), made.fields, sent, tuple(headers or ()), timestamp_ms or None, partition)


def _headers(message: Message) -> dict[str, bytes]:
    """Returns the first header of each name: the agent's own come before those of templates."""
    headers = message[7] if len(message) > 7 and message[7] else ()  # noqa: PLR2004 - its place in a message
    return dict(reversed(list(headers)))


def upcoming(definition: Definition) -> Split:
    """Returns the first split of the source, without saved positions. Raises what the source raises, and FatalError if there is none."""
    kind, log = SOURCES[definition.source.type], logs.get("try")
    with contextlib.closing(create_source(kind.make, definition, {}, log, only_looks=True)) as source:
        if isinstance(source, LooksLater):
            source.look_now()
        splits = source.plan(1).splits
    if not splits:
        raise FatalError("the source has nothing to read", "give a file with sample records, a JSON object a line")
    return splits[0]
