"""`copycat plan`: shows what would be read, from where, and where it would go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from copycat_agent import logs
from copycat_agent.api import AgentClient, address
from copycat_agent.cli import exits
from copycat_agent.cli.check import spark_for
from copycat_agent.cli.common_options import Config, Directory, Format, Output, Socket, StateDir, leave, say_problems
from copycat_agent.cli.running import resolve_settings
from copycat_agent.cli.value_text import EXACTLY_ONCE
from copycat_agent.definitions import LoadResult, load_directory
from copycat_agent.display import visible
from copycat_agent.encoding.layout import host_name
from copycat_agent.errors import DataError, RetriableError
from copycat_agent.model import Loss, Record, SavedRow, SourcePartition
from copycat_agent.offsets.document import saved_rows
from copycat_agent.offsets.store_reader import offsets_of, saved_offsets
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES, FileView, Lag, LooksLater, create_source
from copycat_agent.sources.contract import PolledOptions
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.log_file.rotation import log_of
from copycat_agent.templates import SplitMeta, Template, compile_template

if TYPE_CHECKING:
    from copycat_agent.workbench.explaining import PathAnswer

_KEYS_SHOWN = 40
_PASSED_SHOWN = 20
_NAMES_SHOWN = 3
FILES_SHOWN = 50
"""How many files of each connector are shown; those with something to read, or with trouble, come first."""
AT_WORK = frozenset({"running", "retrying", "blocked", "paused"})
"""States in which a connector follows files."""
_FILES_MAX = 10_000
"""The most files in one answer of the agent."""
_log = logs.get("plan")


class LiveAgent:
    """The present state of the running agent. Every method raises AgentUnreachableError, and other errors with the agent's own message."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client
        self.directory = str(client.get("/v1")["directory"])
        self.statuses: Mapping[str, Mapping[str, Any]] = {one["name"]: one for one in client.get("/v1/connectors")["connectors"]}

    def offsets(self, definition: Definition) -> dict[SourcePartition, SavedRow]:
        """Returns the saved rows of the connector, as `offsets_of` does."""
        saved: dict[SourcePartition, SavedRow] = {}
        for name in (definition.name, *definition.renamed_from):
            saved |= saved_rows(name, self._client.get(address("offsets", name)))
        return offsets_of(definition, saved)

    def files(self, name: str) -> tuple[tuple[FileView, ...], int]:
        """Returns the files that a connector follows, as many as fit into one answer, and their total number."""
        found = self._client.get(address("connectors", name, f"/files?limit={_FILES_MAX}"))
        return tuple(FileView(**one) for one in found["files"]), found["total"]

    def file(self, answer: PathAnswer) -> FileView | None:
        """Returns the agent's view of the file of an answer; None if it does not follow the file."""
        name = answer.definition.name
        if answer.closeup is None or self.statuses.get(name, {}).get("state") not in AT_WORK:
            return None
        key = answer.closeup.view.key
        return next((one for one in self.files(name)[0] if one.key == key), None)


class ConnectorPlan(NamedTuple):
    """One connector: its definition, the files it would follow, their totals, and paths that match but would not be read."""

    definition: Definition
    files: tuple[FileView, ...]
    lag: Lag
    passed_over: Mapping[str, str]
    losses: tuple[Loss, ...]


def text_of(planned: list[ConnectorPlan], most: int) -> str:
    """Returns plain lines, up to `most` files of each connector (0: all of them), and the sum of several."""
    lines = [line for one in planned for line in _lines(one, most)]
    if len(planned) > 1:
        running = [one for one in planned if one.definition.enabled]
        behind = sum(file.unread > 0 for one in running for file in one.files)
        size = sum(file.unread for one in running for file in one.files)
        files = sum(len(one.files) for one in running)
        what = f"partitions have about {size:,} bytes" if all(map(_has_partitions, running)) else f"files have {size:,} bytes"
        lines.append(f"all {len(running)} enabled connectors: {behind:,} of {files:,} {what} to read")
    return "\n".join(lines)


def _lines(one: ConnectorPlan, most: int) -> Iterator[str]:
    """Yields `nginx: 2 of 14 files have 1,234 bytes to read -> logs.nginx`, then files, then what is passed over and lost."""
    record = one.definition.record
    behind = sum(file.unread > 0 for file in one.files)
    state = "" if one.definition.enabled else " (disabled)"
    rest = sum(file.unread for file in one.files)
    key = "" if record.key is None else f", key {visible(one.definition.mask.text(record.key))}"
    head = f"{one.definition.name}{state}: {behind:,} of {len(one.files):,} files have {rest:,} bytes to read"
    if _has_partitions(one):
        head = f"{one.definition.name}{state}: {behind:,} of {len(one.files):,} partitions have something to read"
    exactly = ", exactly once" if one.definition.promise == EXACTLY_ONCE else ""
    yield f"{head} -> {visible(one.definition.target)}{key}{exactly}"
    shown = sorted(one.files, key=lambda file: (_rank(file), file.path))
    topic, usual = _PerFile(one.definition), _usual(one.files)
    if usual:
        yield f"  unless said otherwise, {visible(usual)}"
    for file in shown[: most or None]:
        yield f"  {_file(file, topic, usual)}"
    if most and len(shown) > most:
        yield f"  ... and {len(shown) - most:,} more files; --all shows them"
    unread = {file.path for file in one.files if not file.key}
    passed = [(path, why) for path, why in sorted(one.passed_over.items()) if path not in unread]
    for path, why in passed[: _PASSED_SHOWN if most else None]:
        yield f"  {visible(path)}: passed over, {visible(why)}"
    if most and len(passed) > _PASSED_SHOWN:
        yield f"  ... and {len(passed) - _PASSED_SHOWN:,} more paths passed over; --all shows them"
    for loss in one.losses:
        yield f"  {visible(loss.path)}: {loss.size_bytes:,} bytes would be entered as lost: {visible(loss.detail)}"


