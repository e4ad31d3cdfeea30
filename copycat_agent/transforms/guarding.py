"""`if` and `on_error` of a step: what every item of `transforms:` may carry beside its action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from copycat_agent.errors import CopycatError, DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.registry import FAULT, blamed, told
from copycat_agent.transforms.base import OnError, Step, StepError, StepFaultError, Transform
from copycat_agent.transforms.match import Predicate

if TYPE_CHECKING:
    from copycat_agent.templates import SplitMeta

Policy = Literal["", "dlq", "stop"]
"""What becomes of a record that does not pass: "" is what the connector says."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A transform with its condition and its policy. `name` is how errors name it: `transforms[2] convert`."""

    inner: Transform
    name: str
    condition: Predicate | None
    on_error: OnError | None

    def bind(self, meta: SplitMeta) -> Step:
        """See `Transform.bind`."""
        policy: Policy = self.on_error if self.on_error in ("dlq", "stop") else ""
        step = self.inner.bind(meta)
        if self.on_error in ("keep", "drop"):
            step = _passing(step, self.name, goes_on=self.on_error == "keep")
        else:
            step = _raising(step, self.name, policy)
        return step if self.condition is None else _with_condition(step, self.condition, self.name, policy)


def _with_condition(step: Step, matches: Predicate, name: str, policy: Policy) -> Step:
    """A record of which nobody can tell whether it matches is never kept as it is: the step may be what hides something in it."""

    def when(draft: Draft) -> bool:
        try:
            applies = matches(draft)
        except DataError as error:
            bad = StepError(name, error, policy)
        else:
            return step(draft) if applies else True
        raise bad  # outside the except: what raised it may hold data

    return when


def _passing(step: Step, name: str, *, goes_on: bool) -> Step:
    def passing(draft: Draft) -> bool:
        try:
            return step(draft)
        except DataError as error:
            draft.kept += goes_on
            draft.trouble = draft.trouble or f"{name}: {error.message}"
            return goes_on
        except (CopycatError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - see `_fault`
            fault = _fault(name, error)
        raise fault  # outside the except: what raised it may hold data

    return passing


def _raising(step: Step, name: str, policy: Policy) -> Step:
    def raising(draft: Draft) -> bool:
        bad: CopycatError
        try:
            return step(draft)
        except DataError as error:
            bad = StepError(name, error, policy)
        except (CopycatError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - see `_fault`
            bad = _fault(name, error)
        raise bad  # outside the except, as above

    return raising


def _fault(name: str, error: Exception) -> StepFaultError:
    """A step that raises anything but a `CopycatError` is at fault itself, whatever the record: its connector stops, by no policy."""
    origin = blamed(error.__traceback__)
    if origin is None:
        return StepFaultError(f"{name}: {told(error)}", "this is a bug in copycat-agent: please report it")
    return StepFaultError(f"{name} of {origin.text}: {told(error)}", FAULT)
