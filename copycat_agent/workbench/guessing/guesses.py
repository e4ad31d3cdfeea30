"""What a recogniser finds: the steps that make records of such lines, and how sure it is; and the formats of times that all look for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from copycat_agent.errors import DataError
from copycat_agent.transforms.times import compile_times

Value = str | int | float | bool | Sequence["Value"] | Mapping[str, "Value"]
"""What an option may be."""
_FORMATS = (
    "rfc3339",
    "iso8601",
    "%d/%b/%Y:%H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S,%f",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%d %H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S.%f %z",
    "%Y-%m-%d %H:%M:%S",
    "%a %b %d %H:%M:%S.%f %Y",
    "%a %b %d %H:%M:%S %Y",
    "%b %d %H:%M:%S",
    "%b %d %H:%M:%S.%f",
    "%b %d, %Y %I:%M:%S %p",
    "%Y/%m/%d %H:%M:%S.%f",
    "%Y/%m/%d %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%d-%b-%Y %H:%M:%S.%f",
    "%d-%b-%Y %H:%M:%S",
    "%y/%m/%d %H:%M:%S",
    "%y%m%d %H%M%S",
    "%m-%d %H:%M:%S.%f",
    "%m%d %H:%M:%S.%f",
    "rfc2822",
)
_EPOCHS = {10: "unix", 13: "unix_ms", 16: "unix_us", 19: "unix_ns"}
_NAMES = (
    "@timestamp", "timestamp", "time", "ts", "datetime", "date", "event_time", "eventTime", "created_at", "asctime", "t", "timeMillis",
    "__REALTIME_TIMESTAMP", "t.$date", "instant.epochSecond",
)  # fmt: skip
"""The last are those of log4j 2, journald and MongoDB."""


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


def format_of(texts: Iterable[object]) -> str:
    """A value of `timestamp.format` that reads all of the texts and numbers; "" when none of those known does."""
    values = [value for value in texts if not isinstance(value, bool)]
    if not values:
        return ""
    units = [_epoch(value) for value in values]
    if all(units):
        return units[0] if len(set(units)) == 1 else ""
    if not all(isinstance(value, str) for value in values):
        return ""
    return next((one for one in _FORMATS if _reads(one, [str(value) for value in values])), "")


def field_with_time(rows: Sequence[dict[str, object]]) -> tuple[str, str]:
    """The field that says when a record was written, and its format; ("", "") when none of those that are named like it does."""
    for name in _NAMES:
        values = [value for row in rows if (value := _at(row, name)) is not None]
        if len(values) * 2 > len(rows) and (found := format_of(values)):
            return name, found
    return "", ""


def _at(row: dict[str, object], name: str) -> object:
    """The field, or the one in an object."""
    head, _, rest = name.partition(".")
    inner = row.get(head)
    return row.get(name) if not rest else inner.get(rest) if isinstance(inner, dict) else None


def _epoch(value: object) -> str:
    """Which epoch unit a number, or a text of digits, is written in: 2001 to 2286 have so many digits."""
    text = repr(value) if isinstance(value, int | float) else str(value)
    match = re.fullmatch(r"(\d+)(\.\d+)?", text)
    return _EPOCHS.get(len(match[1]), "") if match else ""


def _reads(name: str, texts: Sequence[str]) -> bool:
    read = compile_times((name,)).bind(near_ms=int(time.time() * 1000))
    try:
        for text in texts:
            read(text)
    except DataError:
        return False
    return True
