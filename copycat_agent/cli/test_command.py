"""`copycat test`: runs the tests in definitions, shows them, and writes them as JUnit XML."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from copycat_agent import logs
from copycat_agent.cli import exits
from copycat_agent.cli.check import QueryChecks
from copycat_agent.cli.common_options import Config, Format, NoColor, Output, leave, say_problems, use_color
from copycat_agent.cli.screen import make_console
from copycat_agent.cli.try_view import assumed_words, hidden_in, masked
from copycat_agent.cli.value_text import as_json, plain, type_of, value_text
from copycat_agent.definitions import LoadedFile, find_agent_file, lines_of, load_agent, load_directory, load_file
from copycat_agent.display import NOTHING_SECRET, SecretMask, printable, visible
from copycat_agent.errors import CopycatError, DefinitionError, Problem
from copycat_agent.options import SparkOptions
from copycat_agent.small_files import is_directory, is_there
from copycat_agent.workbench.trying import ABSENT, CaseMismatch, CaseOutcome, Difference, TriedRecord, run_tests

_MOST_CHARACTERS = 300
"""The length at which a shown value or line is cut."""
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TestedDefinition(NamedTuple):
    """A definition and the outcomes of its tests; `lines` has where each begins. `problems`: it does not load. `mask` hides its secrets."""

    name: str
    path: Path
    outcomes: tuple[CaseOutcome, ...] = ()
    lines: tuple[int, ...] = ()
    problems: tuple[Problem, ...] = ()
    mask: SecretMask = NOTHING_SECRET

    def place(self, outcome: CaseOutcome) -> str:
        """Returns `connectors.d/nginx.yaml:14`."""
        return f"{visible(str(self.path))}:{self.line(outcome)}"

    def line(self, outcome: CaseOutcome) -> int:
        """Returns the line at which the test begins."""
        return self.lines[outcome.number] if outcome.number < len(self.lines) else 0


def picture(tested: TestedDefinition, *, quiet: bool) -> Iterator[Text]:
    """Yields the tests of one definition; `quiet`: only those that fail."""
    for outcome in tested.outcomes:
        if outcome.good and quiet:
            continue
        label = ("ok    ", "green") if outcome.good else ("FAIL  ", "bold red")
        yield Text.assemble(label, f"{tested.name}: {visible(outcome.name)}  ", (tested.place(outcome), "dim"))
        for text in failures(tested, outcome):
            yield Text("      ").append(text)


def failures(tested: TestedDefinition, outcome: CaseOutcome) -> Iterator[Text]:
    """Returns why a test fails, line by line."""
    return (masked(line, tested.mask) for line in _failures(outcome, tested.mask))


def _failures(outcome: CaseOutcome, mask: SecretMask) -> Iterator[Text]:
    if outcome.error is not None:
        yield Text(visible(str(outcome.error)))
    for mismatch in outcome.mismatches:
        yield from _mismatch(_hidden(mismatch, mask))


def _hidden(mismatch: CaseMismatch, mask: SecretMask) -> CaseMismatch:
    """Returns the mismatch without secrets in values and input, before anything of them is cut or encoded."""
    sides = [one._replace(expected=mask.value(one.expected), got=mask.value(one.got)) for one in mismatch.differences]
    return replace(mismatch, differences=tuple(sides), sampled=mismatch.sampled and hidden_in(mismatch.sampled, mask))


def _mismatch(mismatch: CaseMismatch) -> Iterator[Text]:
    yield Text(visible(mismatch.title), "bold")
    width = max((cell_len(one.place) for one in mismatch.differences), default=0)
    for one in mismatch.differences:
        yield from _difference(one, width)
    if mismatch.sampled is not None:
        yield from _input(mismatch.sampled)


def _difference(one: Difference, width: int) -> Iterator[Text]:
    place = visible(one.place)
    pad = " " * (width - cell_len(place))
    yield Text.assemble(f"  {place}{pad}  expected  ", (_typed(one.expected), "green"))
    yield Text.assemble(f"  {' ' * cell_len(place)}{pad}  got       ", (_typed(one.got), "red"))
    if one.hint:
        yield Text.assemble("  ", ("hint: ", "cyan"), one.hint)


def _typed(value: object) -> str:
    """Returns a value with its type, or that there is none."""
    return "nothing" if value is ABSENT else f"{_short(value_text(value))} ({type_of(value)})" if value is not None else "null"


def _input(sampled: TriedRecord) -> Iterator[Text]:
    """Yields the input of the record, and which steps failed on the way."""
    text = value_text(sampled.value) if sampled.raw is None else sampled.raw.decode("utf-8", "backslashreplace")
    yield Text(f"  input record {sampled.number}: {_short(visible(text))}", "dim")
    for step in sampled.kept_errors:
        assert step.error is not None
        yield Text(f"  {step.name} failed and was kept: {visible(step.error.message)}", "yellow")
    if sampled.error is not None:
        hint = f"; {sampled.error.hint}" if sampled.error.hint else ""
        yield Text(f"  it failed in stage {sampled.stage}: {visible(sampled.error.message + hint)}", "red")


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}... ({len(text):,} characters)"


def summary(tested: Sequence[TestedDefinition]) -> str:
    """Returns `3 tests of 2 definitions: 2 passed, 1 failed; without tests: app`."""
    outcomes = [outcome for one in tested for outcome in one.outcomes]
    passed, with_tests = sum(outcome.good for outcome in outcomes), [one for one in tested if one.outcomes]
    words = f"{_count(len(outcomes), 'test')} of {_count(len(with_tests), 'definition')}: {passed} passed"
    words += f", {len(outcomes) - passed} failed" if passed < len(outcomes) else ""
    bare = [one.name for one in tested if not one.outcomes and not one.problems]
    bad = [one.name for one in tested if one.problems]
    unchecked = [one.name for one in with_tests if any(outcome.samples.unchecked for outcome in one.outcomes)]
    words += f"; not checked against a schema that only the registry knows: {', '.join(unchecked)}" if unchecked else ""
    words += f"; without tests: {', '.join(bare)}" if bare else ""
    return words + (f"; bad definitions: {', '.join(bad)}" if bad else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def report(tested: Sequence[TestedDefinition]) -> dict[str, Any]:
    """Returns the results for programs."""
    outcomes = [outcome for one in tested for outcome in one.outcomes]
    return {
        "good": all(outcome.good for outcome in outcomes) and not any(one.problems for one in tested),
        "tests": len(outcomes),
        "passed": sum(outcome.good for outcome in outcomes),
        "definitions": [_definition_entry(one) for one in tested],
    }


def _definition_entry(one: TestedDefinition) -> dict[str, Any]:
    problems = [f"{problem.line}:{problem.column}: {problem.text}" for problem in one.problems]
    return {
        "name": one.name,
        "path": visible(str(one.path)),
        "problems": problems,
        "tests": [one.mask.value(_entry(one, outcome)) for outcome in one.outcomes],
    }


def _entry(one: TestedDefinition, outcome: CaseOutcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "line": one.line(outcome),
        "good": outcome.good,
        "seconds": round(outcome.seconds, 3),
        "error": str(outcome.error) if outcome.error is not None else None,
        "mismatches": [_mismatch_entry(_hidden(mismatch, one.mask)) for mismatch in outcome.mismatches],
    }


def _mismatch_entry(mismatch: CaseMismatch) -> dict[str, Any]:
    sampled = mismatch.sampled
    source = {} if sampled is None else {"record": sampled.number, "input": as_json(sampled.raw)}
    return {"title": mismatch.title, **source, "differences": [_difference_entry(one) for one in mismatch.differences]}


def _difference_entry(one: Difference) -> dict[str, Any]:
    sides: Mapping[str, object] = {"expected": one.expected, "got": one.got}
    said = {side: {"value": plain(value), "type": type_of(value)} for side, value in sides.items() if value is not ABSENT}
    return {"place": one.place, **said, **({"hint": one.hint} if one.hint else {})}


def junit(tested: Sequence[TestedDefinition]) -> bytes:
    """Returns one `testsuite` per definition, one `testcase` per test with file and line; a definition that does not load is an error."""
    root = ET.Element("testsuites", name="copycat test")
    stamp = datetime.now(UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    for one in tested:
        suite = ET.SubElement(root, "testsuite", name=_text(one.name), timestamp=stamp)
        for outcome in one.outcomes:
            _case(suite, one, outcome)
        for problem in one.problems[:1]:
            case = _element(suite, one, "definition", problem.line, 0.0)
            words = [f"{each.path}:{each.line}:{each.column}: {each.text}" for each in one.problems]
            ET.SubElement(case, "error", type="DefinitionError", message=_text(problem.text)).text = _text("\n".join(words))
        _add_up(suite, one)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.3f}")
    ET.indent(root)
    text: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _case(suite: ET.Element, one: TestedDefinition, outcome: CaseOutcome) -> None:
    case = _element(suite, one, outcome.name, one.line(outcome), outcome.seconds)
    if outcome.good:
        return
    told = [line.plain for line in failures(one, outcome)]
    kind = "error" if outcome.error is not None else "failure"
    name = type(outcome.error).__name__ if outcome.error is not None else "Mismatch"
    ET.SubElement(case, kind, type=name, message=_text(told[0])).text = _text("\n".join((one.place(outcome), *told)))


def _element(suite: ET.Element, one: TestedDefinition, name: str, line: int, seconds: float) -> ET.Element:
    where = {"file": _text(str(one.path)), "line": str(line)}
    return ET.SubElement(suite, "testcase", {"name": _text(name), "classname": _text(one.name), **where, "time": f"{seconds:.3f}"})


def _add_up(suite: ET.Element, one: TestedDefinition) -> None:
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", "0")
    suite.set("time", f"{sum(outcome.seconds for outcome in one.outcomes):.3f}")


def _text(text: str) -> str:
    """Replaces characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def _test(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of definitions, or the file of one.")],
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Test only this definition; repeatable.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write the outcome as JUnit XML, for CI.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show tests that fail only.")] = False,
    output: Output = Format.TEXT,
    config: Config = None,
    no_color: NoColor = False,
) -> None:
    """Run the tests of definitions: sample input through the real pipeline, compared with the records that should come out.

    Offline: needs no Kafka, no schema registry and no agent. Exits 1 when a test fails, 78 when a definition is bad.
    """
    logs.setup("error")
    loaded = _load(directory, config)
    known = {file.name for file in loaded.files if file.name}
    if loaded.files and (unknown := sorted(set(only or ()) - known)):
        leave(f"no definition named {', '.join(unknown)} in {printable(str(directory))}", exits.USAGE)
    console = make_console(no_color=no_color) if output is Format.TEXT else None
    with QueryChecks() as queries:
        chosen = [file for file in loaded.files if not only or file.name in only]
        tested = [_tested(file, queries, loaded.spark, console, quiet=quiet) for file in chosen]
    problems = [*loaded.problems, *(problem for one in tested for problem in one.problems)]
    say_problems(problems, color=use_color(no_color=no_color))
    if console is None:
        typer.echo(json.dumps(report(tested), indent=2, ensure_ascii=False))
    else:
        console.file.flush()
        if assumed := sorted({each for file in chosen for each in file.assumed}):
            typer.echo(assumed_words(assumed), err=True)
        typer.echo(summary(tested) if tested else f"no definition in {printable(str(directory))}", err=True)
    if junit_file is not None:
        _write(junit_file, junit(tested))
    good = all(outcome.good for one in tested for outcome in one.outcomes)
    raise typer.Exit(exits.DEFINITION_ERROR if problems else exits.GOOD if good else exits.FAILED)


