"""Rules that join lines into groups: a kind for every line, and a table of what continues what; also unwraps container runtimes' lines."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from copycat_agent.errors import DataError
from copycat_agent.patterns import TIMEOUT_SECONDS, Pattern, compile_pattern
from copycat_agent.templates import compile_path

_CRI = re.compile(r"\d{4}-\d\d-\d\dT[^ ]+ (stdout|stderr) ([FP])(?::[^ ]*)?(?: (.*))?\Z", re.DOTALL)
_SIGNS = (b" stdout ", b" stderr ")
_PARTS = (b" stdout P", b" stderr P")
LOOK_CHARACTERS = 4096
"""How many characters of a line are searched for a pattern from a definition."""
_LEAST_SECONDS = 0.001
"""The least time-out for a pattern that takes too long on line after line."""
CLOSED = 9
"""State of a group that its last line has ended."""


class WrappedLine(NamedTuple):
    """One line. `stream` is "" when it is not wrapped; `unfinished`: the next line of its stream continues the message."""

    message: str
    stream: str = ""
    unfinished: bool = False


def may_be_wrapped(block: bytes) -> bool:
    """Returns whether any line may be wrapped, so that each has to be checked. If False, none is wrapped."""
    return any(sign in block for sign in _SIGNS) or _may_be_docker(block)


def _may_be_docker(block: bytes) -> bool:
    """Returns whether the block may hold Docker's JSON. A name in JSON may be written with escapes."""
    return b"{" in block and ((b'"log"' in block and b'"stream"' in block) or b"\\u" in block)


def may_hold_parts(lines: list[bytes]) -> bool:
    """Returns whether one of the lines may continue in the next. If False, none does."""
    block = b"\n".join(lines)
    return any(sign in block for sign in _PARTS) or (_may_be_docker(block) and any(map(_is_open, lines)))


def _is_open(line: bytes) -> bool:
    message = _object(line).get("log")
    return isinstance(message, str) and not message.endswith("\n")


def _object(line: bytes) -> dict[str, Any]:
    """Returns the fields of a JSON object; {} for anything else."""
    try:
        value = orjson.loads(line)
    except ValueError:
        return {}
    return value if type(value) is dict else {}


def unwrap(line: str) -> WrappedLine:
    """Returns the message in a line; a line that is not wrapped is its own message."""
    if cri := _CRI.match(line):
        return WrappedLine(cri[3] or "", cri[1], cri[2] == "P")
    if not line.lstrip().startswith("{"):
        return WrappedLine(line)
    return _of_docker(_object(line.encode("utf-8", "surrogatepass"))) or WrappedLine(line)


def _of_docker(fields: Mapping[str, Any]) -> WrappedLine | None:
    message, stream, when = fields.get("log"), fields.get("stream"), fields.get("time")
    if not (isinstance(message, str) and isinstance(stream, str) and isinstance(when, str) and stream):
        return None
    return WrappedLine(message.removesuffix("\n"), stream, not message.endswith("\n"))


class TextField(NamedTuple):
    """The field at `path` of lines that are JSON objects, possibly wrapped by CRI: groups are made by the field's text.

    A line without the field is its own text.
    """

    path: str

    def unwrap(self, line: str) -> WrappedLine:
        """Returns the field's text, with the stream of its line."""
        outer, text = self._look(line)
        return outer if text is None else outer._replace(message=text.removesuffix("\n"))

    def _look(self, line: str) -> tuple[WrappedLine, str | None]:
        """Returns the unwrapped line, and the field's text exactly as it is; None for a line without it."""
        is_bare = line.lstrip().startswith("{")
        outer = WrappedLine(line) if is_bare else unwrap(line)
        if not (is_bare or outer.message.lstrip().startswith("{")):
            return outer, None
        fields = _object(outer.message.encode("utf-8", "surrogatepass"))
        text = _finder(self.path)(_Fields(fields))
        return (is_bare and _of_docker(fields)) or outer, text if isinstance(text, str) else None

    def joined(self, lines: list[str]) -> str | None:
        """Returns the first line of a group with the texts of all lines in its field; None if they cannot be joined."""
        cri, looks = _CRI.match(lines[0]), [self._look(line) for line in lines]
        span = None if looks[0][1] is None else _span(lines[0], cri.start(3) if cri else 0, self.path)
        if span is None or (cri and any(outer.unfinished for outer, _ in looks)):
            return None
        texts = [outer.message if text is None else text for outer, text in looks]
        ends = ["" if outer.unfinished or text.endswith("\n") else "\n" for (outer, _), text in zip(looks, texts, strict=True)]
        text = "".join(text + end for text, end in zip(texts, [*ends[:-1], ""], strict=True))
        return lines[0][: span[0]] + orjson.dumps(text).decode() + lines[0][span[1] :]


