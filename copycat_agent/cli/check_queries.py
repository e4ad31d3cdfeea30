"""What `copycat check` says of queries: Spark looks at each, if there is one."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from copycat_agent.definitions import Loaded, LoadedFile, lines_of
from copycat_agent.errors import FatalError, Problem
from copycat_agent.transforms.queries import sql_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from copycat_agent.options import Definition, SparkOptions
    from copycat_agent.spark.sql_local import LocalSql


def with_queries(loaded: Loaded, options: SparkOptions, tell: Callable[[str], None]) -> Loaded:
    """The same, with a problem for each query that cannot be run. Starts Spark when there is a query; `tell` hears that."""
    if not any(file.definition is not None and sql_step(file.definition) for file in loaded.files):
        return loaded
    from copycat_agent.spark.sql_local import LocalSql  # noqa: PLC0415 - imports pyspark, which few definitions need

    with tempfile.TemporaryDirectory(prefix="copycat-") as directory, LocalSql(Path(directory) / "run", options, tell) as sql:
        files = tuple(_looked_at(file, sql) for file in loaded.files)
    found = tuple(problem for file, before in zip(files, loaded.files, strict=True) if file is not before for problem in file.problems)
    return replace(loaded, files=files, problems=(*loaded.problems, *found))


@contextlib.contextmanager
def answering(definitions: Iterable[Definition], options: SparkOptions | None) -> Iterator[Callable[..., Any] | None]:
    """What runs batches in this process in place of `run_batch`: None when no definition has a query, and no Spark is needed."""
    if not any(sql_step(definition) for definition in definitions):
        yield None
        return
    from copycat_agent.spark.sql_local import LocalSql  # noqa: PLC0415 - as above

    def tell(words: str) -> None:
        typer.echo(words, err=True)

    with tempfile.TemporaryDirectory(prefix="copycat-") as directory, LocalSql(Path(directory) / "run", options, tell) as sql:
        yield sql.run


def _looked_at(file: LoadedFile, sql: LocalSql) -> LoadedFile:
    step = sql_step(file.definition) if file.definition is not None else None
    if step is None or file.definition is None:
        return file
    try:
        sql.query(file.definition)
    except FatalError as error:
        lines = lines_of(file.path, "transforms")
        line = lines[step.number] if step.number < len(lines) else 0
        problem = Problem(str(file.path), line, 1 if line else 0, "sql", error.message, error.hint)
        return replace(file, definition=None, problems=(*file.problems, problem))
    return file
