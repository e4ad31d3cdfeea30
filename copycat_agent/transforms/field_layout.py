"""`drop_fields`, `keep_fields`, `rename`, `nest` and `flatten` choose the fields of a record, their names and their objects."""

from __future__ import annotations

from typing import Any

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.model import Column
from copycat_agent.options import Field, Options
from copycat_agent.sql_types import struct_fields, struct_of
from copycat_agent.templates import MISSING
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind, known
from copycat_agent.transforms.paths import (
    FieldName,
    FieldNames,
    clash,
    finder,
    nested_finder,
    putter,
    remover,
    taker,
    type_at,
    with_type,
    without_field,
)

_MOST_CHARACTERS = 2**24
"""How many characters a record's names may grow by. Nested objects cost a few bytes each in a line, and their names in each field below."""


class DropFieldsOptions(StepOptions):
    """Fields are taken away."""

    drop_fields: FieldNames = Field(
        min_length=1, description="Names of fields that go, as in [tmp, user.password]; of objects in lists too. One may be missing."
    )


class KeepFieldsOptions(StepOptions):
    """All other fields are taken away."""

    keep_fields: FieldNames = Field(
        min_length=1, description="Names of the fields that stay, in this order, as in [time, user.id]; all others go. One may be missing."
    )


def _drop(options: DropFieldsOptions) -> Transform:
    removers = [remover(path) for path in options.drop_fields]

    def drop_fields(draft: Draft) -> bool:
        fields = draft.fields()
        for remove in removers:
            remove(fields)
        return True

    return Steady(drop_fields)


def _keep(options: KeepFieldsOptions) -> Transform:
    if not any("." in path for path in options.keep_fields):
        names = tuple(dict.fromkeys(options.keep_fields))

        def keep_top(draft: Draft) -> bool:
            fields = draft.fields()
            draft.value = {name: fields[name] for name in names if name in fields}
            return True

        return Steady(keep_top)
    pairs = [(nested_finder(path), putter(path), path) for path in options.keep_fields]

    def keep_fields(draft: Draft) -> bool:
        fields, kept = draft.fields(), dict[str, Any]()
        for find, put, path in pairs:
            value = find(fields)
            if value is not MISSING:
                put(kept, value)
            elif path in fields:
                kept[path] = fields[path]  # a field whose own name has the dots
        draft.value = kept
        return True

    return Steady(keep_fields)


def _dropped(options: DropFieldsOptions, before: Columns) -> Columns:
    for path in options.drop_fields:
        before = without_field(without_field(before, path), path)
    return before


def _kept(options: KeepFieldsOptions, before: Columns) -> Columns:
    after: Columns = ()
    for path in options.keep_fields:
        type_ = type_at(tuple(column for column in before if column.name != path or "." not in path), path)
        if type_ is not None:
            after = with_type(after, path, type_)
        else:
            after += tuple(column for column in before if column.name == path)
    return after


DROP_FIELDS = TransformKind(DropFieldsOptions, _drop, known(_dropped))
KEEP_FIELDS = TransformKind(KeepFieldsOptions, _keep, known(_kept))


class RenameOptions(StepOptions):
    """Fields get other names."""

    rename: dict[FieldName, FieldName] = Field(
        min_length=1,
        description="Old names and new ones, as in {msg: message, user: labels.user}. All at once, so two fields can change places. A "
        "field that is missing is left out; what has the new name already is replaced.",
    )

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for names that overlap."""
        for names in (list(self.rename), list(self.rename.values())):
            if twice := clash(names):
                raise ValueError(f"{twice!r} is named twice, or lies in another field that is named")


def _build_rename(options: RenameOptions) -> Transform:
    pairs = [(taker(old), putter(new)) for old, new in options.rename.items()]

    def rename(draft: Draft) -> bool:
        fields = draft.fields()
        moved = [(put, value) for take, put in pairs if (value := take(fields)) is not MISSING]
        for put, value in moved:
            put(fields, value)
        return True

    return Steady(rename)


def _rename_columns(options: RenameOptions, before: Columns) -> Columns:
    types = {new: type_ for old, new in options.rename.items() if (type_ := type_at(before, old)) is not None}
    for old in options.rename:
        before = without_field(before, old)
    for new, type_ in types.items():
        before = with_type(before, new, type_)
    return before


RENAME = TransformKind(RenameOptions, _build_rename, known(_rename_columns))


class NestSettings(Options):
    """Which fields move, and where to."""

    into: FieldName = Field(description="The field that holds the object. Where it is an object already, the fields are added to it.")
    fields_: FieldNames | None = Field(
        None, alias="fields", min_length=1, description="Names of the fields that move. Absent: all fields of the record."
    )


class NestOptions(StepOptions):
    """Fields move into an object."""

    nest: NestSettings = Field(
        description="{into: http, fields: [method, status]} makes {http: {method: .., status: ..}}. A field may be missing; where all are, "
        "nothing is made."
    )

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for a field that would move into itself, or that lies in another one that moves."""
        into = self.nest.into
        if inner := clash(list(dict.fromkeys(self.nest.fields_ or ()))):
            raise ValueError(f"{inner!r} lies in another field that is named")
        if any(f"{into}.".startswith(f"{name}.") for name in self.nest.fields_ or ()):
            raise ValueError(f"{into!r} cannot move into itself")