_finder = lru_cache(maxsize=16)(compile_path)


class _Fields(NamedTuple):
    """Fields in the form that a compiled path needs."""

    value: dict[str, Any]
    start: int = 0
    end: int = 0
    number: int = 1
    timestamp_ms: int | None = None
    envelope: None = None


_decode = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode
_BLANKS = re.compile(r"[ \t\r\n]*")


def _span(text: str, begin: int, path: str) -> tuple[int, int] | None:
    """Returns the range of the text at `path` in the object that begins at `begin`, after blanks; None if there is no such text.

    Replacing that range leaves everything else unchanged, digits and blanks.
    """
    try:
        first, _, rest = path.partition(".")
        inner = _member(text, begin, first)
        if rest and inner is not None and text[inner[0]] == "{":
            inner = _span(text, inner[0], rest)
        elif rest:
            inner = None
        found = inner or (_member(text, begin, path) if rest else None)
    except (ValueError, IndexError, RecursionError):
        return None
    return found if found is not None and text[found[0]] == '"' else None


def _member(text: str, begin: int, name: str) -> tuple[int, int] | None:
    """Returns the range of the value of this name; of repeated names the last one counts."""
    found, place = None, _behind_blanks(text, _behind_blanks(text, begin) + 1)
    while text[place] == '"':
        key, place = _decode(text, place)
        place = _behind_blanks(text, _behind_blanks(text, place) + 1)
        end = _decode(text, place)[1]
        found = (place, end) if key == name else found
        place = _behind_blanks(text, end)
        if text[place] == ",":
            place = _behind_blanks(text, place + 1)
    return found


def _behind_blanks(text: str, place: int) -> int:
    match = _BLANKS.match(text, place)
    assert match is not None, "it matches nothing, too"
    return match.end()


class GroupState(NamedTuple):
    """The state of a group after its last line: `table` is a state of `Rule.joins`; for `stream` and `unfinished` see `WrappedLine`."""

    table: int = 0
    stream: str = ""
    unfinished: bool = False


class GroupMarks(NamedTuple):
    """The kinds of some lines, and their unwrapped forms; None when no line is wrapped."""

    kinds: list[int]
    wrapped: list[WrappedLine] | None

    def part(self, begin: int, end: int) -> GroupMarks:
        """Returns the marks of some of the lines."""
        return GroupMarks(self.kinds[begin:end], None if self.wrapped is None else self.wrapped[begin:end])


