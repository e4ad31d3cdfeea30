"""What a transform is: one item of `transforms:`, as options, as a thing that is bound to a file, and as a step for each record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from copycat_agent.errors import DataError, FatalError
from copycat_agent.formats.draft import Draft
from copycat_agent.model import Column
from copycat_agent.options import Field, TransformOptions
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms.match import Condition, compile_matcher

Columns = tuple[Column, ...]
"""The fields of records, as far as they are known before any record is read."""


Step = Callable[[Draft], bool]
"""Works on a draft. False drops the record on purpose. Raises `DataError` for a record that it cannot handle, in words without its data,
and leaves the draft as it was then, or (steps with several fields) with the good ones done. Thread-safe: it keeps nothing of a record."""


class Transform(Protocol):
    """One item of `transforms:`, compiled. Stateless, shared by threads."""

    def bind(self, meta: SplitMeta) -> Step:
        """The step for the records of one file. Called often: it must be cheap."""


@dataclass(frozen=True, slots=True)
class Steady:
    """A transform that is the same for every file."""

    step: Step

    def bind(self, meta: SplitMeta) -> Step:
        """See `Transform.bind`."""
        del meta
        return self.step


OnError = Literal["dlq", "keep", "drop", "stop"]


class StepOptions(TransformOptions):
    """Base of every transform's options: what each item may carry beside its action."""

    if_: dict[str, Condition] | None = Field(
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

    def model_post_init(self, _: object) -> None:
        """Raise ValueError for a field name in `if` that is not one; pydantic reports it with its place."""
        if self.if_ is not None:
            compile_matcher(self.if_)


class StepError(DataError):
    """A record that a step cannot handle. `step` names it (`transforms[2] convert`); `policy` is its `on_error`, "" for the connector's."""

    def __init__(self, step: str, error: DataError, policy: Literal["", "dlq", "stop"] = "") -> None:
        super().__init__(f"{step}: {error.message}", error.hint)
        self.step = step
        self.policy = policy


class StepFaultError(FatalError):
    """A step raised what none may: it is at fault, not the record. Its connector stops; told by step and line of code, without data."""


def _unknown(options: Any, before: Columns | None) -> Columns | None:  # noqa: ANN401 - options of any transform
    del options, before
    return None


@dataclass(frozen=True, slots=True)
class TransformKind:
    """An entry of `TRANSFORMS`. `options` describes a whole item, in a field named like the action.

    `build` makes the transform; called once per definition and process, it may be slow. Raises ValueError for what cannot work.
    `columns` says which fields its records have, given those before it; None where nobody can know (`before` may be None too).
    `is_filter`: it changes no field, it only says which records go on. `is_query`: it takes many records at once, so its transform is
    never bound: the steps before it and those after it are stages of their own.
    """

    options: type[StepOptions]
    build: Callable[[Any], Transform]
    columns: Callable[[Any, Columns | None], Columns | None] = _unknown
    is_filter: bool = False
    is_query: bool = False
