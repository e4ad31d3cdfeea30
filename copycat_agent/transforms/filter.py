"""`keep_if` and `drop_if`: which records go on. A dropped record is settled: its offset moves."""

from __future__ import annotations

from copycat_agent.model import Record
from copycat_agent.options import Field, TransformOptions
from copycat_agent.transforms.base import Transform, TransformKind
from copycat_agent.transforms.match import Condition, compile_matcher


class _FilterOptions(TransformOptions):
    """What both filters share: the field names are checked when the definition is loaded."""

    def model_post_init(self, _: object) -> None:
        """Raise ValueError for a field name that is not one; pydantic reports it with its place."""
        for _name, matcher in self:
            compile_matcher(matcher)


class KeepIfOptions(_FilterOptions):
    """Only matching records go on."""

    keep_if: dict[str, Condition] = Field(
        min_length=1,
        description="Only records that match go on: fields, each with a value, a list of values, or "
        "{matches: RE}, {lt|le|gt|ge: n}, {exists: bool}. All fields have to match.",
    )


class DropIfOptions(_FilterOptions):
    """Matching records are dropped."""

    drop_if: dict[str, Condition] = Field(
        min_length=1,
        description="Records that match are dropped: fields, each with a value, a list of values, or "
        "{matches: RE}, {lt|le|gt|ge: n}, {exists: bool}. All fields have to match.",
    )


def _keep(options: KeepIfOptions) -> Transform:
    matches = compile_matcher(options.keep_if)

    def keep_if(record: Record) -> Record | None:
        return record if matches(record) else None

    return keep_if


def _drop(options: DropIfOptions) -> Transform:
    matches = compile_matcher(options.drop_if)

    def drop_if(record: Record) -> Record | None:
        return None if matches(record) else record

    return drop_if


KEEP_IF = TransformKind(KeepIfOptions, _keep)
DROP_IF = TransformKind(DropIfOptions, _drop)
