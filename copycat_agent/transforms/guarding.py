"""What stands around a step: `if` and `on_error` of every item, and the fence around transforms of installed packages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from copycat_agent.errors import CopycatError, DataError, FatalError
from copycat_agent.formats.draft import Draft
from copycat_agent.model import Column
from copycat_agent.registry import FAULT, Fence, blamed, told, wrong_kind
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms.base import Columns, OnError, Step, StepError, StepFaultError, StepOptions, Transform, TransformKind
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
    """A step that raises anything but a `CopycatError` is at fault itself, whatever the record: its connector stops, by no policy.

    What its author did not foresee would fail on every record, and `on_error: keep` would pass all of them on, unmasked.
    """
    origin = blamed(error.__traceback__)
    if origin is None:
        return StepFaultError(f"{name}: {told(error)}", "this is a bug in copycat-agent: please report it")
    return StepFaultError(f"{name} of {origin.text}: {told(error)}", FAULT)


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
