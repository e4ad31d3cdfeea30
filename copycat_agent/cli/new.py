"""`copycat new`: writes a first definition, guessed from a sample if there is one, and a test made of the sample."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from copycat_agent import logs
from copycat_agent.cli import exits
from copycat_agent.cli.common_options import say_problems
from copycat_agent.definitions import LoadedFile, load_content
from copycat_agent.display import visible
from copycat_agent.errors import CopycatError
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.sources import SOURCES, SourceKind
from copycat_agent.templates import time_text
from copycat_agent.workbench.guessing import Case, DefinitionDraft, Guess, SampleFile, draft, guess, look, name_for
from copycat_agent.workbench.guessing.guesses import Value
from copycat_agent.workbench.trying import TriedRecord, run_tests, take

_FIELDS_MAX = 8
_TEXT_MAX = 200
_LINES_MAX = 12
_LINE_MAX = 2000
_WITH_ZONE = re.compile(r"rfc3339|rfc2822|unix|.*%z")
_KINDS = {kind: {"type": kind} for kind in ("parquet", "avro", "xml", "binary")}
_SHOWN = 10


class TrialCount(NamedTuple):
    """`good` of `total` records are sent as intended; `bad` are the lines where the others begin, or their numbers (`by_record`).

    `records` are those that may serve as a test, the best first. `error` is why the sample was not read to its end, "" if it was.
    """

    good: int
    total: int
    bad: tuple[int, ...]
    by_record: bool
    records: tuple[TriedRecord, ...]
    error: str = ""


def tried(definition: Definition, sample: SampleFile) -> TrialCount:
    """Runs the sample through the real pipeline."""
    packed_or_binary = sample.kind in ("parquet", "avro", "binary")
    try:
        taken = take(definition, sample.path if packed_or_binary else sample.content, most=400 if packed_or_binary else 0)
    except CopycatError as error:
        return TrialCount(0, 0, (), False, (), str(error))
    good = [one for one in taken.records if one.fate in ("sent", "dropped")]
    bad = [one for one in taken.records if one.fate not in ("sent", "dropped")]
    by_record = any(one.by_record for one in taken.records)
    places = tuple(one.number if by_record else sample.content.count(b"\n", 0, one.start) + 1 for one in bad)
    why = str(taken.error) if taken.error else taken.damage
    usable = [one for one in good if one.fate == "sent" and one.outputs]
    usable.sort(key=lambda one: (len(one.kept_errors), b"\n" not in (one.raw or b"").rstrip()))  # a record of several lines shows more
    return TrialCount(len(good), len(taken.records), places, by_record, tuple(usable), why)


def case_of(parts: DefinitionDraft, sample: SampleFile, results: TrialCount) -> Case | None:
    """Returns a test that quotes the first record that went through all steps, None if none can be quoted."""
    for record in results.records[:_LINES_MAX]:
        lines = _quoted(parts, sample, record)
        if lines is None:
            continue
        expect = dict(_expected(parts, record))
        if expect:
            return Case(lines, expect, _read_time(sample) if _lacks_year(parts) else "")
    return None


def holds(definition: Definition) -> bool:
    """Returns whether the definition's own tests pass."""
    return all(outcome.good for outcome in run_tests(definition))


def _quoted(parts: DefinitionDraft, sample: SampleFile, record: TriedRecord) -> tuple[str, ...] | None:
    """Returns the record's lines, with the header of a table above them. None if they cannot be quoted, or are too long for that."""
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
    """Yields fields whose values fit into one line."""
    kept = 0
    for name, value in fields.items():
        if kept < _FIELDS_MAX and isinstance(value, str | int | float) and len(str(value)) <= _TEXT_MAX:
            kept += 1
            yield name, value


