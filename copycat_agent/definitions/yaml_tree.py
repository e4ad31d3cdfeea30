"""Parses YAML text into a tree of nodes with their positions. Only this module and the formatter use PyYAML.

The tree is built from the parser's events, not by `yaml.load` or `yaml.compose`: nothing recurses deeper than `DEPTH_MAX`, nothing is
constructed, and an alias counts as its target. The rules are YAML 1.2's, and stricter: see `parse`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml

from copycat_agent.options import WrittenFloat

FILE_BYTES_MAX = 2**20
DEPTH_MAX = 50
NODES_MAX = 10_000
"""The most nodes of one file, with every alias counted as its target. A real definition has a few hundred."""

EVENTS = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser: libyaml, or the slower one in Python, which accepts a little less."""
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


_INT = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d{0,17})\.\d{1,18}", re.ASCII)
_CONSTANTS = {"true": True, "false": False, "": None, "~": None, "null": None}


class Mark(NamedTuple):
    """A position in a file; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """One text. `plain` means that it has no quotes and may be a number, a boolean or null."""

    text: str
    plain: bool
    start: Mark
    end: Mark


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """Items in order. `nodes` and `height` measure the tree from here on, aliases expanded."""

    items: tuple[Node, ...]
    start: Mark
    end: Mark
    nodes: int
    height: int


@dataclass(frozen=True, slots=True)
class MappingNode:
    """Values by key, in the file's order; `keys` has the position of each key."""

    items: dict[str, Node]
    keys: dict[str, Scalar]
    start: Mark
    end: Mark
    nodes: int
    height: int


Node = Scalar | SequenceNode | MappingNode


def way_to(root: Node | None, loc: Iterable[str | int]) -> list[tuple[Scalar | None, Node]]:
    """Returns the nodes from `root` to a place, each with its key, None in a list. Ends early where the document has no value."""
    way: list[tuple[Scalar | None, Node]] = []
    for step in loc:
        if isinstance(root, MappingNode) and step in root.items:
            way.append((root.keys[str(step)], root := root.items[str(step)]))
        elif isinstance(root, SequenceNode) and isinstance(step, int) and step < len(root.items):
            way.append((None, root := root.items[step]))
        else:
            break
    return way


class SyntaxProblem(Exception):  # noqa: N818  it is a position and a text, never shown as a traceback
    """The text is no acceptable YAML. Caught by the loader in the same call."""

    def __init__(self, code: str, text: str, mark: Mark = Mark(0, 0), hint: str = "") -> None:  # noqa: B008  a NamedTuple is immutable
        super().__init__(code, text, mark, hint)
        self.code, self.text, self.mark, self.hint = code, text, mark, hint


def decode(content: bytes) -> str:
    r"""The file's text with `\n` line ends.

    Raises `SyntaxProblem` for a byte order mark, bytes that are not UTF-8, control characters, and tabs outside comments.
    """
    if content.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise SyntaxProblem("byte-order-mark", "the file starts with a byte order mark", Mark(1, 1), "save it as UTF-8 without BOM")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        mark = _mark_at(content[: error.start].decode(), error.start)
        raise SyntaxProblem("not-utf8", f"byte 0x{content[error.start]:02x} is not UTF-8", mark, "save the file as UTF-8") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if bad := _NOT_TEXT.search(text):
        words, hint = f"control character U+{ord(bad[0]):04X}", 'write it as an escape in double quotes, as in "\\x1b"'
        raise SyntaxProblem("control-character", words, _mark_at(text, bad.start()), hint)
    for number, line in enumerate(text.split("\n"), 1):
        if "\t" in line and not re.match(r"[^\t]*(?:^|\s)#", line):
            hint = "indent with spaces; for a tab inside a value write \\t in double quotes"
            raise SyntaxProblem("tab", "a tab", Mark(number, line.index("\t") + 1), hint)
    return text