def _build_nest(options: NestOptions) -> Transform:
    into, names = options.nest.into, options.nest.fields_
    put, find = putter(into), finder(into)
    if names is None:

        def nest_all(draft: Draft) -> bool:
            everything = draft.fields()
            draft.value = {}
            put(draft.value, everything)
            return True

        return Steady(nest_all)
    moves = [(taker(name), putter(name)) for name in dict.fromkeys(names)]

    def nest(draft: Draft) -> bool:
        fields = draft.fields()
        moved = [(place, value) for take, place in moves if (value := take(fields)) is not MISSING]
        if moved:
            there = find(fields)
            inner = dict(there) if isinstance(there, dict) else {}
            for place, value in moved:
                place(inner, value)
            put(fields, inner)
        return True

    return Steady(nest)


def _nest_columns(options: NestOptions, before: Columns) -> Columns:
    into, names = options.nest.into, options.nest.fields_
    if names is None:
        return with_type((), into, struct_of([(column.name, column.type) for column in before]))
    types = {name: type_ for name in names if (type_ := type_at(before, name)) is not None}
    for name in types:
        before = without_field(before, name)
    for name, type_ in types.items():
        before = with_type(before, f"{into}.{name}", type_)
    return before


NEST = TransformKind(NestOptions, _build_nest, known(_nest_columns))


class FlattenSettings(Options):
    """What is flattened, and how names are joined."""

    field: FieldName | None = Field(None, description="Only the object in this field; else every object of the record.")
    delimiter: str = Field(".", min_length=1, max_length=16, description="What joins the names, as in user.id or user_id.")


class FlattenOptions(StepOptions):
    """Fields of objects become fields of the record."""

    flatten: FlattenSettings = Field(
        description="{user: {id: 7}} becomes {user.id: 7}, at any depth. Lists and empty objects stay as they are. A record of which two "
        "fields would get the same name is a bad record."
    )


def _build_flatten(options: FlattenOptions) -> Transform:
    path, delimiter = options.flatten.field, options.flatten.delimiter
    if path is None:

        def flatten_all(draft: Draft) -> bool:
            fields = draft.fields()
            if any(isinstance(value, dict) for value in fields.values()):
                draft.value = _flat(list(fields.items()), delimiter, {})
            return True

        return Steady(flatten_all)
    find, take, prefix = finder(path), taker(path), delimiter.join(path.split("."))

    def flatten(draft: Draft) -> bool:
        fields = draft.fields()
        value = find(fields)
        if value is not MISSING and isinstance(value, dict) and value:
            others = dict(fields)
            take(others)
            draft.value = _flat([(prefix, value)], delimiter, others)
        return True

    return Steady(flatten)


def _flat(todo: list[tuple[str, Any]], delimiter: str, out: dict[str, Any]) -> dict[str, Any]:
    """Returns `out` with the leaves of `todo`, in their order. Without recursion: data may be deeper than Python's stack."""
    todo.reverse()
    longer = 0
    while todo:
        name, value = todo.pop()
        if isinstance(value, dict) and value:
            longer += (len(name) + len(delimiter)) * (len(value) - 1)
            if longer > _MOST_CHARACTERS:
                raise DataError("the names of its fields would be too long once the record is flat")
            todo += [(f"{name}{delimiter}{key}", inner) for key, inner in reversed(value.items())]
        elif name in out:
            msg = "two fields would have the same name once the record is flat"
            raise DataError(msg, "give the step another delimiter, or rename or drop one of them before")
        else:
            out[name] = value
    return out


def _flatten_columns(options: FlattenOptions, before: Columns) -> Columns:
    path, delimiter = options.flatten.field, options.flatten.delimiter
    if path is None:
        return tuple(leaf for column in before for leaf in _leaves(column.name, column.type, delimiter))
    found = type_at(before, path)
    if found is None or not struct_fields(found):
        return before
    return (*without_field(before, path), *_leaves(delimiter.join(path.split(".")), found, delimiter))


def _leaves(name: str, type_: str, delimiter: str) -> Columns:
    inner = struct_fields(type_)
    return (
        tuple(leaf for key, one in inner for leaf in _leaves(f"{name}{delimiter}{key}", one, delimiter))
        if inner
        else (Column(name, type_),)
    )


FLATTEN = TransformKind(FlattenOptions, _build_flatten, known(_flatten_columns))
