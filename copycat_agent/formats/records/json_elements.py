"""Iterates over the elements of a JSON file with their separators, and finds the array that holds them."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import NamedTuple

from copycat_agent.errors import DamageError
from copycat_agent.formats.draft import Parsed, Unparsed
from copycat_agent.formats.model import Gap, LongLine
from copycat_agent.formats.records.json_values import (
    CLOSING,
    COLON,
    COMMA,
    NOTHING,
    OPEN_ARRAY,
    QUOTE,
    JsonCursor,
    Value,
    ValueExtent,
    parse,
    parse_all,
)

_OPEN_PATH, _CLOSE, _OPEN_ARRAY = b"{}["
_LONGEST_SEPARATOR = 128
_MOST_INNER = 64
"""How many apparent ends of one object are tried before it is scanned exactly."""
_MOST_MISSES = 8
"""After this many objects that did not end where they seemed to, this is no longer tried."""
_OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CLOSE_ARRAY, _OPEN = b"]{"


def enter(cursor: JsonCursor, path: tuple[str, ...]) -> None:
    """Moves from the file's beginning to the `[` after the keys of `path`. Raises DamageError if they do not lead to one."""
    for number, key in enumerate(path, 1):
        way = ".".join(path[:number])
        if cursor.skip_blanks() != _OPEN_PATH:
            raise DamageError(f"no object stands at byte {cursor.position}, where path {way!r} is looked for")
        _find(cursor, key, way)
    if cursor.skip_blanks() != _OPEN_ARRAY:
        raise DamageError(f"no array stands at byte {cursor.position}, behind path {'.'.join(path)!r}")


def _find(cursor: JsonCursor, key: str, way: str) -> None:
    """Skips the members of the object that begins here, up to the value of `key`."""
    cursor.index += 1
    while cursor.skip_blanks() == QUOTE:
        name = _key(cursor)
        if cursor.skip_blanks() != COLON:
            break
        cursor.index += 1
        if name == key:
            return
        if cursor.skip_blanks() == NOTHING or not cursor.follow(ValueExtent()) or cursor.skip_blanks() != COMMA:
            break
        cursor.index += 1
    raise DamageError(f"path {way!r} is not there: the object ends, or is damaged, at byte {cursor.position}")


def _key(cursor: JsonCursor) -> str | None:
    """Reads a key. Returns None for one that cannot be read, or is too long to be compared."""
    start = cursor.position
    size = None
    while size is None:
        looked = ValueExtent().look(cursor.data, cursor.index)
        if looked.is_end:
            size = looked.place - cursor.index
        elif cursor.left > _LONGEST_KEY or not cursor.more():
            cursor.follow(ValueExtent())
            return None
    text = cursor.data[cursor.index : cursor.index + size]
    cursor.index += size
    assert cursor.position == start + size
    found = parse(b'{"key":' + text + b"}")
    return found["key"] if isinstance(found, dict) else None


_LONGEST_KEY = 4096


def leave(cursor: JsonCursor, depth: int) -> DamageError | None:
    """Skips what follows the array, out of `depth` objects, up to the end of the file. Returns what is wrong with it."""
    if cursor.skip_blanks() == NOTHING or not cursor.follow(ValueExtent(depth)):
        return DamageError(f"the file ends behind its records, before its end, at byte {cursor.position}")
    if cursor.skip_blanks() != NOTHING:
        return DamageError(f"something else stands behind the object, at byte {cursor.position}")
    return None


def skip_mark(cursor: JsonCursor) -> int:
    """Skips a byte order mark; returns its size."""
    cursor.more()
    if cursor.data.startswith(_OTHER_MARKS):
        raise DamageError("the file is UTF-16 or UTF-32", "JSON is read in UTF-8 only: have it written so")
    cursor.index = len(codecs.BOM_UTF8) if cursor.data.startswith(codecs.BOM_UTF8) else 0
    return cursor.index


def _ends_well(cursor: JsonCursor) -> bool:
    """Returns whether the last value ends where the file does. The values themselves are not checked."""
    skip_mark(cursor)
    while (first := cursor.skip_blanks()) != NOTHING:
        if first in CLOSING or first in (COMMA, COLON) or not cursor.follow(ValueExtent()):
            return False
    return True


