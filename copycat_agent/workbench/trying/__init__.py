"""Runs samples through the real pipeline without Kafka and offsets, and shows what each step did to each record.

`take` is for `copycat try`. `run_tests` runs the `tests:` of a definition, and compares the results with the expected ones.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from copycat_agent.errors import CopycatError
from copycat_agent.options import CaseOptions, Definition, ExpectedLetterOptions, ExpectedOptions, WrittenFloat, epoch_ms
from copycat_agent.templates import Access, time_text
from copycat_agent.workbench.trying.results import (
    Fate,
    Fields,
    Output,
    SampleContext,
    StepTrace,
    StoppedMatch,
    TrialResult,
    TriedRecord,
    likely_path,
    stopped,
)
from copycat_agent.workbench.trying.sample_run import MOST_RECORDS, RecordingProducer, RecordingProducerPool, take
from copycat_agent.workbench.trying.tracing import QueryStep

__all__ = [
    "ABSENT",
    "MOST_RECORDS",
    "CaseMismatch",
    "CaseOutcome",
    "Difference",
    "Fate",
    "Fields",
    "Output",
    "QueryStep",
    "RecordingProducer",
    "RecordingProducerPool",
    "SampleContext",
    "StepTrace",
    "StoppedMatch",
    "TrialResult",
    "TriedRecord",
    "likely_path",
    "run_tests",
    "stopped",
    "take",
    "take_case",
]


ABSENT: Final = object()
"""Stands for a missing value, on either side of a comparison."""
_MILLISECONDS = 1000


class Difference(NamedTuple):
    """A difference at a dotted `place`, such as `value.status`. `expected` and `got` are values, or ABSENT."""

    place: str
    expected: object
    got: object
    hint: str = ""


def compare(expected: ExpectedOptions, got: Output, *, exact: bool) -> tuple[Difference, ...]:
    """Returns where a record differs from the expected one. Only given options are compared; `exact`: fields and headers, too."""
    said = expected.model_fields_set
    found: list[Difference] = []
    if "topic" in said and expected.topic != got.topic:
        found.append(Difference("topic", expected.topic, got.topic))
    if "key" in said and expected.key != (key := _text(got.key)):
        found.append(Difference("key", expected.key, key))
    if "value" in said:
        found += _value(expected.value, got, exact=exact)
    if "headers" in said or exact:
        found += _headers(expected.headers, got.headers, exact=exact)
    wanted, got_ms = expected.timestamp, got.timestamp_ms
    if "timestamp" in said and (epoch_ms(wanted) if isinstance(wanted, str) else wanted) != got_ms:
        found.append(Difference("timestamp", wanted, time_text(got_ms) if isinstance(wanted, str) and got_ms is not None else got_ms))
    if "partition" in said and expected.partition != got.partition:
        found.append(Difference("partition", expected.partition, got.partition))
    return tuple(found)


def fails_as(expected: ExpectedLetterOptions, got: TriedRecord) -> tuple[Difference, ...]:
    """Returns where a failed record differs from the expected failure."""
    assert got.error is not None
    found = []
    if expected.stage is not None and expected.stage != got.stage:
        found.append(Difference("stage", expected.stage, got.stage))
    step = got.ended_by
    if expected.step is not None and (step is None or expected.step not in {step.action, step.name, step.name.partition(" ")[0]}):
        found.append(Difference("step", expected.step, ABSENT if step is None else step.name))
    if expected.reason is not None and not re.search(expected.reason, got.error.message):
        found.append(Difference("reason", expected.reason, got.error.message, "reason is a regular expression"))
    return tuple(found)


def _value(expected: object, got: Output, *, exact: bool) -> Iterator[Difference]:
    if isinstance(expected, Mapping):
        fields = got.value if isinstance(got.value, Mapping) else got.fields if isinstance(got.value, bytes) else None
        if fields is not None:
            yield from differences(expected, fields, "value", exact=exact)
        else:
            hint = "no step makes fields of it: the value is the line as it is" if isinstance(got.value, bytes) else ""
            yield Difference("value", dict(expected), _text(got.value), hint)
    elif isinstance(expected, str) and got.payload is not None and not isinstance(got.value, str):
        if expected != (text := _text(got.payload)):
            yield Difference("value", expected, text)
    else:
        yield from differences(expected, _text(got.value), "value", exact=exact)


def _headers(expected: Mapping[str, str | None], got: Sequence[tuple[str, bytes]], *, exact: bool) -> Iterator[Difference]:
    present = {name: _text(content) for name, content in reversed(got)}
    for name, text in expected.items():
        if (has := present.get(name)) != text:
            yield Difference(f"headers.{name}", ABSENT if text is None else text, ABSENT if has is None else has)
    if exact:
        yield from (Difference(f"headers.{name}", ABSENT, text) for name, text in present.items() if name not in expected)


def differences(expected: object, got: object, place: str, *, exact: bool) -> Iterator[Difference]:
    """Yields where `got` differs from `expected`. A map may have more fields, unless `exact`; a list must have the same items."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        for name, inner in expected.items():
            yield from differences(inner, got.get(name, ABSENT), f"{place}.{name}", exact=exact)
        if exact:
            yield from (Difference(f"{place}.{name}", ABSENT, inner) for name, inner in got.items() if name not in expected)
    elif isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        for number in range(max(len(expected), len(got))):
            one, other = (side[number] if number < len(side) else ABSENT for side in (expected, got))
            yield from differences(one, other, f"{place}[{number}]", exact=exact)
    elif not same(expected, got):
        yield Difference(place, expected, got, _type_hint(place, expected, got))


