"""A foreign configuration as a tree with line numbers, and the result of an import: definitions and a report.

The tree records which of its nodes were used. The report lists the others, so that nothing is forgotten.
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
    """One value: a scalar, a list of nodes, or a map of nodes. `taken`: it was used, or reported."""

    value: Any
    line: int
    taken: bool = field(default=False)

    def get(self, path: str) -> ConfigNode | None:
        """Returns the node at a dotted path, None if it is missing. Any part of the path may be one dotted key in the file."""
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

    def take(self, path: str) -> Any:  # noqa: ANN401 - any value in a file
        """Returns the plain value at a path, None if it is missing, and marks it as taken."""
        found = self.get(path)
        return None if found is None else found.plain()

    def text(self, path: str, default: str = "") -> str:
        """As `take`, as text."""
        value = self.take(path)
        return default if value is None or isinstance(value, dict | list) else as_text(value)

    def flag(self, path: str, *, default: bool = False) -> bool:
        """As `take`, as a boolean, in any spelling of these products."""
        value = self.text(path).lower()
        return True if value in _YES else False if value in _NO else default

    def texts(self, path: str) -> list[str]:
        """As `take`, as a list of texts; a single text is split at commas."""
        value = self.take(path)
        if value is None:
            return []
        if isinstance(value, list):
            return [as_text(one) for one in value]
        return [one.strip() for one in as_text(value).split(",") if one.strip()]

    def items(self) -> Iterator[tuple[str, ConfigNode]]:
        """Yields keys and nodes of a map; nothing for any other value."""
        yield from self.value.items() if isinstance(self.value, dict) else ()

    def each(self, path: str = "") -> list[ConfigNode]:
        """Returns the nodes of the list at a path; a node that is no list becomes a list of one."""
        found = self.get(path) if path else self
        if found is None:
            return []
        return found.value if isinstance(found.value, list) else [found]

    def plain(self) -> Any:  # noqa: ANN401 - any value in a file
        """Returns the value without line numbers, and marks it as taken."""
        self.taken = True
        if isinstance(self.value, dict):
            return {key: part.plain() for key, part in self.value.items()}
        return [part.plain() for part in self.value] if isinstance(self.value, list) else self.value

    def left(self, path: str = "") -> Iterator[tuple[str, ConfigNode]]:
        """Yields path and leaf of everything that was not taken."""
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
    """Returns a scalar as in a file."""
    return "true" if value is True else "false" if value is False else str(getattr(value, "text", value))


def of_yaml(text: str) -> ConfigNode:
    """Parses YAML or JSON. Raises CopycatError with the line of the error."""
    try:
        return _of_node(parse_mapping(text.replace("\r\n", "\n").replace("\t", " ")))
    except SyntaxProblem as problem:
        place = f"line {problem.mark.line}: " if problem.mark.line else ""
        raise CopycatError(f"{place}{problem.text}", "" if problem.code == "empty" else problem.hint) from None


def of_plain(value: Any, line: int, lines: Mapping[str, int] | None = None, path: str = "") -> ConfigNode:  # noqa: ANN401 - as `plain`
    """Returns a tree of plain values. `lines` are the lines of dotted paths; other values get the line of the value around them."""
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
    """One line of the report: the line in the input (0: none), what is there, and the reason, or what to do instead."""

    line: int
    what: str
    why: str


@dataclass(slots=True)
class ImportReport:
    """The report of an import. `unmapped`: where definitions differ from the input. `notes`: hints, and what needs no counterpart."""

    unmapped: list[Remark] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)

    def cannot(self, part: ConfigNode | None, what: str, why: str) -> None:
        """Reports `part` as not mapped, and marks it as taken."""
        if part is not None:
            part.plain()
        self._add(self.unmapped, Remark(part.line if part else 0, what, why))

    def note(self, part: ConfigNode | None, what: str, why: str) -> None:
        """Adds a note about `part`, and marks it as taken."""
        if part is not None:
            part.plain()
        self._add(self.notes, Remark(part.line if part else 0, what, why))

    def rest(self, left: Iterable[tuple[str, ConfigNode]], needless: re.Pattern[str], why: str) -> None:
        """Reports what was not taken: a path that matches `needless` as not needed, with the reason `why`, any other as unknown."""
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
    """A definition under construction. `document` are the contents of its file."""

    name: str
    document: dict[str, Any] = field(default_factory=dict)

    def section(self, *path: str) -> dict[str, Any]:
        """Returns the map at a path, which is created if it is missing."""
        found = self.document
        for key in path:
            found = found.setdefault(key, {})
        return found

    def step(self, **step: Any) -> None:  # noqa: ANN401 - any transform
        """Adds a transform; `if_` is its `if`."""
        self.document.setdefault("transforms", []).append({key.rstrip("_"): value for key, value in step.items() if value is not None})


def without_line_policy(source: dict[str, Any], part: ConfigNode | None, report: ImportReport, what: str) -> None:
    """Removes a policy for long lines from a source with `multiline`: its records are sent in parts, and nothing is lost."""
    if "multiline" in source and source.get("line", {}).pop("on_too_long", None):
        report.note(part, what, "a record with a longer line is sent in parts: multiline.on_too_long")
        if not source["line"]:
            del source["line"]


class ImportResult(NamedTuple):
    """The result of an import."""

    made: tuple[ImportedDefinition, ...]
    report: ImportReport


def text_of(made: ImportedDefinition, origin: str) -> str:
    """Returns the definition's text, as `fmt` writes it. `origin` is what it was imported from, for the comment at its top."""
    _follow_container_links(made)
    head = [f"# Imported from {origin}: read what the import said, then try it on a log: copycat try FILE -d THIS", ""]
    return format_text("\n".join([*head, *_map(made.document, 0)]).encode() + b"\n")


def _follow_container_links(made: ImportedDefinition) -> None:
    """Sets `follow_symlinks` for logs of Kubernetes' containers: they are links, which other products follow by default."""
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
    """Returns whether a value is readable on one line."""
    inner = value.values() if isinstance(value, dict) else value
    return all(
        not isinstance(one, dict | list) or (isinstance(one, dict) and all(not isinstance(each, dict | list) for each in one.values()))
        for one in inner
    )
