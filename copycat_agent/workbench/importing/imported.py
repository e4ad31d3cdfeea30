"""What an import makes: definitions, their text, and a report of what it could not make anything of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from copycat_agent.workbench.formatting import format_text, quoted, written
from copycat_agent.workbench.importing.config_tree import ConfigNode

_WIDTH = 100


class Remark(NamedTuple):
    """One line of the report: where in the input (0: nowhere in particular), what stands there, and why, or what to do instead."""

    line: int
    what: str
    why: str


@dataclass(slots=True)
class ImportReport:
    """`unmapped`: the definitions do less, or something else, than the input did. `notes`: what to know, and what needs no counterpart."""

    unmapped: list[Remark] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)

    def cannot(self, part: ConfigNode | None, what: str, why: str) -> None:
        """Report what is not mapped, all of `part`."""
        if part is not None:
            part.plain()
        self._add(self.unmapped, Remark(part.line if part else 0, what, why))

    def note(self, part: ConfigNode | None, what: str, why: str) -> None:
        """Report what is worth knowing, all of `part`."""
        if part is not None:
            part.plain()
        self._add(self.notes, Remark(part.line if part else 0, what, why))

    @staticmethod
    def _add(remarks: list[Remark], remark: Remark) -> None:
        if remark not in remarks:
            remarks.append(remark)


@dataclass(slots=True)
class ImportedDefinition:
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


def without_line_policy(source: dict[str, Any], part: ConfigNode | None, report: ImportReport, what: str) -> None:
    """A policy for long lines alone is none that records of several lines have: those go in parts, and nothing of them is lost."""
    if "multiline" in source and source.get("line", {}).pop("on_too_long", None):
        report.note(part, what, "a record with a longer line is sent in parts: multiline.on_too_long")
        if not source["line"]:
            del source["line"]


class Imported(NamedTuple):
    """What came of a file."""

    made: tuple[ImportedDefinition, ...]
    report: ImportReport


def text_of(made: ImportedDefinition, origin: str) -> str:
    """The definition's text, as `fmt` leaves it. `origin` is what it was imported from, for the comment above it."""
    head = [f"# Imported from {origin}: read what the import said, then try it on a log: copycat try FILE -d THIS", ""]
    return format_text("\n".join([*head, *_map(made.document, 0)]).encode() + b"\n")


def _map(document: Mapping[str, Any], indent: int) -> Iterator[str]:
    blanks = " " * indent
    for key, value in document.items():
        flow = _flow(value)
        name = written(str(key))
        if not isinstance(value, dict | list) or not value or (len(flow) + len(name) + indent < _WIDTH and _is_flat(value)):
            yield f"{blanks}{name}: {flow}"
        elif isinstance(value, dict):
            yield f"{blanks}{name}:"
            yield from _map(value, indent + 2)
        else:
            yield f"{blanks}{name}:"
            yield from _list(value, indent + 2)


def _list(values: Sequence[Any], indent: int) -> Iterator[str]:
    for value in values:
        if isinstance(value, dict) and value:
            first, *rest = _map(value, indent + 2)
            yield f"{' ' * indent}- {first.lstrip()}"
            yield from rest
        else:
            yield f"{' ' * indent}- {_flow(value)}"


def _is_flat(value: Any) -> bool:  # noqa: ANN401 - any part of a document
    """Whether it reads well on one line."""
    inner = value.values() if isinstance(value, dict) else value
    return all(
        not isinstance(one, dict | list) or (isinstance(one, dict) and all(not isinstance(each, dict | list) for each in one.values()))
        for one in inner
    )


def _flow(value: Any) -> str:  # noqa: ANN401 - any part of a document
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(getattr(value, "text", value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(str(name))}: {_flow(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(inner) for inner in value) + "]"
    text = str(value)
    return quoted(text) if "\\" in text else written(text)
