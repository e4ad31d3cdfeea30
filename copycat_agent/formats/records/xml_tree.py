"""Makes records from the events of an XML parser: fields of elements, and their positions in the file."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from xml.parsers import expat

from copycat_agent.errors import DamageError
from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.text import TAIL_BYTES

MOST_DEPTH = 200
"""Most nested elements in a record. The JSON writer takes no more than 254."""
_MOST_OUTER_DEPTH = 10_000
MOST_NAMES, MOST_LETTERS = 200_000, 2**24
"""The most different names of elements and attributes, and their letters: the parser keeps all of them to the end of the file."""
_BOTH = tuple("/>".encode(codec) for codec in ("ascii", "utf-16-le", "utf-16-be"))
_CLOSE = {"<".encode(codec): ">".encode(codec) for codec in ("utf-16-le", "utf-16-be")}
"""The end of an end tag by its beginning."""
_NAME = r"(?:\*|[^\s/*:@\[\]]+(?::[^\s/*:@\[\]]+)?)"
_PATH = re.compile(rf"(?P<root>//?)?(?P<names>{_NAME}(?:/{_NAME})*)")


class XmlHit(NamedTuple):
    """One record. `raw` are its bytes, only the first ones if it is over the limit (`is_long`); `tail` are its last bytes."""

    value: dict[str, Any] | Unparsed
    start: int
    end: int
    raw: bytes
    tail: bytes
    is_long: bool


class RecordPath:
    """`/a/b`: elements b in the root element a. `b`, `//b`, `//a/b`: anywhere. `*` is any name; one without prefix matches any prefix."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for an invalid path."""
        match = _PATH.fullmatch(text)
        if match is None:
            raise ValueError("is no path of elements, such as row, //order/item, /catalog/book or /*/*")
        self._is_absolute = match["root"] == "/"
        self._names = match["names"].split("/")

    def matches(self, stack: list[str]) -> bool:
        """Returns whether the last of these elements, each in the one before it, is a record."""
        count = len(self._names)
        if len(stack) < count or (self._is_absolute and len(stack) != count):
            return False
        return all(
            wanted in ("*", name) or (":" not in wanted and wanted == name.rpartition(":")[2])
            for wanted, name in zip(self._names, stack[-count:], strict=True)
        )


class XmlShape(NamedTuple):
    """How elements become fields, see `XmlOptions`."""

    attribute_prefix: str
    text_field: str
    lists: frozenset[str]


class KeptBytes:
    """The last bytes that were fed to a parser. Positions count from the first byte of the file."""

    def __init__(self) -> None:
        self.end = 0
        self._data = b""
        self._start = 0

    def add(self, block: bytes, keep_from: int) -> None:
        """Adds the next block; bytes before `keep_from` are not needed any more."""
        cut = max(0, keep_from - self._start)
        self._data, self._start = self._data[cut:] + block, self._start + cut
        self.end += len(block)

    def between(self, start: int, end: int) -> bytes:
        """Returns the bytes from `start`, as far as they are kept, up to `end`, which has not been passed long ago."""
        begin = start - self._start
        return self._data[max(0, begin) : end - self._start]

    def end_of_tag(self, start: int) -> int:
        """Returns where the end tag ends that begins at `start` and is kept to its end."""
        place = max(0, start - self._start)
        sign = _CLOSE.get(self._data[place : place + 2], b">")
        return self._start + self._data.find(sign, place) + len(sign)