def _type_hint(place: str, expected: object, got: object) -> str:
    """Returns a hint how to convert a text, if only the type differs."""
    kind = {bool: "bool", int: "int", float: "float", WrittenFloat: "float"}.get(type(expected))
    if kind is None or not isinstance(got, str) or json.dumps(expected) != got:
        return ""
    name = place.partition(".")[2]
    return f'only the type differs: make a number or boolean of it with "- convert: {{{name}: {kind}}}", or expect the text in quotes'


def same(expected: object, got: object) -> bool:
    """Whether a scalar of YAML equals a field's value, including its type. Types that YAML lacks are compared in their JSON form."""
    if expected is ABSENT or got is ABSENT or expected is None or got is None:
        return expected is got
    if isinstance(got, datetime):
        return _same_moment(expected, got)
    if isinstance(got, Decimal):
        return isinstance(expected, int | float) and not isinstance(expected, bool) and _decimal(expected) == got
    if isinstance(got, date | time | bytes):
        return expected == (base64.b64encode(got).decode() if isinstance(got, bytes) else got.isoformat())
    kind = float if isinstance(expected, float) else type(expected)  # the loader's floats are of a subclass
    return kind is type(got) and expected == got


def _same_moment(expected: object, got: datetime) -> bool:
    """Returns whether a time is the expected one: RFC 3339 text or epoch milliseconds; without a zone, the same text."""
    if got.tzinfo is None:
        return isinstance(expected, str) and expected == got.isoformat()
    moment = round(got.timestamp() * _MILLISECONDS)
    if isinstance(expected, str):
        try:
            return epoch_ms(expected) == moment
        except ValueError:
            return False
    return type(expected) is int and expected == moment


def _decimal(number: float) -> Decimal:
    return Decimal(number.text if isinstance(number, WrittenFloat) else str(number))


def _text(content: Any) -> str | None:  # noqa: ANN401 - what `produce` takes
    """Returns bytes as text, with escapes for bytes that are not UTF-8."""
    return content.decode("utf-8", "backslashreplace") if isinstance(content, bytes) else content


@dataclass(frozen=True, slots=True)
class CaseMismatch:
    """A record that differs from the expected one. `title` says which and how; `sampled` is the record it was made of, if known."""

    title: str
    differences: tuple[Difference, ...] = ()
    sampled: TriedRecord | None = None
    output: Output | None = None


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The result of one test, number `number` of its definition, from 0."""

    number: int
    case: CaseOptions
    samples: TrialResult
    mismatches: tuple[CaseMismatch, ...]
    error: CopycatError | None
    seconds: float

    @property
    def name(self) -> str:
        """The test's name, or its number."""
        return self.case.name or f"test {self.number + 1}"

    @property
    def good(self) -> bool:
        """Whether there is neither a mismatch nor an error."""
        return not self.mismatches and self.error is None


def run_tests(definition: Definition, directory: Path | None = None, query: QueryStep | None = None) -> Iterator[CaseOutcome]:
    """Runs the tests of a definition one after the other. Raises nothing.

    `directory` is that of the definition's file, for `input_file`; `query` is its `sql` step, if it has one.
    """
    for number, case in enumerate(definition.tests):
        begun = monotonic()
        samples = TrialResult(())
        error: CopycatError | None = None
        mismatches: tuple[CaseMismatch, ...] = ()
        try:
            samples = take_case(definition, case, directory, query)
            error = samples.error
            mismatches = tuple(_mismatches(case, samples))
        except CopycatError as problem:
            error = problem
        yield CaseOutcome(number, case, samples, mismatches, error, monotonic() - begun)


