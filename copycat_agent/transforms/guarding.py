"""`if` and `on_error` of a step: what every item of `transforms:` may carry beside its action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from copycat_agent.errors import DataError
from copycat_agent.transforms.base import Draft, OnError, Step, StepError, Transform
from copycat_agent.transforms.match import Predicate

if TYPE_CHECKING:
    from copycat_agent.templates import SplitMeta


@dataclass(frozen=True, slots=True)
class Guarded:
    """A transform with its condition and its policy. `name` is how errors name it: `transforms[2] convert`."""

    inner: Transform
    name: str
    condition: Predicate | None
    on_error: OnError | None

    def bind(self, meta: SplitMeta) -> Step:
        """See `Transform.bind`."""
        step = _with_policy(self.inner.bind(meta), self.name, self.on_error)
        return step if self.condition is None else _with_condition(step, self.condition)


def _with_condition(step: Step, matches: Predicate) -> Step:
    return lambda draft: step(draft) if matches(draft) else True


def _with_policy(step: Step, name: str, on_error: OnError | None) -> Step:
    def kept(draft: Draft) -> bool:
        try:
            return step(draft)
        except DataError:
            draft.kept += 1
            return True

    def dropped(draft: Draft) -> bool:
        try:
            return step(draft)
        except DataError:
            return False

    def named(draft: Draft) -> bool:
        try:
            return step(draft)
        except DataError as error:
            bad = StepError(name, error, on_error if on_error in ("dlq", "stop") else "")
        raise bad  # outside the except: what raised it may hold data

    return {"keep": kept, "drop": dropped}.get(on_error or "", named)
