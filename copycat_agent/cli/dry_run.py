"""`copycat run --dry-run`: every record that would be sent, as JSON lines; nothing is sent and no offset moves."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from copycat_agent.agent import Settings
from copycat_agent.cli import exits
from copycat_agent.cli.check_queries import answering
from copycat_agent.cli.shown import as_json
from copycat_agent.cli.stopping import Stopping
from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions import load_directory, render
from copycat_agent.executor import InlineExecutor
from copycat_agent.masks import Mask
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.looking import offsets_of, saved_offsets
from copycat_agent.options import ConvertersOptions, Definition, LimitsOptions, SparkOptions
from copycat_agent.producer import Message
from copycat_agent.samples import StandIn, StandIns
from copycat_agent.sources import only_looking
from copycat_agent.watch import Watcher
from copycat_agent.worker import State, Status, Worker

_LOOK_SECONDS = 0.1
_ORIGIN = ("copycat.file", "copycat.offset", "copycat.end")


class Page:
    """Where the records go: whole lines, from any thread. `closed` when nobody reads any more (`| head`)."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self.closed = threading.Event()

    def put(self, lines: Sequence[str]) -> None:
        """Write the lines; without effect after the reader has gone."""
        with self._lock:
            if lines and not self.closed.is_set():
                try:
                    self._write("".join(line + "\n" for line in lines))
                except OSError:
                    self.closed.set()


class Printer(StandIn):
    """Takes what would be sent, and prints it when the pipeline asks whether it has arrived."""

    def __init__(self, definition: Definition, page: Page) -> None:
        super().__init__()
        self._definition = definition
        self._page = page
        self._mask = definition.mask

    def begin(self, stopping: Callable[[], bool]) -> None:
        """See `TaskProducer.begin`."""
        del stopping
        self.kept.clear()

    def settle(self) -> None:
        """See `TaskProducer.settle`."""
        self._page.put([_line(self._definition, self._mask, message) for message in self.kept])
        self.kept.clear()


def show_records(directory: Path, settings: Settings, only: Sequence[str], stop: Stopping, *, color: bool) -> int:
    """The command: records on stdout, the account of them on stderr. Returns the exit code."""
    loaded = load_directory(directory, settings.agent)
    for problem in loaded.problems:
        typer.echo(render(problem, color=color) + "\n", err=True, color=color)
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
    """Print what these connectors would send next, to the end of what is there; returns what became of each.

    Saved offsets are read, from a copy. Raises CopycatError when they cannot be.
    """
    page = Page(_write)
    saved = saved_offsets(state_dir)
    by_name = {one.name: one for one in definitions}
    printers = StandIns(lambda name: Printer(by_name[name], page))
    watcher, store = Watcher(), OffsetStore.in_memory()
    with store, answering(definitions, spark) as run:
        executor = InlineExecutor(printers, run)
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


def _harmless(definition: Definition) -> Definition:
    """As it is, but telling where each record comes from, at full speed, and leaving files where they are: Kafka has none of them."""
    record = definition.record.model_copy(update={"origin_headers": True})
    delivery = definition.delivery.model_copy(update={"guarantee": "at_least_once"})  # nothing is begun in Kafka
    update = {"source": only_looking(definition.source), "record": record, "limits": LimitsOptions(), "delivery": delivery}
    return definition.model_copy(update={**update, "converters": _readable(definition.converters)})


def _readable(converters: ConvertersOptions) -> ConvertersOptions:
    """What is written by a schema is shown as JSON: the registry is not asked, and above all nothing is registered."""
    instead = {part: CONVERTERS[name].options.model_validate({"type": name}) for part, name in (("key", "string"), ("value", "json"))}
    chosen = {part: getattr(converters, part) for part in instead}
    return converters.model_copy(
        update={part: instead[part] for part, options in chosen.items() if options is not None and CONVERTERS[options.type].wants_record}
    )


def _account(status: Status) -> str:
    """What would become of the connector's records, and why it ended where it did."""
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


def _line(definition: Definition, mask: Mask, message: Message) -> str:
    """One record as JSON. Bytes that are not UTF-8 come as `{"base64": ...}`."""
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
        "value": as_json(mask.value(value)),
        "headers": {name: as_json(content) for name, content in shown},
        **({"partition": partition} if partition is not None and partition >= 0 else {}),
        **({"timestamp_ms": timestamp_ms} if timestamp_ms else {}),
        "path": as_json(origin.get("copycat.file")),
        "start": int(origin.get("copycat.offset", b"0")),
        "end": int(origin.get("copycat.end", b"0")),
    }
    text = json.dumps(record, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(record, ensure_ascii=True).replace("\x7f", "\\u007f")
