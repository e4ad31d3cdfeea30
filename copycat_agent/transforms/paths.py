"""Finds, sets and removes fields by their dotted paths, copy on write below the top level; does the same to declared columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.model import Column
from copycat_agent.options import AfterValidator, BeforeValidator, OneOrMore
from copycat_agent.sql_types import struct_fields, struct_of
from copycat_agent.templates import MISSING, compile_path

Columns = tuple[Column, ...]


def type_at(columns: Columns, path: str) -> str | None:
    """Returns the type of the field at `path`, None if there is none."""
    by_name = {column.name: column.type for column in columns}
    first, *rest = path.split(".")
    found = by_name.get(first)
    for name in rest:
        found = dict(struct_fields(found) or ()).get(name) if found else None
    return by_name.get(path) if found is None else found


def with_type(columns: Columns, path: str, type_: str) -> Columns:
    """Returns the columns with a field of this type at `path`: in its place if it exists, else at the end."""
    first, *rest = path.split(".")
    names = [column.name for column in columns]
    if path in names and type_at(tuple(column for column in columns if column.name != path), path) is None:
        first, rest = path, []
    present = first in names
    inner = next((struct_fields(column.type) or [] for column in columns if column.name == first), [])
    new = Column(first, struct_of(_columns_of(with_type(_as_columns(inner), ".".join(rest), type_))) if rest else type_)
    return tuple(new if column.name == first else column for column in columns) if present else (*columns, new)


def without_field(columns: Columns, path: str) -> Columns:
    """Returns the columns without the field at `path`; its object stays, even if empty."""
    first, *rest = path.split(".")
    found = next((column for column in columns if column.name == first), None)
    if not rest or found is None or type_at((found,), path) is None:
        return tuple(column for column in columns if column.name != path)
    inner = without_field(_as_columns(struct_fields(found.type) or []), ".".join(rest))
    return tuple(column._replace(type=struct_of(_columns_of(inner))) if column is found else column for column in columns)


def _as_columns(fields: list[tuple[str, str]]) -> Columns:
    return tuple(Column(name, type_) for name, type_ in fields)


def _columns_of(columns: Columns) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in columns]


Fields = dict[str, Any]
Find = Callable[[Fields], object]
"""Returns the value, `MISSING` for none."""
Put = Callable[[Fields, object], None]
"""Sets a value; whatever blocks the path is replaced."""
Take = Callable[[Fields], object]
"""Removes the field and returns its value, `MISSING` for none. The object it was in stays, even if empty."""
Change = Callable[[Any], object]
"""Returns the replacement of a value that is not null."""
ChangeAll = Callable[[Fields, Change], None]
Remove = Callable[[Fields], None]


def _field_name(value: object) -> object:
    if isinstance(value, str):
        compile_path(value)
    return value


FieldName = Annotated[str, BeforeValidator(_field_name)]
"""A dotted path."""
FieldNames = OneOrMore[FieldName]
"""A dotted path, or a list of them."""


def apart(done: str) -> AfterValidator:
    """Returns a validator that refuses a field that is, or lies in, another one; `done` says what is done to them."""

    def check(named: Collection[str]) -> Collection[str]:
        if twice := clash(list(named)):
            raise ValueError(f"{twice!r} lies in another field that is {done}")
        return named

    return AfterValidator(check)


def finder(path: str) -> Find:
    """Returns a function that finds the field at `path`."""
    nested = nested_finder(path)
    if "." not in path:
        return nested

    def find(fields: Fields) -> object:
        value = nested(fields)
        return fields.get(path, MISSING) if value is MISSING else value

    return find


def nested_finder(path: str) -> Find:
    """Returns a function that finds the field at `path` in objects only, ignoring fields with dots in their own names."""
    first, *rest = path.split(".")
    if not rest:
        return lambda fields: fields.get(first, MISSING)

    def find(fields: Fields) -> object:
        value: object = fields.get(first, MISSING)
        for name in rest:
            value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
        return value

    return find


def putter(path: str) -> Put:
    """Returns a function that sets the field that `finder` finds at `path`; without one, it makes one in objects."""
    first, *rest = path.split(".")
    if not rest:
        return lambda fields, value: fields.__setitem__(first, value)
    nested = nested_finder(path)

    def put(fields: Fields, value: object) -> None:
        if path in fields and nested(fields) is MISSING:
            fields[path] = value
            return
        inner = fields.get(first)
        fields[first] = with_field(inner if isinstance(inner, dict) else {}, rest, value)

    return put


def taker(path: str) -> Take:
    """Returns a function that removes the field at `path`."""
    first, *rest = path.split(".")
    if not rest:
        return lambda fields: fields.pop(first, MISSING)

    nested = nested_finder(path)

    def take(fields: Fields) -> object:
        value = nested(fields)
        if value is MISSING:
            return fields.pop(path, MISSING)
        fields[first] = without(fields[first], rest)
        return value

    return take


def changers(path: str) -> list[tuple[str, ChangeAll]]:
    """Returns functions that change every value that `path` can mean, for steps that must not miss any, such as `mask`. A null stays.

    They look in objects, in objects within lists, and in a field with dots in its own name: one function for each top-level field that they
    change, with its name. One that raises has changed nothing.
    """
    first, *rest = path.split(".")

    def change_own(fields: Fields, how: Change) -> None:
        if (value := fields.get(path)) is not None:
            fields[path] = how(value)

    def change_within(fields: Fields, how: Change) -> None:
        if isinstance(value := fields.get(first), dict | list):
            fields[first] = _changed(value, rest, how)

    return [(path, change_own), (first, change_within)] if rest else [(path, change_own)]


def _changed(value: object, path: list[str], how: Change) -> object:
    if isinstance(value, list):
        return [_changed(each, path, how) for each in value]
    name, rest = path[0], path[1:]
    if not isinstance(value, dict) or (inner := value.get(name)) is None:
        return value
    return {**value, name: _changed(inner, rest, how) if rest else how(inner)}


def remover(path: str) -> Remove:
    """Returns a function that removes every field that `path` can mean, as `changers` finds them."""
    first, *rest = path.split(".")

    def remove(fields: Fields) -> None:
        fields.pop(path, None)
        if rest and isinstance(inner := fields.get(first), dict | list):
            fields[first] = _removed(inner, rest)

    return remove


def _removed(value: object, path: list[str]) -> object:
    if isinstance(value, list):
        return _removed_in_lists(value, path)
    name, rest = path[0], path[1:]
    if not isinstance(value, dict) or name not in value:
        return value
    if rest:
        return {**value, name: _removed(value[name], rest)}
    return {key: each for key, each in value.items() if key != name}


def _removed_in_lists(value: list[Any], path: list[str]) -> list[Any]:
    """Does what `_removed` does, without recursion: lists within lists may be deeper than Python's stack."""
    whole = value.copy()
    todo = [whole]
    while todo:
        items = todo.pop()
        for index, each in enumerate(items):
            if isinstance(each, list):
                items[index] = each.copy()
                todo.append(items[index])
            else:
                items[index] = _removed(each, path)
    return whole


