"""`copycat dlq`: what was dead-lettered, why, and sending it again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.status import Status

from copycat_agent.api import AgentClient, AgentUnreachableError, address
from copycat_agent.api.client import is_name
from copycat_agent.cli import exits
from copycat_agent.cli.agent_client import find_agent
from copycat_agent.cli.common_options import (
    BootstrapServers,
    Config,
    Format,
    NoColor,
    Output,
    Socket,
    StateDir,
    leave,
    say_problems,
    use_color,
)
from copycat_agent.cli.dlq_view import letter_entry, letter_text, report_entry, report_text, survey_entry, survey_text
from copycat_agent.cli.running import Stopping, settle_settings
from copycat_agent.definitions import load_directory
from copycat_agent.dlq import Replay, ReplayProgress, Survey, group_of, latest, saved_progress, survey
from copycat_agent.errors import BlockedError, RetriableError
from copycat_agent.options import Definition
from copycat_agent.producer.consuming import TopicReader

_DIRECTORY = "Directory of definitions; without it that of the running agent."
MaybeName = Annotated[list[str] | None, typer.Argument(metavar="[DIR] [NAME]", help=f"{_DIRECTORY} NAME: only this connector.")]
Name = Annotated[list[str], typer.Argument(metavar="[DIR] NAME", help=f"{_DIRECTORY} NAME: the connector.")]

dlq = typer.Typer(no_args_is_help=True, help="Dead letters: records that could not be made or sent, why, and sending them again.")


@dlq.command()
def ls(
    of: MaybeName = None,
    output: Output = Format.TEXT,
    config: Config = None,
    state_dir: StateDir = None,
    socket: Socket = None,
    bootstrap_servers: BootstrapServers = None,
    no_color: NoColor = False,
) -> None:
    """Count the dead letters in the topics that the definitions name, by connector, stage and error."""
    where, name = _where(of or [], config, state_dir, socket, bootstrap_servers)
    chosen = _chosen(where, name, no_color=no_color)
    with _kafka():
        found = [_survey(group, name) for group in _by_topic(chosen)]
    if output is Format.JSON:
        typer.echo(json.dumps([survey_entry(one) for one in found], indent=2))
    else:
        for one in found:
            typer.echo(survey_text(one))


@dlq.command()
def show(  # noqa: PLR0913, PLR0917 - the command's options
    of: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="The newest so many.")] = 10,
    raw: Annotated[bool, typer.Option("--raw", help="Only the raw bytes, unchanged, each followed by a newline.")] = False,
    output: Output = Format.TEXT,
    config: Config = None,
    state_dir: StateDir = None,
    socket: Socket = None,
    bootstrap_servers: BootstrapServers = None,
    no_color: NoColor = False,
) -> None:
    """Show a connector's newest dead letters: where each record comes from, why it is here, and its bytes.

    Control characters are escaped, long records are cut. With --format json one letter per line, whole; what is not UTF-8 as
    base64. With --raw letters without bytes are left out.
    """
    where, name = _where(of, config, state_dir, socket, bootstrap_servers, needs_name=True)
    (definition,) = _chosen(where, name, no_color=no_color)
    with _kafka(), TopicReader(definition.kafka, _topic(definition), group_of(definition.name)) as reader, _progress() as told:
        letters = latest(reader, _names(definition), limit, told)
    for letter in letters:
        if not raw:
            shown = definition.mask.value(letter)  # before it is cut or encoded: half of a secret, or its base64, would show
            typer.echo(json.dumps(letter_entry(shown)) if output is Format.JSON else letter_text(shown, _topic(definition)))
        elif letter.raw is not None:
            sys.stdout.buffer.write(letter.raw + b"\n")
    if not letters:
        typer.echo(f"no dead letters of {name} in topic {_topic(definition)}", err=True)


@dlq.command()
def replay(  # noqa: PLR0913, PLR0917 - the command's options
    of: Name,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Try at most so many.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that were replayed before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing, and remember nothing.")] = False,
    output: Output = Format.TEXT,
    config: Config = None,
    state_dir: StateDir = None,
    socket: Socket = None,
    bootstrap_servers: BootstrapServers = None,
    no_color: NoColor = False,
) -> None:
    """Send a connector's dead letters again, through the definition as it is now.

    A letter that goes, or that a transform drops, is not tried again: the consumer group copycat-dlq-NAME remembers it. One that
    fails again stays for the next time. Exits 0 when all went, 3 when some are left, 130 when it was interrupted. Do not run two
    at once.
    """
    where, name = _where(of, config, state_dir, socket, bootstrap_servers, needs_name=True)
    (definition,) = _chosen(where, name, no_color=no_color)
    stop = Stopping()
    work = Replay(definition, lambda: stop.asked, dry_run=dry_run)
    ended = False
    try:
        with _kafka(), _progress() as told:
            work.run(limit=limit, everything=everything, told=lambda report: told(report.tried))
        ended = True
    finally:
        if ended or work.report.tried:  # what went before Kafka did not answer any more
            entry = report_entry(work.report)
            typer.echo(json.dumps(entry, indent=2) if output is Format.JSON else report_text(work.report, dry_run=dry_run))
    if work.report.stopped:
        raise typer.Exit(exits.INTERRUPTED)
    if work.report.left:
        raise typer.Exit(exits.DEGRADED)


class _Where(NamedTuple):
    """Where the definitions are, and what goes over them."""

    directory: Path
    config: Path | None
    servers: str | None


def _where(
    words: list[str], config: Path | None, state_dir: Path | None, socket: Path | None, servers: str | None, *, needs_name: bool = False
) -> tuple[_Where, str | None]:
    """What `[DIR] [NAME]` says: a lone word is a NAME unless it only can be, or is, a directory."""
    if len(words) > 2:  # noqa: PLR2004 - DIR and NAME
        raise typer.BadParameter("at most a directory and a connector's name")
    named = words[-1:] if len(words) > 1 or needs_name or not _is_directory("".join(words)) else []
    rest = words[: len(words) - len(named)]
    if not rest:
        return _of_agent(find_agent(socket, state_dir, config), config, servers), "".join(named) or None
    return _Where(Path(rest[0]), config, servers), "".join(named) or None


def _is_directory(word: str) -> bool:
    return not is_name(word) or Path(word).is_dir()


def _of_agent(client: AgentClient, config: Path | None, servers: str | None) -> _Where:
    """As the running agent has it, the addresses that it was started with included."""
    try:
        agent = client.get("/v1")
    except AgentUnreachableError as error:
        raise AgentUnreachableError(error.message, "name the directory of definitions: copycat dlq ls DIR, show DIR NAME") from error
    connectors = [one["name"] for one in client.get("/v1/connectors")["connectors"]]
    values = client.get(address("connectors", connectors[0], "/definition"))["values"] if connectors else []
    said = [one["value"] for one in values if one["option"] == "kafka.bootstrap_servers" and one["from"] == "command line"]
    file = config or (Path(agent["agent_file"]) if agent["agent_file"] else None)
    return _Where(Path(agent["directory"]), file, servers or (",".join(said[0]) if said else None))


def _chosen(where: _Where, name: str | None, *, no_color: bool) -> list[Definition]:
    """Definitions with a dead-letter topic: all of them, or the one of this name. Leaves when there is none."""
    directory = where.directory
    settings = settle_settings(directory, where.config, None, where.servers)
    loaded = load_directory(directory, settings.agent)
    color = use_color(no_color=no_color)
    say_problems(loaded.problems, color=color)
    if name is not None and name not in loaded.definitions:
        broken = any(file.problems and file.name in {name, None, ""} for file in loaded.files)
        leave(f"no definition named {name} loads from {directory}", exits.DEFINITION_ERROR if broken else exits.USAGE)
    if name is None and loaded.problems and not loaded.definitions:
        raise typer.Exit(exits.DEFINITION_ERROR)
    wanted = [one for one in loaded.definitions.values() if name in {None, one.name}]
    chosen = [one for one in wanted if one.errors.dlq is not None]
    if not chosen:
        who = f"no definition in {directory} has a" if name is None else f"{name} has no"
        leave(f"{who} dead-letter topic: set errors.dlq.topic", exits.FAILED)
    return chosen


def _topic(definition: Definition) -> str:
    assert definition.errors.dlq is not None
    return definition.errors.dlq.topic


def _names(definition: Definition) -> frozenset[str]:
    """What its letters call it: letters keep the name that it had."""
    return frozenset((definition.name, *definition.renamed_from))


def _by_topic(definitions: list[Definition]) -> list[list[Definition]]:
    """Definitions that share a topic of one cluster."""
    groups: list[list[Definition]] = []
    for one in definitions:
        same = (group for group in groups if _topic(group[0]) == _topic(one) and group[0].kafka == one.kafka)
        found = next(same, None)
        if found is None:
            groups.append([one])
        else:
            found.append(one)
    return groups


def _survey(definitions: list[Definition], name: str | None) -> Survey:
    kafka, topic = definitions[0].kafka, _topic(definitions[0])
    replayed: dict[str, dict[int, ReplayProgress]] = {}
    for one in definitions:
        with TopicReader(kafka, topic, group_of(one.name)) as reader:
            replayed |= dict.fromkeys(_names(one), saved_progress(reader, one))
    with TopicReader(kafka, topic, "copycat-dlq") as reader, _progress() as told:
        found = survey(reader, replayed, told)
    if name is not None:
        found.tallies = {kind: tally for kind, tally in found.tallies.items() if kind.connector in replayed}
    return found


@contextmanager
def _kafka() -> Iterator[None]:
    """Leaves with 69 when Kafka does not answer; what it refuses is an error like any other."""
    try:
        yield
    except BlockedError:
        raise
    except RetriableError as error:
        leave(str(error), exits.BROKER_UNREACHABLE)


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """A line on the terminal that counts; nothing elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Status("reading dead letters", console=console) as line:
        yield lambda count: line.update(f"{count:,} dead letters")