class UnfinishedError(DamageError):
    """The file ends within a value or array. This is damage, unless more of the file comes."""


class JsonLimits(NamedTuple):
    """The most bytes of a record and of a run; and whether the file ends where reading does."""

    record_bytes: int
    run_bytes: int
    final: bool


class Elements:
    """One pass over the elements from the cursor's position on. Used once."""

    def __init__(self, cursor: JsonCursor, limits: JsonLimits, path: tuple[str, ...], *, is_array: bool) -> None:
        self._cursor = cursor
        self._max_bytes, self._run_bytes, self._final = limits
        self._path = path
        self._is_array = is_array
        self._separator = b""
        self._missed = self._misses = 0
        self._damage: DamageError | None = None

    def header(self) -> Iterator[Gap]:
        """Yields what precedes the first record."""
        cursor = self._cursor
        mark = skip_mark(cursor)
        if self._path:
            enter(cursor, self._path)
        first = cursor.skip_blanks()
        if self._is_array:
            self._open()
        elif first == NOTHING and not cursor.position:
            return
        if cursor.position and not self._damage:
            yield Gap(0, cursor.position, cursor.tail(cursor.position), "bom" if cursor.position == mark else "header")

    def begin(self, before: int) -> Iterator[Gap]:
        """Skips, in an array, what separates its elements if the cursor is not at one. `before` is the byte before it."""
        cursor, start = self._cursor, self._cursor.position
        if not self._is_array or before in (COMMA, OPEN_ARRAY):
            return
        if cursor.skip_blanks() == NOTHING and before in CLOSING and _ends_well(cursor.again()):
            return
        self._pass_separator(b"")
        if cursor.position > start and not self._damage:
            yield Gap(start, cursor.position, cursor.tail(cursor.position), "header")

    def frames(self) -> Iterator[Parsed | LongLine]:
        """Yields the records, each including what follows it."""
        cursor = self._cursor
        while self._damage is None and (first := cursor.skip_blanks()) != NOTHING:
            if first in CLOSING or first in (COMMA, COLON):
                raise DamageError(f"no JSON value begins at byte {cursor.position}")
            yield from self._run()
        if self._damage:
            raise self._damage

    def _run(self) -> Iterator[Parsed | LongLine]:
        """Yields records until more has to be read. A bad one is yielded alone."""
        cursor = self._cursor
        begun = end = cursor.position
        values, starts, raw = list[Value](), list[int](), list[bytes]()
        goes_on = True
        while goes_on:
            if self._separator and self._misses < _MOST_MISSES:
                self._known(values, starts, raw, begun)
            end = cursor.position
            text = self._text() if not values or (cursor.left and end - begun < self._run_bytes) else None
            value = None if text is None else parse(text)
            if text is None or value is None or (values and isinstance(value, Unparsed)):
                break
            values.append(value)
            starts.append(end)
            raw.append(text)
            cursor.index += len(text)
            end, goes_on = self._pass_separator(text)
            goes_on = goes_on and not isinstance(value, Unparsed)
        if values:
            yield Parsed(values, [*starts, end], end - begun, raw, cursor.tail(end), as_is=True)
        else:
            yield from self._unfinished(begun)

    def _known(self, values: list[Value], starts: list[int], raw: list[bytes], begun: int) -> None:
        """Takes objects that end where the last separator occurs again: those that are valid JSON end there.

        An object is complete only at its own end, so if one really ends elsewhere, its text up to there is invalid.
        """
        cursor, separator = self._cursor, self._separator
        data, index, step = cursor.data, cursor.index, len(separator) - 2
        stop = index + max(1, self._run_bytes - (cursor.position - begun))
        texts, places = list[bytes](), list[int]()
        while index < stop and (end := self._likely_end(data, index)):
            texts.append(data[index:end])
            places.append(index)
            index = end + step
            if len(texts) == 1 and isinstance(parse(texts[0]), Unparsed):
                self._missed = len(texts[0])
                return
        found = parse_all(texts)
        good = next((number for number, value in enumerate(found) if isinstance(value, Unparsed)), len(found))
        values += found[:good]
        raw += texts[:good]
        starts += [cursor.start + place for place in places[:good]]
        cursor.index = index if good == len(found) else places[good]

    def _likely_end(self, data: bytes, begin: int) -> int:
        """Returns where the object in `data[begin:]` seems to end, counting braces, also those in strings; 0 if that is not clear."""
        place, depth = begin, 0
        for _ in range(_MOST_INNER):
            end = data.find(self._separator, place) + 1
            if not end or end - begin > self._max_bytes:
                return 0
            depth += data.count(b"{", place, end) - data.count(b"}", place, end)
            if not depth:
                return end
            place = end
        return 0

    def _text(self) -> bytes | None:
        """Returns the bytes of the value at the cursor; None when it does not end in what was read, or is too long."""
        cursor, extent = self._cursor, ValueExtent()
        place, is_end = extent.look(cursor.data, cursor.index)
        size = place - cursor.index
        if self._missed:
            self._misses += size != self._missed
            self._missed = 0
        is_end = is_end or (extent.is_scalar and cursor.is_whole and self._final)
        return cursor.data[cursor.index : place] if is_end and size <= self._max_bytes else None

    def _unfinished(self, start: int) -> Iterator[LongLine]:
        """Reads on for a value that does not end in what was read, or skips it when it is too long."""
        cursor, limit = self._cursor, self._max_bytes
        if cursor.left <= limit and not cursor.is_whole:
            cursor.more()
            return
        head = cursor.data[cursor.index : cursor.index + limit]
        if cursor.left <= limit or not cursor.follow(ValueExtent()):
            raise UnfinishedError(f"the file ends inside the record that begins at byte {start}")
        end, _ = self._pass_separator(b"")
        yield LongLine(head, start, end, True, cursor.tail(end))

    def _pass_separator(self, text: bytes) -> tuple[int, bool]:
        """Skips what follows the value `text`, up to the next one. Returns where its record ends, and whether another one follows.

        Before damage it ends where the value does: from there, and not from after a separator, the damage is found again.
        """
        cursor, behind = self._cursor, self._cursor.position
        follows = cursor.skip_blanks()
        if self._is_array and follows == COMMA:
            cursor.index += 1
            follows = cursor.skip_blanks()
            if follows == NOTHING:
                self._fail_at_end()
        elif self._is_array:
            self._end_array(follows)
        size = cursor.position - behind
        if text.endswith(b"}") and follows == _OPEN and size < min(cursor.index, _LONGEST_SEPARATOR):
            self._separator = cursor.data[cursor.index - size - 1 : cursor.index + 1]
        return (behind, False) if self._damage else (cursor.position, cursor.left > 0)

    def _end_array(self, follows: int) -> None:
        if follows == NOTHING:
            self._fail_at_end()
        elif follows != _CLOSE_ARRAY:
            self._damage = DamageError(f"neither a comma nor the array's end stands at byte {self._cursor.position}")
        elif self._leave():
            self._open()

    def _open(self) -> None:
        """Enters the array that begins here, or the next one if it is empty."""
        is_open = True
        while is_open:
            self._cursor.index += 1
            follows = self._cursor.skip_blanks()
            if follows == NOTHING:
                self._fail_at_end()
            is_open = follows == _CLOSE_ARRAY and self._leave()

    def _leave(self) -> bool:
        """Leaves the array whose end is here. Returns whether another one begins after it."""
        cursor = self._cursor
        cursor.index += 1
        if self._path:
            self._damage = leave(cursor, len(self._path))
            return False
        follows = cursor.skip_blanks()
        if follows not in (OPEN_ARRAY, NOTHING):
            self._damage = DamageError(f"something else stands behind the array, at byte {cursor.position}")
        return follows == OPEN_ARRAY

    def _fail_at_end(self) -> None:
        self._damage = UnfinishedError(f"the file ends inside its array, at byte {self._cursor.position}")
