"""The result of a recogniser: steps that parse such lines, and how sure it is. Also finds formats of times, for all recognisers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from copycat_agent.errors import DataError
from copycat_agent.transforms.times import compile_times

Value = str | int | float | bool | Sequence["Value"] | Mapping[str, "Value"]
"""A value of an option."""
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
"""Names of fields with a time. The last ones are from log4j 2, journald and MongoDB."""


@dataclass(frozen=True, slots=True)
class StepGuess:
    """One item of `transforms`: the action and its options, a comment, whether failed records are kept, and further options."""

    action: str
    options: Value
    why: str = ""
    keep: bool = False
    beside: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Guess:
    """The recognised format of a sample.

    `what` names it for people. `share` is the share of records that match; `weight` (0 to 1) says how significant a match is: almost
    anything is plain text. `multiline` are options of that section. `layout` is the format of a spooled file, None for lines. `key` and
    `timestamp` are options of `record`, "" for none. `remarks` are shown to the user.
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
        """The guess with the highest score wins."""
        return self.share * self.weight


Recogniser = Callable[[Sequence[str]], Guess | None]
"""Takes the lines of a sample, at least one. Returns None if they are of another format."""


def format_of(texts: Iterable[object]) -> str:
    """Returns a value of `timestamp.format` that parses all of the texts and numbers; "" if no known format does."""
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
    """Returns the field with the record's time, by its name and values, and its format; ("", "") if there is none."""
    for name in _NAMES:
        values = [value for row in rows if (value := _at(row, name)) is not None]
        if len(values) * 2 > len(rows) and (found := format_of(values)):
            return name, found
    return "", ""


def _at(row: dict[str, object], name: str) -> object:
    """Returns a field, or one in an object, by its dotted name."""
    head, _, rest = name.partition(".")
    inner = row.get(head)
    return row.get(name) if not rest else inner.get(rest) if isinstance(inner, dict) else None


def _epoch(value: object) -> str:
    """Returns the epoch unit of a number, or a text of digits, by its number of digits, which is right from 2001 to 2286; "" for none."""
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
