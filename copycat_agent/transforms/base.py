"""The parts of a transform: its options as one item of `transforms:`, a `Transform` to bind to a file, and a step for each record.

Also what surrounds each step: `if` and `on_error` of its item, and the fence around transforms of installed packages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

from copycat_agent.errors import CopycatError, DataError, FatalError
from copycat_agent.formats.draft import Draft
from copycat_agent.model import Column
from copycat_agent.options import BeforeValidator, Field, TransformOptions
from copycat_agent.registry import FAULT, ProviderGuard, blamed, described, wrong_kind
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms.match import Condition, Matcher, Predicate

Columns = tuple[Column, ...]
"""The fields of records, as far as they are known before any record is read."""


Step = Callable[[Draft], bool]
"""Changes a draft. Returns False to drop the record on purpose. Raises `DataError` for a record that it cannot handle, in words without its
data, and leaves the draft as it was then, or (steps with several fields) with the good ones done. Thread-safe: it keeps nothing of a
record."""


class Transform(Protocol):
    """One item of `transforms:`, compiled. Stateless, shared by threads."""

    def bind(self, meta: SplitMeta) -> Step:
        """Returns the step for the records of one file. Called often: it must be cheap."""


@dataclass(frozen=True, slots=True)
class Steady:
    """A transform that is the same for every file."""

    step: Step

    def bind(self, meta: SplitMeta) -> Step:
        del meta
        return self.step


def in_short(option: str, kinds: Any, forms: Any) -> BeforeValidator:  # noqa: ANN401 - types
    """Lets a value of `kinds` stand for options with only this one. `forms`: the type of both forms, for the JSON Schema."""

    def long_form(value: object) -> object:
        return {option: value} if isinstance(value, kinds) and not isinstance(value, bool) else value

    return BeforeValidator(long_form, json_schema_input_type=forms)


OnError = Literal["dlq", "keep", "drop", "stop"]


class StepOptions(TransformOptions):
    """Base of every transform's options: what each item may carry beside its action."""

    if_: Matcher[dict[str, Condition] | None] = Field(
        None,
        alias="if",
        min_length=1,
        description="The step works only on records that match, as in keep_if; the others go on as they are.",
    )
    on_error: OnError | None = Field(
        None,
        description="What becomes of a record that this step cannot handle. dlq: it goes to the dead-letter topic. keep: it goes on as it "
        "is, and is counted. drop: it is dropped, and counted. stop: the connector stops. Default: what errors.tolerance says.",
    )


class StepError(DataError):
    """A record that a step cannot handle. `step` names it (`transforms[2] convert`); `policy` is its `on_error`, "" for the connector's."""

    def __init__(self, step: str, error: DataError, policy: Literal["", "dlq", "stop"] = "") -> None:
        super().__init__(f"{step}: {error.message}", error.hint)
        self.step = step
        self.policy = policy


class StepFaultError(FatalError):
    """A step raised an error that no step may: it is at fault, not the record. Its connector stops; told by step and line, no data."""


def _unknown(options: Any, before: Columns | None) -> Columns | None:  # noqa: ANN401 - options of any transform
    del options, before
    return None


T = TypeVar("T")


def known(columns: Callable[[T, Columns], Columns | None]) -> Callable[[T, Columns | None], Columns | None]:
    """Wraps `TransformKind.columns` of a step: returns None if the columns before it are not known."""
    return lambda options, before: None if before is None else columns(options, before)


@dataclass(frozen=True, slots=True)
class TransformKind:
    """An entry of `TRANSFORMS`. `options` describes a whole item, in a field named like the action.

    `build` makes the transform; called once per definition and process, it may be slow. Raises ValueError for options that cannot work.
    `columns` returns the fields of its records, given those before it; None if they cannot be known (`before` may be None too).
    `is_filter`: it changes no field, it only decides which records go on. `is_query`: it takes many records at once, so its transform is
    never bound, and the steps before it and after it are separate stages.
    """

    options: type[StepOptions]
    build: Callable[[Any], Transform]
    columns: Callable[[Any, Columns | None], Columns | None] = _unknown
    is_filter: bool = False
    is_query: bool = False


