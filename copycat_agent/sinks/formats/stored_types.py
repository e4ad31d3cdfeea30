"""The columns that a file gets, of those that its rows have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from copycat_agent.sinks.formats.column_types import STRING, WORDS, Types
from copycat_agent.sql_types import SqlType, struct_of


def known(type_: SqlType) -> SqlType | None:
    """The type as files have it: without fields of which there is no value yet, None if nothing is left, texts for values of several types.

    So a field that is null, {} or [] wherever it stands is left out, and null for who reads: with a made-up type it would not go with other
    files of the same table, where it has one. Spark leaves empty objects out in the same way when it reads JSON.
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
    """How many columns a type makes, those within it included."""
    return sum(leaves(part) for _, part in type_.parts) if type_.parts else 1


def spelt(type_: SqlType) -> str:
    """A type as text."""
    inner = [spelt(part) for _, part in type_.parts]
    if type_.word == "struct":
        return struct_of(zip((name for name, _ in type_.parts), inner, strict=True))
    numbers = f"({','.join(map(str, type_.numbers))})" if type_.numbers else ""
    return f"{type_.word}<{', '.join(inner)}>" if inner else f"{type_.word}{numbers}"


class Stored:
    """The columns that a file has, of those that rows have: those that are `known`, and at least one."""

    def __init__(self, types: Types) -> None:
        found = {name: type_ for name, one in types.items() if (type_ := known(one)) is not None}
        self.types: Types = found or {next(iter(types)): STRING}
        self._is_null = not found

    def columns(self, columns: Mapping[str, Sequence[Any]], rows: int) -> list[Sequence[Any]]:
        """The values of each of them."""
        return [[None] * rows] if self._is_null else [columns[name] for name in self.types]