def _names_zone(parts: DefinitionDraft) -> bool:
    """Returns whether the time is the same on every host."""
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
    """Returns the reference for times without a year: when the sample was written."""
    written = time_text(sample.path.stat().st_mtime_ns // 10**6, "seconds")
    return written if written.endswith("Z") else time_text(time.time() * 1000, "seconds")


_OF_FILES = ("log_file", "spool_dir")
"""Sources for which a definition is guessed from a sample."""


def _sample_of(subject: str) -> str:
    """Returns the sample definition of a source of records. Raises CopycatError if it has none, or does not exist."""
    if subject in _OF_FILES:
        return ""
    kind = SOURCES.find(subject)
    sample = kind.sample if isinstance(kind, SourceKind) else ""
    if not sample:
        others = [name for name, one in SOURCES.items() if one.sample]
        raise CopycatError(f"{visible(subject)} is no source to begin with", f"one of {', '.join([*_OF_FILES, *others])}")
    return sample


def new(
    subject: Annotated[str, typer.Argument(metavar="SOURCE", help="What is read: log_file, spool_dir, journald, objects ...")],
    sample: Annotated[Path | None, typer.Option("--from", metavar="SAMPLE", help="A file with some lines, packed or not.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Topic; default: logs.NAME.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the connector; default: from the sample's.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write there; never over a file.")] = None,
) -> None:
    """Print a definition with comments. With --from: format, times, stack traces and numbers as in the sample, and a first test.

    At most 400 lines and 256 KiB of the sample are looked at. What was recognised, and how many of its lines parse, goes to stderr.
    """
    logs.setup("error")
    begun = _sample_of(subject)
    if sample and begun:
        raise CopycatError(f"--from looks at files, and {subject} reads none", "leave it out")
    looked = look(sample) if sample else None
    parts = _begun(subject, looked, topic, name)._replace(sample=begun)
    text, loaded = _loaded(parts)
    results: TrialCount | None = None
    if looked is not None and loaded.definition is not None and not looked.is_cut:
        results = tried(loaded.definition, looked)
        text, parts = _with_test(parts, text, looked, results)
    _write(text, output)
    if looked is not None and parts.guess is not None:
        _say(looked, parts, results)
    _say_next(parts, sample, output)


def _begun(subject: str, sample: SampleFile | None, topic: str | None, name: str | None) -> DefinitionDraft:
    found = _guessed(sample) if sample else None
    if sample and found and found.layout and subject == "log_file" and not found.steps:
        hint = "copycat new spool_dir --from ... reads whole files"
        raise CopycatError(f"{sample.path}: {found.what}: no log of lines", hint)
    called = name or name_for(sample.path if sample else None, subject)
    encoding = sample.encoding if sample and not (found and found.layout and found.layout["type"] == "json") else ""
    return DefinitionDraft(subject, called, topic or f"logs.{called}", sample.path if sample else None, found, encoding=encoding)


def _guessed(sample: SampleFile) -> Guess:
    if sample.kind in _KINDS:
        return Guess(f"{sample.kind} file", 1.0, 1.0, layout=_KINDS[sample.kind])
    return guess(sample.lines)


def _loaded(parts: DefinitionDraft) -> tuple[str, LoadedFile]:
    """Returns the text and its loaded form. Ends the command with 78 if it does not load: a name or topic is invalid, or the draft."""
    text = draft(parts)
    loaded = load_content(Path(f"{parts.name}.yaml"), text.encode(), AgentOptions(), resolve_env=False)
    if loaded.problems:
        say_problems(loaded.problems)
        raise typer.Exit(exits.DEFINITION_ERROR)
    return text, loaded


def _with_test(parts: DefinitionDraft, text: str, sample: SampleFile, results: TrialCount) -> tuple[str, DefinitionDraft]:
    """Returns text and draft with a first test, if there is one that passes."""
    case = case_of(parts, sample, results)
    if case is None:
        return text, parts
    tested = parts._replace(case=case)
    with_test = draft(tested)
    loaded = load_content(Path(f"{parts.name}.yaml"), with_test.encode(), AgentOptions(), resolve_env=False)
    if loaded.definition is None or not holds(loaded.definition):
        return text, parts
    return with_test, tested


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise CopycatError(f"{output} is there already", "name another file, or move that one away") from None
    except OSError as error:
        raise CopycatError(f"{output}: {error.strerror}") from None


def _say(sample: SampleFile, parts: DefinitionDraft, results: TrialCount | None) -> None:
    """Prints what was recognised, what parses, and what does not."""
    assert parts.guess is not None
    lines = [f"{visible(str(sample.path))}: {parts.guess.what}{f', {sample.encoding}' if sample.encoding else ''}"]
    if sample.is_cut:
        lines.append("  its first line is longer than what is looked at: a guess from the beginning of it")
    if results is not None:
        lines.append(f"  {results.good} of {results.total} records parse")
        if results.bad:
            more = ", ..." if len(results.bad) > _SHOWN else ""
            unit = "rows" if results.by_record else "lines"
            lines.append(f"  not: {unit} {', '.join(map(str, results.bad[:_SHOWN]))}{more}: copycat try shows why")
        if results.error:
            lines.append(f"  {results.error}")
    lines += [f"  {remark}" for remark in parts.guess.remarks]
    if parts.subject == "spool_dir" and parts.guess.multiline:
        lines.append("  each line of a spooled file is a record of its own; new log_file keeps stack traces in one")
    if parts.case is None:
        lines.append("  no test is written: no record of the sample can be quoted as one that passes")
    else:
        lines.append("  the test quotes a line of the sample: change what should not stand in a file")
    typer.echo("\n".join(lines), err=True)


def _say_next(parts: DefinitionDraft, sample: Path | None, output: Path | None) -> None:
    file = visible(str(output)) if output else f"connectors.d/{parts.name}.yaml"
    lines = [] if output else [f"write it into {file}, then:"]
    if sample:
        lines.append(f"  copycat try {visible(str(sample))} -d {file}")
    directory = visible(str(output.parent)) if output else "connectors.d"
    lines += [f"  copycat check {directory}"] + ([f"  copycat test {directory}"] if parts.case else [])
    typer.echo("\n".join(lines), err=True)
