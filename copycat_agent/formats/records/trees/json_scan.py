"""Where JSON values begin and end, in files of any size: nothing is kept but the value that is looked at."""

from __future__ import annotations

import re
from typing import NamedTuple

from copycat_agent.formats.model import TAIL_BYTES, Reader

NOTHING = -1
"""What stands at a file's end, in place of a byte."""
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


class Extent:
    """Follows one value to its end: balanced brackets outside strings. What stands in it need not be JSON."""

    def __init__(self, depth: int = 0) -> None:
        """`depth` brackets are open already."""
        self._depth = depth
        self._in_string = False
        self.is_scalar = False

    def look(self, data: bytes, place: int) -> JsonLook:
        """Look at `data` from `place` on: the value's first bytes, or those that follow what was looked at."""
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
    """The last byte before `position` that is no white space; `NOTHING` when there is none."""
    while position > 0:
        begin = max(0, position - TAIL_BYTES)
        text = read(begin, position - begin).rstrip(b" \t\r\n\x1e")
        if text:
            return text[-1]
        position = begin
    return NOTHING


class Cursor:
    """A place in a file, and the bytes read around it: `data[index:]` are those from there on."""

    def __init__(self, read: Reader, position: int, end: int, block_bytes: int) -> None:
        """Nothing behind byte `end` is read."""
        self._read = read
        self._end = end
        self._block_bytes = block_bytes
        self.data = b""
        self.index = 0
        self.start = position
        self.is_whole = position >= end

    def again(self) -> Cursor:
        """Another one, at the beginning of the file."""
        return Cursor(self._read, 0, self._end, self._block_bytes)

    @property
    def position(self) -> int:
        """The byte of the file where it stands."""
        return self.start + self.index

    @property
    def left(self) -> int:
        """How many bytes were read from there on."""
        return len(self.data) - self.index

    def tail(self, position: int) -> bytes:
        """The last bytes before `position`, which has been passed, as far as they are kept."""
        index = max(0, position - self.start)
        return self.data[max(0, index - TAIL_BYTES) : index]

    def more(self) -> bool:
        """Read on, as much again as is left. False at the end of the file."""
        begin = max(0, self.index - TAIL_BYTES)
        position = self.start + len(self.data)
        wanted = min(max(self._block_bytes, self.left), self._end - position)
        block = self._read(position, wanted) if wanted > 0 else b""
        self.data, self.start, self.index = self.data[begin:] + block, self.start + begin, self.index - begin
        self.is_whole = len(block) < wanted or position + len(block) >= self._end
        return bool(block)

    def skip_blanks(self) -> int:
        """Pass white space. Returns the byte that stands behind it, or `NOTHING`."""
        while True:
            match = _BLANKS.match(self.data, self.index)
            assert match is not None, "it matches nothing, too"
            self.index = match.end()
            if self.left:
                return self.data[self.index]
            if not self.more():
                return NOTHING

    def follow(self, extent: Extent) -> bool:
        """Pass the rest of a value, keeping nothing of it. False when the file ends before."""
        while True:
            if self.left:
                looked = extent.look(self.data, self.index)
                self.index = looked.place
                if looked.is_end:
                    return True
            if not self.more():
                return extent.is_scalar
