"""The `tests:` of a definition: each one's input through the pipeline, and what came of it compared with what should."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from copycat_agent.errors import CopycatError
from copycat_agent.options import CaseOptions, Definition, epoch_ms
from copycat_agent.samples.comparing import ABSENT, Difference, compare, fails_as
from copycat_agent.samples.model import Output, Sampled, Samples
from copycat_agent.samples.taking import MOST_RECORDS, likely_path, take
from copycat_agent.samples.tracing import Query, Where


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A record that is not what it should be. `title` says which and how; `sampled` is what it was made of, where it is known."""

    title: str
    differences: tuple[Difference, ...] = ()
    sampled: Sampled | None = None
    output: Output | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test, the `number`-th of its definition from 0. It is good when there is neither a mismatch nor an error."""

    number: int
    case: CaseOptions
    samples: Samples
    mismatches: tuple[Mismatch, ...]
    error: CopycatError | None
    seconds: float

    @property
    def name(self) -> str:
        """Its name, or which one it is."""
        return self.case.name or f"test {self.number + 1}"

    @property
    def good(self) -> bool:
        """Whether all is as it should be."""
        return not self.mismatches and self.error is None


def run_tests(definition: Definition, directory: Path | None = None, query: Query | None = None) -> Iterator[Outcome]:
    """Run the tests of a definition, one after the other. Raises nothing.

    `directory` is where its file lies, for `input_file`; `query` is its `sql` step, where it has one.
    """
    for number, case in enumerate(definition.tests):
        begun = time.monotonic()
        samples = Samples(())
        error: CopycatError | None = None
        mismatches: tuple[Mismatch, ...] = ()
        try:
            samples = take_case(definition, case, directory, query)
            error = samples.error
            mismatches = tuple(_mismatches(case, samples))
        except CopycatError as problem:
            error = problem
        yield Outcome(number, case, samples, mismatches, error, time.monotonic() - begun)


def take_case(definition: Definition, case: CaseOptions, directory: Path | None = None, query: Query | None = None) -> Samples:
    """What becomes of a test's input. Raises as `take` does."""
    read_ms = epoch_ms(case.read_time)
    mtime_ms = read_ms if case.file.mtime is None else epoch_ms(case.file.mtime)
    content = _content(definition, case) if case.input_file is None else (directory or Path()) / case.input_file
    where = Where(case.file.path or likely_path(definition), mtime_ms, case.file.inode, case.host, read_ms)
    return take(definition, content, most=MOST_RECORDS, where=where, query=query)


def _content(definition: Definition, case: CaseOptions) -> bytes:
    """The bytes of the file: of a log file each line ends, of a spooled one the text is all of it."""
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
    """A spooled file's is its format's."""
    own = getattr(source, "encoding", None)
    return str(own or getattr(getattr(source, "format", None), "encoding", "utf-8"))


def _mismatches(case: CaseOptions, samples: Samples) -> Iterator[Mismatch]:
    yield from _of_outputs(case, samples)
    yield from _of_failures(case, samples)
    if samples.has_more:
        yield Mismatch(f"the input has more than {MOST_RECORDS:,} records, and only those were compared")
    if samples.damage:
        yield Mismatch(f"the input cannot be read on: {samples.damage}")


def _of_outputs(case: CaseOptions, samples: Samples) -> Iterator[Mismatch]:
    got = [(one, output) for one in samples.records for output in one.outputs]
    for number, (expected, (sampled, output)) in enumerate(zip(case.expect, got, strict=False), 1):
        if found := compare(expected, output, exact=case.exact):
            yield Mismatch(f"record {number}", found, sampled, output)
    for number in range(len(got), len(case.expect)):
        yield Mismatch(f"record {number + 1} is missing: {_instead(samples)}")
    for number, (sampled, output) in enumerate(got[len(case.expect) :], len(case.expect) + 1):
        yield Mismatch(f"record {number} was not expected", (Difference("value", ABSENT, _shown(output)),), sampled, output)


def _of_failures(case: CaseOptions, samples: Samples) -> Iterator[Mismatch]:
    got = [one for one in samples.records if one.error is not None]
    for number, (letter, sampled) in enumerate(zip(case.dead_letters, got, strict=False), 1):
        if found := fails_as(letter, sampled):
            yield Mismatch(f"dead letter {number}", found, sampled)
    for number in range(len(got), len(case.dead_letters)):
        yield Mismatch(f"dead letter {number + 1} is missing: {len(got)} of {len(samples.records)} records failed")
    for sampled in got[len(case.dead_letters) :]:
        yield Mismatch(f"input record {sampled.number} failed, and no dead_letters expect it", (), sampled)


def _instead(samples: Samples) -> str:
    """What became of the input, in a few words."""
    counts: dict[str, int] = {}
    for one in samples.records:
        step = one.ended_by
        words = f"{one.fate} by {step.name}" if step is not None else one.fate
        counts[words] = counts.get(words, 0) + 1
    return ", ".join(f"{count} {words}" for words, count in counts.items()) or "the input holds no record"


def _shown(output: Output) -> object:
    return output.value.decode("utf-8", "backslashreplace") if isinstance(output.value, bytes) else output.value
