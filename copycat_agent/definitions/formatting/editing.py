"""Changes a definition in place: unchanged parts keep their text, with comments, spelling and references to secrets.

A client has seen the definition as plain values, with secrets hidden, and sends values back. If both are equal, nothing is changed: so a
hidden value stands for the present one, and is never written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile

from copycat_agent.definitions.formatting.emit import emit, flow, sort_keys
from copycat_agent.definitions.formatting.tree import Node, YamlBlock, YamlEntry, YamlScalar, read_tree
from copycat_agent.definitions.yaml_tree import SyntaxProblem, decode, parse_mapping, plain_value
from copycat_agent.display import HIDDEN
from copycat_agent.options import Definition

NO_NUMBER = "a definition holds numbers of up to 18 digits before the point and 18 behind it: write this one as a text"
_REFERENCE, _LITERAL = "${", "$${"


class UneditableError(Exception):
    """The change cannot be made without guessing. `place` is the dotted option, "" for the whole; `text` the reason, without any value."""

    def __init__(self, place: str, text: str) -> None:
        super().__init__(place, text)
        self.place, self.text = place, text


def new_text(values: Mapping[str, object]) -> str:
    """Returns the text of a definition with `values`, plain ones of JSON, in canonical form. A `${` in a value is text, no reference."""
    root = _made(values, ())
    assert isinstance(root, YamlBlock)
    sort_keys(root, Definition)
    return emit(root)


def edited(content: bytes, shown: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    """Returns the text of a definition's file, seen by a client as `shown`, with the values of `wanted`; in canonical form.

    Parts of `content`, which loads, that `shown` does not have are kept, above all comments. Raises `UneditableError`.
    """
    text = decode(content)
    parse_mapping(text)
    tree = read_tree(text)
    if tree.has_aliases:
        raise UneditableError("", "its file has aliases of YAML, which stand for several values at once")
    _edit_map(tree.root, shown, wanted, ())
    sort_keys(tree.root, Definition)
    return emit(tree.root)


def has_words(content: bytes) -> bool:
    """Returns whether a file has parts that no client is shown: comments, or tests. Also True if it cannot be read."""
    try:
        text = decode(content)
        parse_mapping(text)
    except SyntaxProblem:
        return True
    root = read_tree(text).root
    return bool(_words_in(root)) or any(entry.key is not None and entry.key.text == "tests" for entry in root.entries)


def _edit_map(block: YamlBlock, shown: Mapping[str, object], wanted: Mapping[str, object], at: tuple[str, ...]) -> None:
    there = {entry.key.text: entry for entry in block.entries if entry.key is not None}
    _take_out(block, {key for key in shown if key not in wanted})
    for key, value in wanted.items():
        place = (*at, key)
        if key in shown and is_same(shown[key], value):
            continue
        if key in there:
            there[key].value = _edited(there[key], shown.get(key), value, place)
        else:
            block.entries.append(YamlEntry(_text(key), _made(value, place), 0, 0))
    block.flow = block.flow and not any(map(_has_words, block.entries))


def _edited(entry: YamlEntry, shown: object, wanted: object, at: tuple[str, ...]) -> Node:
    """Returns the node of a value that has changed. Comments in a replaced node are moved above it."""
    node = entry.value
    if isinstance(node, YamlBlock) and node.is_map and isinstance(shown, Mapping) and isinstance(wanted, Mapping):
        _edit_map(node, shown, wanted, at)
        return _unless_empty(entry, node)
    if isinstance(node, YamlBlock) and isinstance(shown, list) and isinstance(wanted, list) and _is_list_of(node, len(shown)):
        _edit_list(node, shown, wanted, at)
        return _unless_empty(entry, node)
    made = _made(wanted, at)
    entry.before += _words_in(node)
    return made


def _unless_empty(entry: YamlEntry, node: YamlBlock) -> Node:
    """Moves comments above a node without entries: alone they would make it null."""
    if not node.entries:
        entry.before += _words_in(node)
        node.head, node.foot = [], []
    return node


def _is_list_of(node: YamlBlock, length: int) -> bool:
    return not node.is_map and len(node.entries) == length


def _edit_list(block: YamlBlock, shown: list[object], wanted: list[object], at: tuple[str, ...]) -> None:
    """Keeps equal items at the beginning and at the end. Those between are moved or changed in place, if their number is the same."""
    old, new = [_key(item) for item in shown], [_key(item) for item in wanted]
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    between, middle = block.entries[first : len(old) - last], range(first, len(new) - last)
    if len(between) == len(middle):
        numbers = _moved(old[first : len(old) - last], new[first : len(new) - last])
        between = [between[number] for number in numbers]
        for entry, number, place in zip(between, numbers, middle, strict=True):
            if old[first + number] != new[place]:
                entry.value = _edited(entry, shown[first + number], wanted[place], (*at, str(place)))
    else:
        _refuse_twins(old, at)
        block.foot += [line for entry in between for line in _words_of(entry)]
        between = [YamlEntry(None, _made(wanted[number], (*at, str(number))), 0, 0) for number in middle]
    block.entries = [*block.entries[:first], *between, *block.entries[len(old) - last :]]
    block.flow = block.flow and not any(map(_has_words, block.entries)) and not block.foot


def _moved(old: list[str], new: list[str]) -> list[int]:
    """Returns which of the old items each new one is: an equal one, anywhere, with its hidden parts; else the next one that is left."""
    left = list(range(len(old)))
    found: dict[int, int] = {}
    for place, item in enumerate(new):
        number = next((one for one in left if old[one] == item), None)
        if number is not None:
            left.remove(number)
            found[place] = number
    return [found[place] if place in found else left.pop(0) for place in range(len(new))]


def _common(one: list[str], other: list[str]) -> int:
    """Returns how many items both have in common at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _refuse_twins(old: list[str], at: tuple[str, ...]) -> None:
    """Refuses items that look equal with their secrets hidden: if some are gone or moved, it is not known which."""
    if any(HIDDEN in one and count > 1 for one, count in Counter(old).items()):
        raise UneditableError(".".join(at), "several items differ only in what is hidden")


