"""Types as Spark SQL spells them, for the columns of the table `records`."""

from __future__ import annotations

import re

from copycat_agent.model import Column
from copycat_agent.transforms.columns import element_of

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
