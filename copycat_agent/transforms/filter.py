"""`keep_if` and `drop_if`: which records go on. A dropped record is settled: its offset moves."""

from __future__ import annotations

from copycat_agent.formats.draft import Draft
from copycat_agent.options import Field
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.match import Condition, compile_matcher


class KeepIfOptions(StepOptions):
    """Only matching records go on."""

    keep_if: dict[str, Condition] = Field(
        min_length=1,
        description="Only records that match go on: fields, each with a value, a list of values, or "
        "{matches: RE}, {lt|le|gt|ge: n}, {exists: bool}, {not: any of these}. All fields have to match.",
    )

    def model_post_init(self, context: object) -> None:
        """See `StepOptions`."""
        super().model_post_init(context)
        compile_matcher(self.keep_if)


class DropIfOptions(StepOptions):
    """Matching records are dropped."""

    drop_if: dict[str, Condition] = Field(
        min_length=1,
        description="Records that match are dropped: fields, each with a value, a list of values, or "
        "{matches: RE}, {lt|le|gt|ge: n}, {exists: bool}, {not: any of these}. All fields have to match.",
    )

    def model_post_init(self, context: object) -> None:
        """See `StepOptions`."""
        super().model_post_init(context)
        compile_matcher(self.drop_if)


def _keep(options: KeepIfOptions) -> Transform:
    return Steady(compile_matcher(options.keep_if))


def _drop(options: DropIfOptions) -> Transform:
    matches = compile_matcher(options.drop_if)

    def drop_if(draft: Draft) -> bool:
        return not matches(draft)

    return Steady(drop_if)


def _same(options: object, before: Columns | None) -> Columns | None:
    del options
    return before


KEEP_IF = TransformKind(KeepIfOptions, _keep, _same, is_filter=True)
DROP_IF = TransformKind(DropIfOptions, _drop, _same, is_filter=True)
