"""Records that would be sent: `copycat run --dry-run`, and the next records of one file for `copycat explain`."""

from __future__ import annotations

import json
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import typer

from copycat_agent.agent import AgentSettings
from copycat_agent.cli import exits
from copycat_agent.cli.check import answering
from copycat_agent.cli.common_options import say_problems
from copycat_agent.cli.running import StopSignals
from copycat_agent.cli.value_text import as_json
from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions import load_directory
from copycat_agent.display import SecretMask
from copycat_agent.encoding import letters
from copycat_agent.encoding.files_layout import shown_value
from copycat_agent.errors import CopycatError
from copycat_agent.executor import InlineExecutor, run_batch
from copycat_agent.model import AT_LEAST_ONCE, Batch, Results, SourceOffset, Split, SplitResult, TaskId
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.store_reader import offsets_of, saved_offsets
from copycat_agent.options import ConvertersOptions, Definition, LimitsOptions, SparkOptions
from copycat_agent.producer import Message
from copycat_agent.sources import only_looking
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS
from copycat_agent.watch import Watcher
from copycat_agent.workbench.trying import RecordingProducer, RecordingProducerPool
from copycat_agent.worker import State, Status, Worker

MOST_BYTES = 4 * 2**20
"""The most bytes of a file that are read, however few records they make."""
_SECONDS = 5.0
_ORIGIN = ("copycat.file", "copycat.offset", "copycat.end")

Fate = Literal["sent", "dead-lettered", "dropped", "rejected", "no record"]
_LOOK_SECONDS = 0.1


class FirstRecord(NamedTuple):
    """A record, or a range without one: bytes (or record numbers) `start` up to `end` of the file. `why`: what is wrong with it.

    `timestamp_ms` is 0 if the time of sending counts. A dropped range has no topic.
    """

    fate: Fate
    start: int
    end: int
    topic: str = ""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    timestamp_ms: int = 0
    why: str = ""


class FirstRecords(NamedTuple):
    """The next records of a file.

    `end` is where they end, and `open_bytes` how many bytes after that are no whole record yet, as far as is known. `error` is what would
    stop or delay the connector after them. Of a packed file: `origin` is the file that it is the rest of, None if there is none, and
    `damage` says why it cannot be unpacked.
    """

    records: tuple[FirstRecord, ...]
    end: int
    open_bytes: int
    error: CopycatError | None = None
    origin: SourceOffset | None = None
    damage: str = ""


def first_records(definition: Definition, split: Split, count: int) -> FirstRecords:
    """Returns about `count` records from the split's offset on; reads at most `MOST_BYTES` of the split, and only as far as needed."""
    keeper = RecordingProducer()
    keepers = RecordingProducerPool(lambda _: keeper)
    told = definition.record.model_copy(update={"origin_headers": True})
    harmless = definition.model_copy(update={"record": told, "limits": LimitsOptions()})
    batch = Batch(TaskId(definition.name, 0), pickle.dumps(harmless), (split,), MOST_BYTES, _SECONDS, max_records=count)
    (result,) = run_batch(batch, keepers, lambda: False)
    keepers.close()
    origin = split.origins[result.origin] if result.origin >= 0 else None
    begin = split.offset.position if origin is None else origin.position
    mask = definition.mask
    records = tuple(map(mask.value, _in_order(result, begin, [_record(one, definition) for one in keeper.kept])))
    end, is_packed = result.offset.position, bool(split.offset.compression)
    # the end of a packed file, or of one whose positions are record numbers, is not known before it is read
    is_rest = result.at_end and result.error is None and not is_packed and split.end < ENDLESS
    return FirstRecords(records[:count], end, split.end - end if is_rest else 0, result.error, origin, result.damage)


def _in_order(result: SplitResult, position: int, sent: list[FirstRecord]) -> Iterator[FirstRecord]:
    """Yields everything from `position` up to the result's offset: what is sent, and what is not, in order."""
    told = {letter.start for letter in sent}
    rejected = [
        FirstRecord("rejected", one.start, one.end, why=f"stage {one.stage}: {one.reason}")
        for one in result.rejections
        if one.start not in told
    ]
    for one in sorted([*sent, *rejected], key=lambda record: record.start):
        if one.start > position:
            yield _passed(position, one.start, result)
        yield one
        position = max(position, one.end)
    if result.offset.position > position:
        yield _passed(position, result.offset.position, result)


