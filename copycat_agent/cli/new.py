"""`copycat new`: a definition to begin with, guessed from a sample where there is one."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from copycat_agent import logs
from copycat_agent.cli import exits
from copycat_agent.cli.new_case import Tried, case_of, holds, tried
from copycat_agent.cli.shown import visible
from copycat_agent.definitions import LoadedFile, load_content, render
from copycat_agent.errors import CopycatError
from copycat_agent.options import AgentOptions
from copycat_agent.workbench.guessing import DefinitionDraft, Guess, SampleFile, draft, guess, look, name_for

_KINDS = {kind: {"type": kind} for kind in ("parquet", "avro", "xml", "binary")}
_SHOWN = 10


class Subject(StrEnum):
    """The sources that a definition can be begun for."""

    LOG_FILE = "log_file"
    SPOOL_DIR = "spool_dir"


def new(
    subject: Annotated[Subject, typer.Argument(metavar="log_file|spool_dir", help="What is read: logs that grow, or whole files.")],
    sample: Annotated[Path | None, typer.Option("--from", metavar="SAMPLE", help="A file with some lines, packed or not.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Topic; default: logs.NAME.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the connector; default: from the sample's.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write there; never over a file.")] = None,
) -> None:
    """Print a definition with comments. With --from: format, times, stack traces and numbers as in the sample, and a first test.

    At most 400 lines and 256 KiB of the sample are looked at. What was recognised, and how many of its lines parse, goes to stderr.
    """
    logs.setup("error")
    looked = look(sample) if sample else None
    parts = _begun(subject.value, looked, topic, name)
    text, loaded = _loaded(parts)
    results: Tried | None = None
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
    """The text, as our own loader takes it. What does not load is the fault of a name or topic that was given, or of ours."""
    text = draft(parts)
    loaded = load_content(Path(f"{parts.name}.yaml"), text.encode(), AgentOptions(), resolve_env=False)
    if loaded.problems:
        for problem in loaded.problems:
            typer.echo(render(problem) + "\n", err=True)
        raise typer.Exit(exits.DEFINITION_ERROR)
    return text, loaded


def _with_test(parts: DefinitionDraft, text: str, sample: SampleFile, results: Tried) -> tuple[str, DefinitionDraft]:
    """The same with a first test, when there is one that passes."""
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


def _say(sample: SampleFile, parts: DefinitionDraft, results: Tried | None) -> None:
    """What was recognised, what parses, and what does not."""
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
