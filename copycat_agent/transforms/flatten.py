"""`flatten`: the fields of objects become fields of the record, named by their path."""

from __future__ import annotations

from typing import Any

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.model import Column
from copycat_agent.options import Field, Options
from copycat_agent.templates import MISSING
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.columns import struct_fields, type_at, without_field
from copycat_agent.transforms.paths import FieldName, finder, taker

_MOST_CHARACTERS = 2**24
"""What a record's names may grow by. Objects within objects cost a few bytes each in a line, and their names in each field below them."""


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


def _build(options: FlattenOptions) -> Transform:
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
    """`out` with the leaves of `todo`, in their order. Without recursion: data may be deeper than Python's stack."""
    todo.reverse()
    longer = 0
    while todo:
        name, value = todo.pop()
        if isinstance(value, dict) and value:
            longer += (len(name) + len(delimiter)) * (len(value) - 1)
            if longer > _MOST_CHARACTERS:
                msg = "the names of its fields would be too long once the record is flat"
                raise DataError(msg)
            todo += [(f"{name}{delimiter}{key}", inner) for key, inner in reversed(value.items())]
        elif name in out:
            msg = "two fields would have the same name once the record is flat"
            raise DataError(msg, "give the step another delimiter, or rename or drop one of them before")
        else:
            out[name] = value
    return out


def _columns(options: FlattenOptions, before: Columns | None) -> Columns | None:
    if before is None:
        return None
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


FLATTEN = TransformKind(FlattenOptions, _build, _columns)
