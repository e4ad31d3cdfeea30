"""Transforms: the steps of `transforms:`, each of which works on one record at a time.

A new transform is one file and one line in `TRANSFORMS`. Its options describe a whole item of `transforms:` in a
definition, in a field named like the action: `- drop_if: {...}` is a class with the field `drop_if`.
"""

from __future__ import annotations

from collections.abc import Sequence

from copycat_agent.options import TransformOptions
from copycat_agent.transforms.base import Columns, Draft, Steady, Step, StepError, StepOptions, Transform, TransformKind
from copycat_agent.transforms.filter import DROP_IF, KEEP_IF
from copycat_agent.transforms.guarding import Guarded
from copycat_agent.transforms.match import Condition, compile_matcher

__all__ = [
    "TRANSFORMS",
    "Columns",
    "Condition",
    "Draft",
    "Steady",
    "Step",
    "StepError",
    "StepOptions",
    "Transform",
    "TransformKind",
    "action_of",
    "build_transform",
    "columns_after",
    "compile_matcher",
    "kind_of",
]

TRANSFORMS: dict[str, TransformKind] = {
    "keep_if": KEEP_IF,
    "drop_if": DROP_IF,
}


def action_of(options: TransformOptions) -> str:
    """The name in `TRANSFORMS` of what these options describe. KeyError for options of no known transform."""
    return next(name for name, kind in TRANSFORMS.items() if kind.options is type(options))


def kind_of(options: TransformOptions) -> TransformKind:
    """The entry of `TRANSFORMS` for these options; see `action_of`."""
    return TRANSFORMS[action_of(options)]


def build_transform(options: TransformOptions, number: int = 0) -> Transform:
    """The step that one validated item, the `number`-th from 0, describes, with its `if` and `on_error`. Called once per definition."""
    kind, name = kind_of(options), f"transforms[{number}] {action_of(options)}"
    assert isinstance(options, StepOptions)
    condition = None if options.if_ is None else compile_matcher(options.if_)
    return Guarded(kind.build(options), name, condition, options.on_error)


def columns_after(steps: Sequence[TransformOptions], before: Columns | None) -> Columns | None:
    """The fields of records after these steps, as far as they are known before any record is read; None where nobody can know."""
    for options in steps:
        before = kind_of(options).columns(options, before)
    return before
