"""The elements of a JSON file, one after the other, with what stands between them, and the way to the array that holds them."""

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
    Cursor,
    Extent,
    Value,
    parse,
    parse_all,
)

_OPEN_PATH, _CLOSE, _OPEN_ARRAY = b"{}["
_LONGEST_SEPARATOR = 128
_MOST_INNER = 64
"""Places in one object that look like its end, and are not, before it is looked at closely."""
_MOST_MISSES = 8
"""Objects that did not end where objects before them had: then it is no longer tried."""
_OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CLOSE_ARRAY, _OPEN = b"]{"


def enter(cursor: Cursor, path: tuple[str, ...]) -> None:
    """Go from the file's beginning to the `[` behind the keys of `path`. Raises DamageError where they do not lead to one."""
    for number, key in enumerate(path, 1):
        way = ".".join(path[:number])
        if cursor.skip_blanks() != _OPEN_PATH:
            raise DamageError(f"no object stands at byte {cursor.position}, where path {way!r} is looked for")
        _find(cursor, key, way)
    if cursor.skip_blanks() != _OPEN_ARRAY:
        raise DamageError(f"no array stands at byte {cursor.position}, behind path {'.'.join(path)!r}")


def _find(cursor: Cursor, key: str, way: str) -> None:
    """Pass the members of the object that begins here, up to the value of `key`."""
    cursor.index += 1
    while cursor.skip_blanks() == QUOTE:
        name = _key(cursor)
        if cursor.skip_blanks() != COLON:
            break
        cursor.index += 1
        if name == key:
            return
        if cursor.skip_blanks() == NOTHING or not cursor.follow(Extent()) or cursor.skip_blanks() != COMMA:
            break
        cursor.index += 1
    raise DamageError(f"path {way!r} is not there: the object ends, or is damaged, at byte {cursor.position}")


def _key(cursor: Cursor) -> str | None:
    """Pass a key. None for one that cannot be read, or is too long to be looked for."""
    start = cursor.position
    size = None
    while size is None:
        looked = Extent().look(cursor.data, cursor.index)
        if looked.is_end:
            size = looked.place - cursor.index
        elif cursor.left > _LONGEST_KEY or not cursor.more():
            cursor.follow(Extent())
            return None
    text = cursor.data[cursor.index : cursor.index + size]
    cursor.index += size
    assert cursor.position == start + size
    found = parse(b'{"key":' + text + b"}")
    return found["key"] if isinstance(found, dict) else None


_LONGEST_KEY = 4096


def leave(cursor: Cursor, depth: int) -> DamageError | None:
    """Pass what stands behind the array, out of `depth` objects, up to the end of the file. Returns what is wrong with it."""
    if cursor.skip_blanks() == NOTHING or not cursor.follow(Extent(depth)):
        return DamageError(f"the file ends behind its records, before its end, at byte {cursor.position}")
    if cursor.skip_blanks() != NOTHING:
        return DamageError(f"something else stands behind the object, at byte {cursor.position}")
    return None


def skip_mark(cursor: Cursor) -> int:
    """Pass a byte order mark; returns its size."""
    cursor.more()
    if cursor.data.startswith(_OTHER_MARKS):
        raise DamageError("the file is UTF-16 or UTF-32", "JSON is read in UTF-8 only: have it written so")
    cursor.index = len(codecs.BOM_UTF8) if cursor.data.startswith(codecs.BOM_UTF8) else 0
    return cursor.index


def _ends_well(cursor: Cursor) -> bool:
    """Whether the last value of the file ends where that does. What the values are is not looked at."""
    skip_mark(cursor)
    while (first := cursor.skip_blanks()) != NOTHING:
        if first in CLOSING or first in (COMMA, COLON) or not cursor.follow(Extent()):
            return False
    return True


class UnfinishedError(DamageError):
    """The file ends where it may not. Damage, unless more of it comes."""


class JsonLimits(NamedTuple):
    """What a record and what a run may cover; and whether the file ends where reading does."""

    record_bytes: int
    run_bytes: int
    final: bool


class Elements:
    """One pass over the elements from the cursor's place on. Used once."""

    def __init__(self, cursor: Cursor, limits: JsonLimits, path: tuple[str, ...], *, is_array: bool) -> None:
        self._cursor = cursor
        self._max_bytes, self._run_bytes, self._final = limits
        self._path = path
        self._is_array = is_array
        self._separator = b""
        self._missed = self._misses = 0
        self._damage: DamageError | None = None

    def header(self) -> Iterator[Gap]:
        """What stands before the first record."""
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
        """Pass, in an array, what separates its elements, where the cursor does not stand at one. `before` stands before it."""
        cursor, start = self._cursor, self._cursor.position
        if not self._is_array or before in (COMMA, OPEN_ARRAY):
            return
        if cursor.skip_blanks() == NOTHING and before in CLOSING and _ends_well(cursor.again()):
            return
        self._pass_separator(b"")
        if cursor.position > start and not self._damage:
            yield Gap(start, cursor.position, cursor.tail(cursor.position), "header")

    def frames(self) -> Iterator[Parsed | LongLine]:
        """The records, with what stands behind each."""
        cursor = self._cursor
        while self._damage is None and (first := cursor.skip_blanks()) != NOTHING:
            if first in CLOSING or first in (COMMA, COLON):
                raise DamageError(f"no JSON value begins at byte {cursor.position}")
            yield from self._run()
        if self._damage:
            raise self._damage

    def _run(self) -> Iterator[Parsed | LongLine]:
        """Records until more has to be read. A bad one comes alone."""
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
        """Objects that end where the separator that was seen last stands: those that are JSON do.

        An object is complete only at its own end, so one that ends elsewhere is none up to there.
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
        """Where the object in `data[begin:]` seems to end, from counting braces, also those in strings; 0 when that does not show."""
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
        """The bytes of the value where the cursor stands; None when it does not end in what was read, or is too long."""
        cursor, extent = self._cursor, Extent()
        place, is_end = extent.look(cursor.data, cursor.index)
        size = place - cursor.index
        if self._missed:
            self._misses += size != self._missed
            self._missed = 0
        is_end = is_end or (extent.is_scalar and cursor.is_whole and self._final)
        return cursor.data[cursor.index : place] if is_end and size <= self._max_bytes else None

    def _unfinished(self, start: int) -> Iterator[LongLine]:
        """Read on for a value that does not end in what was read, or pass it when it is too long."""
        cursor, limit = self._cursor, self._max_bytes
        if cursor.left <= limit and not cursor.is_whole:
            cursor.more()
            return
        head = cursor.data[cursor.index : cursor.index + limit]
        if cursor.left <= limit or not cursor.follow(Extent()):
            raise UnfinishedError(f"the file ends inside the record that begins at byte {start}")
        end, _ = self._pass_separator(b"")
        yield LongLine(head, start, end, True, cursor.tail(end))

    def _pass_separator(self, text: bytes) -> tuple[int, bool]:
        """Pass what stands behind the value `text`, up to the next one. Returns where the value's record ends, and whether one follows.

        Before damage it ends where the value does: from there, and not from behind a separator, the damage shows again.
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
        """Go into the array that begins here, or where that is empty, into the next one."""
        is_open = True
        while is_open:
            self._cursor.index += 1
            follows = self._cursor.skip_blanks()
            if follows == NOTHING:
                self._fail_at_end()
            is_open = follows == _CLOSE_ARRAY and self._leave()

    def _leave(self) -> bool:
        """Go behind the array whose end stands here. Whether another one begins there."""
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
