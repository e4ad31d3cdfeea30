"""`sql`: a Spark SQL query over the records. What it says; Spark itself is `copycat_agent.spark`'s.

The query reads one table, `records`, with the columns of `schema`. What it selects becomes the record's fields. A record may become none
(dropped), one, or many (LATERAL VIEW explode). Queries that need other records than the one at hand are refused when Spark has looked at
them: in `copycat check`, and when a connector begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from copycat_agent.model import Column
from copycat_agent.options import Field, Options, TransformOptions
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms.base import Columns, Step, StepOptions, Transform, TransformKind
from copycat_agent.transforms.sql_types import columns_of

MOST_CHARACTERS = 65_536
"""Of a query."""

RAW_LINE: Columns = (Column("message", "string"),)
"""What a raw line has, as far as steps go."""


class QueryOptions(Options):
    """A query and the columns of its table. In a definition, the query alone may stand for it."""

    query: str = Field(
        min_length=1, max_length=MOST_CHARACTERS, description="Spark SQL that reads the table records, each row for itself: SELECT, WHERE, "
        "functions, CASE, LATERAL VIEW explode. What needs other rows (GROUP BY, ORDER BY, JOIN, LIMIT, ...) is refused."
    )  # fmt: skip
    schema_: str | None = Field(
        None, alias="schema", description='Columns of records and their types, as in "ts timestamp, level string". A record without the '
        "field has null there; fields that are not named are gone behind the query. Absent: what the steps before are known to make."
    )  # fmt: skip

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - pydantic's door is elsewhere
        """Let a query stand for itself."""
        function = {"type": "no-info", "function": lambda value: {"query": value} if isinstance(value, str) else value}
        return {"type": "function-before", "function": function, "schema": handler(source)}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - as above
        """Say the same in the JSON Schema."""
        return {"anyOf": [{"type": "string"}, handler(schema)]}

    def model_post_init(self, _: object) -> None:
        """Raise ValueError for a schema that is none; pydantic reports it with its place."""
        if not self.query.strip():
            msg = "the query is empty; write SELECT ... FROM records"
            raise ValueError(msg)
        if self.schema_ is not None:
            columns_of(self.schema_)


class SqlOptions(StepOptions):
    """A query in Spark SQL over the records."""

    sql: QueryOptions = Field(
        description="A Spark SQL query over the table records; what it selects becomes the record's fields. The connector's batches "
        "become Spark jobs, about one a second: see the costs in the documentation before you prefer it to the other steps."
    )

    def model_post_init(self, context: object) -> None:
        """See `StepOptions`."""
        super().model_post_init(context)
        if self.if_ is not None:
            msg = "a sql step takes no if: say it in the query, with WHERE or CASE"
            raise ValueError(msg)


class SqlStep(NamedTuple):
    """The query of a definition: the `number`-th step, from 0, and the columns of its table; None where nobody knows them."""

    number: int
    options: SqlOptions
    columns: Columns | None

    @property
    def name(self) -> str:
        """As errors name it."""
        return f"transforms[{self.number}] sql"


def sql_at(transforms: Sequence[TransformOptions]) -> int | None:
    """The place of the first query among the steps, None without any."""
    return next((number for number, options in enumerate(transforms) if isinstance(options, SqlOptions)), None)


def declared_columns(options: SqlOptions) -> Columns | None:
    """The columns that the step says its table has; None when it leaves that to the steps before."""
    return None if options.sql.schema_ is None else columns_of(options.sql.schema_)


class _Query:
    """Stands where the query is in the list of steps."""

    def bind(self, meta: SplitMeta) -> Step:
        """Nobody calls it: a query takes many records at once, see `TransformKind.is_query`."""
        msg = f"a query is no step, in {meta.path!r}"
        raise AssertionError(msg)


def _build(options: SqlOptions) -> Transform:
    del options
    return _Query()


SQL = TransformKind(SqlOptions, _build, is_query=True)