test = _test
"""The command. It has another name above, since tools take functions of this name for tests."""


def _write(path: Path, content: bytes) -> None:
    """Writes a file, and creates the directories above it. Raises CopycatError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CopycatError(f"--junit: {path} cannot be written: {error.strerror}", "name a file that can be written") from None


class _LoadedDefinitions(NamedTuple):
    """The loaded definitions. `problems` are those that belong to no definition."""

    files: Sequence[LoadedFile]
    problems: tuple[Problem, ...] = ()
    spark: SparkOptions = SparkOptions()


def _load(path: Path, config: Path | None) -> _LoadedDefinitions:
    """Returns the definitions; none if agent.yaml is invalid."""
    directory = path if is_directory(path) or not is_there(path) else path.absolute().parent
    try:
        agent = load_agent(find_agent_file(directory, config), offline=True)
    except DefinitionError as error:
        return _LoadedDefinitions((), error.problems)
    if directory != path:
        return _LoadedDefinitions((load_file(path, agent, offline=True),), (), agent.spark)
    loaded = load_directory(path, agent, offline=True)
    own = {problem for file in loaded.files for problem in file.problems}
    return _LoadedDefinitions(loaded.files, tuple(problem for problem in loaded.problems if problem not in own), agent.spark)


def _tested(file: LoadedFile, queries: QueryChecks, spark: SparkOptions, console: Console | None, *, quiet: bool) -> TestedDefinition:
    """Runs the tests of one definition, and shows them when they are done."""
    name = printable(file.name or file.path.name)
    if file.definition is None or not file.definition.tests:
        return TestedDefinition(name, file.path, problems=file.problems)
    try:
        query = queries.of(file.definition, file.path, spark)
    except DefinitionError as error:
        return TestedDefinition(name, file.path, problems=error.problems)
    outcomes = tuple(run_tests(file.definition, file.path.parent, query))
    tested = TestedDefinition(name, file.path, outcomes, lines_of(file.path, "tests"), mask=file.definition.mask)
    if console is not None:
        for line in picture(tested, quiet=quiet):
            console.print(line, soft_wrap=True)
    return tested
