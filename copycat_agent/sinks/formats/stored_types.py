"""Which of its rows' columns a file stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from copycat_agent.sinks.formats.column_types import STRING, WORDS, Types
from copycat_agent.sql_types import SqlType, struct_of


def known(type_: SqlType) -> SqlType | None:
    """Returns the type as files store it: without fields that have no value yet, None if nothing is left, text for values of several types.

    So a field that is always null, {} or [] is left out, and readers see null: with an invented type it would conflict with other files
    of the same table, where it has one. Spark leaves out empty objects in the same way when it reads JSON.
    """
    if type_.word == "void":
        return None
    if type_.word not in WORDS:
        return STRING
    parts = [(name, known(part)) for name, part in type_.parts]
    left = tuple((name, part) for name, part in parts if part is not None)
    if type_.word in ("array", "map", "struct") and (not left or (type_.word != "struct" and len(left) < len(parts))):
        return None
    return SqlType(type_.word, type_.numbers, left)


def leaves(type_: SqlType) -> int:
    """Returns how many columns a type has, nested ones included."""
    return sum(leaves(part) for _, part in type_.parts) if type_.parts else 1


def spelt(type_: SqlType) -> str:
    """Returns a type as text."""
    inner = [spelt(part) for _, part in type_.parts]
    if type_.word == "struct":
        return struct_of(zip((name for name, _ in type_.parts), inner, strict=True))
    numbers = f"({','.join(map(str, type_.numbers))})" if type_.numbers else ""
    return f"{type_.word}<{', '.join(inner)}>" if inner else f"{type_.word}{numbers}"


class StoredColumns:
    """The columns that a file stores: those of the rows whose type is `known`, and at least one."""

    def __init__(self, types: Types) -> None:
        found = {name: type_ for name, one in types.items() if (type_ := known(one)) is not None}
        self.types: Types = found or {next(iter(types)): STRING}
        self._is_null = not found

    def columns(self, columns: Mapping[str, Sequence[Any]], rows: int) -> list[Sequence[Any]]:
        """Returns the values of each stored column."""
        return [[None] * rows] if self._is_null else [columns[name] for name in self.types]