def _passed(start: int, end: int, result: SplitResult) -> FirstRecord:
    if result.counts.dropped:
        return FirstRecord("dropped", start, end, why="dropped by the definition")
    return FirstRecord("no record", start, end, why="a header, comments, empty lines, marks or holes")


def _record(message: Message, definition: Definition) -> FirstRecord:
    topic, value, key, partition, _, _, timestamp_ms, headers = message + (None,) * (8 - len(message))
    said: dict[str, bytes] = dict(reversed(list(headers or ())))
    start, end = int(said.get("copycat.offset", b"0")), int(said.get("copycat.end", b"0"))
    is_letter = letters.STAGE in said
    keep_origin = is_letter or definition.record.origin_headers
    shown = tuple(pair for pair in headers or () if keep_origin or pair[0] not in _ORIGIN)
    why = f"stage {_word(said, letters.STAGE)}: {_word(said, letters.MESSAGE)}" if is_letter else ""
    chosen = definition.record.partition if isinstance(definition.record.partition, int) and not is_letter else None
    del partition  # without Kafka it is known only if the definition names it
    return FirstRecord("dead-lettered" if is_letter else "sent", start, end, topic, key, value, shown, chosen, timestamp_ms or 0, why)


def _word(said: dict[str, bytes], name: str) -> str:
    return said.get(name, b"").decode("utf-8", "replace")


