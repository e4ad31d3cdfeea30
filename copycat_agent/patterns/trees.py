r"""The parse tree of a pattern, as Python's own `re` makes it, and the pattern rewritten from it.

Only this module uses `re`'s parser, which has no public name. Trees are lists of pairs (operation's name, arguments). A rewritten pattern
says explicitly what `re` understood, so that another engine cannot understand it differently: `a{e}` is five characters for one of them and
not for the other.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_PARSER: Any = importlib.import_module("re._parser")
_COMPILER: Any = importlib.import_module("re._compiler")

MAX_REPEAT = int(_PARSER.MAXREPEAT)
"""The maximum of a repeat without an upper bound."""

_PLACES = {
    "AT_BEGINNING": "^",
    "AT_BEGINNING_STRING": r"\A",
    "AT_BOUNDARY": r"\b",
    "AT_NON_BOUNDARY": r"\B",
    "AT_END": "$",
    "AT_END_STRING": r"\Z",
}
_CLASSES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_WORD = "[a-zA-Z0-9_]"
_ASCII_CLASSES = {
    "CATEGORY_DIGIT": "0-9",
    "CATEGORY_NOT_DIGIT": r"\x00-/:-\U0010ffff",
    "CATEGORY_SPACE": r"\t-\r\ ",
    "CATEGORY_NOT_SPACE": r"\x00-\x08\x0e-\x1f!-\U0010ffff",
    "CATEGORY_WORD": "a-zA-Z0-9_",
    "CATEGORY_NOT_WORD": r"\x00-/:-@\[-\^`\{-\U0010ffff",
}
_ASCII_PLACES = {
    "AT_BOUNDARY": f"(?-i:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))",
    "AT_NON_BOUNDARY": f"(?-i:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))",
}
_NOT_IN_EMPTY = "" if re.search(r"\B", "") else r"(?!\A\Z)"
"""Python before 3.14 finds no `\\B` in an empty text."""
_ONE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN", "BRANCH"})
"""Nodes that need no group before a quantifier."""
_REPEATS = {"MAX_REPEAT": "", "MIN_REPEAT": "?", "POSSESSIVE_REPEAT": "+"}
_LETTERS = ((re.IGNORECASE, "i"), (re.MULTILINE, "m"), (re.DOTALL, "s"))
"""Flags that are written: the others are already expressed by the nodes."""

Node = tuple[str, Any]
"""An operation and its arguments; subtrees are lists of nodes."""


class Tree(NamedTuple):
    """A parsed pattern: `groups` are its names by number; `source` is the parser's own object."""

    nodes: list[Node]
    flags: int
    groups: dict[int, str]
    source: Any


def parse(text: str) -> Tree:
    """Returns the tree of a pattern. Raises what `re.compile` does."""
    source = _PARSER.parse(text)
    names = {number: name for name, number in source.state.groupdict.items()}
    return Tree([(str(op), av) for op, av in source], int(source.state.flags), names, source)


def nodes(subpattern: Any) -> list[Node]:  # noqa: ANN401 - the parser's own objects
    """Returns the nodes of a subtree."""
    return [(str(op), av) for op, av in subpattern]


def one_character(tree: Tree, node: Node, flags: int) -> re.Pattern[str]:
    """Returns a pattern for a node that matches one character."""
    native = _PARSER.SubPattern(tree.source.state, [(getattr(_PARSER, node[0]), node[1])])
    pattern: re.Pattern[str] = _COMPILER.compile(native, flags & ~int(re.VERBOSE))
    return pattern


def write(tree: Tree, part: Sequence[Node] | None = None, flags: int | None = None) -> str:
    """Returns a tree, or a part of it, as a pattern. `flags` are those in force where the part is; the global ones are not written."""
    writer = _PatternWriter(tree.groups)
    return "".join(writer.node(each, tree.flags if flags is None else flags) for each in (tree.nodes if part is None else part))


