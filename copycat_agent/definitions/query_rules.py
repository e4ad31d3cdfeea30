"""What can be said of queries before Spark looks at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.definitions.extras import lacking
from copycat_agent.transforms.queries import UNKNOWN_COLUMNS, UNKNOWN_COLUMNS_HINT, columns_at
from copycat_agent.transforms.sql import SqlOptions, sql_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.definitions.reading import Reader
    from copycat_agent.options import SourceOptions, TransformOptions


def check_queries(reader: Reader, source: SourceOptions, transforms: Sequence[TransformOptions]) -> None:
    """There is one at most, the columns of its table are known, and what it needs is installed."""
    first = sql_at(transforms)
    if first is None:
        return
    if missing := lacking("sql"):
        reader.report(("transforms", first, "sql"), "not-installed", *missing, on_key=True)
    for number, options in enumerate(transforms):
        if isinstance(options, SqlOptions) and number != first:
            hint = f"write it around the query of step {first}, in brackets behind its FROM"
            reader.report(("transforms", number, "sql"), "sql", "a definition has one query, and this is its second", hint, on_key=True)
    if columns_at(source, transforms, first) is None:
        reader.report(("transforms", first, "sql"), "sql", UNKNOWN_COLUMNS, UNKNOWN_COLUMNS_HINT, on_key=True)
