"""Where a sample is taken to lie, and what became of its records: steps, what came out, where a step's pattern stopped matching."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from copycat_agent.errors import CopycatError, DataError
from copycat_agent.model import Record
from copycat_agent.options import Definition, TransformOptions
from copycat_agent.patterns import where_it_stopped
from copycat_agent.sources.contract import PolledOptions
from copycat_agent.templates import MISSING, Access, compile_path
from copycat_agent.transforms.grok import GrokOptions, GrokReference, expand, field_path, pattern_set


@dataclass(frozen=True, slots=True)
class Where:
    """What templates and steps should know of the file and the host in place of what is: None leaves what is.

    `path` is how the file is called, `mtime_ms` when it was changed last, `read_ms` when it is read (epoch milliseconds).
    """

    path: str | None = None
    mtime_ms: int | None = None
    inode: int | None = None
    host: str | None = None
    read_ms: int | None = None
    access: Access | None = None


def likely_path(definition: Definition) -> str:
    """A path that the source would read: its first pattern, with what is open filled in."""
    source = definition.source
    if isinstance(source, PolledOptions):
        return source.type
    patterns = getattr(source, "include", None) or [f"{source.dir.rstrip('/')}/{source.pattern[0]}"]  # type: ignore[attr-defined]
    return "/".join(_likely(part, definition.name) for part in patterns[0].split("/") if part != "**")


def _likely(part: str, name: str) -> str:
    plain = part.replace("*", "").replace("?", "0")
    for group in ("[", "{"):
        if group in plain:
            return f"{name}.log"
    return plain if plain and not plain.startswith(".") else name + plain if "*" in part else plain


Fields = bytes | dict[str, Any]
"""A record's value on its way: the framed bytes, or fields."""

Fate = Literal["sent", "dropped", "dead-lettered", "passed over", "stops"]
"""sent; dropped on purpose; a bad record: to the dead-letter topic, passed over and counted, or the end of the connector."""

StepOutcome = Literal["done", "skipped", "kept", "dropped", "failed"]
"""done; skipped: its `if` does not match; kept: it failed, and `on_error: keep` passed over that; dropped: here; failed: here."""

_GROUP = re.compile(r"\(\?P<(g\d+)>")
_REFERENCE = re.compile(r"%\{\w+:([^:}]+)(?::\w+)?\}")
_MOST_CHARACTERS = 60


class StepTrace(NamedTuple):
    """What one step did to one record. `number` counts from 0, `action` is its name.

    `error` is why it failed, also where that was kept. `timestamp_ms` is the record's own time, where the step has set it. `before` and
    `after` share what lies within a field with the record: they are to be read only.
    """

    number: int
    action: str
    outcome: StepOutcome
    before: Fields
    after: Fields
    error: DataError | None = None
    timestamp_ms: int | None = None

    @property
    def name(self) -> str:
        """As errors name it: `transforms[2] convert`."""
        return f"transforms[{self.number}] {self.action}"


class Output(NamedTuple):
    """A record as it would be sent. `value` is what the converter gets, `payload` what it makes of it, `fields` are the record's, if any.

    `payload` is None where only a schema registry could tell, `partition` where the producer chooses, `timestamp_ms` where it is
    the time of sending.
    """

    topic: str
    key: bytes | None
    value: object
    fields: dict[str, Any] | None
    payload: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int | None
    partition: int | None


class TriedRecord(NamedTuple):
    """One record of a sample. `start` and `end` are its bytes in the file, or record numbers from 0 (`by_record`).

    `raw` are its bytes as they stand there; None where the file holds none of it alone. `outputs` are what is sent of it: one record,
    or as many as a query made. Of a bad one: `stage`, and `error`, whose message begins with the step where one failed.
    """

    number: int
    start: int
    end: int
    by_record: bool
    raw: bytes | None
    value: Fields | None
    fate: Fate
    steps: tuple[StepTrace, ...] = ()
    outputs: tuple[Output, ...] = ()
    stage: str = ""
    error: DataError | None = None

    @property
    def ended_by(self) -> StepTrace | None:
        """The step that dropped it or failed, None when none did."""
        last = self.steps[-1] if self.steps and (self.error is not None or not self.outputs) else None
        return last if last is not None and last.outcome in {"dropped", "failed"} else None

    @property
    def kept_errors(self) -> tuple[StepTrace, ...]:
        """The steps that failed and were passed over by `on_error: keep`."""
        return tuple(step for step in self.steps if step.outcome == "kept")


class TrialResult(NamedTuple):
    """What became of a sample.

    `error` is what would hold up the connector behind the last record, `damage` why the file ends there.
    `has_more`: not all of the file was looked at. `unchecked`: nobody knows whether values (or keys) fit their schema, as only a schema
    registry has it.
    `long_dropped` lines were over `line.max_bytes`, and dropped.
    """

    records: tuple[TriedRecord, ...]
    error: CopycatError | None = None
    damage: str = ""
    has_more: bool = False
    unchecked: bool = False
    long_dropped: int = 0


class Stopped(NamedTuple):
    """The pattern matches the first `at` characters of `text`, the field that was parsed; `element` is what it wants to find there."""

    text: str
    at: int
    element: str


def stopped(definition: Definition, step: StepTrace) -> Stopped | None:
    """Where the step's pattern stopped, the one that came furthest of several. None for steps without one, and where all matches."""
    options = definition.transforms[step.number]
    text = _text(step.before, getattr(getattr(options, step.action, None), "field", "message"))
    if text is None:
        return None
    stops = [(stop, names) for pattern, names in _patterns(options, step.action) if (stop := where_it_stopped(pattern, text))]
    if not stops:
        return None
    stop, names = max(stops, key=lambda one: one[0].text_end)
    return Stopped(text, stop.text_end, _element(stop.element, names))


def _patterns(options: TransformOptions, action: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Regular expressions, and what to call their groups."""
    chosen: Any = options
    if action == "regex":
        yield from ((pattern, {}) for pattern in chosen.regex.pattern)
    elif action == "grok":
        library = {**pattern_set(chosen.grok.set), **chosen.grok.definitions}
        for text in chosen.grok.pattern:
            expanded = expand(text, library)
            yield expanded.pattern, {group: _written(found, chosen.grok) for group, found in expanded.fields.items()}


def _written(found: GrokReference, options: GrokOptions) -> str:
    """How the definition writes the group of a field; one within a pattern of the set is named by its field."""
    written = (match for text in options.pattern for match in _REFERENCE.finditer(text))
    return next((match[0] for match in written if field_path(match[1]) == found.path), f"field {found.path}")


def _element(element: str, names: dict[str, str]) -> str:
    group = _GROUP.search(element)
    if group is not None and group[1] in names:
        return names[group[1]]
    return element if len(element) <= _MOST_CHARACTERS else f"{element[:_MOST_CHARACTERS]}..."


def _text(value: Fields, path: str) -> str | None:
    found = compile_path(path)(Record(value, 0, 0, 0))
    return found if found is not MISSING and isinstance(found, str) else None