def _take_out(block: YamlBlock, gone: Collection[str]) -> None:
    """Removes the entries of these keys. Their comments stay in place."""
    left, words = [], list[str]()
    for entry in block.entries:
        if entry.key is not None and entry.key.text in gone:
            words += _words_of(entry)
            continue
        entry.before[:0], words = words, []
        left.append(entry)
    block.entries = left
    block.foot[:0] = words


def _words_of(entry: YamlEntry) -> list[str]:
    """Returns the comments of an entry and of everything in it."""
    own = [*(line for line in entry.before if line), *([entry.beside] if entry.beside else [])]
    return own + _words_in(entry.value)


def _words_in(node: Node) -> list[str]:
    if not isinstance(node, YamlBlock):
        return []
    inner = [line for entry in node.entries for line in _words_of(entry)]
    return [*(line for line in node.head if line), *inner, *(line for line in node.foot if line)]


def _has_words(entry: YamlEntry) -> bool:
    return bool(_words_of(entry))


def _made(value: object, at: tuple[str, ...]) -> Node:
    """Returns the node of a JSON value."""
    if isinstance(value, str):
        if HIDDEN in value:
            raise UneditableError(".".join(at), f"{HIDDEN} stands for a secret that is not there; say it in full")
        return _text(value.replace(_REFERENCE, _LITERAL))
    if isinstance(value, Mapping):
        return _block([YamlEntry(_text(key), _made(one, (*at, key)), 0, 0) for key, one in value.items()], is_map=True)
    if isinstance(value, list):
        return _block([YamlEntry(None, _made(one, (*at, str(number))), 0, 0) for number, one in enumerate(value)], is_map=False)
    for _ in numbers_lost(value):
        raise UneditableError(".".join(at), NO_NUMBER)
    return YamlScalar(flow(value), "", "")


def _block(entries: list[YamlEntry], *, is_map: bool) -> YamlBlock:
    """Returns a block; lists of plain values are written in brackets if they fit, maps in lines."""
    is_plain = not is_map and all(isinstance(entry.value, YamlScalar) for entry in entries)
    return YamlBlock(is_map, is_plain or not entries, 0, 0, 0, entries, lines=2)


def _text(text: str) -> YamlScalar:
    return YamlScalar(text, '"', "")


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def is_same(one: object, other: object) -> bool:
    """Returns whether two JSON values are equal: true is not 1."""
    return _key(one) == _key(other)


def numbers_lost(value: object) -> Iterator[str]:
    """Yields the dotted places of numbers, as JSON has them, that a definition cannot hold: it would read them as texts."""
    return (place for place, one in leaves(value) if isinstance(one, int | float) and plain_value(flow(one)) != one)


def leaves(value: object, at: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Yields every value that is neither list nor map, with its dotted place."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from leaves(one, (*at, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from leaves(one, (*at, str(number)))
    else:
        yield ".".join(at), value