def _has_partitions(one: ConnectorPlan) -> bool:
    return isinstance(one.definition.source, PolledOptions)


def _rank(file: FileView) -> int:
    """Returns the rank for sorting: trouble first, then files with something to read."""
    return 0 if file.state in ("failing", "blocked") else 1 if file.unread > 0 else 2


def _usual(files: Iterable[FileView]) -> str:
    """Returns why most files are read from where they are, so that it need not be repeated for each; "" if there is no such reason."""
    ((why, count),) = Counter(file.why for file in files if file.key).most_common(1) or [("", 0)]
    return why if count > 1 else ""


def _file(file: FileView, topic: _PerFile, usual: str) -> str:
    """Returns `PATH: at 0 of 8, 8 to read, it was never read before -> t.a.log [key]`."""
    if not file.key:
        return f"{visible(file.path)}: {visible(file.why)}"
    left = f"{file.unread:,} to read" if file.unread > 0 else "read" if file.size else "empty"
    where = f"at {file.position:,} of {file.size:,}"
    if file.cursor:
        more = "there is more" if file.behind is None else f"{file.behind:,} records behind it"
        where, left = f"at {visible(file.cursor)}", more if file.unread > 0 or file.behind else "read"
    elif file.counts_records:
        where = f"at record {file.position + 1:,} ({file.size:,} bytes)"
    elif file.compression:
        where = f"at {file.position:,} unpacked ({file.compression}, {file.size:,} on disk)"
        left = f"about {left}" if file.unread > 0 else left
    state = "" if file.state == "following" else f", {file.state}"
    after = f" for {visible(file.after)}" if file.after else ""
    why = f", {visible(file.why)}" if file.why and file.why != usual else ""
    return f"{visible(file.path)}: {where}, {left}{state}{after}{why}{topic.suffix(file)} [{file.key:.{_KEYS_SHOWN}}]"


class _PerFile:
    """Topic and key of a file's records, if they depend on the file only."""

    def __init__(self, definition: Definition) -> None:
        record = definition.record
        self._connector = definition.name
        self._mask = definition.mask
        self._topic = _by_file(record.topic)
        self._key = None if record.key is None else _by_file(record.key)

    def topic(self, file: FileView) -> str | None:
        """Returns the topic; None if it depends on the record, or is the same for all."""
        return self._render(self._topic, file)

    def key(self, file: FileView) -> str | None:
        return self._render(self._key, file)

    def suffix(self, file: FileView) -> str:
        """Returns ` -> topic, key ...` as far as they depend on the file only."""
        topic, key = self.topic(file), self.key(file)
        return ("" if topic is None else f" -> {visible(topic)}") + ("" if key is None else f", key {visible(key)}")

    def _render(self, template: Template | None, file: FileView) -> str | None:
        if template is None or not file.key or file.cursor:
            return None
        meta = SplitMeta(file.path, Identity.parse(file.key)[0].inode, host_name(), self._connector)
        try:
            return self._mask.text(template.render(Record(b"", 0, 0, 0), meta))
        except DataError:
            return None


def _by_file(text: str) -> Template | None:
    template = compile_template(text)
    return template if template.fields and template.is_of_split else None


def shared_files(planned: Iterable[ConnectorPlan]) -> Iterator[str]:
    """Yields a line for every two enabled connectors that send the same files to one topic."""
    readers: dict[str, list[ConnectorPlan]] = {}
    paths: dict[tuple[str, str], list[str]] = {}
    for one in planned:
        for file in one.files if one.definition.enabled else ():
            known = readers.setdefault(file.key.rpartition(":")[0] or file.key, [])
            for other in known if file.key else ():
                if other is not one and _same_topic(one.definition, other.definition):
                    paths.setdefault((other.definition.name, one.definition.name), []).append(file.path)
            known.append(one)
    for (first, second), files in paths.items():
        more = f" and {len(files) - _NAMES_SHOWN:,} more" if len(files) > _NAMES_SHOWN else ""
        yield (
            f"{first} and {second} both read {', '.join(map(visible, files[:_NAMES_SHOWN]))}{more}, into one topic: every record arrives "
            "twice; delete or narrow one of the two"
        )


