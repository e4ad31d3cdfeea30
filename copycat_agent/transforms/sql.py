"""`sql`: a Spark SQL query over the records, and types as Spark SQL spells them. Spark itself is `copycat_agent.spark`'s."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from copycat_agent.model import Column
from copycat_agent.options import Field, Options, TransformOptions
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms.base import Columns, Step, StepOptions, Transform, TransformKind
from copycat_agent.transforms.paths import element_of

_SYNONYMS = {
    "string": "string",
    "boolean": "boolean",
    "bool": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "decimal": "decimal(10,0)",
    "dec": "decimal(10,0)",
    "numeric": "decimal(10,0)",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "binary": "binary",
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\)")
_TEXT = re.compile(r"(?:varchar|char)\s*\(\s*\d{1,9}\s*\)")
_KNOWN = "string, boolean, int, bigint, double, decimal(p,s), date, timestamp, binary, array<...>, map<string, ...>, struct<name: ...>"
_NAME = re.compile(r"`((?:[^`]|``)+)`|([^\s:`<>(),]+)")
_MOST_DIGITS = 38
_MOST_DEPTH = 20
MOST_CHARACTERS = 65_536
"""Of a query."""

RAW_LINE: Columns = (Column("message", "string"),)
"""What a raw line has, as far as steps go."""


def plain_type(text: str, depth: int = 0) -> str:
    """The one spelling of a type, such as `bigint` of `LONG`. Raises ValueError for what is no type that records can have."""
    word = text.strip()
    low = word.lower()
    if low in _SYNONYMS:
        return _SYNONYMS[low]
    if (match := _DECIMAL.fullmatch(low)) and 0 <= int(match[2] or 0) <= int(match[1]) <= _MOST_DIGITS and int(match[1]):
        return f"decimal({match[1]},{match[2] or 0})"
    if _TEXT.fullmatch(low):
        return "string"
    if depth < _MOST_DEPTH:
        if (element := element_of(word)) is not None:
            return f"array<{plain_type(element, depth + 1)}>"
        if (pair := map_of(word)) is not None:
            return f"map<{plain_type(pair[0], depth + 1)},{plain_type(pair[1], depth + 1)}>"
        if fields := struct_fields(word):
            inner = ",".join(f"{quoted(name)}:{plain_type(kind, depth + 1)}" for name, kind in fields)
            return f"struct<{inner}>"
    msg = f"{word!r} is no type; known are {_KNOWN}"
    raise ValueError(msg)


def struct_fields(type_: str) -> list[tuple[str, str]] | None:
    """Names and types of the fields of `struct<...>`, with colons between them or spaces; None for any other type."""
    text = type_.strip()
    if text[:7].lower() != "struct<" or not text.endswith(">"):
        return None
    return [_named(part.strip()) for part in _split(text[7:-1]) if part.strip()]


def _named(part: str) -> tuple[str, str]:
    match = _NAME.match(part)
    if match is None:
        msg = f"{part!r} does not begin with a name"
        raise ValueError(msg)
    return (match[2] if match[1] is None else match[1].replace("``", "`")), part[match.end() :].strip().removeprefix(":").strip()


def _split(text: str) -> list[str]:
    """At the commas that are in no brackets and no quotes."""
    parts, depth, quoted_, begin = [], 0, False, 0
    for place, char in enumerate(text):
        if char == "`":
            quoted_ = not quoted_
        elif not quoted_:
            depth += (char in "<(") - (char in ">)")
            if char == "," and not depth:
                parts.append(text[begin:place])
                begin = place + 1
    return [*parts, text[begin:]]


def map_of(type_: str) -> tuple[str, str] | None:
    """The types of keys and values of `map<k, v>`; None for any other type."""
    text = type_.strip()
    if text[:4].lower() != "map<" or not text.endswith(">"):
        return None
    parts = _split(text[4:-1])
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None  # noqa: PLR2004 - keys and values


def columns_of(schema: str) -> tuple[Column, ...]:
    """The columns of `ts timestamp, level string`. Raises ValueError."""
    fields = struct_fields(f"struct<{schema}>") or []
    columns = tuple(Column(name, plain_type(kind) if kind else _untyped(name)) for name, kind in fields)
    if not columns:
        msg = 'names no column; write names and types, as in "ts timestamp, level string"'
        raise ValueError(msg)
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen or not column.name:
            msg = f"names column {column.name!r} twice: names of columns are the same in upper and lower case"
            raise ValueError(msg)
        if column.name.lower().startswith("__copycat"):
            msg = f"column {column.name!r} has a name that is the agent's own"
            raise ValueError(msg)
        seen.add(column.name.lower())
    return columns


def quoted(name: str) -> str:
    """A name as a type or a query can hold it, whatever its characters are."""
    return "`" + name.replace("`", "``") + "`"


def _untyped(name: str) -> str:
    msg = f"column {name!r} has no type; write for example {name!r} string"
    raise ValueError(msg)


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