@dataclass(frozen=True)
class Rule:
    """Joins lines into groups. `kinds` returns the kinds of lines, small numbers; 0 is the commonest, with no special meaning.

    A line of kind k continues a group in state s if `joins` has (s, k), which gives the next state; else it begins a group, in state
    `first[k]`. `begins` is a kind that always begins one. `skipped` are the kinds that continue a group of which it is known only that it
    is too long. `is_end`: a line of kind 1 is the last of its group. `only_parts`: kinds have no meaning, only parts of wrapped lines make
    groups. `field`: the field to use of lines that are JSON; None: the whole line.
    """

    kinds: Callable[[list[bytes]], list[int]]
    kinds_of_texts: Callable[[list[str]], list[int]]
    joins: Mapping[tuple[int, int], int]
    first: tuple[int, ...]
    skipped: frozenset[int]
    begins: int = 0
    is_end: bool = False
    only_parts: bool = False
    field: TextField | None = None

    def marks(self, lines: list[bytes], *, after_nothing: bool = False) -> GroupMarks:
        """Returns the marks of lines in UTF-8. `after_nothing`: no group is open before them."""
        block = b"\n".join(lines)
        may_be = may_be_wrapped(block) if self.field is None else b"{" in block
        if not may_be or (self.only_parts and after_nothing and not may_hold_parts(lines)):
            return GroupMarks(self.kinds(lines), None)
        wrapped = list(map(unwrap if self.field is None else self.field.unwrap, _texts(lines)))
        kinds = self.kinds_of_texts([one.message for one in wrapped])
        if self.is_end:
            kinds = [0 if one.unfinished else kind for one, kind in zip(wrapped, kinds, strict=True)]
        return GroupMarks(kinds, wrapped)

    def cuts(self, marks: GroupMarks, begin: int, state: GroupState | None) -> tuple[list[int], GroupState | None]:
        """Returns where groups end among the lines from `begin` on, as indexes of the lines after them, and the state after the last line.

        `state` None: the first line begins a group.
        """
        if marks.wrapped is not None:
            return self._cuts_of_wrapped(marks.kinds, marks.wrapped, begin, state)
        if self.is_end:
            cuts = [index for index, kind in enumerate(marks.kinds[begin:], begin + 1) if kind]
            is_open = begin < len(marks.kinds) and not marks.kinds[-1]
            return cuts, GroupState(0, "" if cuts or state is None else state.stream) if is_open else None
        cuts, table = self._cuts_of_plain(marks.kinds, begin, -1 if state is None else state.table)
        if state is None and cuts and cuts[0] == begin:
            del cuts[0]
        return cuts, GroupState(table, "" if cuts or state is None else state.stream)

    def _cuts_of_plain(self, kinds: list[int], begin: int, table: int) -> tuple[list[int], int]:
        """Visits only lines whose kind does not always begin a group: they are few in most logs."""
        cuts: list[int] = []
        done, usual = begin, self.begins
        for index in [index for index, kind in enumerate(kinds[begin:] if begin else kinds, begin) if kind != usual]:
            if done < index:
                cuts.extend(range(done, index))
                table = self.first[usual]
            after = self.joins.get((table, kinds[index]))
            if after is None:
                cuts.append(index)
                after = self.first[kinds[index]]
            table, done = after, index + 1
        cuts.extend(range(done, len(kinds)))
        return cuts, table if done == len(kinds) else self.first[usual]

    def _cuts_of_wrapped(
        self, kinds: list[int], wrapped: list[WrappedLine], begin: int, state: GroupState | None
    ) -> tuple[list[int], GroupState | None]:
        cuts: list[int] = []
        for index in range(begin, len(kinds)):
            after = self._goes_on(state, kinds[index], wrapped[index]) if state is not None else None
            if after is None:
                if state is not None:
                    cuts.append(index)
                after = GroupState(self.first[kinds[index]], wrapped[index].stream, wrapped[index].unfinished)
            state = after
            if state.table == CLOSED:
                cuts.append(index + 1)
                state = None
        return cuts, state

    def _goes_on(self, state: GroupState, kind: int, line: WrappedLine) -> GroupState | None:
        """Returns the state after `line` if it continues the group; None if it begins another one."""
        if _is_other_stream(state, line):
            return None
        table = self.joins.get((state.table, kind))
        if state.unfinished and line.stream == state.stream and not (self.is_end and kind):
            table = state.table
        return None if table is None else GroupState(table, line.stream or state.stream, line.unfinished)

    def end_of_skipped(self, marks: GroupMarks, begin: int, state: GroupState) -> tuple[int | None, GroupState]:
        """Returns the index, from line `begin` on, at which a group ends that is too long and known only by the stream of its last line.

        None when it continues after the last line. A kind that only earlier lines of the group explain ends it: better sent than skipped.
        """
        for index in range(begin, len(marks.kinds)):
            kind, line = marks.kinds[index], WrappedLine("") if marks.wrapped is None else marks.wrapped[index]
            if _is_other_stream(state, line):
                return index, state
            glued = state.unfinished and line.stream == state.stream
            if self.is_end and kind:
                return index + 1, state
            if not glued and not self.is_end and kind not in self.skipped:
                return index, state
            state = GroupState(0, line.stream, line.unfinished)  # of the last line only: a later start looks back no further
        return None, state

    def ends_with(self, marks: GroupMarks, index: int) -> bool:
        """Returns whether this line ends its group, whatever follows."""
        return self.is_end and marks.kinds[index] == 1

    def state_behind(self, marks: GroupMarks, index: int) -> GroupState:
        """Returns the state after a single line, for `end_of_skipped`."""
        line = WrappedLine("") if marks.wrapped is None else marks.wrapped[index]
        return GroupState(0, line.stream, line.unfinished)


def _is_other_stream(state: GroupState, line: WrappedLine) -> bool:
    return bool(line.stream and state.stream and line.stream != state.stream)


