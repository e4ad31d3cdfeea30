"""Values that a definition gives to fields: constants of any type, and texts that are templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.options import BeforeValidator, WithJsonSchema
from copycat_agent.templates import MISSING, SplitMeta, Template, compile_path, compile_template
from copycat_agent.transforms.base import Columns
from copycat_agent.transforms.columns import struct_of, type_at

Make = Callable[[Draft], object]
"""The value for one record. Raises `DataError` for a template that cannot be rendered."""

_NUMBERS: dict[str, Make] = {"@offset": lambda draft: draft.start, "@record.number": lambda draft: draft.number}
_OF_THE_FILE = frozenset({"@file.path", "@file.name", "@file.dir", "@file.inode", "@host", "@connector"})
_TYPES = {str: "string", bool: "boolean", int: "bigint", float: "double"}


def _checked(value: object) -> object:
    """ValueError for a text in it that is no template."""
    if isinstance(value, str):
        compile_template(value)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _checked(inner)
    return value


FieldValue = Annotated[
    Any,
    BeforeValidator(_checked),
    WithJsonSchema({"type": ["string", "number", "boolean", "null", "array", "object"]}),
]
"""A text (a template), number, boolean, null, or a list or map of them."""


def compile_value(value: object) -> Callable[[SplitMeta], Make]:
    """`value`, to be bound to a file. Constants stay what they are; a template that is one field and nothing else copies it as it is."""
    if isinstance(value, str):
        template = compile_template(value)
        return lambda meta: _of_template(template, meta)
    if isinstance(value, dict):
        parts = {name: compile_value(inner) for name, inner in value.items()}
        return lambda meta: _of_map({name: bind(meta) for name, bind in parts.items()})
    if isinstance(value, list | tuple):
        items = [compile_value(inner) for inner in value]
        return lambda meta: _of_list([bind(meta) for bind in items])
    plain = float(value) if isinstance(value, float) else value  # a number that remembers how it was written
    return lambda _: lambda _: plain


def _of_template(template: Template, meta: SplitMeta) -> Make:
    if (name := only_name(template)) is not None:
        if name == "@file.inode":
            return lambda _: meta.inode
        return _NUMBERS[name] if name in _NUMBERS else _copy(name)
    render = template.bind(meta)
    if template.fields <= _OF_THE_FILE:
        text = render(Draft(b""))
        return lambda _: text
    return render


def _of_map(makes: dict[str, Make]) -> Make:
    return lambda draft: {name: make(draft) for name, make in makes.items()}


def _of_list(makes: list[Make]) -> Make:
    return lambda draft: [make(draft) for make in makes]


def _copy(name: str) -> Make:
    find = compile_path(name)

    def copy(draft: Draft) -> object:
        value = find(draft)
        if value is MISSING:
            msg = f"field {name!r} is missing"
            raise DataError(msg)
        return value

    return copy


def only_name(template: Template) -> str | None:
    """The field, or metadata that is a number, that the template is and nothing else; None when it makes a text."""
    part = template.parts[0] if len(template.parts) == 1 else ""
    if isinstance(part, str) or part.spec or (part.name.startswith("@") and part.name not in {*_NUMBERS, "@file.inode"}):
        return None
    return part.name


def type_of(value: object, before: Columns) -> str:
    """The type of what `compile_value` makes, of records with these fields, as Spark SQL spells it."""
    if isinstance(value, str):
        name = only_name(compile_template(value))
        return "string" if name is None else "bigint" if name.startswith("@") else type_at(before, name) or "string"
    if isinstance(value, dict):
        return struct_of([(str(name), type_of(inner, before)) for name, inner in value.items()])
    if isinstance(value, list | tuple):
        return f"array<{type_of(value[0], before) if value else 'string'}>"
    return next((spelt for kind, spelt in _TYPES.items() if isinstance(value, kind)), "string")
