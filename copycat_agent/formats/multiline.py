"""Records of several lines, on top of lines: groups that a rule joins, unchanged from the file.

Nothing is kept between two calls: a group that is not known to be complete is not yielded, and is read again from its beginning, after a
kill as after a batch. So the offset never passes an open group; whether a line continues it follows from the group's own lines. A group
over a limit is sent in parts (`GroupParts`); or it is cut there, and the rest of it is skipped up to the next group's beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import sub
from typing import Unpack

from copycat_agent.formats.draft import Chunk
from copycat_agent.formats.grouping import GroupMarks, GroupState, TextField
from copycat_agent.formats.lines import BLOCK_BYTES, LineFrames, TextLineOptions
from copycat_agent.formats.model import Frame, FrameOptions, Gap, LongLine, RecordCut, RecordPart, SkippedRest, part_bytes
from copycat_agent.formats.multiline_options import GroupOptions
from copycat_agent.formats.over_limit import GroupParts
from copycat_agent.formats.text import AS_IT_STANDS, TAIL_BYTES, Layout, Reader, Text

_READ_BACK_BYTES = 2**15
"""How far back the line before a position inside a group is searched: twice the length of a part of a wrapped line."""


class MultilineFrames:
    """Frames records of several lines. Stateless, as all `Frames` are."""

    def __init__(
        self, line: TextLineOptions, options: GroupOptions, block_bytes: int = BLOCK_BYTES, *, encoding: str = "utf-8", raw: bool = False
    ) -> None:
        """`block_bytes`, `encoding`, `raw` and the errors are as for `LineFrames`."""
        self.on_too_long = options.on_too_long
        self.splits = self.on_too_long == "split"
        # no piece of a long line is longer than a part
        max_bytes = min(line.max_bytes, options.max_bytes) if self.splits else line.max_bytes
        # an empty line within a group belongs to it
        ours = {"skip_empty": False, "on_too_long": self.on_too_long, "max_bytes": max_bytes}
        self.lines = LineFrames(line.model_copy(update=ours), block_bytes, encoding=encoding, raw=raw)
        self.skip_empty = line.skip_empty
        self.rule = options.rule()
        self.max_lines = options.max_lines
        self.max_bytes = options.max_bytes

    def frames(self, read: Reader, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        """Finds groups of lines, as `Frames.frames` says. A `skipping` start at a line's beginning lies between two lines of a group."""
        held = RecordCut.parse(how.get("cut", ""), start) if self.splits else None
        skipping = how.get("skipping", False) and held is None
        in_line = skipping and not self.lines.is_line_start(read, start)
        walk = _FrameState(self, self.lines.layout(read, start), read, start, skipping=skipping)
        if held is not None:
            walk.go_on_behind(held)
        elif skipping and not in_line:
            walk.look_back()
        how |= {"skipping": in_line, "cut": how.get("cut", "") if held is not None and held.in_line else ""}
        for frame in self.lines.frames(read, start, end, **how):
            yield from walk.take(frame)
        if how.get("flush") or how.get("final"):
            yield from walk.close()


def _joining(layout: Layout, field: TextField) -> Layout:
    """Returns the layout with a `join` that makes one line of a group's value."""
    delimiter = layout.delimiter.decode(layout.codec).encode() if layout.text.codec else layout.delimiter

    def join(value: bytes) -> bytes:
        if delimiter not in value:
            return value
        lines = value.decode("utf-8", "replace").split(delimiter.decode("utf-8", "replace"))
        joined = field.joined([line.removesuffix("\r") for line in lines] if delimiter == b"\n" else lines)
        return value if joined is None else joined.encode("utf-8", "replace")

    return layout._replace(text=layout.text._replace(join=join))


