"""`nest`: fields move into an object."""

from __future__ import annotations

from copycat_agent.formats.draft import Draft
from copycat_agent.options import Field, Options
from copycat_agent.templates import MISSING
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.columns import struct_of, type_at, with_type, without_field
from copycat_agent.transforms.paths import FieldName, FieldNames, finder, putter, taker


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

    def model_post_init(self, context: object) -> None:
        """Refuse to put a field into itself."""
        super().model_post_init(context)
        into = self.nest.into
        if any(f"{into}.".startswith(f"{name}.") for name in self.nest.fields_ or ()):
            msg = f"{into!r} cannot move into itself"
            raise ValueError(msg)


def _build(options: NestOptions) -> Transform:
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


def _columns(options: NestOptions, before: Columns | None) -> Columns | None:
    if before is None:
        return None
    into, names = options.nest.into, options.nest.fields_
    if names is None:
        return with_type((), into, struct_of([(column.name, column.type) for column in before]))
    types = {name: type_ for name in names if (type_ := type_at(before, name)) is not None}
    for name in types:
        before = without_field(before, name)
    for name, type_ in types.items():
        before = with_type(before, f"{into}.{name}", type_)
    return before


NEST = TransformKind(NestOptions, _build, _columns)