class XmlTree:
    """The parser of one file and the records that it found. Fed block by block, from byte 0 on."""

    def __init__(self, path: RecordPath, shape: XmlShape, max_bytes: int, first: int) -> None:
        """Records that begin before byte `first` are skipped."""
        self.found: list[XmlHit] = []
        self.start = -1
        self._path, self._shape, self._max_bytes, self._first = path, shape, max_bytes, first
        self._stack: list[str] = []
        self._nodes: list[tuple[dict[str, Any], list[str]]] = []
        self._depth = 0
        self._value: dict[str, Any] | Unparsed = {}
        self._has_content = False
        self._kept = KeptBytes()
        self._head: bytes | None = None
        self._names: dict[str, str] = {}
        self._parser = self._new_parser()

    def _new_parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.DefaultHandler = self._other
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._unknown_entity
        self._go_outside(parser)
        return parser

    def feed(self, block: bytes, *, is_last: bool = False) -> None:
        """Parses the next block. Raises DamageError; records found before are then in `found`."""
        self._kept.add(block, (self.start if self.start >= 0 and self._head is None else self.fed) - TAIL_BYTES)
        try:
            self._parser.Parse(block, is_last)
        except expat.ExpatError as error:
            place = f"line {error.lineno}, byte {self._parser.ErrorByteIndex}"
            raise DamageError(f"not well-formed XML: {expat.ErrorString(error.code)}, at {place}") from None
        except (ValueError, LookupError):
            raise DamageError("the XML is in an encoding that is not read", "have it written in UTF-8") from None
        if not is_last and self.fed - self._parser.CurrentByteIndex > self._max_bytes + len(block):
            raise DamageError(f"a tag or a comment is longer than max_bytes, at byte {self._parser.CurrentByteIndex}")
        if self.start >= 0 and self._head is None and self.fed - self.start > self._max_bytes:
            self._pass_long()
        names = self._parser.intern
        if len(names) > MOST_NAMES or sum(map(len, names)) > MOST_LETTERS:
            words = f"more than {MOST_NAMES} different names of elements and attributes, or {MOST_LETTERS} letters of them"
            raise DamageError(f"{words}, before byte {self.fed}", "have data written as text or values of attributes, not as names")

    @property
    def fed(self) -> int:
        """Returns how many bytes were fed."""
        return self._kept.end

    @property
    def upcoming(self) -> int:
        """Returns where the present record begins; -1 without one that is wanted."""
        return self.start if self.start >= self._first else -1

    def tail(self, position: int) -> bytes:
        """Returns the last bytes before `position`, which is not far back."""
        return self._kept.between(position - TAIL_BYTES, position)

    def _pass_long(self) -> None:
        """Keeps no more of the present record than may be sent of it."""
        self._head = self._kept.between(self.start, self.start + self._max_bytes)
        self._go_on_without()

    def _go_outside(self, parser: expat.XMLParserType) -> None:
        parser.StartElementHandler, parser.EndElementHandler = self._start_outside, self._end_outside
        parser.CharacterDataHandler = None

    def _go_on_without(self) -> None:
        """Counts elements to the end of the present record, whose fields are not wanted."""
        self._has_content = True
        self._depth += len(self._nodes)
        self._nodes = []
        parser = self._parser
        parser.StartElementHandler, parser.EndElementHandler = self._start_unwanted, self._end_unwanted
        parser.CharacterDataHandler = None

    def _start_outside(self, name: str, attributes: dict[str, str]) -> None:
        self._stack.append(name)
        if len(self._stack) > _MOST_OUTER_DEPTH:
            raise DamageError(f"more than {_MOST_OUTER_DEPTH} elements within each other, at byte {self._parser.CurrentByteIndex}")
        if not self._path.matches(self._stack):
            return
        parser = self._parser
        self.start, self._head, self._value, self._depth = parser.CurrentByteIndex, None, {}, 0
        self._has_content = False
        if self.start < self._first:
            self._nodes = []
            self._depth = 1
            self._go_on_without()
            return
        self._nodes = [(self._attributes(attributes), [])]
        parser.StartElementHandler, parser.EndElementHandler = self._start_inside, self._end_inside
        parser.CharacterDataHandler = self._text

    def _end_outside(self, _: str) -> None:
        self._stack.pop()

    def _other(self, _: str) -> None:
        """Ignores anything else. While this handler is set, entities are not expanded."""

    def _start_inside(self, _: str, attributes: dict[str, str]) -> None:
        self._has_content = True
        self._nodes.append((self._attributes(attributes) if attributes else {}, []))
        if len(self._nodes) > MOST_DEPTH:
            self._value = Unparsed(f"more than {MOST_DEPTH} elements within each other")
            self._go_on_without()

    def _text(self, text: str) -> None:
        self._nodes[-1][1].append(text)

    def _end_inside(self, name: str) -> None:
        fields, texts = self._nodes.pop()
        nodes, text = self._nodes, "".join(texts)
        if nodes:
            self._add(nodes[-1][0], name, self._with_text(fields, text) if fields else text or None)
            return
        if not isinstance(self._value, Unparsed):
            self._value = self._with_text(fields, text)
        self._has_content |= bool(texts)
        self._over()

    def _start_unwanted(self, _: str, __: dict[str, str]) -> None:
        self._depth += 1

    def _end_unwanted(self, _: str) -> None:
        self._depth -= 1
        if not self._depth:
            self._over()

    def _over(self) -> None:
        """Ends the record whose last tag was read."""
        self._end(self._own_end(self._parser.CurrentByteIndex))
        self._stack.pop()
        self._go_outside(self._parser)

    def _own_end(self, closed_at: int) -> int:
        """Returns where the record's last tag ends, which has been read completely.

        `closed_at` is the parser's position: where an end tag begins, or where an empty-element tag ends.
        """
        if not self._has_content and self._kept.between(self.start, closed_at).endswith(_BOTH):
            return closed_at
        return self._kept.end_of_tag(closed_at)

    def _end(self, end: int) -> None:
        """Ends the present record before byte `end`."""
        start, self.start = self.start, -1
        if start < self._first:
            return
        is_long = end - start > self._max_bytes
        raw = self._kept.between(start, min(end, start + self._max_bytes)) if self._head is None else self._head
        self.found.append(XmlHit(self._value, start, end, raw, self._kept.between(end - TAIL_BYTES, end), is_long))

    def _attributes(self, attributes: dict[str, str]) -> dict[str, Any]:
        prefix, fields = self._shape.attribute_prefix, dict[str, Any]()
        for name, value in attributes.items():
            if name != "xmlns" and not name.startswith("xmlns:"):
                self._add(fields, name, value, prefix)
        return fields

    def _add(self, fields: dict[str, Any], name: str, value: object, prefix: str = "") -> None:
        """Adds a field; a repeated name makes a list."""
        key = self._names.get(name) or self._names.setdefault(name, name.rpartition(":")[2])
        key = prefix + key if prefix else key
        if key in fields:
            known = fields[key]
            if isinstance(known, list):
                known.append(value)
            else:
                fields[key] = [known, value]
        else:
            fields[key] = [value] if key in self._shape.lists else value

    def _with_text(self, fields: dict[str, Any], text: str) -> dict[str, Any]:
        """Returns the fields of an element, with its own text if that is more than white space."""
        if text and not text.isspace():
            fields[self._shape.text_field] = text.strip() if fields else text
        return fields

    def _entity(self, *_: object) -> None:
        raise DamageError("it declares entities, which are not read", "have it written without them")

    def _unknown_entity(self, *_: object) -> None:
        if self.start >= 0:
            self._value = Unparsed("an entity in it is not declared")
