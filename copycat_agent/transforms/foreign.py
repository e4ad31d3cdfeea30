"""Transforms of installed packages: what they have to be, and the fence around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from copycat_agent.errors import FatalError
from copycat_agent.formats.draft import Draft
from copycat_agent.model import Column
from copycat_agent.registry import FAULT, Fence, wrong_kind
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms.base import Columns, Step, StepOptions, Transform, TransformKind


def wrong_transform(name: str, part: TransformKind) -> str:
    """What is wrong with the transform that a package brings under this name, "" for nothing."""
    if wrong := wrong_kind(part, TransformKind, StepOptions):
        return wrong
    if name in action_keys(StepOptions):
        return f"{name!r} is what every step may carry, and no action"
    if name not in action_keys(part.options):
        return f"its options have no field {name!r}, which holds what stands behind the action"
    if part.is_query:
        return "a query is the agent's own"
    part.options.model_json_schema()
    return ""


def action_keys(options: type[StepOptions]) -> list[str]:
    """The keys of an item, as YAML has them."""
    return [field.alias or name for name, field in options.model_fields.items()]


def fenced_transform(kind: TransformKind, fence: Fence) -> TransformKind:
    """The kind of a package with its functions in fences. What its steps raise is told where every step's is, in `guarding`."""
    build = fence(kind.build)
    return replace(kind, build=lambda options: _Fenced(build(options), fence), columns=_safe(kind))


@dataclass(frozen=True, slots=True)
class _Fenced:
    inner: Transform
    fence: Fence

    def bind(self, meta: SplitMeta) -> Step:
        """See `Transform.bind`."""
        step: Step = self.fence(lambda: self.inner.bind(meta))()

        def answered(draft: Draft) -> bool:
            keeps: object = step(draft)
            if isinstance(keeps, bool):
                return keeps
            # None would drop every record, and nobody meant it
            raise FatalError(f"{self.fence.whose}: its step answered {type(keeps).__name__}, not True or False", FAULT)

        return answered


def _safe(kind: TransformKind) -> Any:  # noqa: ANN401 - a function of any options
    def columns(options: StepOptions, before: Columns | None) -> Columns | None:
        """Nobody knows, where the package's own function fails: it is asked while definitions are loaded, which it must not end."""
        try:
            after = kind.columns(options, before)
            known = after is not None and all(isinstance(column, Column) for column in after)
        except Exception:  # noqa: BLE001 - somebody else's code raises anything
            return None
        return tuple(after) if known and after is not None else None

    return columns