def plain_value(text: str) -> object:
    """Returns the value of an unquoted scalar: true, false, null, a plain decimal number, or else its text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        return int(text)
    return WrittenFloat(text) if _DECIMAL.fullmatch(text) else text


def is_null(node: Node | None) -> bool:
    """Returns whether it is a key without a value, or null."""
    return isinstance(node, Scalar) and node.plain and plain_value(node.text) is None


def parse(text: str) -> Node:
    """Returns the tree of the one document in `text`.

    Raises `SyntaxProblem` for anything YAML's grammar refuses, and for: nothing at all, a second document, tags, duplicate keys, keys that
    are not text, nesting beyond `DEPTH_MAX`, more than `NODES_MAX` nodes with aliases expanded, and aliases of anchors that are not
    complete (which includes every cycle).
    """
    try:
        return _Builder(yaml.parse(text, Loader=EVENTS)).document()
    except yaml.MarkedYAMLError as error:
        place = _mark(error.problem_mark or error.context_mark)
        raise SyntaxProblem("yaml-syntax", _words(error), place, _syntax_hint(error)) from None
    except yaml.YAMLError:
        raise SyntaxProblem("yaml-syntax", "this is not YAML") from None


def parse_mapping(text: str) -> MappingNode:
    """Parses a file that must hold keys and values; anything else is a `SyntaxProblem` too."""
    root = parse(text)
    if not isinstance(root, MappingNode):
        raise SyntaxProblem("wrong-type", "the file needs keys and values", root.start, "as in name: nginx-access")
    return root


@dataclass(slots=True)
class _Builder:
    """Builds nodes out of events. Recursion is bounded by `DEPTH_MAX`."""

    events: Iterator[yaml.Event]
    anchors: dict[str, Node] = field(default_factory=dict)
    nodes: int = 0

    def document(self) -> Node:
        root: Node | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    hint = "one connector per file: put the second into a file of its own"
                    raise SyntaxProblem("several-documents", "a second document starts here", _start(event), hint)
                root = self.node(next(self.events), 1)
        if root is None or (isinstance(root, Scalar) and root.plain and not root.text):
            raise SyntaxProblem("empty", "the file is empty", hint="rename it to *.disabled, or see `copycat new log_file`")
        return root

    def node(self, event: yaml.Event, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, depth)
        assert isinstance(event, yaml.NodeEvent)
        if getattr(event, "tag", None) is not None:
            raise SyntaxProblem("tag", "a tag, which starts with !", _start(event), "quote the value to make it text")
        self.count(1, depth, _start(event))
        node = self.untagged(event, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def untagged(self, event: yaml.NodeEvent, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(event.value, not event.style, _start(event), _end(event))
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(_start(event), depth)
        return self.mapping(_start(event), depth)

    def sequence(self, start: Mark, depth: int) -> SequenceNode:
        items: list[Node] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, depth + 1))
        return SequenceNode(tuple(items), start, _end(event), 1 + sum(map(_nodes, items)), 1 + max(map(_height, items), default=0))

    def mapping(self, start: Mark, depth: int) -> MappingNode:
        items: dict[str, Node] = {}
        keys: dict[str, Scalar] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.node(event, depth + 1)
            if not isinstance(key, Scalar):
                raise SyntaxProblem("key-not-text", "a key that is no text", _start(event), "quote a text that starts with { or [")
            if key.text in keys:
                first = keys[key.text].start.line
                raise SyntaxProblem("duplicate-key", f"{key.text!r:.80} is already set in line {first}", key.start, "keep one of them")
            keys[key.text], items[key.text] = key, self.node(next(self.events), depth + 1)
        values = items.values()
        return MappingNode(items, keys, start, _end(event), 1 + sum(map(_nodes, values)), 1 + max(map(_height, values), default=0))

    def alias(self, event: yaml.AliasEvent, depth: int) -> Node:
        node = self.anchors.get(event.anchor or "")
        if node is None:
            hint = "quote the value to make it text"
            raise SyntaxProblem("alias", "an alias, which starts with *, of nothing before it", _start(event), hint)
        self.count(_nodes(node), depth + _height(node) - 1, _start(event))
        return node

    def count(self, nodes: int, depth: int, mark: Mark) -> None:
        self.nodes += nodes
        if self.nodes > NODES_MAX:
            raise SyntaxProblem("too-many-nodes", f"more than {NODES_MAX} values, aliases expanded", mark, "write fewer aliases")
        if depth > DEPTH_MAX:
            raise SyntaxProblem("too-deep", f"nested more than {DEPTH_MAX} levels deep", mark)


def _nodes(node: Node) -> int:
    return 1 if isinstance(node, Scalar) else node.nodes


def _height(node: Node) -> int:
    return 1 if isinstance(node, Scalar) else node.height


def _start(event: yaml.Event) -> Mark:
    return _mark(event.start_mark)


def _end(event: yaml.Event) -> Mark:
    return _mark(event.end_mark)


def _mark(mark: yaml.Mark | yaml._yaml.Mark | None) -> Mark:
    """Returns a mark that counts from 1: the parser counts from 0, and marks every event."""
    return Mark(mark.line + 1, mark.column + 1) if mark else Mark(0, 0)


def _mark_at(text: str, index: int) -> Mark:
    """Returns the position of `text[index]`, or of the end of `text`."""
    before = text[:index]
    return Mark(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _words(error: yaml.MarkedYAMLError) -> str:
    """Returns the parser's message without its quotation of the text, which may hold a secret."""
    problem = str(error.problem or "this is not YAML")
    return f"{problem} ({error.context})" if error.context else problem


def _syntax_hint(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem or "")
    if "mapping values are not allowed" in problem:
        return "quote a text that contains ': '"
    if "unexpected end" in problem or "stream end" in problem:
        return "a quote or bracket is not closed"
    if "cannot start any token" in problem:
        return "quote a text that starts with %, @, ` or *"
    if "did not find expected" in problem:
        return "check the indentation and the quotes of this line and the one before"
    return ""
