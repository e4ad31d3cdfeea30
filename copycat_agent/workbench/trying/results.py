"""The results of a sample: its records, what each step did to them, what is sent, and where a step's pattern stopped matching."""

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
class SampleContext:
    """Values of the file and the host for templates and steps, which replace the real ones; None keeps the real value.

    `mtime_ms` is when the file was last changed, `read_ms` when it is read (epoch milliseconds).
    """

    path: str | None = None
    mtime_ms: int | None = None
    inode: int | None = None
    host: str | None = None
    read_ms: int | None = None
    access: Access | None = None


def likely_path(definition: Definition) -> str:
    """Returns a path that the source would read: its first pattern, with wildcards filled in. For topics it is partition 0 of the first."""
    source = definition.source
    if topics := getattr(source, "topics", None):
        return f"{_likely_topic(topics[0], definition.name)}/0"
    if uri := getattr(source, "uri", ""):
        patterns: Any = [f"{uri.partition('?')[0].rstrip('/')}/{source.pattern[0].lstrip('/')}"]  # type: ignore[attr-defined]
    elif isinstance(source, PolledOptions):
        return source.type
    else:
        patterns = getattr(source, "include", None) or [f"{source.dir.rstrip('/')}/{source.pattern[0]}"]  # type: ignore[attr-defined]
    return "/".join(_likely(part, definition.name) for part in patterns[0].split("/") if part != "**")


def _likely_topic(pattern: str, name: str) -> str:
    """Returns a topic that the regular expression stands for: the pattern up to its first wildcard, with `name` behind it."""
    plain = re.match(r"(?:[A-Za-z0-9_-]|\\?\.(?![*+?{]))*(?![*?{])", pattern)
    begun = "" if plain is None else plain.group().replace("\\", "")
    if plain is not None and plain.end() == len(pattern):
        return begun
    return next((one for one in (begun + name, begun + "1", begun) if one and re.fullmatch(pattern, one)), name)


def _likely(part: str, name: str) -> str:
    plain = part.replace("*", "").replace("?", "0")
    for group in ("[", "{"):
        if group in plain:
            return f"{name}.log"
    return plain if plain and not plain.startswith(".") else name + plain if "*" in part else plain


Fields = bytes | dict[str, Any]
"""A record's value between steps: the framed bytes, or fields."""

Fate = Literal["sent", "dropped", "dead-lettered", "passed over", "stops"]
"""sent; dropped on purpose. A bad record is dead-lettered, passed over and counted, or stops the connector."""

StepOutcome = Literal["done", "skipped", "kept", "dropped", "failed"]
"""done; skipped: its `if` does not match; kept: it failed, which `on_error: keep` ignores; dropped or failed: the record ended here."""

_GROUP = re.compile(r"\(\?P<(g\d+)>")
_REFERENCE = re.compile(r"%\{\w+:([^:}]+)(?::\w+)?\}")
_MOST_CHARACTERS = 60


class StepTrace(NamedTuple):
    """The effect of one step on one record. `number` counts from 0, `action` is its name.

    `error` is why it failed, also if the record was kept. `timestamp_ms` is the record's time, if the step has set it. `before` and `after`
    share nested values with the record, so they must not be changed.
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
        """The name as in errors: `transforms[2] convert`."""
        return f"transforms[{self.number}] {self.action}"


class Output(NamedTuple):
    """A record as it would be sent. `value` is the converter's input, `payload` its output; `fields` are the record's, if any.

    `payload` is None if only a schema registry could tell it, `partition` if the producer chooses it, `timestamp_ms` if it is the time of
    sending.
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
    """One record of a sample. `start` and `end` are byte offsets in the file, or record numbers from 0 (`by_record`).

    `raw` are its bytes in the file; None if it has none of its own there. `outputs` is what is sent: one record, or several from a query.
    A bad record has a `stage` and an `error`, whose message begins with the step that failed, if one did.
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
        """The step that dropped the record or failed, None without one."""
        last = self.steps[-1] if self.steps and (self.error is not None or not self.outputs) else None
        return last if last is not None and last.outcome in {"dropped", "failed"} else None

    @property
    def kept_errors(self) -> tuple[StepTrace, ...]:
        """The steps whose failure `on_error: keep` has ignored."""
        return tuple(step for step in self.steps if step.outcome == "kept")


class TrialResult(NamedTuple):
    """The result of a sample.

    `error` is what would stop or block the connector after the last record, `damage` why the file cannot be read on. `has_more`: the file
    was not read to its end. `unchecked`: whether values or keys fit their schema is unknown, because only a schema registry has it.
    `long_dropped` lines exceeded `line.max_bytes` and were dropped.
    """

    records: tuple[TriedRecord, ...]
    error: CopycatError | None = None
    damage: str = ""
    has_more: bool = False
    unchecked: bool = False
    long_dropped: int = 0


class StoppedMatch(NamedTuple):
    """A pattern matches the first `at` characters of `text`, the parsed field; `element` is the part of the pattern expected there."""

    text: str
    at: int
    element: str


def stopped(definition: Definition, step: StepTrace) -> StoppedMatch | None:
    """Returns where the step's pattern stopped, of several patterns the furthest. None for steps without one, and if all matches."""
    options = definition.transforms[step.number]
    text = _text(step.before, getattr(getattr(options, step.action, None), "field", "message"))
    if text is None:
        return None
    stops = [(stop, names) for pattern, names in _patterns(options, step.action) if (stop := where_it_stopped(pattern, text))]
    if not stops:
        return None
    stop, names = max(stops, key=lambda one: one[0].text_end)
    return StoppedMatch(text, stop.text_end, _element(stop.element, names))


def _patterns(options: TransformOptions, action: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the step's regular expressions, with names for their groups."""
    chosen: Any = options
    if action == "regex":
        yield from ((pattern, {}) for pattern in chosen.regex.pattern)
    elif action == "grok":
        library = {**pattern_set(chosen.grok.set), **chosen.grok.definitions}
        for text in chosen.grok.pattern:
            expanded = expand(text, library)
            yield expanded.pattern, {group: _written(found, chosen.grok) for group, found in expanded.fields.items()}


def _written(found: GrokReference, options: GrokOptions) -> str:
    """Returns the reference to a field as in the definition; for one within a pattern of the set, the field's name."""
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
