"""Transforms: callables `Record -> Record | None`, where None drops the record on purpose.

A new transform is one file and one line in `TRANSFORMS`. Its options describe a whole item of `transforms:` in a
definition, in a field named like the action: `- drop_if: {...}` is a class with the field `drop_if`.
"""

from __future__ import annotations

from copycat_agent.options import TransformOptions
from copycat_agent.transforms.base import Transform, TransformKind
from copycat_agent.transforms.filter import DROP_IF, KEEP_IF
from copycat_agent.transforms.match import Condition, compile_matcher

__all__ = ["TRANSFORMS", "Condition", "Transform", "TransformKind", "build_transform", "compile_matcher"]


def build_transform(options: TransformOptions) -> Transform:
    """The step that one validated item describes. Called once per definition; KeyError for options of no known transform."""
    return _KINDS[type(options)].build(options)


TRANSFORMS: dict[str, TransformKind] = {"keep_if": KEEP_IF, "drop_if": DROP_IF}

_KINDS = {kind.options: kind for kind in TRANSFORMS.values()}
