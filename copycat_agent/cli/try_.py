"""`copycat try`: what a definition makes of sample lines. Offline: no Kafka, no schema registry, no offsets."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from copycat_agent import logs
from copycat_agent.cli import exits
from copycat_agent.cli.check import QueryChecks
from copycat_agent.cli.common_options import Config, Format, NoColor, Output, say_problems, use_color
from copycat_agent.cli.screen import make_console
from copycat_agent.cli.try_view import assumed_words, hidden, masked, picture, report, summary
from copycat_agent.converters.schema_options import OPENED
from copycat_agent.definitions import find_agent_file, load_agent, load_file
from copycat_agent.display import printable
from copycat_agent.errors import CopycatError, DefinitionError, FatalError
from copycat_agent.options import Definition
from copycat_agent.sources.contract import PolledOptions
from copycat_agent.wake import Wake
from copycat_agent.watch import Watcher
from copycat_agent.workbench.trying import MOST_RECORDS, QueryStep, TrialResult, take

_LOOK_SECONDS = 1.0
"""How often files are checked without an event: not every file system has events."""
_SAVING_SECONDS = 0.05
"""Delay after a change: editors save in several steps."""

Mark = tuple[int, int, int] | None
STREAM_BYTES_MAX = 16 * 2**20
"""The most bytes read of stdin or a pipe: a sample, not a stream."""


def repeat(work: Callable[[], object], paths: Sequence[Path], console: Console) -> None:
    """Does `work` now, and again whenever one of `paths` has changed. On a terminal the screen is cleared before."""
    watcher, wake = Watcher(), Wake()
    watcher.watch(wake, {str(path.absolute().parent) for path in paths})
    try:
        while True:
            seen = _marks(paths)
            if console.is_terminal:
                console.clear()
            work()
            names = " or ".join(path.name for path in paths)
            typer.echo(f"{time.strftime('%H:%M:%S')}  waiting for {names} to be saved; Ctrl-C ends", err=True)
            while _marks(paths) == seen:
                wake.wait(_LOOK_SECONDS)
                wake.take()
            time.sleep(_SAVING_SECONDS)
    except KeyboardInterrupt:
        return  # the user leaves this way
    finally:
        watcher.close()


def _marks(paths: Sequence[Path]) -> list[Mark]:
    return [_mark(path) for path in paths]


def _mark(path: Path) -> Mark:
    """Returns what differs between versions of a file; None while there is none."""
    try:
        info = os.stat(path)  # noqa: PTH116 - as everywhere in this package
    except OSError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns


def try_(  # noqa: PLR0913, PLR0917 - the command's options
    definition: Annotated[Path, typer.Option("--definition", "-d", metavar="DEFINITION", help="The definition's file.")],
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="A file with sample records, packed or not; - is stdin. Without: what a data source has."),
    ] = None,
    records: Annotated[int, typer.Option("-n", "--records", min=1, max=MOST_RECORDS, help="Take so many records of the file.")] = 20,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what each step changes.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again whenever one of the two files is saved, until Ctrl-C.")] = False,
    output: Output = Format.TEXT,
    config: Config = None,
    no_color: NoColor = False,
    schemas: Annotated[Path | None, typer.Option(hidden=True, help="Open only the schemas whose paths stand in this file.")] = None,
) -> None:
    """Show what a definition makes of sample records: what comes out, with types, and where and why it does not.

    Runs the real pipeline; needs no Kafka, no schema registry and no agent, and moves no offset. Exits 1 when a record fails,
    78 when the definition is bad.
    """
    logs.setup("error")
    if schemas is not None:
        OPENED.set(frozenset(schemas.read_text("utf-8").split("\n")))
    if watch and file == "-":
        raise typer.BadParameter("stdin cannot be watched: name a file", param_hint="--watch")
    with QueryChecks() as queries:
        shown = DisplayOptions(make_console(no_color=no_color), output, use_color(no_color=no_color), verbose)
        trial = Trial(file, definition, config, records, queries, shown)
        if watch:
            repeat(trial, [*([Path(file)] if file else []), definition], shown.console)
        else:
            raise typer.Exit(trial())


class DisplayOptions(NamedTuple):
    """How the command shows its results."""

    console: Console
    output: Format
    color: bool
    verbose: bool


class Trial:
    """One definition and one sample, tried again whenever it is called."""

    def __init__(
        self, file: str | None, definition: Path, config: Path | None, records: int, queries: QueryChecks, shown: DisplayOptions
    ) -> None:
        self._content = None if file is None else _stream(file) if file == "-" or Path(file).is_fifo() else Path(file)
        self._definition = definition
        self._config = config
        self._records = records
        self._queries = queries
        self._shown = shown

    def __call__(self) -> int:
        """Shows the records on stdout, the account of them on stderr. Returns the exit code; raises nothing that files can cause."""
        try:
            definition, query, assumed = self._load()
        except DefinitionError as error:
            say_problems(error.problems, color=self._shown.color)
            return exits.DEFINITION_ERROR
        if self._content is None and not isinstance(definition.source, PolledOptions):
            typer.echo(f"error: source {definition.source.type} reads files: name one with sample records", err=True)
            return exits.USAGE
        try:
            samples = take(definition, self._content, most=self._records, query=query)
        except CopycatError as error:
            words = f"; {assumed_words(assumed)}" if assumed and isinstance(error, FatalError) else ""
            typer.echo(f"error: {printable(str(error))}{words}", err=True)
            return exits.FAILED
        self._show(samples, definition)
        if assumed:
            typer.echo(assumed_words(assumed), err=True)
        return exits.FAILED if samples.error or samples.damage or any(one.error for one in samples.records) else exits.GOOD

    def _load(self) -> tuple[Definition, QueryStep | None, tuple[str, ...]]:
        """Returns the definition, its query if it has one, and the references that were not resolved. Raises DefinitionError."""
        agent = load_agent(find_agent_file(self._definition.absolute().parent, self._config), offline=True)
        loaded = load_file(self._definition, agent, offline=True)
        if loaded.definition is None:
            raise DefinitionError(loaded.problems)
        return loaded.definition, self._queries.of(loaded.definition, loaded.path, agent.spark), loaded.assumed

    def _show(self, samples: TrialResult, definition: Definition) -> None:
        samples = hidden(samples, definition.mask)
        if self._shown.output is Format.JSON:
            typer.echo(json.dumps(definition.mask.value(report(samples)), indent=2, ensure_ascii=False))
            return
        for line in picture(samples, definition, self._shown.console.width, verbose=self._shown.verbose):
            self._shown.console.print(masked(line, definition.mask), soft_wrap=True)
        self._shown.console.file.flush()
        typer.echo(summary(samples), err=True)


def _stream(file: str) -> bytes:
    """Returns the beginning of stdin, or of a named pipe, as the shell makes for `<(zcat a.gz)`."""
    if file == "-":
        if sys.stdin.isatty():
            typer.echo("sample lines from the terminal; Ctrl-D ends them", err=True)
        return sys.stdin.buffer.read(STREAM_BYTES_MAX)
    with open(file, "rb") as pipe:  # noqa: PTH123
        return pipe.read(STREAM_BYTES_MAX)
