"""JSON texts: the extents of values in files of any size, and their parsed values, fast if nothing can be lost, exact if it could.

Scanning keeps only the present value. The fast parser makes a 64-bit float of every number with a fraction or an exponent, and of whole
numbers beyond 64 bits. Texts with numbers that may need more are read by another parser: its whole numbers have any size, and numbers that
no float holds are Decimals.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn

import orjson

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.field_values import exact_number
from copycat_agent.formats.text import TAIL_BYTES, Reader

NOTHING = -1
"""Returned in place of a byte at a file's end."""
QUOTE, COMMA, COLON = b'",:'
OPEN_ARRAY = ord("[")
OPENING, CLOSING = frozenset(b"[{"), frozenset(b"]}")

_BLANKS = re.compile(rb"[ \t\r\n\x1e]*+")
"""White space; and the separator of JSON text sequences (RFC 7464)."""
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?\Z)|[\[\]{}]', re.DOTALL)
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?\Z)', re.DOTALL)
_SCALAR = re.compile(rb'[^ \t\r\n\x1e,:"\[\]{}]*+')


class JsonLook(NamedTuple):
    """How far a value was followed, and whether it ends there."""

    place: int
    is_end: bool


class ValueExtent:
    """Follows one value to its end: balanced brackets outside strings. Its content need not be valid JSON."""

    def __init__(self, depth: int = 0) -> None:
        """`depth` brackets are open already."""
        self._depth = depth
        self._in_string = False
        self.is_scalar = False

    def look(self, data: bytes, place: int) -> JsonLook:
        """Examines `data` from `place` on: the value's first bytes, or those after what was examined before."""
        if self.is_scalar or not (self._depth or self._in_string or data[place] == QUOTE or data[place] in OPENING):
            self.is_scalar = True
            match = _SCALAR.match(data, place)
            assert match is not None, "it matches nothing, too"
            return JsonLook(match.end(), match.end() < len(data))
        if self._in_string:
            rest = _REST_OF_STRING.match(data, place)
            assert rest is not None, "it matches nothing, too"
            if rest[1] != b'"':
                return JsonLook(len(data) - len(rest[1]), is_end=False)
            self._in_string, place = False, rest.end()
            if not self._depth:
                return JsonLook(place, is_end=True)
        return self._tokens(data, place)

    def _tokens(self, data: bytes, place: int) -> JsonLook:
        depth = self._depth
        for token in _TOKEN.finditer(data, place):
            first = data[token.start()]
            if first in OPENING:
                depth += 1
                continue
            if first in CLOSING:
                depth -= 1
            elif token[1] != b'"':
                self._depth, self._in_string = depth, True
                return JsonLook(len(data) - len(token[1]), is_end=False)
            if depth <= 0:
                return JsonLook(token.end(), is_end=True)
        self._depth = depth
        return JsonLook(len(data), is_end=False)


def last_before(read: Reader, position: int) -> int:
    """Returns the last byte before `position` that is not white space; `NOTHING` when there is none."""
    while position > 0:
        begin = max(0, position - TAIL_BYTES)
        text = read(begin, position - begin).rstrip(b" \t\r\n\x1e")
        if text:
            return text[-1]
        position = begin
    return NOTHING


