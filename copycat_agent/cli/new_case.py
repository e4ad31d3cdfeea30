"""A sample through a definition that was guessed from it: how much of it parses, and a test out of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from copycat_agent.errors import CopycatError
from copycat_agent.options import Definition
from copycat_agent.templates import time_text
from copycat_agent.workbench.guessing import Case, DefinitionDraft, SampleFile
from copycat_agent.workbench.guessing.guesses import Value
from copycat_agent.workbench.trying import TriedRecord, run_tests, take

_FIELDS_MAX = 8
_TEXT_MAX = 200
_LINES_MAX = 12
_LINE_MAX = 2000
_WITH_ZONE = re.compile(r"rfc3339|rfc2822|unix|.*%z")


class Tried(NamedTuple):
    """`good` of `total` records are sent as they should be; `bad` are the lines where the others begin, or their numbers (`by_record`).

    `records` are those that may serve as a test, the best first. `error` is why the sample was not read to its end, "" when it was.
    """

    good: int
    total: int
    bad: tuple[int, ...]
    by_record: bool
    records: tuple[TriedRecord, ...]
    error: str = ""


def tried(definition: Definition, sample: SampleFile) -> Tried:
    """The sample through the real pipeline."""
    packed_or_binary = sample.kind in ("parquet", "avro", "binary")
    try:
        taken = take(definition, sample.path if packed_or_binary else sample.content, most=400 if packed_or_binary else 0)
    except CopycatError as error:
        return Tried(0, 0, (), False, (), str(error))
    good = [one for one in taken.records if one.fate in ("sent", "dropped")]
    bad = [one for one in taken.records if one.fate not in ("sent", "dropped")]
    by_record = any(one.by_record for one in taken.records)
    places = tuple(one.number if by_record else sample.content.count(b"\n", 0, one.start) + 1 for one in bad)
    why = str(taken.error) if taken.error else taken.damage
    usable = [one for one in good if one.fate == "sent" and one.outputs]
    usable.sort(key=lambda one: (len(one.kept_errors), b"\n" not in (one.raw or b"").rstrip()))  # one of several lines shows more
    return Tried(len(good), len(taken.records), places, by_record, tuple(usable), why)


def case_of(parts: DefinitionDraft, sample: SampleFile, results: Tried) -> Case | None:
    """A test that quotes the first record that went through all steps, None when none can be quoted."""
    for record in results.records[:_LINES_MAX]:
        lines = _quoted(parts, sample, record)
        if lines is None:
            continue
        expect = dict(_expected(parts, record))
        if expect:
            return Case(lines, expect, _read_time(sample) if _lacks_year(parts) else "")
    return None


def holds(definition: Definition) -> bool:
    """Whether the definition's own tests pass."""
    return all(outcome.good for outcome in run_tests(definition))


def _quoted(parts: DefinitionDraft, sample: SampleFile, record: TriedRecord) -> tuple[str, ...] | None:
    """The record's lines, with the header of a table above them. None for what cannot be quoted, or is too long for that."""
    if record.raw is None or sample.kind:
        return None
    try:
        text = record.raw.decode()
    except UnicodeDecodeError:
        return None
    lines = tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n"))
    layout = parts.guess.layout if parts.guess else None
    if parts.subject == "spool_dir" and layout:
        if layout["type"] == "json":
            return None
        lines = (sample.lines[0], *lines) if layout.get("header") is True else lines
    return lines if len(lines) <= _LINES_MAX and all(len(line) <= _LINE_MAX for line in lines) else None


def _expected(parts: DefinitionDraft, record: TriedRecord) -> Iterator[tuple[str, Value]]:
    output = record.outputs[0]
    if parts.guess and parts.guess.key and output.key is not None:
        yield "key", output.key.decode("utf-8", "replace")
    if isinstance(output.value, Mapping):
        is_local = any(step.action == "syslog" for step in parts.guess.steps) if parts.guess else False
        values = dict(_scalars({name: value for name, value in output.value.items() if not is_local or name != "timestamp"}))
        if values:
            yield "value", values
    elif isinstance(output.value, bytes) and record.raw is not None:
        yield "value", output.value.decode("utf-8", "replace")
    if output.timestamp_ms is not None and _names_zone(parts):
        yield "timestamp", time_text(output.timestamp_ms, "milliseconds" if output.timestamp_ms % 1000 else "seconds")


def _scalars(fields: Mapping[str, object]) -> Iterator[tuple[str, Value]]:
    """Fields whose values say something in one line."""
    kept = 0
    for name, value in fields.items():
        if kept < _FIELDS_MAX and isinstance(value, str | int | float) and len(str(value)) <= _TEXT_MAX:
            kept += 1
            yield name, value


def _names_zone(parts: DefinitionDraft) -> bool:
    """Whether the time is the same on every host."""
    steps = parts.guess.steps if parts.guess else ()
    formats = [step.options["format"] for step in steps if step.action == "timestamp" and isinstance(step.options, Mapping)]
    return any(isinstance(one, str) and _WITH_ZONE.match(one) is not None for one in formats) or any(
        step.action in ("cri", "docker") for step in steps
    )


def _lacks_year(parts: DefinitionDraft) -> bool:
    steps = parts.guess.steps if parts.guess else ()
    named = [step.options["format"] for step in steps if step.action == "timestamp" and isinstance(step.options, Mapping)]
    return any(step.action == "syslog" for step in steps) or any("%" in str(one) and "%y" not in str(one).lower() for one in named)


def _read_time(sample: SampleFile) -> str:
    """Times without a year are those nearest to when the sample was written."""
    written = time_text(sample.path.stat().st_mtime_ns // 10**6, "seconds")
    return written if written.endswith("Z") else time_text(time.time() * 1000, "seconds")
