"""`copycat check` and `copycat schema`: definitions without a broker, without Spark, without the files they name."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from copycat_agent.cli import exits
from copycat_agent.cli.common_options import Format, Output, say_problems
from copycat_agent.cli.query_checks import with_queries
from copycat_agent.definitions import (
    NO_ADDRESS,
    Finding,
    Loaded,
    LoadedFile,
    find_agent_file,
    load_agent,
    load_directory,
    printable,
    problem_in,
)
from copycat_agent.definitions.models import definition_schema
from copycat_agent.errors import CopycatError, DefinitionError, Problem
from copycat_agent.options import AgentOptions
from copycat_agent.sources.datasource.reader_process import ReaderFaultError, ReaderProcess, UnusableReaderError
from copycat_agent.sources.datasource.source import DataSourceOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from copycat_agent.options import Definition

_NAMES_SHOWN = 3


def with_readers(loaded: Loaded) -> Loaded:
    """The same, with a problem for each data source of which no reader can be made. It is asked nothing but its schema."""
    files = tuple(_looked_at(file) for file in loaded.files)
    found = tuple(problem for file, before in zip(files, loaded.files, strict=True) if file is not before for problem in file.problems)
    return dataclasses.replace(loaded, files=files, problems=(*loaded.problems, *found))


def _looked_at(file: LoadedFile) -> LoadedFile:
    source = file.definition.source if file.definition is not None else None
    if not isinstance(source, DataSourceOptions) or file.definition is None:
        return file
    try:
        ReaderProcess(source.class_, dict(source.options), source.timeout).close()
    except CopycatError as error:
        finding = _finding(file.definition, error)
        return dataclasses.replace(file, definition=None, problems=(*file.problems, problem_in(file.path, finding)))
    return file


def _finding(definition: Definition, error: CopycatError) -> Finding:
    """What is wrong, where the definition says it: what its data source raises is mostly about its options."""
    is_class = isinstance(error, UnusableReaderError) and error.option == "class"
    said = error.shown(definition.mask) if isinstance(error, ReaderFaultError) else ""
    words = definition.mask.text(error.message) + (f": {said}" if said else "")
    return Finding(("source", "class" if is_class else "options"), "data-source", words, error.hint)


def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of definitions.")],
    no_env: Annotated[bool, typer.Option("--no-env", help="Leave ${env:}, ${file:} and ${cred:} unresolved.")] = False,
    config: Annotated[Path | None, typer.Option("--config", help="The agent's file; default: agent.yaml beside DIR.")] = None,
    output: Output = Format.TEXT,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colors.")] = False,
) -> None:
    """Check all definitions of a directory, offline, with the loader that `run` uses. Exits 78 when any is bad.

    Where one has a query, Spark is started to look at it; where one names a data source, that is made, in a process of its own.
    """
    agent_problems: tuple[Problem, ...] = ()
    agent = AgentOptions()
    try:
        agent = load_agent(find_agent_file(directory, config), resolve_env=not no_env)
    except DefinitionError as error:
        agent_problems = error.problems
    loaded = load_directory(directory, agent, resolve_env=not no_env)
    loaded = _with_addresses(loaded, directory)
    loaded = loaded if no_env else with_readers(loaded)
    loaded = with_queries(loaded, agent.spark, lambda words: typer.echo(words, err=True))
    problems = (*agent_problems, *loaded.problems)
    if output is Format.JSON:
        typer.echo(json.dumps(_report(loaded, problems), indent=2))
    else:
        color = not no_color and not os.environ.get("NO_COLOR") and sys.stderr.isatty()
        _write(loaded, problems, color=color)
    if problems:
        raise typer.Exit(exits.DEFINITION_ERROR)


def _with_addresses(loaded: Loaded, directory: Path) -> Loaded:
    """With a warning where `run` would not start a connector for want of an address, which may yet come with an option of it."""
    without = [one.name for one in loaded.definitions.values() if one.enabled and not one.kafka.bootstrap_servers]
    if not without:
        return loaded
    names = ", ".join(without[:_NAMES_SHOWN]) + (f" and {len(without) - _NAMES_SHOWN} more" if len(without) > _NAMES_SHOWN else "")
    hint = f"run would not start {names}; for a trial, start a broker with: copycat dev-broker"
    return dataclasses.replace(loaded, warnings=(*loaded.warnings, Problem(str(directory), 0, 0, "no-address", NO_ADDRESS, hint)))


def schema() -> None:
    """Print the JSON Schema of a definition, for editors and other programs."""
    typer.echo(json.dumps(definition_schema(), indent=2))


def _write(loaded: Loaded, problems: Iterable[Problem], *, color: bool) -> None:
    """Problems and warnings on stderr, then one line per definition on stdout."""
    say_problems(problems, color=color)
    say_problems(loaded.warnings, kind="warning", color=color)
    for file in loaded.files:
        typer.echo(_summary(file))
    if not loaded.files and not loaded.problems:
        typer.echo("no *.yaml or *.yml in this directory", err=True)


def _summary(file: LoadedFile) -> str:
    """`good nginx-access: log_file -> logs.nginx`, or how many problems."""
    label = printable(file.name or file.path.name)
    if file.problems:
        count = len(file.problems)
        return f"bad  {label}: {count} problem{'s' if count > 1 else ''} in {printable(str(file.path))}"
    if file.definition is None:
        return f"good {label}: as far as it can be told without its references"
    shown = file.definition.masked()
    disabled = "" if file.definition.enabled else " (disabled)"
    return f"good {label}: {shown['source']['type']} -> {shown['record']['topic']}{disabled}"


def _report(loaded: Loaded, problems: Iterable[Problem]) -> dict[str, Any]:
    """The same for programs; paths that are not UTF-8 have their odd bytes escaped."""
    return {
        "good": not problems,
        "definitions": [{"name": file.name, "path": printable(str(file.path)), "good": not file.problems} for file in loaded.files],
        "problems": [_entry(problem) for problem in problems],
        "warnings": [_entry(warning) for warning in loaded.warnings],
    }


def _entry(problem: Problem) -> dict[str, Any]:
    return dataclasses.asdict(problem) | {"path": printable(problem.path)}
