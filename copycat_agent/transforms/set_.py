"""`set` and `default` set fields, always or only if they have no value: to constants of any type, and texts that are templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.options import BeforeValidator, Field, WithJsonSchema
from copycat_agent.sql_types import struct_of
from copycat_agent.templates import MISSING, SplitMeta, Template, compile_path, compile_template
from copycat_agent.templates.metadata import NUMBERS, OF_SPLIT
from copycat_agent.transforms.base import Columns, Step, StepOptions, TransformKind, known
from copycat_agent.transforms.paths import FieldName, Find, Put, apart, finder, putter, type_at, with_type

Make = Callable[[Draft], object]
"""Returns the value for one record. Raises `DataError` for a template that cannot be rendered."""

_OF_RECORD: dict[str, Callable[[SplitMeta], Make]] = {
    "@offset": lambda meta: meta.origin.offset_of,
    "@record.number": lambda _: lambda draft: draft.number,
}
_TYPES = {str: "string", bool: "boolean", int: "bigint", float: "double"}
_VALUES = (
    'A text is a template; one that is a single field, as in "{user.id}", copies it with its type. Numbers, booleans, null, lists and maps '
    "stay what they are, with templates for their texts."
)


def _checked(value: object) -> object:
    """Raises ValueError for an invalid template in the value."""
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
Values = Annotated[dict[FieldName, FieldValue], apart("set")]


def compile_value(value: object) -> Callable[[SplitMeta], Make]:
    """Compiles `value`, to be bound to a file. Constants stay as they are; a template with only one field copies that field's value."""
    if isinstance(value, str):
        template = compile_template(value)
        return lambda meta: _of_template(template, meta)
    if isinstance(value, dict):
        parts = {name: compile_value(inner) for name, inner in value.items()}
        return lambda meta: _of_map({name: bind(meta) for name, bind in parts.items()})
    if isinstance(value, list | tuple):
        items = [compile_value(inner) for inner in value]
        return lambda meta: _of_list([bind(meta) for bind in items])
    plain = float(value) if isinstance(value, float) else value  # without the text that a parsed number keeps
    return lambda _: lambda _: plain


def _of_template(template: Template, meta: SplitMeta) -> Make:
    if (name := only_name(template)) is not None:
        if name in OF_SPLIT and (number := OF_SPLIT[name](meta)) is not None:
            return lambda _: number
        if name in _OF_RECORD:
            return _OF_RECORD[name](meta)
        if name not in NUMBERS:
            return _copy(name)
    render = template.bind(meta)
    if template.is_of_split:
        try:
            text = render(Draft(b""))
        except DataError:  # raised for each record, as the step's on_error says
            return render
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
            raise DataError(f"field {name!r} is missing")
        return value

    return copy


def only_name(template: Template) -> str | None:
    """Returns the single field, or number of the metadata, that the template consists of; None when it makes a text."""
    part = template.parts[0] if len(template.parts) == 1 else ""
    if isinstance(part, str) or part.spec or (part.name.startswith("@") and part.name not in NUMBERS):
        return None
    return part.name


def type_of(value: object, before: Columns) -> str:
    """Returns the type of what `compile_value` makes of records with these fields, in Spark SQL's spelling."""
    if isinstance(value, str):
        name = only_name(compile_template(value))
        return "string" if name is None else "bigint" if name.startswith("@") else type_at(before, name) or "string"
    if isinstance(value, dict):
        return struct_of([(str(name), type_of(inner, before)) for name, inner in value.items()])
    if isinstance(value, list | tuple):
        return f"array<{type_of(value[0], before) if value else 'string'}>"
    return next((spelt for kind, spelt in _TYPES.items() if isinstance(value, kind)), "string")


class SetOptions(StepOptions):
    """Fields get values."""

    set: Values = Field(
        min_length=1, description=f'Fields and their values, as in {{env: prod, host: "{{@host}}"}}, all at once. {_VALUES}'
    )


class DefaultOptions(StepOptions):
    """Fields that are missing or null get values."""

    default: Values = Field(
        min_length=1, description=f"Fields and the values they get where they are missing or null, as in {{level: info}}. {_VALUES}"
    )


@dataclass(frozen=True, slots=True)
class _Set:
    values: dict[str, object]

    def bind(self, meta: SplitMeta) -> Step:
        pairs = [(putter(path), compile_value(value)(meta)) for path, value in self.values.items()]
        if len(pairs) == 1:
            return _one(next(iter(self.values)), *pairs[0])

        def set_fields(draft: Draft) -> bool:
            draft.fields()
            return _put_all(draft, pairs)

        return set_fields


def _one(path: str, put: Put, make: Make) -> Step:
    def set_nested(draft: Draft) -> bool:
        put(draft.fields(), make(draft))
        return True

    def set_top(draft: Draft) -> bool:
        value = make(draft)
        draft.fields()[path] = value
        return True

    return set_nested if "." in path else set_top


def _put_all(draft: Draft, pairs: list[tuple[Put, Make]]) -> bool:
    """Makes all values before it sets the first; then raises the first error."""
    fields, bad = draft.fields(), None
    made: list[tuple[Put, object]] = []
    for put, make in pairs:
        try:
            made.append((put, make(draft)))
        except DataError as error:
            bad = bad or error
    for put, value in made:
        put(fields, value)
    if bad is not None:
        raise bad
    return True


@dataclass(frozen=True, slots=True)
class _Default:
    values: dict[str, object]

    def bind(self, meta: SplitMeta) -> Step:
        rules: list[tuple[Find, Put, Make]] = [
            (finder(path), putter(path), compile_value(value)(meta)) for path, value in self.values.items()
        ]

        def default(draft: Draft) -> bool:
            fields = draft.fields()
            absent = [(put, make) for find, put, make in rules if (value := find(fields)) is MISSING or value is None]
            return _put_all(draft, absent) if absent else True

        return default


def _after_set(options: SetOptions, before: Columns) -> Columns:
    after = before
    for path, value in options.set.items():
        after = with_type(after, path, type_of(value, before))
    return after


def _after_default(options: DefaultOptions, before: Columns) -> Columns:
    after = before
    for path, value in options.default.items():
        if type_at(before, path) is None:
            after = with_type(after, path, type_of(value, before))
    return after


SET = TransformKind(SetOptions, lambda options: _Set(options.set), known(_after_set))
DEFAULT = TransformKind(DefaultOptions, lambda options: _Default(options.default), known(_after_default))
