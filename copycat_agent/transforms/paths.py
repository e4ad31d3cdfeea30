"""Fields by their dotted paths: finding, putting and taking them, copy on write below the top level.

`a.b` is `b` in the object `a`; where there is none, the field whose own name is `a.b` (`flatten` makes such names, and so do some logs).
The functions take the dict of a draft's fields and change only that; objects within it are replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from copycat_agent.options import BeforeValidator, WithJsonSchema
from copycat_agent.templates import MISSING, compile_path
from copycat_agent.transforms.parsing import with_field, without

Fields = dict[str, Any]
Find = Callable[[Fields], object]
"""The value, `MISSING` for none."""
Put = Callable[[Fields, object], None]
"""Puts a value; what stands in the way of the path is replaced."""
Take = Callable[[Fields], object]
"""Removes the field and returns its value, `MISSING` for none. The object it was in stays, empty if need be."""
Change = Callable[[Any], object]
"""From a value that is not null to what takes its place."""
ChangeAll = Callable[[Fields, Change], None]
Remove = Callable[[Fields], None]


def _field_name(value: object) -> object:
    if isinstance(value, str):
        compile_path(value)
    return value


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


FieldName = Annotated[str, BeforeValidator(_field_name)]
"""A dotted path."""
FieldNames = Annotated[
    tuple[FieldName, ...],
    BeforeValidator(_as_tuple),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""A dotted path, or a list of them."""


def finder(path: str) -> Find:
    """How to find the field at `path`."""
    nested = nested_finder(path)
    if "." not in path:
        return nested

    def find(fields: Fields) -> object:
        value = nested(fields)
        return fields.get(path, MISSING) if value is MISSING else value

    return find


def nested_finder(path: str) -> Find:
    """How to find the field at `path` in objects only, whatever fields have dots in their names."""
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
    """How to put a value at `path`."""
    first, *rest = path.split(".")
    if not rest:
        return lambda fields, value: fields.__setitem__(first, value)

    def put(fields: Fields, value: object) -> None:
        if path in fields and first not in fields:
            fields[path] = value
            return
        inner = fields.get(first)
        fields[first] = with_field(inner if isinstance(inner, dict) else {}, rest, value)

    return put


def taker(path: str) -> Take:
    """How to take the field at `path` away."""
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
    """How to change every value that `path` can mean, for what must not be missed, as by `mask`. A null stays.

    In objects, in objects within lists, and in a field with dots in its own name: one function for each of the fields at the top that
    they change, with its name. One that raises has changed nothing.
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
    """How to remove every field that `path` can mean, as `changer` finds them."""
    first, *rest = path.split(".")

    def remove(fields: Fields) -> None:
        fields.pop(path, None)
        if rest and isinstance(inner := fields.get(first), dict | list):
            fields[first] = _removed(inner, rest)

    return remove


def _removed(value: object, path: list[str]) -> object:
    if isinstance(value, list):
        return [_removed(each, path) for each in value]
    name, rest = path[0], path[1:]
    if not isinstance(value, dict) or name not in value:
        return value
    if rest:
        return {**value, name: _removed(value[name], rest)}
    return {key: each for key, each in value.items() if key != name}


def clash(paths: list[str]) -> str:
    """The first of `paths` that is another one of them, or lies within another one; "" when each has a place of its own."""
    seen: set[str] = set()
    for path in sorted(paths):
        names = path.split(".")
        if any(".".join(names[: length + 1]) in seen for length in range(len(names))):
            return path
        seen.add(path)
    return ""
