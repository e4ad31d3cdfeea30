"""`copycat plan`: what would be read, from where, and where it would go."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from copycat_agent import logs
from copycat_agent.api import AgentClient
from copycat_agent.cli import exits
from copycat_agent.cli.live import AT_WORK, LiveAgent
from copycat_agent.cli.options import Config, Directory, Format, Output, Socket, StateDir
from copycat_agent.cli.plan_view import Planned, entry, shared_files, text_of
from copycat_agent.cli.settings import settle_settings
from copycat_agent.cli.shown import visible
from copycat_agent.definitions import Loaded, load_directory, render
from copycat_agent.errors import RetriableError
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets.looking import offsets_of, saved_offsets
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES, Lag, LooksLater, only_looking

FILES_SHOWN = 50
"""Of each connector; those with something to read, or with trouble, come first."""
_log = logs.get("plan")


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

    Needs no Kafka and no Spark, and works beside a running agent. With --socket that agent is asked where it is in its files; without,
    the directories are looked at, from saved offsets on. For one file: copycat explain PATH. Exits 78 when no definition loads.
    """
    settings = settle_settings(directory, config, state_dir, None)
    logs.setup("error")
    loaded = load_directory(directory, settings.agent)
    chosen = _choose(loaded, directory, only or ())
    if socket:
        planned = list(_asked(LiveAgent(AgentClient(socket.absolute())), chosen))
    else:
        saved = saved_offsets(settings.state_dir)
        planned = [_look(one, saved) for one in chosen]
    if output is Format.JSON:
        typer.echo(json.dumps([entry(one) for one in planned], indent=2))
    else:
        typer.echo(text_of(planned, 0 if show_all else FILES_SHOWN))
    for line in shared_files(planned):
        typer.echo(f"warning: {line}", err=True)


def _choose(loaded: Loaded, directory: Path, only: Sequence[str]) -> list[Definition]:
    """The definitions to look at. Says what is wrong with the others; ends the command when none is left."""
    for problem in loaded.problems:
        typer.echo(render(problem) + "\n", err=True)
    if unknown := sorted(set(only) - loaded.definitions.keys()):
        typer.echo(f"error: no definition named {', '.join(map(visible, unknown))} loads from {visible(str(directory))}", err=True)
        raise typer.Exit(exits.USAGE)
    chosen = [one for one in loaded.definitions.values() if not only or one.name in only]
    if not chosen:
        typer.echo(f"error: no definition in {visible(str(directory))} loads", err=True)
        raise typer.Exit(exits.DEFINITION_ERROR)
    return chosen


def _asked(agent: LiveAgent, chosen: Sequence[Definition]) -> Iterator[Planned]:
    """As the agent has them in memory. Of one that it does not run it knows offsets only: then its directories are looked at."""
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
        yield Planned(one, files, Lag(**status["lag"]), {}, ())


def _look(definition: Definition, saved: Mapping[SourcePartition, SourceOffset]) -> Planned:
    """One scan by the source itself, whose changes nobody saves."""
    kind = SOURCES[definition.source.type]
    log = _log.bind(connector=definition.name)
    source = kind.make(definition.name, only_looking(definition.source), definition.delivery, offsets_of(definition, saved), log)
    try:
        losses = tuple(source.scan().losses)
        if isinstance(source, LooksLater):
            source.look_now()
        return Planned(definition, source.files(), source.lag(), source.passed_over(), losses)
    except RetriableError as error:
        return Planned(definition, source.files(), source.lag(), {definition.source.type: str(error)}, ())
    finally:
        source.close()
