"""`copycat check` and `copycat schema`: checks definitions without a broker and without the files they name.

Queries of definitions run on a Spark in this process: for `check`, for `try` and `test`, and for a dry run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from copycat_agent.cli import exits
from copycat_agent.cli.common_options import Format, OnMaster, Output, say_problems
from copycat_agent.definitions import (
    NO_ADDRESS,
    Finding,
    LoadedFile,
    LoadResult,
    find_agent_file,
    lines_of,
    load_agent,
    load_directory,
    problem_in,
)
from copycat_agent.definitions.models import definition_schema
from copycat_agent.display import printable
from copycat_agent.errors import CopycatError, DefinitionError, FatalError, Problem
from copycat_agent.options import AgentOptions, Definition, SparkOptions
from copycat_agent.sources import SOURCES
from copycat_agent.sources.datasource.reader_process import ReaderFaultError, ReaderProcess, UnusableReaderError
from copycat_agent.sources.datasource.source import DataSourceOptions
from copycat_agent.transforms import sql_step
from copycat_agent.transforms.sql import sql_at

if TYPE_CHECKING:
    from copycat_agent.spark.sql_local import LocalSql
    from copycat_agent.workbench.trying import QueryStep


@contextlib.contextmanager
def spark_sql(options: SparkOptions | None) -> Iterator[LocalSql]:
    """Runs Spark in this process, started with the first query; a message says so."""
    from copycat_agent.spark.sql_local import LocalSql  # noqa: PLC0415 - imports pyspark, which few definitions need

    def tell(words: str) -> None:
        typer.echo(words, err=True)

    with tempfile.TemporaryDirectory(prefix="copycat-") as directory, LocalSql(Path(directory) / "run", options, tell) as sql:
        yield sql


def reads_by_spark(definition: Definition) -> bool:
    """Returns whether Spark reads the records of its source, which needs a Spark session to look for partitions."""
    return SOURCES[definition.source.type].frame is not None


def spark_for(definitions: Iterable[Definition], options: SparkOptions | None) -> contextlib.AbstractContextManager[object]:
    """Returns a context with Spark in this process if Spark reads one of the definitions; it starts on first use."""
    return spark_sql(options) if any(map(reads_by_spark, definitions)) else contextlib.nullcontext()


class QueryChecks(contextlib.ExitStack):
    """The queries of definitions, run by a Spark in this process. A context manager: it ends Spark."""

    _sql: LocalSql | None = None

    def of(self, definition: Definition, path: Path, options: SparkOptions) -> QueryStep | None:
        """Returns the query of the definition in the file `path`, None if it has none. Raises DefinitionError if it is refused."""
        is_query = sql_at(definition.transforms) is not None
        if not (is_query or reads_by_spark(definition)):
            return None
        try:
            self._sql = self._sql or self.enter_context(spark_sql(options))
            return self._sql.query(definition) if is_query else None
        except DefinitionError:
            raise
        except CopycatError as error:
            raise DefinitionError((Problem(str(path), 0, 0, "sql", error.message, error.hint),)) from None


@contextlib.contextmanager
def answering(definitions: Iterable[Definition], options: SparkOptions | None) -> Iterator[Callable[..., Any] | None]:
    """Yields a function that runs batches in this process in place of `run_batch`: None if no definition needs Spark."""
    if not any(sql_step(definition) or reads_by_spark(definition) for definition in definitions):
        yield None
        return
    with spark_sql(options) as sql:
        yield sql.run


_NAMES_SHOWN = 3


def _with(loaded: LoadResult, look: Callable[[Definition, Path], Problem | None]) -> LoadResult:
    """Returns `loaded` with the problems that `look` finds: a file with a problem has no definition."""
    found = {file.path: look(file.definition, file.path) for file in loaded.files if file.definition is not None}
    problems = {path: problem for path, problem in found.items() if problem is not None}
    files = tuple(
        dataclasses.replace(file, definition=None, problems=(*file.problems, problems[file.path])) if file.path in problems else file
        for file in loaded.files
    )
    return dataclasses.replace(loaded, files=files, problems=(*loaded.problems, *problems.values()))


def _reader_problem(definition: Definition, path: Path) -> Problem | None:
    """Returns why no reader of its data source can be made, if it has one. The reader is only asked for its schema."""
    source = definition.source
    if isinstance(source, DataSourceOptions):
        try:
            ReaderProcess(source.class_, dict(source.options), source.timeout).close()
        except CopycatError as error:
            return problem_in(path, _finding(definition, error))
    return None


def _with_queries(loaded: LoadResult, options: SparkOptions) -> LoadResult:
    """Returns `loaded` with a problem for each query that cannot be run. Starts Spark if there is a query."""
    if not any(file.definition is not None and sql_step(file.definition) for file in loaded.files):
        return loaded
    with spark_sql(options) as sql:
        return _with(loaded, lambda definition, path: _query_problem(definition, path, sql))


def _query_problem(definition: Definition, path: Path, sql: LocalSql) -> Problem | None:
    step = sql_step(definition)
    if step is not None:
        try:
            sql.query(definition)
        except FatalError as error:
            lines = lines_of(path, "transforms")
            line = lines[step.number] if step.number < len(lines) else 0
            return Problem(str(path), line, 1 if line else 0, "sql", error.message, error.hint)
    return None


def _with_cluster(loaded: LoadResult, master: str, options: SparkOptions) -> LoadResult:
    """Returns `loaded` with a problem for each definition that `run --master` would not run."""
    from copycat_agent.agent.executor_choice import doubts_about, refused_on  # noqa: PLC0415 - 0.4 s, for those who ask about a cluster

    def look(definition: Definition, path: Path) -> Problem | None:
        error = refused_on(master, definition, options.conf) if definition.enabled else None
        return problem_in(path, Finding(("source", "type"), "cluster", error.message, error.hint)) if error else None

    loaded = _with(loaded, look)
    return dataclasses.replace(loaded, warnings=(*loaded.warnings, *doubts_about(loaded.files)))


def _finding(definition: Definition, error: CopycatError) -> Finding:
    """Returns the finding at its place in the definition: errors of a data source are mostly about its options."""
    is_class = isinstance(error, UnusableReaderError) and error.option == "class"
    said = error.shown(definition.mask) if isinstance(error, ReaderFaultError) else ""
    words = definition.mask.text(error.message) + (f": {said}" if said else "")
    return Finding(("source", "class" if is_class else "options"), "data-source", words, error.hint)


def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of definitions.")],
    no_env: Annotated[bool, typer.Option("--no-env", help="Leave ${env:}, ${file:} and ${cred:} unresolved.")] = False,
    config: Annotated[Path | None, typer.Option("--config", help="The agent's file; default: agent.yaml beside DIR.")] = None,
    master: OnMaster = None,
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
    loaded = loaded if no_env else _with(loaded, _reader_problem)
    loaded = _with_queries(loaded, agent.spark)
    loaded = _with_cluster(loaded, master, agent.spark) if master else loaded
    problems = (*agent_problems, *loaded.problems)
    if output is Format.JSON:
        typer.echo(json.dumps(_report(loaded, problems), indent=2))
    else:
        color = not no_color and not os.environ.get("NO_COLOR") and sys.stderr.isatty()
        _write(loaded, problems, color=color)
    if problems:
        raise typer.Exit(exits.DEFINITION_ERROR)


def _with_addresses(loaded: LoadResult, directory: Path) -> LoadResult:
    """Returns `loaded` with a warning if `run` would not start a connector without an address, which `run` may still get as an option."""
    without = [one.name for one in loaded.definitions.values() if one.enabled and not one.kafka.bootstrap_servers]
    if not without:
        return loaded
    names = ", ".join(without[:_NAMES_SHOWN]) + (f" and {len(without) - _NAMES_SHOWN} more" if len(without) > _NAMES_SHOWN else "")
    hint = f"run would not start {names}; for a trial, start a broker with: copycat dev-broker"
    return dataclasses.replace(loaded, warnings=(*loaded.warnings, Problem(str(directory), 0, 0, "no-address", NO_ADDRESS, hint)))


def schema() -> None:
    """Print the JSON Schema of a definition, for editors and other programs."""
    typer.echo(json.dumps(definition_schema(), indent=2))


def _write(loaded: LoadResult, problems: Iterable[Problem], *, color: bool) -> None:
    """Writes problems and warnings to stderr, then one line per definition to stdout."""
    say_problems(problems, color=color)
    say_problems(loaded.warnings, kind="warning", color=color)
    for file in loaded.files:
        typer.echo(_summary(file))
    if not loaded.files and not loaded.problems:
        typer.echo("no *.yaml or *.yml in this directory", err=True)


def _summary(file: LoadedFile) -> str:
    """Returns a line such as `good nginx-access: log_file -> logs.nginx`, or the number of problems."""
    label = printable(file.name or file.path.name)
    if file.problems:
        count = len(file.problems)
        return f"bad  {label}: {count} problem{'s' if count > 1 else ''} in {printable(str(file.path))}"
    if file.definition is None:
        return f"good {label}: as far as it can be told without its references"
    definition = file.definition
    disabled = "" if definition.enabled else " (disabled)"
    return f"good {label}: {definition.source.type} -> {definition.mask.text(definition.target)}{disabled}"


def _report(loaded: LoadResult, problems: Iterable[Problem]) -> dict[str, Any]:
    """Returns the report for programs; odd bytes of paths that are not UTF-8 are escaped."""
    return {
        "good": not problems,
        "definitions": [{"name": file.name, "path": printable(str(file.path)), "good": not file.problems} for file in loaded.files],
        "problems": [_entry(problem) for problem in problems],
        "warnings": [_entry(warning) for warning in loaded.warnings],
    }


def _entry(problem: Problem) -> dict[str, Any]:
    return dataclasses.asdict(problem) | {"path": printable(problem.path)}
