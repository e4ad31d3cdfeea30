"""Spark for the commands that look at definitions: `check` has it look at each query, `try` and `test` run `sql` steps on it."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer

from copycat_agent.definitions import Loaded, LoadedFile, lines_of
from copycat_agent.errors import CopycatError, DefinitionError, FatalError, Problem
from copycat_agent.transforms.queries import sql_step
from copycat_agent.transforms.sql import sql_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from copycat_agent.options import Definition, SparkOptions
    from copycat_agent.spark.sql_local import LocalSql
    from copycat_agent.workbench.trying import QueryStep


class Queries:
    """The queries of definitions, answered by a Spark of this process. A context manager: it ends Spark."""

    def __init__(self) -> None:
        self._session: LocalSql | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def of(self, definition: Definition, path: Path, options: SparkOptions) -> QueryStep | None:
        """The query of the definition in the file `path`, None when it has none. Raises DefinitionError for one that is refused."""
        if sql_at(definition.transforms) is None:
            return None
        try:
            return self._asked(definition, options)
        except DefinitionError:
            raise
        except CopycatError as error:
            raise DefinitionError((Problem(str(path), 0, 0, "sql", error.message, error.hint),)) from None

    def _asked(self, definition: Definition, options: SparkOptions) -> QueryStep:
        if self._session is None:
            from copycat_agent.spark.sql_local import LocalSql  # noqa: PLC0415 - pyspark, which few definitions need

            self._directory = tempfile.TemporaryDirectory(prefix="copycat-")
            self._session = LocalSql(Path(self._directory.name), options, lambda words: typer.echo(words, err=True))
        return self._session.query(definition)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            self._session.close()
        if self._directory is not None:
            self._directory.cleanup()


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