def take_case(definition: Definition, case: CaseOptions, directory: Path | None = None, query: QueryStep | None = None) -> TrialResult:
    """Returns what becomes of a test's input. Raises as `take` does."""
    read_ms = epoch_ms(case.read_time)
    mtime_ms = read_ms if case.file.mtime is None else epoch_ms(case.file.mtime)
    content = _content(definition, case) if case.input_file is None else (directory or Path()) / case.input_file
    file = case.file
    access = Access(file.owner, file.group, file.mode)
    where = SampleContext(file.path or likely_path(definition), mtime_ms, file.inode, case.host, read_ms, access)
    return take(definition, content, most=MOST_RECORDS, where=where, query=query)


def _content(definition: Definition, case: CaseOptions) -> bytes:
    """Returns the bytes of the file. In a log file each line gets its end; the text of a spooled file is unchanged."""
    assert case.input is not None
    source = definition.source
    encoding, line = _encoding(source), getattr(source, "line", None)
    delimiter = line.delimiter if line is not None else "\n"
    if isinstance(case.input, str):
        text = case.input if delimiter == "\n" else case.input.removesuffix("\n")
        is_open = bool(text) and line is not None and not case.partial and not text.endswith(delimiter)
        text += delimiter if is_open else ""
    else:
        texts = [one.removesuffix("\n") for one in case.input]
        text = delimiter.join(texts) + ("" if case.partial or not texts else delimiter)
    return text.encode("utf-8" if encoding == "auto" else encoding, "surrogateescape")


def _encoding(source: object) -> str:
    """Returns the source's encoding; that of a spooled file belongs to its format."""
    own = getattr(source, "encoding", None)
    return str(own or getattr(getattr(source, "format", None), "encoding", "utf-8"))


def _mismatches(case: CaseOptions, samples: TrialResult) -> Iterator[CaseMismatch]:
    yield from _of_outputs(case, samples)
    yield from _of_failures(case, samples)
    if samples.has_more:
        yield CaseMismatch(f"the input has more than {MOST_RECORDS:,} records, and only those were compared")
    if samples.damage:
        yield CaseMismatch(f"the input cannot be read on: {samples.damage}")


def _of_outputs(case: CaseOptions, samples: TrialResult) -> Iterator[CaseMismatch]:
    got = [(one, output) for one in samples.records for output in one.outputs]
    for number, (expected, (sampled, output)) in enumerate(zip(case.expect, got, strict=False), 1):
        if found := compare(expected, output, exact=case.exact):
            yield CaseMismatch(f"record {number}", found, sampled, output)
    for number in range(len(got), len(case.expect)):
        yield CaseMismatch(f"record {number + 1} is missing: {_instead(samples)}")
    for number, (sampled, output) in enumerate(got[len(case.expect) :], len(case.expect) + 1):
        yield CaseMismatch(f"record {number} was not expected", (Difference("value", ABSENT, _shown(output)),), sampled, output)


def _of_failures(case: CaseOptions, samples: TrialResult) -> Iterator[CaseMismatch]:
    got = [one for one in samples.records if one.error is not None]
    for number, (letter, sampled) in enumerate(zip(case.dead_letters, got, strict=False), 1):
        if found := fails_as(letter, sampled):
            yield CaseMismatch(f"dead letter {number}", found, sampled)
    for number in range(len(got), len(case.dead_letters)):
        yield CaseMismatch(f"dead letter {number + 1} is missing: {len(got)} of {len(samples.records)} records failed")
    for sampled in got[len(case.dead_letters) :]:
        yield CaseMismatch(f"input record {sampled.number} failed, and no dead_letters expect it", (), sampled)


def _instead(samples: TrialResult) -> str:
    """Returns what became of the input, in a few words."""
    counts: dict[str, int] = {}
    for one in samples.records:
        step = one.ended_by
        words = f"{one.fate} by {step.name}" if step is not None else one.fate
        counts[words] = counts.get(words, 0) + 1
    return ", ".join(f"{count} {words}" for words, count in counts.items()) or "the input holds no record"


def _shown(output: Output) -> object:
    return output.value.decode("utf-8", "backslashreplace") if isinstance(output.value, bytes) else output.value