class JsonCursor:
    """A position in a file, and the bytes read around it: `data[index:]` begins at the position."""

    def __init__(self, read: Reader, position: int, end: int, block_bytes: int) -> None:
        """Nothing after byte `end` is read."""
        self._read = read
        self._end = end
        self._block_bytes = block_bytes
        self.data = b""
        self.index = 0
        self.start = position
        self.is_whole = position >= end

    def again(self) -> JsonCursor:
        """Returns another cursor, at the beginning of the file."""
        return JsonCursor(self._read, 0, self._end, self._block_bytes)

    @property
    def position(self) -> int:
        """Returns its position in the file."""
        return self.start + self.index

    @property
    def left(self) -> int:
        """Returns how many bytes after the position have been read."""
        return len(self.data) - self.index

    def tail(self, position: int) -> bytes:
        """Returns the last bytes before `position`, which has been passed, as far as they are kept."""
        index = max(0, position - self.start)
        return self.data[max(0, index - TAIL_BYTES) : index]

    def more(self) -> bool:
        """Reads on, as much again as is left. Returns False at the end of the file."""
        begin = max(0, self.index - TAIL_BYTES)
        position = self.start + len(self.data)
        wanted = min(max(self._block_bytes, self.left), self._end - position)
        block = self._read(position, wanted) if wanted > 0 else b""
        self.data, self.start, self.index = self.data[begin:] + block, self.start + begin, self.index - begin
        self.is_whole = len(block) < wanted or position + len(block) >= self._end
        return bool(block)

    def skip_blanks(self) -> int:
        """Skips white space. Returns the byte after it, or `NOTHING`."""
        while True:
            match = _BLANKS.match(self.data, self.index)
            assert match is not None, "it matches nothing, too"
            self.index = match.end()
            if self.left:
                return self.data[self.index]
            if not self.more():
                return NOTHING

    def follow(self, extent: ValueExtent) -> bool:
        """Skips the rest of a value, keeping nothing of it. Returns False when the file ends before."""
        while True:
            if self.left:
                looked = extent.look(self.data, self.index)
                self.index = looked.place
                if looked.is_end:
                    return True
            if not self.more():
                return extent.is_scalar


Value = dict[str, Any] | bytes | Unparsed
"""Fields of an object; the text itself of another JSON value; or the reason why it is invalid."""

