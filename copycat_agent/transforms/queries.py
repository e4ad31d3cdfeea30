"""The query of a definition, if it has one, with the columns of its table: declared, or known from the steps before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.transforms import columns_after
from copycat_agent.transforms.sql import RAW_LINE, SqlOptions, SqlStep, declared_columns, plain_type, sql_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.options import Definition, SourceOptions, TransformOptions
    from copycat_agent.transforms.base import Columns

UNKNOWN_COLUMNS = "nobody knows the columns of records before a record is read"
"""Why a query without a schema cannot be run."""
UNKNOWN_COLUMNS_HINT = 'declare them: sql: {query: "...", schema: "ts timestamp, level string"}'


def sql_step(definition: Definition) -> SqlStep | None:
    """The query, None when the definition has none. `columns` are None where they are neither declared nor known."""
    number = sql_at(definition.transforms)
    if number is None:
        return None
    options = definition.transforms[number]
    assert isinstance(options, SqlOptions)
    return SqlStep(number, options, columns_at(definition.source, definition.transforms, number))


def columns_at(source: SourceOptions, transforms: Sequence[TransformOptions], number: int) -> Columns | None:
    """The columns of the table of the query that is the `number`-th step: declared, or as known from the steps before."""
    options = transforms[number]
    assert isinstance(options, SqlOptions)
    if (declared := declared_columns(options)) is not None:
        return declared
    is_text = source.type == "log_file" or getattr(getattr(source, "format", None), "type", "") == "lines"
    columns = columns_after(transforms[:number], RAW_LINE if is_text else None)
    if not columns:
        return None
    try:
        return tuple(column._replace(type=plain_type(column.type)) for column in columns)
    except ValueError:
        return None
