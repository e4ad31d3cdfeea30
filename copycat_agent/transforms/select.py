"""`drop_fields` and `keep_fields`: which fields a record has. By exact names, as Kafka Connect's ReplaceField has them."""

from __future__ import annotations

from typing import Any

from copycat_agent.formats.draft import Draft
from copycat_agent.options import Field
from copycat_agent.templates import MISSING
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.columns import type_at, with_type, without_field
from copycat_agent.transforms.paths import FieldNames, nested_finder, putter, remover


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
                kept[path] = fields[path]  # its own name has the dots
        draft.value = kept
        return True

    return Steady(keep_fields)


def _dropped(options: DropFieldsOptions, before: Columns | None) -> Columns | None:
    for path in options.drop_fields if before is not None else ():
        before = without_field(without_field(before or (), path), path)
    return before


def _kept(options: KeepFieldsOptions, before: Columns | None) -> Columns | None:
    if before is None:
        return None
    after: Columns = ()
    for path in options.keep_fields:
        type_ = type_at(tuple(column for column in before if column.name != path or "." not in path), path)
        if type_ is not None:
            after = with_type(after, path, type_)
        else:
            after += tuple(column for column in before if column.name == path)
    return after


DROP_FIELDS = TransformKind(DropFieldsOptions, _drop, _dropped)
KEEP_FIELDS = TransformKind(KeepFieldsOptions, _keep, _kept)
