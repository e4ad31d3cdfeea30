"""The result of a check: steps with a verdict, the reason and the fix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

_Item = TypeVar("_Item")
_Seen = TypeVar("_Seen")


class CheckVerdict(StrEnum):
    """The result of a step. SKIP: not checked, because an earlier step explains it or it cannot be known yet."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class CheckStep:
    """One thing that was checked.

    `section` groups steps (`host`, `connector nginx`), `name` says what was checked, `text` what was found, and `fix` is
    what to type or write, on one or more lines; "" where there is nothing to do. `unreachable` marks a failure that
    means only that no broker answers.
    """

    section: str
    name: str
    verdict: CheckVerdict
    text: str
    fix: str = ""
    unreachable: bool = False


class Notes:
    """Collects the steps of one section."""

    def __init__(self, section: str) -> None:
        self.section = section
        self.steps: list[CheckStep] = []

    def ok(self, name: str, text: str) -> None:
        """Adds a step that is in order."""
        self.steps.append(CheckStep(self.section, name, CheckVerdict.OK, text))

    def warn(self, name: str, text: str, fix: str = "") -> None:
        """Adds a step that works, but not as well as it could, or not for long."""
        self.steps.append(CheckStep(self.section, name, CheckVerdict.WARN, text, fix))

    def fail(self, name: str, text: str, fix: str = "", *, unreachable: bool = False) -> None:
        """Adds a step that does not work."""
        self.steps.append(CheckStep(self.section, name, CheckVerdict.FAIL, text, fix, unreachable))

    def skip(self, name: str, text: str) -> None:
        """Adds a step that was not checked."""
        self.steps.append(CheckStep(self.section, name, CheckVerdict.SKIP, text))

    def not_asked(self, *names: str) -> None:
        """Adds steps that were not checked because an earlier one failed."""
        for name in names:
            self.skip(name, "not asked: see the step that failed")

    @property
    def failed(self) -> bool:
        """Returns whether any step failed."""
        return any(step.verdict is CheckVerdict.FAIL for step in self.steps)


def names(items: list[str], shown: int = 3) -> str:
    """Returns the first few items as text: `a, b, c and 5 more`."""
    more = len(items) - shown
    return ", ".join(items[:shown]) + (f" and {more} more" if more > 0 else "")


def side_by_side(look: Callable[[_Item], _Seen], items: Sequence[_Item], name: str) -> list[_Seen]:
    """Returns `look` of each item, in their order. Up to 16 run at a time, since each may have to wait."""
    with ThreadPoolExecutor(max(1, min(16, len(items))), thread_name_prefix=f"doctor-{name}") as threads:
        return list(threads.map(look, items))