class _FrameState:
    """The state of one call of `frames`.

    Everything before `position` has been yielded. `open` are the lines of the group that begins there, `state` is the rule's state after
    the last of them; or, while `skipping`, the state after the last line that was skipped. `parts`: the group is sent in parts, which hold
    its lines instead of `open`.
    """

    def __init__(self, frames: MultilineFrames, layout: Layout, read: Reader, position: int, *, skipping: bool) -> None:
        self._frames = frames
        self._rule = frames.rule
        self._layout = layout if frames.rule.field is None else _joining(layout, frames.rule.field)
        self._delimiter = layout.delimiter
        self._cr = layout.text.cr
        self._legible = Text(self._cr, "" if layout.codec in AS_IT_STANDS else layout.codec)  # matched by patterns, also for raw bytes
        self._read = read
        self.position = position
        self.open: list[bytes] = []
        self.state: GroupState | None = GroupState() if skipping else None
        self.skipping = skipping
        self.parts: GroupParts | None = None

    def go_on_behind(self, cut: RecordCut) -> None:
        """Starts between two parts of a group."""
        self.state = GroupState(cut.table, cut.stream, cut.unfinished)
        self.parts = self._parts_from(cut)

    def look_back(self) -> None:
        """Finds out which stream the line before `position` was written to."""
        begin = max(0, self._layout.down(self.position - _READ_BACK_BYTES))
        lines = self._layout.split(self._read(begin, self.position - begin), begin)
        if len(lines) > (2 if begin else 1):
            self.state = self._rule.state_behind(self._marks([lines[-2]]), 0)

    def take(self, frame: Frame) -> Iterator[Frame]:
        """Yields the groups that are complete once the lines of `frame` are known."""
        if isinstance(frame, Chunk):
            yield from self._chunk(frame) if not frame.partial else self._partial(frame)
        elif isinstance(frame, LongLine):
            yield from self._long_line(frame)
        elif isinstance(frame, SkippedRest):
            yield from self._rest_of_line(frame)
        elif isinstance(frame, RecordPart):
            yield from self._piece(frame)
        elif isinstance(frame, Gap):
            yield from self._gap(frame)

    def close(self) -> Iterator[Frame]:
        """Yields the open group, to which nothing is added any more."""
        if self.parts is not None and self.parts.lines:
            yield self._last_part()
        elif self.open:
            group, self.open, self.state = self.open, [], None
            yield self._run([self._delimiter.join(group)], is_value=False)

    def _chunk(self, chunk: Chunk) -> Iterator[Frame]:
        marks, index = self._marks_of(chunk), 0
        while index < len(chunk.raw):
            if self.skipping:
                index, rest = self._skip(chunk, marks, index)
                yield rest
            else:
                index, frames = self._groups(chunk.raw, marks, index, is_value=chunk.values is chunk.raw)
                yield from frames

    def _groups(self, raw: list[bytes], marks: GroupMarks, begin: int, *, is_value: bool) -> tuple[int, list[Frame]]:
        """Returns the index after the lines that were used, and frames of the complete groups: up to a group that is too long, or all.

        `is_value`: the lines are values unchanged, so groups of them are.
        """
        if self.parts is not None:
            return self._lines_of_parts(self.parts, raw, marks, begin)
        cuts, state = self._rule.cuts(marks, begin, self.state)
        bounds = [begin, *cuts]
        groups = [raw[a] if b - a == 1 else self._delimiter.join(raw[a:b]) for a, b in zip(bounds, cuts, strict=False)]
        lengths = list(map(sub, cuts, bounds))
        if self.open and cuts:
            groups[0] = self._delimiter.join([*self.open, *raw[begin : cuts[0]]])
            lengths[0] += len(self.open)
        before, fits, frames = bool(self.open), self._fits(groups, lengths), list[Frame]()
        if fits:
            self.open, self.state = [], None
            frames.append(self._run(groups[:fits], is_value=is_value and not before))
        end = bounds[fits + 1] if fits < len(groups) else len(raw)
        if fits < len(groups) or self._excess([*self.open, *raw[bounds[fits] :]]) is not None:
            if self._frames.splits:
                index, parts = self._lines_of_parts(self._begin_parts(), raw, marks, bounds[fits])
                return index, [*frames, *parts]
            index, long = self._too_long(raw, marks, bounds[fits], end)
            return index, [*frames, long]
        self.open += raw[bounds[fits] :]
        self.state = state
        return end, frames

    def _parts_from(self, cut: RecordCut | None) -> GroupParts:
        limits = self._frames
        return GroupParts(self._layout, limits.max_lines, part_bytes(limits.max_bytes), self.position, cut)

    def _begin_parts(self) -> GroupParts:
        """Begins the parts of the open group, which is over a limit."""
        parts = self.parts = self._parts_from(None)
        for line in self.open:
            parts.add(line)
        self.open = []
        return parts

    def _last_part(self, *, partial: bool = False) -> RecordPart:
        """Returns the last part of a complete group."""
        assert self.parts is not None
        part = self.parts.last(partial=partial)
        self.position, self.parts, self.state = part.end, None, None
        return part

    def _lines_of_parts(self, parts: GroupParts, raw: list[bytes], marks: GroupMarks, begin: int) -> tuple[int, list[Frame]]:
        """Adds lines from `begin` on to the group in parts. Returns the index after the last one, and the parts that are full."""
        cuts, state = self._rule.cuts(marks, begin, self.state)
        if not parts.lines and cuts and cuts[0] == begin:
            del cuts[0]  # the definition has changed; what follows a part still belongs to the group, as its `cut` says
        end, done, frames = cuts[0] if cuts else len(raw), begin, list[Frame]()
        for index in range(begin, end):
            if not parts.takes(raw[index]):
                before = self._rule.cuts(marks.part(done, index), 0, self.state)[1] if done < index else self.state
                self.state, done = before or GroupState(), index
                frames.append(parts.full(self.state))
            parts.add(raw[index])
        self.position = parts.position
        if cuts:
            frames.append(self._last_part())
        else:
            self.state = state
        return end, frames

    def _piece(self, piece: RecordPart) -> Iterator[Frame]:
        """Takes a piece of a line that is too long by itself, as is its group then."""
        if piece.number == 1:
            yield from self._first_piece(piece)
        if self.skipping:  # it was begun under another definition
            complete = piece.is_last and self._is_end(piece.end)
            self._begin_skipping(None if complete else self.state or GroupState())
            yield self._rest(piece.end, piece.tail, complete=complete)
            return
        assert self.parts is not None
        self.parts.add(piece.raw)
        if not piece.is_last:
            yield self.parts.full(self.state or GroupState(), in_line=True)
            self.position = self.parts.position
        elif piece.partial or self._is_end(piece.end):
            yield self._last_part(partial=piece.partial)

    def _first_piece(self, piece: RecordPart) -> Iterator[Frame]:
        """Takes the first piece of a line: the open group ends before it, or continues with it."""
        marks = self._marks([piece.raw])
        if self._rule.is_end:
            marks = marks._replace(kinds=[0])  # its end decides
        if self.skipping:
            assert self.state is not None
            found, self.state = self._rule.end_of_skipped(marks, 0, self.state)
            if found is None:
                return
            self._begin_skipping(None)
            yield self._rest(piece.start, b"", complete=True)
        elif (self.open or (self.parts and self.parts.lines)) and 0 in self._rule.cuts(marks, 0, self.state)[0]:
            yield from self.close()
        parts = self.parts or self._begin_parts()
        if not parts.takes(piece.raw):
            yield parts.full(self.state or GroupState())
            self.position = parts.position
        self.state = self._rule.cuts(marks, 0, self.state)[1]

    def _fits(self, groups: list[bytes], lengths: list[int]) -> int:
        """Returns how many groups come before the first that is too long."""
        most_lines, most_bytes = self._frames.max_lines, self._frames.max_bytes
        if not groups or (max(lengths) <= most_lines and len(max(groups, key=len)) <= most_bytes):
            return len(groups)
        bad = (index for index, group in enumerate(groups) if lengths[index] > most_lines or self._is_large(group))
        return next(bad, len(groups))

    def _is_large(self, group: bytes) -> bool:
        size = len(group)
        return size > self._frames.max_bytes and size - len(self._cr) * group.endswith(self._cr) > self._frames.max_bytes

    def _excess(self, lines: list[bytes]) -> int | None:
        """Returns the index of the line with which a group becomes too long; None when it does not."""
        size = -len(self._delimiter)
        for index, line in enumerate(lines):
            size += len(line) + len(self._delimiter)
            is_large = size > self._frames.max_bytes and size - len(self._cr) * line.endswith(self._cr) > self._frames.max_bytes
            if index >= self._frames.max_lines or is_large:
                return index
        return None

    def _too_long(self, raw: list[bytes], marks: GroupMarks, begin: int, end: int) -> tuple[int, Frame]:
        """Cuts the group of the open lines and those from `begin` to `end` where it becomes too long. Returns the index after that line."""
        lines = [*self.open, *raw[begin:end]]
        excess = self._excess(lines)
        assert excess is not None, "asked for a group that is too long"
        index = begin + excess - len(self.open)
        passed = self._delimiter.join(lines[: excess + 1]) + self._delimiter
        complete = self._rule.ends_with(marks, index)
        self._begin_skipping(None if complete else self._rule.state_behind(marks, index))
        return index + 1, self._long(lines[: excess + 1], self.position + len(passed), passed[-TAIL_BYTES:], complete=complete)

    def _begin_skipping(self, state: GroupState | None) -> None:
        """Ends the open group, which is cut; `state` None: it is also complete, so nothing is skipped."""
        self.open, self.state, self.skipping = [], state, state is not None

    def _long(self, lines: list[bytes], end: int, tail: bytes, *, complete: bool) -> LongLine:
        """Returns the frame of a group that is too long: its first lines and bytes, within the limits."""
        whole, size = self._delimiter.join(lines[: self._frames.max_lines]), self._frames.max_bytes
        head, value = self._layout.head(whole, size) if len(whole) > size else (whole, self._layout.text.value(whole))
        if self._layout.text.join is not None and len(whole) > size and self._delimiter in head:
            value = self._layout.text.value(head[: head.rindex(self._delimiter)])  # a value that is cut within an object is not valid
        frame = LongLine(head, self.position, end, complete, tail, value)
        self.position = end
        return frame

    def _skip(self, chunk: Chunk, marks: GroupMarks, begin: int) -> tuple[int, SkippedRest]:
        """Skips the rest of a group that was cut."""
        assert self.state is not None
        found, state = self._rule.end_of_skipped(marks, begin, self.state)
        index = len(chunk.raw) if found is None else found
        passed = b"".join([line + chunk.delimiter for line in chunk.raw[begin:index]])
        self._begin_skipping(state if found is None else None)
        return index, self._rest(self.position + len(passed), passed[-TAIL_BYTES:], complete=found is not None)

    def _rest(self, end: int, tail: bytes, *, complete: bool) -> SkippedRest:
        rest = SkippedRest(self.position, end, complete, tail)
        self.position = end
        return rest

    def _partial(self, chunk: Chunk) -> Iterator[Frame]:
        """Takes the last line, which will not be finished."""
        marks = self._marks_of(chunk)
        if self.skipping:
            index, rest = self._skip(chunk, marks, 0)
            yield rest
            if index:
                return
        if self.parts is not None:
            if not self.parts.lines or 0 not in self._rule.cuts(marks, 0, self.state)[0]:
                yield from self._partial_of_parts(self.parts, chunk.raw[0])
                return
            yield self._last_part()
        if self.open and 0 in self._rule.cuts(marks, 0, self.state)[0]:
            yield from self.close()
        lines, self.open, self.state = [*self.open, *chunk.raw], [], None
        tail = (b"".join(line + self._delimiter for line in lines[-TAIL_BYTES:-1]) + lines[-1])[-TAIL_BYTES:]
        if self._excess(lines) is not None:
            yield from self._partial_over_limit(lines, chunk, tail)
            return
        group, text = self._delimiter.join(lines), chunk.text._replace(join=self._layout.text.join)
        yield chunk._replace(raw=[group], values=text.values([group], skip_empty=False), start=self.position, tail=tail, text=text)
        self.position = chunk.end

    def _partial_over_limit(self, lines: list[bytes], chunk: Chunk, tail: bytes) -> Iterator[Frame]:
        if not self._frames.splits:
            yield self._long(lines, chunk.end, tail, complete=True)
            return
        self.open = lines[:-1]
        yield from self._partial_of_parts(self._begin_parts(), lines[-1])

    def _partial_of_parts(self, parts: GroupParts, line: bytes) -> Iterator[Frame]:
        if not parts.takes(line):
            yield parts.full(self.state or GroupState())
        parts.add(line)
        yield self._last_part(partial=True)

    def _long_line(self, line: LongLine) -> Iterator[Frame]:
        """Takes a line that is too long by itself: the group is cut in it."""
        marks = self._marks([line.head])
        if self._rule.is_end:
            marks = marks._replace(kinds=[0])  # its end decides
        if self.skipping:
            assert self.state is not None
            found, state = self._rule.end_of_skipped(marks, 0, self.state)
            if found is None:
                complete = line.complete and self._is_end(line.end)
                self._begin_skipping(None if complete else state)
                yield self._rest(line.end, line.tail, complete=complete)
                return
            self._begin_skipping(None)
            yield self._rest(line.start, b"", complete=True)
        elif self.open and 0 in self._rule.cuts(marks, 0, self.state)[0]:
            yield from self.close()
        complete = line.complete and self._is_end(line.end)
        tail = (b"".join(one + self._delimiter for one in self.open[-TAIL_BYTES:]) + line.tail)[-TAIL_BYTES:]
        lines = [*self.open, line.head]
        self._begin_skipping(None if complete else self._rule.state_behind(marks, 0))
        yield self._long(lines, line.end, tail, complete=complete)

    def _rest_of_line(self, rest: SkippedRest) -> Iterator[Frame]:
        """Skips more of such a line, if reading began inside it or it is longer than a block."""
        complete = rest.complete and self._is_end(rest.end)
        self._begin_skipping(None if complete else self.state or GroupState())
        yield self._rest(rest.end, rest.tail, complete=complete)

    def _is_end(self, end: int) -> bool:
        """Returns whether a line that is too long, and whose delimiter ends at byte `end`, ends its group: its last bytes decide."""
        if not self._rule.is_end:
            return False
        begin = max(0, end - TAIL_BYTES)
        last = self._layout.split(self._read(begin, end - begin - len(self._delimiter)), begin)[-1]
        return self._rule.ends_with(self._marks([last]), 0)

    def _gap(self, gap: Gap) -> Iterator[Frame]:
        """Yields the gap, and before it the group that it ends."""
        if self.skipping:
            self._begin_skipping(None)
            yield self._rest(self.position, b"", complete=True)
        yield from self.close()
        self.parts = None
        yield gap
        self.position = gap.end

    def _run(self, groups: list[bytes], *, is_value: bool) -> Chunk:
        """Returns a chunk of complete groups from `position` on."""
        skip_empty, text = self._frames.skip_empty, self._layout.text
        is_value = is_value and not skip_empty and text.join is None
        start, values = self.position, groups if is_value else text.values(groups, skip_empty=skip_empty)
        self.position += sum(map(len, groups)) + len(groups) * len(self._delimiter)
        chunk = Chunk(groups, values, start, self.position, self._delimiter, text, skip_empty, b"")
        return chunk._replace(tail=chunk.tail_before(len(groups)))

    def _marks_of(self, chunk: Chunk) -> GroupMarks:
        after_nothing = self.state is None and not self.skipping
        if chunk.text == self._legible:
            return self._rule.marks(chunk.values, after_nothing=after_nothing)
        return self._rule.marks(self._legible.values(chunk.raw, skip_empty=False), after_nothing=after_nothing)

    def _marks(self, raw: list[bytes]) -> GroupMarks:
        return self._rule.marks(self._legible.values(raw, skip_empty=False))
