"""`sql`: a Spark SQL query over the records, and types in Spark SQL's spelling. `copycat_agent.spark` runs it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from copycat_agent.model import Column
from copycat_agent.options import Field, Options, TransformOptions
from copycat_agent.sql_types import element_of, map_of, parse_type, quoted, struct_fields
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms.base import Columns, Step, StepOptions, TransformKind, in_short

_WORDS = frozenset(
    ("string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz", "binary")
)
"""Scalar types that records can have."""
_KNOWN = "string, boolean, int, bigint, double, decimal(p,s), date, timestamp, binary, array<...>, map<string, ...>, struct<name: ...>"
_MOST_DIGITS = 38
_MOST_DEPTH = 20
MOST_CHARACTERS = 65_536
"""The most characters of a query."""

RAW_LINE: Columns = (Column("message", "string"),)
"""The columns of a raw line, as steps see it."""


def plain_type(text: str, depth: int = 0) -> str:
    """Returns the canonical spelling of a type, such as `bigint` for `LONG`. Raises ValueError for a type that records cannot have."""
    word = text.strip()
    if depth < _MOST_DEPTH:
        if (element := element_of(word)) is not None:
            return f"array<{plain_type(element, depth + 1)}>"
        if (pair := map_of(word)) is not None:
            return f"map<{plain_type(pair[0], depth + 1)},{plain_type(pair[1], depth + 1)}>"
        if fields := struct_fields(word):
            return f"struct<{','.join(f'{quoted(name)}:{plain_type(kind, depth + 1)}' for name, kind in fields)}>"
        with contextlib.suppress(ValueError):
            type_ = parse_type(word)
            precision, scale = (*(type_.numbers or (10,)), 0)[:2]
            if type_.word == "decimal" and 1 <= precision <= _MOST_DIGITS and scale <= precision:
                return f"decimal({precision},{scale})"
            if type_.word in _WORDS and (not type_.numbers or type_.word == "string"):
                return type_.word
    raise ValueError(f"{word!r} is no type; known are {_KNOWN}")


def columns_of(schema: str) -> tuple[Column, ...]:
    """Returns the columns of `ts timestamp, level string`. Raises ValueError."""
    fields = struct_fields(f"struct<{schema}>") or []
    columns = tuple(Column(name, plain_type(kind) if kind else _untyped(name)) for name, kind in fields)
    if not columns:
        raise ValueError('names no column; write names and types, as in "ts timestamp, level string"')
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen or not column.name:
            raise ValueError(f"names column {column.name!r} twice: names of columns are the same in upper and lower case")
        if column.name.lower().startswith("__copycat"):
            raise ValueError(f"column {column.name!r} has a name that is the agent's own")
        seen.add(column.name.lower())
    return columns


def _untyped(name: str) -> str:
    raise ValueError(f"column {name!r} has no type; write for example {name!r} string")


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

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for an invalid schema; pydantic reports it with its place."""
        if not self.query.strip():
            raise ValueError("the query is empty; write SELECT ... FROM records")
        if self.schema_ is not None:
            columns_of(self.schema_)


class SqlOptions(StepOptions):
    """A query in Spark SQL over the records."""

    sql: Annotated[QueryOptions, in_short("query", str, str | QueryOptions)] = Field(
        description="A Spark SQL query over the table records; what it selects becomes the record's fields. The connector's batches "
        "become Spark jobs, about one a second: see the costs in the documentation before you prefer it to the other steps."
    )

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for a condition, which a query cannot have; pydantic reports it with its place."""
        if self.if_ is not None:
            raise ValueError("a sql step takes no if: say it in the query, with WHERE or CASE")


class SqlStep(NamedTuple):
    """The query of a definition: the `number`-th step, from 0, and the columns of its table; None if they are not known."""

    number: int
    options: SqlOptions
    columns: Columns | None

    @property
    def name(self) -> str:
        """Returns its name for errors."""
        return f"transforms[{self.number}] sql"


def sql_at(transforms: Sequence[TransformOptions]) -> int | None:
    """Returns the index of the first query among the steps, None without any."""
    return next((number for number, options in enumerate(transforms) if isinstance(options, SqlOptions)), None)


def declared_columns(options: SqlOptions) -> Columns | None:
    """Returns the columns that the step declares for its table; None if the steps before determine them."""
    return None if options.sql.schema_ is None else columns_of(options.sql.schema_)


class _QueryPlaceholder:
    """A placeholder for the query in the list of steps."""

    def bind(self, meta: SplitMeta) -> Step:
        """Never called: a query takes many records at once, see `TransformKind.is_query`."""
        raise AssertionError(f"a query is no step, in {meta.path!r}")


SQL = TransformKind(SqlOptions, lambda _: _QueryPlaceholder(), is_query=True)
