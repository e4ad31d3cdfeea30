"""`copycat plan`: what would be read, from where, and where it would go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

import typer

from copycat_agent import logs
from copycat_agent.cli import exits
from copycat_agent.cli.options import Config, Directory, Format, Output, StateDir
from copycat_agent.cli.settings import settle_settings
from copycat_agent.cli.shown import visible
from copycat_agent.definitions import load_directory, render
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets.looking import saved_offsets
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES, FileView, Lag

_KEYS_SHOWN = 40
_log = logs.get("plan")


class _Planned(NamedTuple):
    """One connector: its definition, the files it would follow, and what they add up to."""

    definition: Definition
    files: tuple[FileView, ...]
    lag: Lag


def plan(
    directory: Directory,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Only this connector; may be repeated.")] = None,
    config: Config = None,
    state_dir: StateDir = None,
    output: Output = Format.TEXT,
) -> None:
    """Show what `run` would read next: each file's identity, position and rest, and the topic. Reads offsets, moves nothing.

    Needs no Kafka and no Spark, and works beside a running agent. Exits 78 when no definition loads.
    """
    settings = settle_settings(directory, config, state_dir, None)
    logs.setup("warning")
    loaded = load_directory(directory, settings.agent)
    for problem in loaded.problems:
        typer.echo(render(problem) + "\n", err=True)
    chosen = [one for one in loaded.definitions.values() if not only or one.name in only]
    if unknown := sorted(set(only or ()) - loaded.definitions.keys()):
        typer.echo(f"error: no definition named {', '.join(unknown)} loads from {directory}", err=True)
        raise typer.Exit(exits.USAGE)
    if not chosen:
        raise typer.Exit(exits.DEFINITION_ERROR)
    saved = saved_offsets(settings.state_dir)
    planned = [_look(one, saved) for one in chosen]
    typer.echo(json.dumps([_entry(one) for one in planned], indent=2) if output is Format.JSON else _text(planned))


def offsets_of(definition: Definition, saved: Mapping[SourcePartition, SourceOffset]) -> dict[SourcePartition, SourceOffset]:
    """Those of the connector, and of earlier names of it where it has none of its own there."""
    own: dict[SourcePartition, SourceOffset] = {}
    for name in (definition.name, *definition.renamed_from):
        for partition, offset in saved.items():
            if partition.connector == name:
                own.setdefault(SourcePartition(definition.name, partition.key), offset)
    return own


def _look(definition: Definition, saved: Mapping[SourcePartition, SourceOffset]) -> _Planned:
    """One scan by the source itself, whose changes nobody saves."""
    kind = SOURCES[definition.source.type]
    source = kind.make(
        definition.name, definition.source, definition.delivery, offsets_of(definition, saved), _log.bind(connector=definition.name)
    )
    try:
        source.scan()
        return _Planned(definition, source.files(), source.lag())
    finally:
        source.close()


def _text(planned: Iterable[_Planned]) -> str:
    return "\n".join(line for one in planned for line in _lines(one))


def _lines(one: _Planned) -> list[str]:
    """`nginx: 2 of 14 files have 1,234 bytes to read -> logs.nginx`, then those files."""
    behind = [file for file in one.files if file.size > file.position]
    state = "" if one.definition.enabled else " (disabled)"
    rest = sum(file.size - file.position for file in behind)
    head = f"{one.definition.name}{state}: {len(behind):,} of {len(one.files):,} files have {rest:,} bytes to read"
    lines = [f"{head} -> {visible(one.definition.record.topic)}"]
    for file in one.files:
        left = f"{file.size - file.position:,} to read" if file.size > file.position else "read"
        state = "" if file.state == "following" else f", {file.state}"
        lines.append(f"  {visible(file.path)}: at {file.position:,} of {file.size:,}, {left}{state} [{file.key:.{_KEYS_SHOWN}}]")
    return lines


def _entry(one: _Planned) -> dict[str, Any]:
    """The same for programs. `records` are those before the position."""
    return {
        "connector": one.definition.name,
        "enabled": one.definition.enabled,
        "topic": one.definition.record.topic,
        "to_read_bytes": one.lag.bytes,
        "lost_bytes": one.lag.lost_bytes,
        "unreadable": one.lag.troubled_files,
        "files": [
            {
                "path": visible(file.path), "key": file.key, "position": file.position, "size": file.size,
                "to_read": max(0, file.size - file.position), "records": file.records, "state": file.state,
            }
            for file in one.files
        ],
    }  # fmt: skip