class LineOutput:
    """The output of records: whole lines, from any thread. `closed` once nobody reads any more (`| head`)."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self.closed = threading.Event()

    def put(self, lines: Sequence[str]) -> None:
        """Writes the lines; has no effect after the reader has gone."""
        with self._lock:
            if lines and not self.closed.is_set():
                try:
                    self._write("".join(line + "\n" for line in lines))
                except OSError:
                    self.closed.set()


class Printer(RecordingProducer):
    """Takes the records that would be sent, and prints them when the pipeline checks for their arrival."""

    def __init__(self, definition: Definition, page: LineOutput) -> None:
        super().__init__()
        self._definition = definition
        self._page = page
        self._mask = definition.mask

    def begin(self, stopping: Callable[[], bool]) -> None:
        del stopping
        self.kept.clear()

    def flush(self) -> None:
        self._page.put([_line(self._definition, self._mask, message) for message in self.kept])
        self.kept.clear()


def show_records(directory: Path, settings: AgentSettings, only: Sequence[str], stop: StopSignals, *, color: bool) -> int:
    """Runs the command: records on stdout, the account of them on stderr. Returns the exit code."""
    loaded = load_directory(directory, settings.agent)
    say_problems(loaded.problems, color=color)
    if unknown := sorted(set(only) - loaded.definitions.keys()):
        typer.echo(f"error: no definition named {', '.join(unknown)} loads from {directory}", err=True)
        return exits.USAGE
    chosen = [one for one in loaded.definitions.values() if one.enabled and (not only or one.name in only)]
    if not chosen:
        typer.echo(f"error: no definition in {directory} can be run", err=True)
        return exits.DEFINITION_ERROR
    statuses = dry_run(chosen, settings.state_dir, lambda: stop.asked, settings.agent.spark)
    typer.echo("nothing was sent; what a run would send now:\n" + "\n".join(map(_account, statuses)), err=True)
    if stop.asked:
        return exits.INTERRUPTED
    return exits.FAILED if any(one.state is State.FAILED or one.troubled_files for one in statuses) else exits.GOOD


def dry_run(
    definitions: Sequence[Definition], state_dir: Path, stopping: Callable[[], bool], spark: SparkOptions | None = None
) -> tuple[Status, ...]:
    """Prints what these connectors would send next, to the present end; returns their final states.

    Saved offsets are read, from a copy. Raises CopycatError if that fails.
    """
    page = LineOutput(_write)
    saved = saved_offsets(state_dir)
    by_name = {one.name: one for one in definitions}
    printers = RecordingProducerPool(lambda name: Printer(by_name[name], page))
    watcher, store = Watcher(), OffsetStore.in_memory()
    with store, answering(definitions, spark) as run:
        executor = InlineExecutor(printers, partial(_shown_only, run or run_batch))
        for one in definitions:
            store.reset(offsets_of(one, saved))
        worker = Worker(store, executor, watcher, until_idle=True)
        worker.apply([_harmless(one) for one in definitions])
        while not (worker.wait(_LOOK_SECONDS) or page.closed.is_set() or stopping()):
            pass
        worker.stop()
        statuses = worker.statuses()
        executor.close()
        watcher.close()
    return statuses


def _shown_only(run: Callable[..., Results], batch: Batch, *more: Any) -> Results:  # noqa: ANN401 - as `run_batch`
    """Runs a batch, whose records go to a stand-in for a producer even if they would be written to files."""
    return run(replace(batch, delivery=AT_LEAST_ONCE), *more)


def _harmless(definition: Definition) -> Definition:
    """Returns the definition with origins in headers, without limits, and without touching files: nothing reaches Kafka."""
    record = definition.record.model_copy(update={"origin_headers": True})
    delivery = definition.delivery.model_copy(update={"guarantee": "at_least_once"})  # nothing is begun in Kafka
    update = {"source": only_looking(definition.source), "record": record, "limits": LimitsOptions(), "delivery": delivery}
    return definition.model_copy(update={**update, "converters": _readable(definition.converters)})


def _readable(converters: ConvertersOptions) -> ConvertersOptions:
    """Replaces converters with schemas by JSON: the registry is not called, and above all nothing is registered."""
    instead = {part: CONVERTERS[name].options.model_validate({"type": name}) for part, name in (("key", "string"), ("value", "json"))}
    chosen = {part: getattr(converters, part) for part in instead}
    return converters.model_copy(
        update={part: instead[part] for part, options in chosen.items() if options is not None and CONVERTERS[options.type].wants_record}
    )


def _account(status: Status) -> str:
    """Returns what would become of the connector's records, and why it ended."""
    counts = status.counts
    parts = [f"{counts.read:,} records ({counts.read_bytes:,} bytes) read", f"{counts.acknowledged:,} to send"]
    parts += [
        f"{count:,} {words}"
        for count, words in (
            (counts.dead_lettered, "to the dead-letter topic"),
            (counts.dropped, "dropped by the definition"),
            (counts.rejected, "rejected"),
            (counts.kept, "kept as they were, for a step failed"),
            (status.troubled_files, "files that cannot be read"),
        )
        if count
    ]
    failed = f"; it would fail: {status.reason}" if status.state is State.FAILED else ""
    return f"{status.name}: {', '.join(parts)}{failed}"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _line(definition: Definition, mask: SecretMask, message: Message) -> str:
    """Returns one record as JSON. Bytes that are not UTF-8 come as `{"base64": ...}`."""
    topic, value, key, partition, _, _, timestamp_ms, headers = message + (None,) * (8 - len(message))
    pairs = list(headers or ())
    origin = dict(pairs[::-1])
    is_letter = any(name == "copycat.stage" for name, _ in pairs)
    keeps_origin = definition.record.origin_headers or is_letter
    shown = mask.value([pair for pair in pairs if keeps_origin or pair[0] not in _ORIGIN])
    record = {
        "connector": definition.name,
        "topic": topic,
        "key": as_json(mask.value(key)),
        "value": as_json(mask.value(shown_value(value))),
        "headers": {name: as_json(content) for name, content in shown},
        **({"partition": partition} if partition is not None and partition >= 0 else {}),
        **({"timestamp_ms": timestamp_ms} if timestamp_ms else {}),
        "path": as_json(origin.get("copycat.file")),
        "start": int(origin.get("copycat.offset", b"0")),
        "end": int(origin.get("copycat.end", b"0")),
    }
    text = json.dumps(record, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(record, ensure_ascii=True).replace("\x7f", "\\u007f")
