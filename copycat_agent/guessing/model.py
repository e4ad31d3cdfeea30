"""What a recogniser finds: the steps that make records of such lines, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Value = str | int | float | bool | Sequence["Value"] | Mapping[str, "Value"]
"""What an option may be."""


@dataclass(frozen=True, slots=True)
class StepGuess:
    """One item of `transforms`: the action and its options, why it is there, whether what it cannot handle goes on, other options."""

    action: str
    options: Value
    why: str = ""
    keep: bool = False
    beside: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Guess:
    """What a sample is.

    `what` names it for people. `share` of its lines that begin a record are like that; `weight` from 0 to 1 says how much that means
    (almost anything is plain text). `multiline` are options of that section. `layout` is the format of a spooled file, None for lines.
    `key` and `timestamp` are options of `record`, "" for none. `remarks` are words for the person who asked.
    """

    what: str
    share: float
    weight: float
    steps: tuple[StepGuess, ...] = ()
    multiline: Mapping[str, Value] | None = None
    layout: Mapping[str, Value] | None = None
    key: str = ""
    timestamp: str = ""
    remarks: tuple[str, ...] = field(default=())

    @property
    def score(self) -> float:
        """The best one wins."""
        return self.share * self.weight


Recogniser = Callable[[Sequence[str]], Guess | None]
"""Looks at the lines of a sample, not empty. None when they are nothing of its kind."""
