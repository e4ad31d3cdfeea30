"""How `copycat test` shows what became of the tests: a line each, and for those that fail what was expected and what came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from copycat_agent.cli.shown import as_json, visible
from copycat_agent.cli.try_view import masked
from copycat_agent.cli.values_text import plain, type_of, value_text
from copycat_agent.errors import Problem
from copycat_agent.masks import NOTHING_SECRET, Mask
from copycat_agent.workbench.trying import ABSENT, CaseMismatch, CaseOutcome, Difference, TriedRecord

_MOST_CHARACTERS = 300
"""Of a value or a line that are shown."""


class Tested(NamedTuple):
    """A definition and what became of its tests; `lines` says where each begins. `problems`: it does not load. `mask` hides its secrets."""

    name: str
    path: Path
    outcomes: tuple[CaseOutcome, ...] = ()
    lines: tuple[int, ...] = ()
    problems: tuple[Problem, ...] = ()
    mask: Mask = NOTHING_SECRET

    def place(self, outcome: CaseOutcome) -> str:
        """`connectors.d/nginx.yaml:14`."""
        return f"{visible(str(self.path))}:{self.line(outcome)}"

    def line(self, outcome: CaseOutcome) -> int:
        """Where the test begins in the file."""
        return self.lines[outcome.number] if outcome.number < len(self.lines) else 0


def picture(tested: Tested, *, quiet: bool) -> Iterator[Text]:
    """The tests of one definition; `quiet`: only those that fail."""
    for outcome in tested.outcomes:
        if outcome.good and quiet:
            continue
        label = ("ok    ", "green") if outcome.good else ("FAIL  ", "bold red")
        yield Text.assemble(label, f"{tested.name}: {visible(outcome.name)}  ", (tested.place(outcome), "dim"))
        for text in failures(tested, outcome):
            yield Text("      ").append(text)


def failures(tested: Tested, outcome: CaseOutcome) -> Iterator[Text]:
    """Why a test fails, line by line."""
    return (masked(line, tested.mask) for line in _failures(outcome))


def _failures(outcome: CaseOutcome) -> Iterator[Text]:
    if outcome.error is not None:
        yield Text(visible(str(outcome.error)))
    for mismatch in outcome.mismatches:
        yield from _mismatch(mismatch)


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
    """A value with its type, or that there is none."""
    return "nothing" if value is ABSENT else f"{_short(value_text(value))} ({type_of(value)})" if value is not None else "null"


def _input(sampled: TriedRecord) -> Iterator[Text]:
    """What the record was made of, and which steps failed on the way."""
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


def summary(tested: Sequence[Tested]) -> str:
    """`3 tests of 2 definitions: 2 passed, 1 failed; without tests: app`."""
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


def report(tested: Sequence[Tested]) -> dict[str, Any]:
    """The same for programs."""
    outcomes = [outcome for one in tested for outcome in one.outcomes]
    return {
        "good": all(outcome.good for outcome in outcomes) and not any(one.problems for one in tested),
        "tests": len(outcomes),
        "passed": sum(outcome.good for outcome in outcomes),
        "definitions": [_definition_entry(one) for one in tested],
    }


def _definition_entry(one: Tested) -> dict[str, Any]:
    problems = [f"{problem.line}:{problem.column}: {problem.text}" for problem in one.problems]
    return {
        "name": one.name,
        "path": visible(str(one.path)),
        "problems": problems,
        "tests": [one.mask.value(_entry(one, outcome)) for outcome in one.outcomes],
    }


def _entry(one: Tested, outcome: CaseOutcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "line": one.line(outcome),
        "good": outcome.good,
        "seconds": round(outcome.seconds, 3),
        "error": str(outcome.error) if outcome.error is not None else None,
        "mismatches": [_mismatch_entry(mismatch) for mismatch in outcome.mismatches],
    }


def _mismatch_entry(mismatch: CaseMismatch) -> dict[str, Any]:
    sampled = mismatch.sampled
    source = {} if sampled is None else {"record": sampled.number, "input": as_json(sampled.raw)}
    return {"title": mismatch.title, **source, "differences": [_difference_entry(one) for one in mismatch.differences]}


def _difference_entry(one: Difference) -> dict[str, Any]:
    sides: Mapping[str, object] = {"expected": one.expected, "got": one.got}
    said = {side: {"value": plain(value), "type": type_of(value)} for side, value in sides.items() if value is not ABSENT}
    return {"place": one.place, **said, **({"hint": one.hint} if one.hint else {})}