def _texts(lines: list[bytes]) -> list[str]:
    """Decodes all lines at once, which is faster, unless a line holds a newline."""
    texts = b"\n".join(lines).decode("utf-8", "replace").split("\n")
    return texts if len(texts) == len(lines) else [line.decode("utf-8", "replace") for line in lines]


def by_pattern(pattern: str, *, at_end: bool = False) -> tuple[Callable[[list[bytes]], list[int]], Callable[[list[str]], list[int]]]:
    """Returns two functions, for bytes and for text: kind 1 for lines in which `pattern` is found, 0 for others.

    Of a very long line they search only the beginning, or `at_end` its end: some patterns take the square of the length. A pattern that
    takes too long on a line counts as not found in it.
    """
    compiled = compile_pattern(pattern)
    is_bounded = compiled.most >= LOOK_CHARACTERS
    search: Callable[[str], object] = compiled.search if is_bounded else _TimeLimitedSearch(compiled)
    quick = _search_in_ascii(pattern) if is_bounded else None

    def look(line: str) -> object:
        if at_end and compiled.anchored and len(line) > LOOK_CHARACTERS:
            return None
        return search(line[-LOOK_CHARACTERS:] if at_end else line[:LOOK_CHARACTERS])

    def of_texts(lines: list[str]) -> list[int]:
        is_long = len(max(lines, key=len, default="")) > LOOK_CHARACTERS
        return [0 if found is None else 1 for found in map(look if is_long else search, lines)]

    def of_bytes(lines: list[bytes]) -> list[int]:
        block = b"".join(lines)
        if quick is not None and block.isascii() and (len(block) <= LOOK_CHARACTERS or len(max(lines, key=len)) <= LOOK_CHARACTERS):
            return [0 if found is None else 1 for found in map(quick, lines)]
        return of_texts(_texts(lines))

    return of_bytes, of_texts


class _TimeLimitedSearch:
    """A search that raises no errors. The longer it takes, the less time the next lines get, so that a block of lines is done soon."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._seconds = TIMEOUT_SECONDS

    def __call__(self, line: str) -> object:
        if len(line) <= self._pattern.most:
            return self._pattern.search(line)
        begin, found = time.process_time(), None  # as `regex` counts it: a busy host makes no pattern slow
        with suppress(DataError):
            found = self._pattern.search_within(line, self._seconds)
        is_slow = time.process_time() - begin > self._seconds / 4
        self._seconds = max(_LEAST_SECONDS, self._seconds / 2) if is_slow else min(TIMEOUT_SECONDS, self._seconds * 2)
        return found


def by_alternatives(pattern: str) -> tuple[Callable[[list[bytes]], list[int]], Callable[[list[str]], list[int]]]:
    """Returns the number of the alternative, each in parentheses, that a line begins with; 0 for others. The pattern is ASCII."""
    match, quick = re.compile(pattern, re.ASCII).match, re.compile(pattern.encode("ascii")).match

    def of_texts(lines: list[str]) -> list[int]:
        return [0 if found is None else found.lastindex or 0 for found in map(match, lines)]

    def of_bytes(lines: list[bytes]) -> list[int]:
        return [0 if found is None else found.lastindex or 0 for found in map(quick, lines)]

    return of_bytes, of_texts


def _search_in_ascii(pattern: str) -> Callable[[bytes], re.Match[bytes] | None] | None:
    """Returns the pattern for bytes, to search ASCII without decoding it; None if it cannot be written in bytes."""
    try:
        return re.compile(pattern.encode("ascii")).search
    except (UnicodeEncodeError, re.error):
        return None


def start(pattern: str) -> Rule:
    """Returns the rule by which a line with `pattern` begins a group."""
    return Rule(*by_pattern(pattern), {(0, 0): 0}, (0, 0), frozenset({0}), begins=1)


def continues(pattern: str) -> Rule:
    """Returns the rule by which a line with `pattern` continues the group before it."""
    return Rule(*by_pattern(pattern), {(0, 1): 0}, (0, 0), frozenset({1}))


def ends(pattern: str) -> Rule:
    """Returns the rule by which a line with `pattern` is the last one of its group."""
    return Rule(*by_pattern(pattern, at_end=True), {(0, 0): 0, (0, 1): CLOSED}, (0, CLOSED), frozenset({0}), is_end=True)
