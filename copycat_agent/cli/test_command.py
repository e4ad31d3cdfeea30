"""`copycat test`: the tests that stand in definitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from copycat_agent import logs
from copycat_agent.cli import exits
from copycat_agent.cli.options import Config, Format, NoColor, Output, use_color
from copycat_agent.cli.queries import Queries
from copycat_agent.cli.test_junit import junit
from copycat_agent.cli.test_view import Tested, picture, report, summary
from copycat_agent.cli.try_view import assumed_words
from copycat_agent.cli.watching import make_console
from copycat_agent.definitions import LoadedFile, find_agent_file, lines_of, load_agent, load_directory, load_file, printable, render
from copycat_agent.errors import CopycatError, DefinitionError, Problem
from copycat_agent.options import SparkOptions
from copycat_agent.workbench.trying import run_tests


def _test(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of definitions, or the file of one.")],
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Test only this definition; repeatable.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write the outcome as JUnit XML, for CI.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show tests that fail only.")] = False,
    output: Output = Format.TEXT,
    config: Config = None,
    no_color: NoColor = False,
) -> None:
    """Run the tests of definitions: sample input through the real pipeline, compared with the records that should come out.

    Offline: needs no Kafka, no schema registry and no agent. Exits 1 when a test fails, 78 when a definition is bad.
    """
    logs.setup("error")
    loaded = _load(directory, config)
    known = {file.name for file in loaded.files if file.name}
    if loaded.files and (unknown := sorted(set(only or ()) - known)):
        typer.echo(f"error: no definition named {', '.join(unknown)} in {printable(str(directory))}", err=True)
        raise typer.Exit(exits.USAGE)
    console = make_console(no_color=no_color) if output is Format.TEXT else None
    with Queries() as queries:
        chosen = [file for file in loaded.files if not only or file.name in only]
        tested = [_tested(file, queries, loaded.spark, console, quiet=quiet) for file in chosen]
    problems = [*loaded.problems, *(problem for one in tested for problem in one.problems)]
    for problem in problems:
        color = use_color(no_color=no_color)
        typer.echo(render(problem, color=color) + "\n", err=True, color=color)
    if console is None:
        typer.echo(json.dumps(report(tested), indent=2, ensure_ascii=False))
    else:
        console.file.flush()
        if assumed := sorted({each for file in chosen for each in file.assumed}):
            typer.echo(assumed_words(assumed), err=True)
        typer.echo(summary(tested) if tested else f"no definition in {printable(str(directory))}", err=True)
    if junit_file is not None:
        _write(junit_file, junit(tested))
    raise typer.Exit(exits.DEFINITION_ERROR if problems else _code(tested))


test = _test
"""The command. Under another name above, since tools take functions of this name for tests."""


def _write(path: Path, content: bytes) -> None:
    """With the directories above it. Raises CopycatError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CopycatError(f"--junit: {path} cannot be written: {error.strerror}", "name a file that can be written") from None


class _Loaded(NamedTuple):
    """`problems` are those that belong to no definition."""

    files: Sequence[LoadedFile]
    problems: tuple[Problem, ...] = ()
    spark: SparkOptions = SparkOptions()


def _load(path: Path, config: Path | None) -> _Loaded:
    """The definitions; none where agent.yaml is wrong."""
    directory = path if path.is_dir() or not path.exists() else path.absolute().parent
    try:
        agent = load_agent(find_agent_file(directory, config), offline=True)
    except DefinitionError as error:
        return _Loaded((), error.problems)
    if directory != path:
        return _Loaded((load_file(path, agent, offline=True),), (), agent.spark)
    loaded = load_directory(path, agent, offline=True)
    own = {problem for file in loaded.files for problem in file.problems}
    return _Loaded(loaded.files, tuple(problem for problem in loaded.problems if problem not in own), agent.spark)


def _tested(file: LoadedFile, queries: Queries, spark: SparkOptions, console: Console | None, *, quiet: bool) -> Tested:
    """Run the tests of one definition, and show them when they are through."""
    name = printable(file.name or file.path.name)
    if file.definition is None or not file.definition.tests:
        return Tested(name, file.path, problems=file.problems)
    try:
        query = queries.of(file.definition, file.path, spark)
    except DefinitionError as error:
        return Tested(name, file.path, problems=error.problems)
    outcomes = tuple(run_tests(file.definition, file.path.parent, query))
    tested = Tested(name, file.path, outcomes, lines_of(file.path, "tests"), mask=file.definition.mask)
    if console is not None:
        for line in picture(tested, quiet=quiet):
            console.print(line, soft_wrap=True)
    return tested


def _code(tested: Sequence[Tested]) -> int:
    return exits.GOOD if all(outcome.good for one in tested for outcome in one.outcomes) else exits.FAILED