_NUMBERS = bytes(
    ord("0") if chr(byte) in "0123456789+-" else byte if chr(byte) in ".e" else ord("e" if byte == ord("E") else " ") for byte in range(256)
)
"""Reduces a text to 0 for digits and signs, points, and e."""
_UNSIGNED = bytes(ord(" ") if chr(byte) in "+-" else left for byte, left in enumerate(_NUMBERS))
"""Like `_NUMBERS`, but without signs: then a date is not a long number."""
_LONG = b"0" * 8
"""Every number that a float or 64-bit integer may not hold has such a run of digits, or an exponent: see `_MAY_LOSE`."""
_HUGE = b"0" * 20
"""Perhaps more than 64 bits."""
_MAY_LOSE = (_HUGE, b"." + b"0" * 8, b"0" * 8 + b".", b"0" * 16 + b"e", _FAR := b"0e000")
"""Any number that a float or 64-bit integer may not hold has one of these: with a point, 16 digits have 8 of them on one side of it."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_WHITE = b" \t\r\n"
_EXACT_DIGITS = 15
"""A float holds every decimal number with this many digits."""
_MOST_INT_DIGITS = 4000
"""Python converts no whole numbers of more than 4300 digits to text."""


def parse(text: bytes) -> Value:
    """Returns the value of one text. Never raises."""
    value = _fast(text)
    if type(value) is bytes or (type(value) is dict and not _holds_float(value)):
        return value  # whole numbers that 64 bits do not hold would be floats
    return _one(text, value) if _may_lose(text) else value


def _holds_float(value: dict[str, Any]) -> bool:
    """Returns whether the fast parser made a float anywhere in the value."""
    kinds = set(map(type, value.values()))
    if float in kinds:
        return True
    if dict not in kinds and list not in kinds:
        return False
    rest: list[Any] = list(value.values())
    for inner in rest:  # the list grows meanwhile
        if type(inner) is dict:
            rest.extend(inner.values())
        elif type(inner) is list:
            rest.extend(inner)
        elif type(inner) is float:
            return True
    return False


def parse_all(texts: Sequence[bytes]) -> list[Value]:
    """Returns the value of each text."""
    try:
        values: list[Value] = [value if type(value) is dict else text for value, text in zip(map(orjson.loads, texts), texts, strict=True)]
    except ValueError:
        values = list(map(_fast, texts))
    numbers = b"\n".join(texts).translate(_NUMBERS)
    if any(pattern in numbers for pattern in _MAY_LOSE) and not _come_back(b",".join(texts), values):
        for index in _suspects(texts, numbers):
            values[index] = _one(texts[index], values[index])
    return values


def _suspects(texts: Sequence[bytes], numbers: bytes) -> set[int]:
    """Returns the indexes of texts with numbers that the fast parser may not keep. `numbers` is all texts reduced by `_NUMBERS`."""
    found: set[int] = set()
    ends: list[int] = []
    for pattern in _MAY_LOSE:
        at = numbers.find(pattern)
        while at >= 0:
            ends = ends or list(accumulate(len(text) + 1 for text in texts))
            found.add(index := bisect_right(ends, at))
            at = numbers.find(pattern, ends[index])
    return found


def _fast(text: bytes) -> Value:
    try:
        value = orjson.loads(text)
    except ValueError as error:
        # of bytes that are not UTF-8 the fast parser does not know the place
        return _exact(text) if "valid UTF-8" in str(error) else _bad(error)
    return value if type(value) is dict else text


def _may_lose(text: bytes) -> bool:
    """Returns whether it may have a number that the fast parser does not keep; digits within strings count too."""
    numbers = text.translate(_UNSIGNED)
    if _LONG not in numbers and b"0e" not in numbers:
        return False
    numbers = text.translate(_NUMBERS)
    return any(pattern in numbers for pattern in _MAY_LOSE)


def _one(text: bytes, value: Value) -> Value:
    """Returns the value of a text that may have such a number, after a closer check: identifiers and hashes in its strings look alike."""
    if _come_back(text, [value]):
        return value
    numbers = _STRING.sub(b"", text).translate(_NUMBERS)
    loses = _HUGE in numbers or _FAR in numbers
    if not loses:
        loses = any(len(word) > _EXACT_DIGITS + 1 and (b"." in word or b"e" in word) for word in numbers.split())
    return _exact(text) if loses else value


def _come_back(text: bytes, values: Sequence[Value]) -> bool:
    """Returns whether the fast parser's values are objects that give the same text when written, joined by commas, ignoring blanks.

    Then no number has lost anything: without blanks the two still have the same tokens. This is true of most texts that a program wrote,
    and takes a fifth of the time of the exact parser.
    """
    if set(map(type, values)) != {dict}:
        return False
    try:
        again = orjson.dumps(values)[1:-1]
    except orjson.JSONEncodeError:  # halves of characters
        return False
    return again.translate(None, _WHITE) == text.translate(None, _WHITE)


def _exact(text: bytes) -> Value:
    try:
        value = _DECODER.decode(text.decode())
        if b"\\u" in text:
            json.dumps(value, ensure_ascii=False, default=str).encode()  # refuses lone surrogates, which the parser accepts
    except (ValueError, RecursionError) as error:
        return _bad(error)
    return value if type(value) is dict else text


def _float(text: str) -> float | Decimal:
    number = float(text)
    if repr(number) == text:
        return number
    exact = exact_number(text)
    return number if Decimal(repr(number)) == exact else exact


def _int(text: str) -> int | Decimal:
    return int(text) if len(text) <= _MOST_INT_DIGITS else Decimal(text)


def _constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


_DECODER = json.JSONDecoder(parse_float=_float, parse_int=_int, parse_constant=_constant)


def _bad(error: Exception) -> Unparsed:
    """Returns why a text is not JSON. The parsers' messages that are used here contain no data."""
    if isinstance(error, json.JSONDecodeError):
        return Unparsed(f"not JSON: {error.msg}, at character {error.pos}")
    if isinstance(error, UnicodeDecodeError):
        return Unparsed(f"not JSON: not UTF-8 at byte {error.start}")
    if isinstance(error, RecursionError):
        return Unparsed("not JSON that can be read: nested too deeply")
    return Unparsed("not JSON: half of a surrogate pair" if isinstance(error, UnicodeEncodeError) else f"not JSON: {error}")
