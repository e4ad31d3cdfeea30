"""What an import makes: definitions, and a report of what it could not make anything of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from copycat_agent.importing.parts import Part


class Remark(NamedTuple):
    """One line of the report: where in the input (0: nowhere in particular), what stands there, and why, or what to do instead."""

    line: int
    what: str
    why: str


@dataclass(slots=True)
class Report:
    """`unmapped`: the definitions do less, or something else, than the input did. `notes`: what to know, and what needs no counterpart."""

    unmapped: list[Remark] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)

    def cannot(self, part: Part | None, what: str, why: str) -> None:
        """Report what is not mapped, all of `part`."""
        if part is not None:
            part.plain()
        self._add(self.unmapped, Remark(part.line if part else 0, what, why))

    def note(self, part: Part | None, what: str, why: str) -> None:
        """Report what is worth knowing, all of `part`."""
        if part is not None:
            part.plain()
        self._add(self.notes, Remark(part.line if part else 0, what, why))

    @staticmethod
    def _add(remarks: list[Remark], remark: Remark) -> None:
        if remark not in remarks:
            remarks.append(remark)


@dataclass(slots=True)
class Made:
    """One definition being made. `document` is what its file will say."""

    name: str
    document: dict[str, Any] = field(default_factory=dict)

    def section(self, *path: str) -> dict[str, Any]:
        """The map at a path, made where it is not there."""
        found = self.document
        for key in path:
            found = found.setdefault(key, {})
        return found

    def step(self, **step: Any) -> None:  # noqa: ANN401 - any transform
        """Add a transform; `if_` stands for `if`."""
        self.document.setdefault("transforms", []).append({key.rstrip("_"): value for key, value in step.items() if value is not None})


def without_line_policy(source: dict[str, Any], part: Part | None, report: Report, what: str) -> None:
    """A policy for long lines alone is none that records of several lines have: those go in parts, and nothing of them is lost."""
    if "multiline" in source and source.get("line", {}).pop("on_too_long", None):
        report.note(part, what, "a record with a longer line is sent in parts: multiline.on_too_long")
        if not source["line"]:
            del source["line"]


class Imported(NamedTuple):
    """What came of a file."""

    made: tuple[Made, ...]
    report: Report
