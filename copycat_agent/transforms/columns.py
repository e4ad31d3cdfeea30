"""What steps do to the declared fields of records: the same as to a record's, by dotted paths, on types spelt as Spark SQL does."""

from __future__ import annotations

import re

from copycat_agent.model import Column

Columns = tuple[Column, ...]
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def type_at(columns: Columns, path: str) -> str | None:
    """The type of the field at `path`, None where there is none."""
    by_name = {column.name: column.type for column in columns}
    first, *rest = path.split(".")
    found = by_name.get(first)
    for name in rest:
        found = dict(struct_fields(found) or ()).get(name) if found else None
    return by_name.get(path) if found is None else found


def with_type(columns: Columns, path: str, type_: str) -> Columns:
    """The columns with a field of this type at `path`: in its place where it is there, else at the end."""
    first, *rest = path.split(".")
    names = [column.name for column in columns]
    if path in names and first not in names:
        first, rest = path, []
    present = first in names
    inner = next((struct_fields(column.type) or [] for column in columns if column.name == first), [])
    new = Column(first, struct_of(_columns_of(with_type(_as_columns(inner), ".".join(rest), type_))) if rest else type_)
    return tuple(new if column.name == first else column for column in columns) if present else (*columns, new)


def without_field(columns: Columns, path: str) -> Columns:
    """The columns without the field at `path`; its object stays, empty if need be."""
    first, *rest = path.split(".")
    found = next((column for column in columns if column.name == first), None)
    if not rest or found is None or type_at((found,), path) is None:
        return tuple(column for column in columns if column.name != path)
    inner = without_field(_as_columns(struct_fields(found.type) or []), ".".join(rest))
    return tuple(column._replace(type=struct_of(_columns_of(inner))) if column is found else column for column in columns)


def struct_fields(type_: str) -> list[tuple[str, str]] | None:
    """Names and types of the fields of `struct<...>`; None for any other type."""
    text = type_.strip()
    if not (text[:7].lower() == "struct<" and text.endswith(">")):
        return None
    return [_named(part) for part in _split(text[7:-1]) if part.strip()]


def struct_of(fields: list[tuple[str, str]]) -> str:
    """`struct<...>` of these fields."""
    return "struct<" + ", ".join(f"{_quoted(name)}: {type_}" for name, type_ in fields) + ">"


def element_of(type_: str) -> str | None:
    """The type of the elements of `array<...>`; None for any other type."""
    text = type_.strip()
    return text[6:-1].strip() if text[:6].lower() == "array<" and text.endswith(">") else None


def _as_columns(fields: list[tuple[str, str]]) -> Columns:
    return tuple(Column(name, type_) for name, type_ in fields)


def _columns_of(columns: Columns) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in columns]


def _split(text: str) -> list[str]:
    """At the commas that are in no brackets and no quotes."""
    parts, depth, quoted, begin = [], 0, False, 0
    for place, char in enumerate(text):
        if char == "`":
            quoted = not quoted
        elif not quoted:
            depth += (char in "<(") - (char in ">)")
            if char == "," and not depth:
                parts.append(text[begin:place])
                begin = place + 1
    return [*parts, text[begin:]]


def _named(part: str) -> tuple[str, str]:
    text = part.strip()
    if text.startswith("`"):
        end = next(place for place in range(1, len(text)) if text[place] == "`" and text[place + 1 : place + 2] in ("", ":", " "))
        name, rest = text[1:end].replace("``", "`"), text[end + 1 :]
    else:
        end = next((place for place, char in enumerate(text) if char in ": "), len(text))
        name, rest = text[:end], text[end:]
    return name.strip(), rest.strip().removeprefix(":").strip()


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"
