"""`copycat dlq`: lists dead letters with their reasons, and sends them again."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from copycat_agent.api import AgentClient, AgentUnreachableError, address, is_name
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
from copycat_agent.cli.running import StopSignals, resolve_settings
from copycat_agent.definitions import load_directory
from copycat_agent.dlq import LetterPlace, Replay, ReplayProgress, Survey, group_of, latest, saved_progress, survey
from copycat_agent.errors import BlockedError, RetriableError
from copycat_agent.options import Definition
from copycat_agent.producer.topic_reader import TopicReader
from copycat_agent.small_files import is_directory

_PLACE = re.compile(r"(\d{1,9}):(\d{1,18})", re.ASCII)
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
    chosen, name = _chosen(of or [], config, state_dir, socket, bootstrap_servers, no_color=no_color, one=False)
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
    (definition,), name = _chosen(of, config, state_dir, socket, bootstrap_servers, no_color=no_color, one=True)
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
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PARTITION:OFFSET", help="Only this letter, and others with --only again."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing, and remember nothing.")] = False,
    output: Output = Format.TEXT,
    config: Config = None,
    state_dir: StateDir = None,
    socket: Socket = None,
    bootstrap_servers: BootstrapServers = None,
    no_color: NoColor = False,
) -> None:
    """Send a connector's dead letters again, all that wait or some, through the definition as it is now.

    A letter that goes, or that a transform drops, is not tried again: the consumer group copycat-dlq-NAME remembers it. One that
    fails again stays for the next time. Exits 0 when all went, 3 when some are left or not there, 130 when it was interrupted.
    Do not run two at once.
    """
    places = [_place(one) for one in only or []]
    (definition,), _ = _chosen(of, config, state_dir, socket, bootstrap_servers, no_color=no_color, one=True)
    if not definition.sink.has_topics:
        leave(
            f"{definition.name} writes files, which hold the records of whole ranges of offsets: no letter can be put into one later\n"
            f"  hint: another connector with source.topics: [{_topic(definition)}] and this one's steps and sink writes each letter once",
            exits.FAILED,
        )
    stop = StopSignals()
    work = Replay(definition, lambda: stop.asked, dry_run=dry_run)
    ended = False
    try:
        with _kafka(), _progress() as told:
            work.run(limit=limit, everything=everything, only=places, on_progress=lambda report: told(report.tried))
        ended = True
    finally:
        if ended or work.report.tried:  # the letters before Kafka stopped answering
            entry = report_entry(work.report)
            typer.echo(json.dumps(entry, indent=2) if output is Format.JSON else report_text(work.report, dry_run=dry_run))
    if work.report.stopped:
        raise typer.Exit(exits.INTERRUPTED)
    if work.report.left or work.report.missed:
        raise typer.Exit(exits.DEGRADED)


def _place(text: str) -> LetterPlace:
    """Parses `0:17`, a letter's partition and offset."""
    if not (match := _PLACE.fullmatch(text)):
        raise typer.BadParameter(f"{text!r} is no PARTITION:OFFSET, as in 0:17", param_hint="--only")
    return LetterPlace(int(match[1]), int(match[2]))


def _chosen(
    words: list[str], config: Path | None, state_dir: Path | None, socket: Path | None, servers: str | None, *, no_color: bool, one: bool
) -> tuple[list[Definition], str]:
    """Returns definitions with a dead-letter topic, all or the one of `[DIR] [NAME]`, and the name; ends the command if there is none.

    A single word is a NAME if `one` is wanted; else it is one unless it can only be, or is, a directory.
    """
    if len(words) > 2:  # noqa: PLR2004 - DIR and NAME
        raise typer.BadParameter("at most a directory and a connector's name")
    alone = "".join(words)
    name = words[-1] if len(words) > 1 or one or (is_name(alone) and not is_directory(alone)) else ""
    rest = words[: len(words) - bool(name)]
    directory = Path(rest[0]) if rest else Path()
    if not rest:
        directory, config, servers = _of_agent(find_agent(socket, state_dir, config), config, servers)
    loaded = load_directory(directory, resolve_settings(directory, config, None, servers).agent)
    say_problems(loaded.problems, color=use_color(no_color=no_color))
    if name and name not in loaded.definitions:
        broken = any(file.problems and file.name in {name, None, ""} for file in loaded.files)
        leave(f"no definition named {name} loads from {directory}", exits.DEFINITION_ERROR if broken else exits.USAGE)
    if not name and loaded.problems and not loaded.definitions:
        raise typer.Exit(exits.DEFINITION_ERROR)
    chosen = [each for each in loaded.definitions.values() if name in {"", each.name} and each.errors.dlq is not None]
    if not chosen:
        who = f"{name} has no" if name else f"no definition in {directory} has a"
        leave(f"{who} dead-letter topic: set errors.dlq.topic", exits.FAILED)
    return chosen, name


def _of_agent(client: AgentClient, config: Path | None, servers: str | None) -> tuple[Path, Path | None, str | None]:
    """Returns directory, agent.yaml and servers of the running agent, including the addresses that it was started with."""
    try:
        agent = client.get("/v1")
    except AgentUnreachableError as error:
        raise AgentUnreachableError(error.message, "name the directory of definitions: copycat dlq ls DIR, show DIR NAME") from error
    connectors = [one["name"] for one in client.get("/v1/connectors")["connectors"]]
    values = client.get(address("connectors", connectors[0], "/definition"))["values"] if connectors else []
    said = [one["value"] for one in values if one["option"] == "kafka.bootstrap_servers" and one["from"] == "command line"]
    file = config or (Path(agent["agent_file"]) if agent["agent_file"] else None)
    return Path(agent["directory"]), file, servers or (",".join(said[0]) if said else None)


def _topic(definition: Definition) -> str:
    assert definition.errors.dlq is not None
    return definition.errors.dlq.topic


def _names(definition: Definition) -> frozenset[str]:
    """Returns the connector's names in its letters: letters keep the name that it had."""
    return frozenset((definition.name, *definition.renamed_from))


def _by_topic(definitions: list[Definition]) -> list[list[Definition]]:
    """Groups definitions that share a topic of one cluster."""
    groups: list[list[Definition]] = []
    for one in definitions:
        same = next((group for group in groups if (_topic(group[0]), group[0].kafka) == (_topic(one), one.kafka)), None)
        if same is None:
            groups.append([one])
        else:
            same.append(one)
    return groups


def _survey(definitions: list[Definition], name: str) -> Survey:
    kafka, topic = definitions[0].kafka, _topic(definitions[0])
    replayed: dict[str, dict[int, ReplayProgress]] = {}
    for one in definitions:
        with TopicReader(kafka, topic, group_of(one.name)) as reader:
            replayed |= dict.fromkeys(_names(one), saved_progress(reader, one))
    with TopicReader(kafka, topic, "copycat-dlq") as reader, _progress() as told:
        found = survey(reader, replayed, told)
    if name:
        found.tallies = {kind: tally for kind, tally in found.tallies.items() if kind.connector in replayed}
    return found


@contextmanager
def _kafka() -> Iterator[None]:
    """Ends the command with 69 if Kafka does not answer; a refusal of Kafka is an ordinary error."""
    try:
        yield
    except BlockedError:
        raise
    except RetriableError as error:
        leave(str(error), exits.BROKER_UNREACHABLE)


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Shows a count on the terminal; nothing elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Status("reading dead letters", console=console) as line:
        yield lambda count: line.update(f"{count:,} dead letters")