def _same_topic(one: Definition, other: Definition) -> bool:
    return (one.target, one.kafka.bootstrap_servers) == (other.target, other.kafka.bootstrap_servers)


def entry(one: ConnectorPlan) -> dict[str, Any]:
    """Returns the plan for programs. `records` are those before the position."""
    per_file = _PerFile(one.definition)
    return {
        "connector": one.definition.name,
        "enabled": one.definition.enabled,
        "topic": one.definition.target,
        "key": one.definition.mask.value(one.definition.record.key),
        "guarantee": one.definition.promise,
        "to_read_bytes": sum(file.unread for file in one.files),
        "lost_bytes": one.lag.lost_bytes,
        "unreadable": one.lag.troubled_files,
        "files": [
            {
                "path": visible(file.path), "key": file.key, "position": file.position, "size": file.size,
                "to_read": file.unread, "records": file.records, "state": file.state, "why": file.why or None,
                "after": visible(file.after) or None, "log": visible("/".join(log_of(file.path))),
                "compression": file.compression or None, "topic": per_file.topic(file), "record_key": per_file.key(file),
            }
            for file in one.files
        ],
        "passed_over": [{"path": visible(path), "why": why} for path, why in sorted(one.passed_over.items())],
        "losses": [
            {"path": visible(loss.path), "start": loss.start, "end": loss.end, "size_bytes": loss.size_bytes, "why": loss.detail}
            for loss in one.losses
        ],
    }  # fmt: skip


def plan(
    directory: Directory,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Only this connector; may be repeated.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help=f"Show all files, not {FILES_SHOWN} of each connector.")] = False,
    config: Config = None,
    state_dir: StateDir = None,
    socket: Socket = None,
    output: Output = Format.TEXT,
) -> None:
    """Show what `run` would read next: each file's identity, position and why, its rest, and the topic. Reads offsets, moves nothing.

    Needs no Kafka, and Spark only for sources that it reads, such as jdbc; works beside a running agent. With --socket that agent is
    asked where it is in its files; without, the directories are looked at, from saved offsets on. For one file: copycat explain PATH.
    Exits 78 when no definition loads.
    """
    settings = resolve_settings(directory, config, state_dir, None)
    logs.setup("error")
    loaded = load_directory(directory, settings.agent)
    chosen = _choose(loaded, directory, only or ())
    if socket:
        planned = list(_asked(LiveAgent(AgentClient(socket.absolute())), chosen))
    else:
        saved = saved_offsets(settings.state_dir)
        with spark_for(chosen, settings.agent.spark):
            planned = [_look(one, saved) for one in chosen]
    if output is Format.JSON:
        typer.echo(json.dumps([entry(one) for one in planned], indent=2))
    else:
        typer.echo(text_of(planned, 0 if show_all else FILES_SHOWN))
    for line in shared_files(planned):
        typer.echo(f"warning: {line}", err=True)


def _choose(loaded: LoadResult, directory: Path, only: Sequence[str]) -> list[Definition]:
    """Returns the chosen definitions. Reports what is wrong with the others; ends the command if none is left."""
    say_problems(loaded.problems)
    if unknown := sorted(set(only) - loaded.definitions.keys()):
        leave(f"no definition named {', '.join(map(visible, unknown))} loads from {visible(str(directory))}", exits.USAGE)
    chosen = [one for one in loaded.definitions.values() if not only or one.name in only]
    if not chosen:
        leave(f"no definition in {visible(str(directory))} loads", exits.DEFINITION_ERROR)
    return chosen


def _asked(agent: LiveAgent, chosen: Sequence[Definition]) -> Iterator[ConnectorPlan]:
    """Yields the plans by the agent's state. Of a connector that it does not run it has offsets only: then its directories are scanned."""
    for one in chosen:
        status = agent.statuses.get(one.name)
        if status is None:
            typer.echo(f"warning: the agent has no connector {one.name}: its directories are looked at", err=True)
        if status is None or status["state"] not in AT_WORK:
            yield _look(one, agent.offsets(one))
            continue
        files, total = agent.files(one.name)
        if total > len(files):
            typer.echo(f"warning: {one.name} follows {total:,} files; {len(files):,} of them are here", err=True)
        yield ConnectorPlan(one, files, Lag(**status["lag"]), {}, ())


def _look(definition: Definition, saved: Mapping[SourcePartition, SavedRow]) -> ConnectorPlan:
    """Scans once with the source itself; its changes are not saved."""
    kind = SOURCES[definition.source.type]
    log = _log.bind(connector=definition.name)
    made = create_source(kind.make, definition, offsets_of(definition, saved), log, only_looks=True)
    with closing(made) as source:
        try:
            losses = tuple(source.scan().losses)
            if isinstance(source, LooksLater):
                source.look_now()
        except RetriableError as error:
            return ConnectorPlan(definition, source.files(), source.lag(), {definition.source.type: str(error)}, ())
        return ConnectorPlan(definition, source.files(), source.lag(), source.passed_over(), losses)
