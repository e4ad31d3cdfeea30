"""`xml`: each element at a path is a record.

Positions are the bytes where records begin. The beginning of the file determines namespaces, entities and the encoding, so after a kill it
is read again from there, and what has been delivered is skipped; between two batches the parser is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Literal, Unpack

from copycat_agent.errors import DamageError
from copycat_agent.formats.draft import Parsed, Unparsed
from copycat_agent.formats.model import FileFormat, FormatKind, Frame, FrameOptions, Gap, LongLine, RecordFile
from copycat_agent.formats.records.field_types import TreeOptions, Typing, Value
from copycat_agent.formats.records.xml_tree import RecordPath, XmlHit, XmlShape, XmlTree
from copycat_agent.options import BeforeValidator, ByteSize, Field

_BLOCK_BYTES = 2**17
"""The size of text that becomes fields at a time; they take about ten times the memory, and are kept for the next batch."""
_LEAST_BLOCK_BYTES = 4096


def _record_path(text: object) -> object:
    if isinstance(text, str):
        RecordPath(text)
    return text


class XmlOptions(TreeOptions):
    """XML documents."""

    type: Literal["xml"] = Field("xml", description="Each element at a path is a record.")
    record: Annotated[str, BeforeValidator(_record_path)] = Field(
        "/*/*",
        min_length=1,
        max_length=1024,
        description="Which elements are records: /catalog/book is an absolute path, book or //shelf/book are anywhere, * is any name. "
        "By default the children of the root element.",
    )
    attribute_prefix: str = Field("_", max_length=16, description="Put before the names of attributes, so that no element has them.")
    text_field: str = Field("#text", min_length=1, max_length=255, description="Field for the text of an element that has other fields.")
    lists: tuple[str, ...] = Field((), description="Elements that are lists even where there is only one.")
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Largest record as it stands in the file.")
    on_too_long: Literal["dlq", "drop"] = Field(
        "dlq", description="dlq: a bad record, as `errors` says, its first max_bytes as raw bytes. drop: skipped and counted."
    )


class XmlFormat(FileFormat):
    """Each element at a path is a record."""

    finds_end = True

    def __init__(self, options: XmlOptions) -> None:
        self._path = RecordPath(options.record)
        self._shape = XmlShape(options.attribute_prefix, options.text_field, frozenset(options.lists))
        self._max_bytes = options.max_bytes
        self._typing = Typing(options)
        self.on_too_long = options.on_too_long

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        kept = file.memo.get("pass")
        one = kept if isinstance(kept, _ParserRun) and kept.goes_on_at(start) else self._new(start)
        file.memo["pass"] = one
        user = one.user = object()
        size = max(_LEAST_BLOCK_BYTES, min(how.get("block_bytes") or _BLOCK_BYTES, _BLOCK_BYTES))
        while True:
            for frame in one.frames(start):
                yield frame
                start = frame.end
                if one.user is not user:  # another reading has continued with the parser meanwhile
                    yield from self.frames(file, start, end, **how)
                    return
            if one.is_read:
                file.memo.pop("pass", None)
                one.end()
                return
            if not one.read(file, end, size, final=how.get("final", True)):
                file.memo.pop("pass", None)  # held-back records are yielded now, and do not end where they would
                yield from one.held()
                return

    def _new(self, start: int) -> _ParserRun:
        return _ParserRun(XmlTree(self._path, self._shape, self._max_bytes, start), start, self._typing)

    def alone(self, raw: bytes, columns: tuple[str, ...]) -> Value:
        """Returns one record from the bytes in a dead letter, which are taken as UTF-8, since they do not name an encoding."""
        del columns
        tree = XmlTree(RecordPath("/*"), self._shape, self._max_bytes, 0)
        try:
            tree.feed(raw, is_last=True)
        except DamageError as error:
            return Unparsed(error.message, error.hint)
        return self._typing.read([tree.found[0].value])[0]


class _ParserRun:
    """A parser under way, and its frames: the last one that was yielded, and those after it.

    `user`: the reading that continues it. `is_read`: there is nothing more to read.
    """

    def __init__(self, tree: XmlTree, start: int, typing: Typing) -> None:
        self._typing = typing
        self.user: object = None
        self._tree = tree
        self._last: Frame | None = None
        self._frames: deque[Frame] = deque()
        self._position = start
        self._damage: DamageError | None = None
        self.is_read = False

    def goes_on_at(self, start: int) -> bool:
        """Returns whether it can continue at byte `start`: in, or just after, the last frame, or at its beginning."""
        last = self._last
        return last is not None and (start in (last.start, last.end) or (isinstance(last, Parsed) and start in last.places))

    def frames(self, start: int) -> Iterator[Frame]:
        """Yields its frames from byte `start` on."""
        if isinstance(self._last, Parsed) and self._last.start < start < self._last.end:
            yield self._last.cut(self._last.before(start))[1]
        elif self._last is not None and self._last.start == start:
            yield self._last
        while self._frames:
            self._last = self._frames.popleft()
            yield self._last

    def end(self) -> None:
        """Raises DamageError if the frames do not cover the whole file. Called when all of them were yielded."""
        if self._damage is not None:
            raise self._damage

    def held(self) -> Iterator[Frame]:
        """Yields the records whose ends are not known yet, up to the end of their own elements."""
        found = self._tree.found
        return self._runs(found, found[-1].end) if found else iter(())

    def read(self, file: RecordFile, end: int, size: int, *, final: bool) -> bool:
        """Reads a block. Returns False when there is none, and more of the file may come."""
        tree = self._tree
        wanted = min(size, end - tree.fed)
        block = file(tree.fed, wanted) if wanted > 0 else b""
        is_last = final and (len(block) < wanted or tree.fed + len(block) >= end)
        if not block and not is_last:
            return False
        try:
            if block or tree.fed:
                tree.feed(block, is_last=is_last)
        except DamageError as error:
            self._damage = error
        self.is_read = is_last or self._damage is not None
        self._take()
        return True

    def _take(self) -> None:
        """Makes frames of the records that were found. The end of the last one is known when the next one begins."""
        tree, found, ready = self._tree, self._tree.found, self._tree.found
        known = [one.start for one in found] + [tree.upcoming] * (tree.upcoming >= 0)
        if self._damage is not None:
            end = tree.upcoming if tree.upcoming >= 0 else found[-1].end if found else self._position
        elif self.is_read:
            end = tree.fed
        else:
            end = known[-1] if known else self._position
            ready = [one for one in found if one.start < end]
        first = known[0] if known else end
        if first > self._position:
            self._frames.append(Gap(self._position, first, tree.tail(first), "header"))
            self._position = first
        if ready:
            self._frames.extend(self._runs(ready, end))
            self._position = end
        tree.found = found[len(ready) :]

    def _runs(self, ready: list[XmlHit], after: int) -> Iterator[Parsed | LongLine]:
        """Yields good records together, others one by one; the last one ends at byte `after`."""
        places = [*(one.start for one in ready), after]
        index = 0
        for kind, group in groupby(ready, lambda one: 2 if one.is_long else type(one.value) is Unparsed):
            for run in [list(group)] if not kind else [[one] for one in group]:
                covered = places[index : index + len(run) + 1]
                index += len(run)
                begin, end = covered[0], covered[-1]
                tail = self._tree.tail(end) if end != run[-1].end else run[-1].tail
                if run[0].is_long:
                    yield LongLine(run[0].raw, begin, end, True, tail)
                else:
                    yield Parsed(self._typing.read([one.value for one in run]), covered, end - begin, [one.raw for one in run], tail)


XML = FormatKind(XmlOptions, XmlFormat)
