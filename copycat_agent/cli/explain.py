"""`copycat explain`: how each connector treats a path, or the meaning of an option."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from copycat_agent import logs
from copycat_agent.api import AgentClient
from copycat_agent.cli import exits
from copycat_agent.cli.agent_client import find_agent
from copycat_agent.cli.common_options import Config, Format, Output, Socket, StateDir, leave, say_problems
from copycat_agent.cli.explain_view import Explanation, entry, text_of
from copycat_agent.cli.plan import LiveAgent
from copycat_agent.cli.record_preview import MOST_BYTES, first_records
from copycat_agent.cli.running import resolve_settings
from copycat_agent.definitions import LoadResult, load_directory
from copycat_agent.display import visible
from copycat_agent.errors import CopycatError
from copycat_agent.model import SavedRow, SourcePartition
from copycat_agent.offsets.store_reader import saved_offsets
from copycat_agent.options import Definition
from copycat_agent.sources.files.reading.address import is_remote
from copycat_agent.workbench.explaining import OptionKey, all_keys, asked, find_keys, near_keys
from copycat_agent.workbench.explaining.written import ConnectorAnswer, OffsetPlace, place_in, written

_PACKAGED = Path("/etc/copycat/connectors.d")
_HERE = Path("connectors.d")
_log = logs.get("explain")


def key_names() -> list[str]:
    """Returns all keys, for shells."""
    return sorted({one.key for one in all_keys()})


def explain_key(text: str, output: Format) -> int:
    """Prints the meaning of the key, or keys of similar names. Returns the exit code."""
    found = find_keys(text)
    if output is Format.JSON:
        typer.echo(json.dumps([one._asdict() for one in found], indent=2))
    else:
        for one in found:
            typer.echo("\n".join(_lines(one)))
    if found:
        return exits.GOOD
    near = near_keys(text)
    hint = f"did you mean {', '.join(near)}?" if near else "copycat explain source (record, delivery, errors, kafka, ...) lists keys"
    typer.echo(f"error: {visible(text)} is no option, and no file is called so\n  hint: {hint}", err=True)
    return exits.FAILED


def _lines(one: OptionKey) -> list[str]:
    facts = {
        "type": one.kind,
        "default": "required" if one.default is None else one.default,
        "allowed": one.allowed,
        "example": one.example,
        "keys below": ", ".join(key.removeprefix(f"{one.key}.") for key in one.children),
    }
    shown = [f"  {name:<10}  {value}" for name, value in facts.items() if value]
    return [f"{one.key}  (in {one.where})", f"  {one.meaning}", *shown]


def _complete(context: typer.Context, incomplete: str) -> list[str]:
    """Returns matching option keys; a word with a slash is a path, which the shell completes."""
    del context
    return [] if "/" in incomplete else [name for name in key_names() if name.startswith(incomplete)]


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="PATH|PLACE|KEY",
            help="A file, a record in Kafka such as orders/3@1200, or an option such as source.start_at.",
            autocompletion=_complete,
        ),
    ],
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", help="Directory of definitions; default: ./connectors.d, the running agent's, /etc/copycat/connectors.d."
        ),
    ] = None,
    records: Annotated[int, typer.Option("-n", "--records", min=0, max=1000, help="Show so many of the next records.")] = 5,
    config: Config = None,
    state_dir: StateDir = None,
    socket: Socket = None,
    output: Output = Format.TEXT,
) -> None:
    """Say which connectors read a file and why, or why not: identity, position, and the next records as they would be sent.

    What holds a slash, or is a file here, is a PATH, which need not exist; TOPIC/PARTITION@OFFSET is a record in Kafka, of which the
    files are named that hold its range of offsets; anything else is a KEY: an option of a definition or of agent.yaml.

    Needs no Kafka and no Spark, moves nothing, and works beside a running agent. With --socket that agent is asked for its offsets and
    where it is in the file, without for how its connectors are. Exits 1 when no connector reads the file.
    """
    if "/" not in what and not os.path.lexists(what):
        raise typer.Exit(explain_key(what, output))
    if (place := place_in(what)) is not None and not os.path.lexists(what):
        raise typer.Exit(_explain_offset(place, directory or _find_directory(state_dir, config), config, output))
    path = what if is_remote(what) else os.path.abspath(os.fsdecode(os.fsencode(what)))  # noqa: PTH100 - as discovery names it; pathlib would follow nothing either
    agent = LiveAgent(AgentClient(socket.absolute())) if socket else None
    where = directory or (Path(agent.directory or _HERE) if agent else _find_directory(state_dir, config))
    settings = resolve_settings(where, config, state_dir, None, socket)
    logs.setup("error")
    loaded = load_directory(where, settings.agent)
    if not loaded.definitions:
        say_problems(loaded.problems)
        leave(f"no definition in {visible(str(where))} loads", exits.DEFINITION_ERROR)
    saved = {} if agent else saved_offsets(settings.state_dir)
    states = agent.statuses if agent else _states(settings.state_dir, config)
    answers = [
        _explained(one, loaded, agent.offsets(one) if agent else saved, states, path, records) for one in loaded.definitions.values()
    ]
    if agent:
        answers = [one._replace(live=agent.file(one.answer)) for one in answers]
    if output is Format.JSON:
        typer.echo(json.dumps(_report(path, answers, loaded), indent=2))
    else:
        typer.echo(text_of(path, answers))
    _say_bad(loaded, where)
    raise typer.Exit(exits.GOOD if any(one.answer.takes for one in answers) else exits.FAILED)


def _explain_offset(place: OffsetPlace, where: Path, config: Path | None, output: Format) -> int:
    """Prints which file has a record. Returns the exit code."""
    logs.setup("error")
    loaded = load_directory(where, resolve_settings(where, config, None, None, None).agent)
    try:
        found = [one for definition in loaded.definitions.values() if (one := written(definition, place)) is not None]
    except CopycatError as error:
        leave(str(error), exits.FAILED)
    if output is Format.JSON:
        typer.echo(json.dumps([one._asdict() for one in found], indent=2))
    else:
        typer.echo(
            "\n".join(_written_lines(place, one) for one in found) or f"no connector in {visible(str(where))} writes files of {place.topic}"
        )
    _say_bad(loaded, where)
    return exits.GOOD if any(one.files for one in found) else exits.FAILED


def _written_lines(place: OffsetPlace, one: ConnectorAnswer) -> str:
    partition = f"{place.topic}/{place.partition}"
    record = f"{partition}@{place.offset}"
    if one.files:
        head = f"{one.connector}: offsets {one.first:,} to {one.last:,} of {partition} are in"
        tail = "  a record among them that was null, dropped or dead-lettered is in no file"
        return "\n".join([head, *(f"  {visible(file)}" for file in one.files), tail])
    if one.end is None:
        return f"{one.connector}: nothing of {partition} is written"
    if place.offset >= one.end:
        return f"{one.connector}: {record} is not written yet: offsets below {one.end:,} are"
    return f"{one.connector}: no file has {record}: it was null, dropped, dead-lettered or no record, or its file was deleted"


def _explained(
    definition: Definition,
    loaded: LoadResult,
    saved: Mapping[SourcePartition, SavedRow],
    states: Mapping[str, Mapping[str, Any]],
    path: str,
    count: int,
) -> Explanation:
    file = str(loaded.paths[definition.name])
    with asked(definition, saved, path, _log, most_bytes=MOST_BYTES) as answer:
        split = answer.closeup.split if answer.closeup else None
        first = first_records(definition, split, count) if split and count else None
        return Explanation(answer, file, first, states.get(definition.name))


def _find_directory(state_dir: Path | None, config: Path | None) -> Path:
    """Returns the directory of definitions if none was given."""
    if _HERE.is_dir():
        return _HERE
    try:
        return Path(find_agent(None, state_dir, config).get("/v1")["directory"])
    except (CopycatError, OSError):
        if _PACKAGED.is_dir():
            return _PACKAGED
    raise typer.BadParameter(f"there is no {_HERE} here, and no agent answers: name the directory of definitions behind it")


def _states(state_dir: Path, config: Path | None) -> dict[str, Mapping[str, Any]]:
    """Returns the states of the connectors of the agent with these offsets; none if no agent answers, or another one."""
    try:
        client = find_agent(None, state_dir, config)
        if client.get("/v1")["state_dir"] != str(state_dir):
            return {}
        return {one["name"]: one for one in client.get("/v1/connectors")["connectors"]}
    except (CopycatError, OSError):
        return {}


def _say_bad(loaded: LoadResult, directory: Path) -> None:
    bad = [visible(file.path.name) for file in loaded.files if file.problems]
    if bad:
        does, which = ("does", "it") if len(bad) == 1 else ("do", "them")
        typer.echo(
            f"\n{', '.join(bad)} {does} not load, and nothing is known of {which}: copycat check {visible(str(directory))}", err=True
        )


def _report(path: str, answers: list[Explanation], loaded: LoadResult) -> dict[str, Any]:
    return {
        "path": visible(path),
        "exists": os.path.lexists(path),
        "connectors": [entry(one) for one in answers],
        "bad_definitions": [visible(str(file.path)) for file in loaded.files if file.problems],
    }
