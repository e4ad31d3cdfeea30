"""`sql` steps for the commands that look at samples: Spark is started when the first one is met, and kept."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import typer

from copycat_agent.errors import CopycatError, DefinitionError, Problem
from copycat_agent.transforms.sql import sql_at

if TYPE_CHECKING:
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
