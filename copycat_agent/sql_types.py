"""Types in Spark SQL's syntax: `bigint`, `decimal(10,2)`, `array<...>`, `map<k,v>`, `struct<name: type, ...>`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*(?:\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\))?")
_NAME = re.compile(r"`((?:[^`]|``)+)`|([^\s:`<>(),]+)")
_OTHER_WORDS = {
    "long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "real": "float", "bool": "boolean", "dec": "decimal",
    "numeric": "decimal", "timestamp_ltz": "timestamp", "varchar": "string", "char": "string", "null": "void",
}  # fmt: skip
_MOST_DEPTH = 40


@dataclass(frozen=True, slots=True)
class SqlType:
    """One type. `word` is Spark's own name, `numbers` are those in parentheses, `parts` the inner types, of a struct with names."""

    word: str
    numbers: tuple[int, ...] = ()
    parts: tuple[tuple[str, SqlType], ...] = ()


def parse_type(text: str, depth: int = 0) -> SqlType:
    """Returns the type in `text`, whatever its word is. Raises ValueError, without a message, for invalid syntax."""
    if depth > _MOST_DEPTH:
        raise ValueError
    if (fields := struct_fields(text)) is not None:
        return SqlType("struct", (), tuple((name, parse_type(inner, depth + 1)) for name, inner in fields))
    if (element := element_of(text)) is not None:
        return SqlType("array", (), (("", parse_type(element, depth + 1)),))
    if (pair := map_of(text)) is not None:
        return SqlType("map", (), tuple(("", parse_type(inner, depth + 1)) for inner in pair))
    match = _SIMPLE.fullmatch(text.strip())
    if match is None:
        raise ValueError
    word = match[1].lower()
    if word in ("array", "map", "struct"):  # of what?
        raise ValueError
    return SqlType(_OTHER_WORDS.get(word, word), tuple(int(number) for number in match.groups()[1:] if number))


def struct_fields(type_: str) -> list[tuple[str, str]] | None:
    """Returns names and types of the fields of `struct<...>`, with colons between them or spaces; None for any other type.

    Raises ValueError for a field without a name.
    """
    inner = _inside(type_, "struct")
    return None if inner is None else [_named(part.strip()) for part in _split(inner) if part.strip()]


def element_of(type_: str) -> str | None:
    """Returns the type of the elements of `array<...>`; None for any other type."""
    inner = _inside(type_, "array")
    return None if inner is None else inner.strip()


def map_of(type_: str) -> tuple[str, str] | None:
    """Returns the types of keys and values of `map<k, v>`; None for any other type."""
    parts = _split(_inside(type_, "map") or "")
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None  # noqa: PLR2004 - keys and values


def struct_of(fields: Iterable[tuple[str, str]]) -> str:
    """Returns a struct of these names and types."""
    return f"struct<{', '.join(f'{name if _IDENTIFIER.fullmatch(name) else quoted(name)}: {type_}' for name, type_ in fields)}>"


def quoted(name: str) -> str:
    """Returns a name in backquotes for a type or a query, whatever its characters are."""
    return "`" + name.replace("`", "``") + "`"


def _inside(type_: str, word: str) -> str | None:
    text = type_.strip()
    return text[len(word) + 1 : -1] if text[: len(word) + 1].lower() == f"{word}<" and text.endswith(">") else None


def _named(part: str) -> tuple[str, str]:
    match = _NAME.match(part)
    if match is None:
        raise ValueError(f"{part!r} does not begin with a name")
    return (match[2] if match[1] is None else match[1].replace("``", "`")), part[match.end() :].strip().removeprefix(":").strip()


def _split(text: str) -> list[str]:
    """Splits at the commas outside of brackets and quotes."""
    parts, depth, is_quoted, begin = [], 0, False, 0
    for place, char in enumerate(text):
        if char == "`":
            is_quoted = not is_quoted
        elif not is_quoted:
            depth += (char in "<(") - (char in ">)")
            if char == "," and not depth:
                parts.append(text[begin:place])
                begin = place + 1
    return [*parts, text[begin:]]