class _PatternWriter:
    """Writes nodes as text. `groups` are names of groups by number."""

    def __init__(self, groups: dict[int, str]) -> None:
        self._groups = groups

    def node(self, node: Node, flags: int) -> str:  # noqa: PLR0911 - one for each kind
        """Returns one node as text, under these flags."""
        op, av = node
        if op in _REPEATS:
            least, most, body = av
            inner, parts = self._inner(body, flags), nodes(body)
            is_one = len(parts) == 1 and (parts[0][0] in _ONE or (parts[0][0] == "SUBPATTERN" and parts[0][1][0] is not None))
            return f"{inner if is_one else f'(?:{inner})'}{_count(least, most)}{_REPEATS[op]}"
        if op == "SUBPATTERN":
            return self._group(av, flags)
        if op == "BRANCH":
            return f"(?:{'|'.join(self._inner(each, flags) for each in av[1])})"
        if op == "ATOMIC_GROUP":
            return f"(?>{self._inner(av, flags)})"
        if op in {"ASSERT", "ASSERT_NOT"}:
            sign = "=" if op == "ASSERT" else "!"
            return f"(?{'<' if av[0] < 0 else ''}{sign}{self._inner(av[1], flags)})"
        if op == "GROUPREF":
            return f"(?P={self._groups[av]})" if av in self._groups else rf"(?:\{av})"
        if op == "GROUPREF_EXISTS":
            number, yes, no = av
            return f"(?({self._groups.get(number, number)}){self._inner(yes, flags)}{'|' + self._inner(no, flags) if no else ''})"
        return "(?!)" if op == "FAILURE" else _leaf(op, av, flags)

    def _inner(self, subpattern: Any, flags: int) -> str:  # noqa: ANN401 - the parser's own objects
        return "".join(self.node(each, flags) for each in nodes(subpattern))

    def _group(self, av: Any, flags: int) -> str:  # noqa: ANN401 - as above
        number, add, remove, body = av
        inner = self._inner(body, (flags | add) & ~remove)
        if (add | remove) & ~int(re.ASCII | re.UNICODE):
            on, off = ("".join(letter for flag, letter in _LETTERS if some & flag) for some in (add, remove))
            inner = f"(?{on}{'-' + off if off else ''}:{inner})"
        if number is None:
            return f"(?:{inner})"
        return f"(?P<{self._groups[number]}>{inner})" if number in self._groups else f"({inner})"


def _leaf(op: str, av: Any, flags: int) -> str:  # noqa: ANN401 - of any operation
    if op == "AT":
        place = str(av)
        text = _ASCII_PLACES.get(place, _PLACES[place]) if flags & re.ASCII else _PLACES[place]
        return _NOT_IN_EMPTY + text if place == "AT_NON_BOUNDARY" else text
    if op == "ANY":
        return "."
    if flags & re.ASCII and flags & re.IGNORECASE:
        return f"(?-i:{_in_both_cases(op, av)})"
    if op == "LITERAL":
        return _character(av)
    if op == "NOT_LITERAL":
        return f"[^{_character(av)}]"
    if op == "IN":
        classes = _ASCII_CLASSES if flags & re.ASCII else _CLASSES
        members = [_member(str(kind), value, classes) for kind, value in av]
        return members[0] if len(members) == 1 and members[0] in _CLASSES.values() else f"[{''.join(members)}]"
    raise KeyError(op)


def _in_both_cases(op: str, av: Any) -> str:  # noqa: ANN401 - of any operation
    """Returns a set that matches one character in both cases of ASCII letters only, as the ASCII flag demands."""
    members: list[tuple[str, Any]] = [("NEGATE", None)] if op == "NOT_LITERAL" else []
    members += [("LITERAL", av)] if op in {"LITERAL", "NOT_LITERAL"} else [(str(kind), value) for kind, value in av]
    for kind, value in list(members):
        if kind in {"LITERAL", "RANGE"}:
            low, high = (value, value) if kind == "LITERAL" else value
            members += [("LITERAL", code ^ 32) for code in range(max(low, 65), min(high, 122) + 1) if chr(code).isalpha()]
    return f"[{''.join(_member(kind, value, _ASCII_CLASSES) for kind, value in members)}]"


def _count(least: int, most: int) -> str:
    most = int(most)
    if most == MAX_REPEAT:
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"


def _character(code: int) -> str:
    """Returns the character, escaped if it could have a meaning, in sets as well."""
    character = chr(code)
    if character.isalnum() and character.isascii():
        return character
    if character.isascii() and character.isprintable():
        return character if character in " \"'%,/:;<=>@_`!" else f"\\{character}"
    return f"\\U{code:08x}"


def _member(kind: str, value: Any, classes: dict[str, str]) -> str:  # noqa: ANN401 - of any kind
    if kind == "NEGATE":
        return "^"
    if kind == "LITERAL":
        return _character(value)
    if kind == "RANGE":
        return f"{_character(value[0])}-{_character(value[1])}"
    return classes[str(value)]