def clash(paths: list[str]) -> str:
    """Returns the first of `paths` that equals another one, or lies within another one; "" if there is none."""
    seen: set[str] = set()
    for path in sorted(paths):
        names = path.split(".")
        if any(".".join(names[: length + 1]) in seen for length in range(len(names))):
            return path
        seen.add(path)
    return ""


def with_field(fields: dict[str, Any], path: list[str], value: object) -> dict[str, Any]:
    """Returns `fields` with `value` at `path`: a new dict, and new ones along the path; whatever blocks the path is replaced."""
    first, rest = path[0], path[1:]
    if not rest:
        return {**fields, first: value}
    inner = fields.get(first)
    return {**fields, first: with_field(inner if isinstance(inner, dict) else {}, rest, value)}


def without(fields: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Returns `fields` without `path`: a new dict, and new ones along the path. The field may be missing."""
    first, rest = path[0], path[1:]
    if not rest:
        return {name: value for name, value in fields.items() if name != first}
    inner = fields.get(first)
    return {**fields, first: without(inner, rest)} if isinstance(inner, dict) else fields


def changing(changes: Mapping[str, Callable[[Any], object]]) -> Callable[[Draft], bool]:
    """Returns a step that changes the fields at these paths; missing and null fields stay so.

    It changes all fields that it can before it raises the first `DataError`.
    """
    items = [(finder(path), putter(path), change) for path, change in changes.items()]

    def step(draft: Draft) -> bool:
        fields, bad = draft.fields(), None
        for find, put, change in items:
            value = find(fields)
            if value is None or value is MISSING:
                continue
            try:
                put(fields, change(value))
            except DataError as error:
                bad = bad or error
        if bad is not None:
            raise bad
        return True

    return step