Policy = Literal["", "dlq", "stop"]
"""How a record that fails is handled: "" means as the connector says."""


@dataclass(frozen=True, slots=True)
class GuardedTransform:
    """A transform with its condition and its policy. `name` is how errors name it: `transforms[2] convert`."""

    inner: Transform
    name: str
    condition: Predicate | None
    on_error: OnError | None

    def bind(self, meta: SplitMeta) -> Step:
        policy: Policy = self.on_error if self.on_error in ("dlq", "stop") else ""
        step = self.inner.bind(meta)
        if self.on_error in ("keep", "drop"):
            step = _passing(step, self.name, goes_on=self.on_error == "keep")
        else:
            step = _raising(step, self.name, policy)
        return step if self.condition is None else _with_condition(step, self.condition, self.name, policy)


def _with_condition(step: Step, matches: Predicate, name: str, policy: Policy) -> Step:
    """Applies the step if the record matches. If matching fails, the record is never kept unchanged: the step may hide data."""

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
            error.__traceback__ = None  # see `_raising`
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
    """Leaves no error that its own frame holds: a batch with a query makes many, and does not collect cycles."""

    def raising(draft: Draft) -> bool:
        bad: CopycatError
        try:
            return step(draft)
        except DataError as error:
            bad = StepError(name, error.with_traceback(None), policy)
        except (CopycatError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - see `_fault`
            bad = _fault(name, error)
        try:
            raise bad  # outside the except, as above
        finally:
            del bad

    return raising


def _fault(name: str, error: Exception) -> StepFaultError:
    """Returns the error for a step that raises anything but a `CopycatError`: it is at fault, so its connector stops under any policy.

    An error that its author did not foresee would come with every record, and `on_error: keep` would let all of them pass, unmasked.
    """
    origin = blamed(error.__traceback__)
    if origin is None:
        return StepFaultError(f"{name}: {described(error)}", "this is a bug in copycat-agent: please report it")
    return StepFaultError(f"{name} of {origin.text}: {described(error)}", FAULT)


def wrong_transform(name: str, part: TransformKind) -> str:
    """Returns what is wrong with the transform that a package registers under this name, "" for nothing."""
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
    """Returns the keys of an item, as in YAML."""
    return [field.alias or name for name, field in options.model_fields.items()]


def fenced_transform(kind: TransformKind, fence: ProviderGuard) -> TransformKind:
    """Returns a package's kind with its functions in fences. `GuardedTransform` reports the errors of its steps, as for every step."""
    build = fence(kind.build)
    return replace(kind, build=lambda options: _ProviderTransform(build(options), fence), columns=_safe(kind))


@dataclass(frozen=True, slots=True)
class _ProviderTransform:
    inner: Transform
    fence: ProviderGuard

    def bind(self, meta: SplitMeta) -> Step:
        step: Step = self.fence(lambda: self.inner.bind(meta))()

        def answered(draft: Draft) -> bool:
            keeps: object = step(draft)
            if isinstance(keeps, bool):
                return keeps
            # None would drop every record, which is never intended
            raise FatalError(f"{self.fence.whose}: its step answered {type(keeps).__name__}, not True or False", FAULT)

        return answered


def _safe(kind: TransformKind) -> Any:  # noqa: ANN401 - a function of any options
    def columns(options: StepOptions, before: Columns | None) -> Columns | None:
        """Returns None if the package's own function fails: it is called while definitions are loaded, which must go on."""
        try:
            after = kind.columns(options, before)
            known = after is not None and all(isinstance(column, Column) for column in after)
        except Exception:  # noqa: BLE001 - foreign code may raise anything
            return None
        return tuple(after) if known and after is not None else None

    return columns
