"""A foreign configuration as a tree whose every value knows its line, and whether it was made use of.

What nobody took in the end is what the report lists: nothing can be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from copycat_agent.definitions.yaml_tree import MappingNode, Node, Scalar, SequenceNode, SyntaxProblem, parse_mapping, plain_value
from copycat_agent.errors import CopycatError

_YES, _NO = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


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
