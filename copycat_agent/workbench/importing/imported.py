"""A foreign configuration as a tree that knows its lines and what was used of it; and what an import makes of it: definitions and a report.

What nobody took from the tree is what the report lists, so that nothing is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from copycat_agent.definitions.formatting import flow, format_text, written
from copycat_agent.definitions.yaml_tree import MappingNode, Node, Scalar, SequenceNode, SyntaxProblem, parse_mapping, plain_value
from copycat_agent.errors import CopycatError

_YES, _NO = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}

_WIDTH = 100
_CONTAINERS, _PODS = "/var/log/containers/", "/var/log/pods"


@dataclass(slots=True)
class ConfigNode:
    """One value: a scalar, a list of parts, or a map of them. `taken`: somebody made something of it, or said why not."""

    value: Any
    line: int
    taken: bool = field(default=False)

    def get(self, path: str) -> ConfigNode | None:
        """The part at a dotted path; foreign files also write dotted keys, so each prefix may be one key. None when it is not there."""
        if not isinstance(self.value, dict):
            return None
        if path in self.value:
            inner = self.value[path]
            return inner if isinstance(inner, ConfigNode) else None
        for number, character in enumerate(path):
            inner = self.value.get(path[:number]) if character == "." else None
            if isinstance(inner, ConfigNode) and (found := inner.get(path[number + 1 :])) is not None:
                return found
        return None

    def take(self, path: str) -> Any:  # noqa: ANN401 - what stands in a file
        """The plain value at a path, all of it taken; None when it is not there."""
        found = self.get(path)
        return None if found is None else found.plain()

    def text(self, path: str, default: str = "") -> str:
        """`take` as text."""
        value = self.take(path)
        return default if value is None or isinstance(value, dict | list) else as_text(value)

    def flag(self, path: str, *, default: bool = False) -> bool:
        """`take` as a boolean, in any of the spellings that these products read."""
        value = self.text(path).lower()
        return True if value in _YES else False if value in _NO else default

    def texts(self, path: str) -> list[str]:
        """`take` as a list of texts; one text is a list of one, and commas part them in it."""
        value = self.take(path)
        if value is None:
            return []
        if isinstance(value, list):
            return [as_text(one) for one in value]
        return [one.strip() for one in as_text(value).split(",") if one.strip()]

    def items(self) -> Iterator[tuple[str, ConfigNode]]:
        """Keys and parts of a map; nothing of anything else."""
        yield from self.value.items() if isinstance(self.value, dict) else ()

    def each(self, path: str = "") -> list[ConfigNode]:
        """The parts of the list at a path; a part that is no list is a list of one."""
        found = self.get(path) if path else self
        if found is None:
            return []
        return found.value if isinstance(found.value, list) else [found]

    def plain(self) -> Any:  # noqa: ANN401 - what stands in a file
        """The value without its lines; from now on taken."""
        self.taken = True
        if isinstance(self.value, dict):
            return {key: part.plain() for key, part in self.value.items()}
        return [part.plain() for part in self.value] if isinstance(self.value, list) else self.value

    def left(self, path: str = "") -> Iterator[tuple[str, ConfigNode]]:
        """What nobody took: paths and leaves."""
        if self.taken:
            return
        if isinstance(self.value, dict) and self.value:
            for key, part in self.value.items():
                yield from part.left(f"{path}.{key}" if path else key)
        elif isinstance(self.value, list) and self.value:
            for part in self.value:
                yield from part.left(path)
        elif self.value not in ({}, []):
            yield path, self


def as_text(value: object) -> str:
    """A scalar as it would stand in a file."""
    return "true" if value is True else "false" if value is False else str(getattr(value, "text", value))


def of_yaml(text: str) -> ConfigNode:
    """YAML, and JSON too. Raises `CopycatError` with the line of what cannot be read."""
    try:
        return _of_node(parse_mapping(text.replace("\r\n", "\n").replace("\t", " ")))
    except SyntaxProblem as problem:
        place = f"line {problem.mark.line}: " if problem.mark.line else ""
        raise CopycatError(f"{place}{problem.text}", "" if problem.code == "empty" else problem.hint) from None


def of_plain(value: Any, line: int, lines: Mapping[str, int] | None = None, path: str = "") -> ConfigNode:  # noqa: ANN401 - what stands in a file
    """Plain values; `lines` says where dotted paths stand, others are where the value around them is."""
    at = (lines or {}).get(path, line)
    if isinstance(value, dict):
        return ConfigNode({key: of_plain(inner, at, lines, f"{path}.{key}" if path else key) for key, inner in value.items()}, at)
    if isinstance(value, list):
        return ConfigNode([of_plain(inner, at, lines, path) for inner in value], at)
    return ConfigNode(value, at)


def _of_node(node: Node) -> ConfigNode:
    if isinstance(node, Scalar):
        return ConfigNode(plain_value(node.text) if node.plain else node.text, node.start.line)
    if isinstance(node, SequenceNode):
        return ConfigNode([_of_node(item) for item in node.items], node.start.line)
    assert isinstance(node, MappingNode)
    made = {}
    for key, value in node.items.items():
        made[key] = _of_node(value)
        made[key].line = node.keys[key].start.line
    return ConfigNode(made, node.start.line)


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

    def rest(self, left: Iterable[tuple[str, ConfigNode]], needless: re.Pattern[str], why: str) -> None:
        """Report what nobody took, by path: as needless for the reason `why` where the path is like that, else as not known."""
        for path, part in list(left):
            if needless.match(path):
                self.note(part, path, why)
            else:
                self.cannot(part, path, "not known to this import")

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
    _follow_container_links(made)
    head = [f"# Imported from {origin}: read what the import said, then try it on a log: copycat try FILE -d THIS", ""]
    return format_text("\n".join([*head, *_map(made.document, 0)]).encode() + b"\n")


def _follow_container_links(made: ImportedDefinition) -> None:
    """The logs of Kubernetes' containers are links to files elsewhere, which the other products follow without being told."""
    source = made.document.get("source", {})
    if any(str(path).startswith(_CONTAINERS) for path in source.get("include", ())):
        source["follow_symlinks"] = True
        source.setdefault("symlink_roots", [_PODS])


def _map(document: Mapping[str, Any], indent: int) -> Iterator[str]:
    blanks = " " * indent
    for key, value in document.items():
        text = flow(value)
        name = written(str(key))
        if not isinstance(value, dict | list) or not value or (len(text) + len(name) + indent < _WIDTH and _is_flat(value)):
            yield f"{blanks}{name}: {text}"
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
            yield f"{' ' * indent}- {flow(value)}"


def _is_flat(value: Any) -> bool:  # noqa: ANN401 - any part of a document
    """Whether it reads well on one line."""
    inner = value.values() if isinstance(value, dict) else value
    return all(
        not isinstance(one, dict | list) or (isinstance(one, dict) and all(not isinstance(each, dict | list) for each in one.values()))
        for one in inner
    )
