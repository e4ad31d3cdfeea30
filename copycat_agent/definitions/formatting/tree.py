"""A definition's text as a tree with the parts that `definitions.yaml_tree` ignores: comments, blank lines, quotes, styles, anchors.

Used after `yaml_tree.parse_mapping`, which refuses everything that is no definition; so the grammar here is small.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml

from copycat_agent.definitions.yaml_tree import EVENTS

_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
_CLOSE = 2
"""A comment no further after its line belongs to the line's length; one further away is aligned in a column."""


class Comment(NamedTuple):
    """One comment. `alone`: it has its own line. `aligned`: far after the line's text. `after_blank`: the line above is empty."""

    begin: int
    column: int
    text: str
    alone: bool
    aligned: bool
    after_blank: bool

    @property
    def lines(self) -> list[str]:
        """The comment as lines above an entry."""
        return ["", self.text] if self.after_blank else [self.text]


def remarks_in(text: str, spans: Sequence[tuple[int, int]]) -> list[Comment]:
    """Returns every comment outside `spans`, the ranges of scalars (in order, from, to); inside them it is text."""
    found: list[Comment] = []
    position = 0
    for begin, end in [*spans, (len(text), len(text))]:
        while match := _COMMENT.search(text, position, begin):
            found.append(_remark(text, match.start(), match[0].rstrip()))
            position = match.end()
        position = max(position, end)
    return found


def _remark(text: str, index: int, words: str) -> Comment:
    begin = text.rfind("\n", 0, index) + 1
    above = text[text.rfind("\n", 0, max(begin - 1, 0)) + 1 : begin] if begin else "#"
    gap = index - begin - len(text[begin:index].rstrip())
    return Comment(index, index - begin, words, gap == index - begin, gap > _CLOSE, not above.strip())


@dataclass(slots=True)
class YamlScalar:
    """A scalar. `style` is "", a quote, `|` or `>`; `source` its text in the file, without an anchor."""

    text: str
    style: str
    source: str
    anchor: str = ""


@dataclass(slots=True)
class Alias:
    """An alias, `*name`."""

    name: str


@dataclass(slots=True)
class YamlEntry:
    """One key with its value, or one item of a list.

    `begin` is the position of its key or dash, `column` its indentation. `before` are comment lines and blank ones ("") above it, `beside`
    the comment on its line, aligned in column `beside_column`, 0 if it is not.
    """

    key: YamlScalar | None
    value: Node
    begin: int
    column: int
    before: list[str] = field(default_factory=list)
    beside: str = ""
    beside_column: int = 0


@dataclass(slots=True)
class YamlBlock:
    """A map (entries with keys) or a list. `flow`: written in brackets, which are kept. `head` and `foot` are comments of its own."""

    is_map: bool
    flow: bool
    begin: int
    end: int
    column: int
    entries: list[YamlEntry] = field(default_factory=list)
    head: list[str] = field(default_factory=list)
    foot: list[str] = field(default_factory=list)
    anchor: str = ""
    lines: int = 1


Node = YamlScalar | Alias | YamlBlock


@dataclass(slots=True)
class YamlTree:
    """A whole file. `has_aliases`: its keys must not be reordered."""

    root: YamlBlock
    has_aliases: bool


def read_tree(text: str) -> YamlTree:
    """Returns the tree of a text that `yaml_tree.parse_mapping` accepts."""
    tokens = [_mark(token).index for token in yaml.scan(text, Loader=EVENTS) if isinstance(token, yaml.BlockEntryToken)]
    events = list(yaml.parse(text, Loader=EVENTS))
    spans = [(_mark(event).index, _end(event).index) for event in events if isinstance(event, yaml.ScalarEvent)]
    remarks = remarks_in(text, spans)
    builder = _TreeBuilder(text, iter(events), tokens, [remark.begin for remark in remarks])
    root = builder.document()
    _CommentPlacement(text, root, spans).place(remarks)
    return YamlTree(root, builder.has_aliases)


@dataclass(slots=True)
class _TreeBuilder:
    text: str
    events: Iterator[yaml.Event]
    dashes: list[int]
    remarks: list[int]
    has_aliases: bool = False

    def document(self) -> YamlBlock:
        for event in self.events:
            if isinstance(event, yaml.MappingStartEvent):
                return self.block(event)
        raise AssertionError

    def node(self, event: yaml.Event) -> Node:
        if isinstance(event, yaml.AliasEvent):
            self.has_aliases = True
            return Alias(event.anchor or "")
        if isinstance(event, yaml.ScalarEvent):
            source = self.text[_mark(event).index : _end(event).index]
            if event.anchor:
                source = re.sub(r"\A&\S+\s*", "", source)
            return YamlScalar(event.value, event.style or "", source, event.anchor or "")
        assert isinstance(event, yaml.CollectionStartEvent)
        return self.block(event)

    def block(self, start: yaml.CollectionStartEvent) -> YamlBlock:
        is_map, mark = isinstance(start, yaml.MappingStartEvent), _mark(start)
        block = YamlBlock(is_map, bool(start.flow_style), mark.index, 0, mark.column, anchor=start.anchor or "")
        while not isinstance(event := next(self.events), yaml.CollectionEndEvent):
            block.entries.append(self.pair(event) if is_map else self.item(event, block))
        block.end = _end(event).index
        if not block.flow and block.anchor and block.entries:
            block.begin, block.column = block.entries[0].begin, block.entries[0].column
        block.lines = _end(event).line - mark.line + 1
        if block.flow and bisect_left(self.remarks, block.begin) < bisect_left(self.remarks, block.end):
            block.flow, block.lines = False, 0  # a comment inside needs lines of its own
        return block

    def pair(self, event: yaml.Event) -> YamlEntry:
        key = self.node(event)
        if not isinstance(key, YamlScalar):
            key = YamlScalar("", "", f"*{key.name} " if isinstance(key, Alias) else "")
        return YamlEntry(key, self.node(next(self.events)), _mark(event).index, _mark(event).column)

    def item(self, event: yaml.Event, block: YamlBlock) -> YamlEntry:
        begin = _mark(event).index
        if not block.flow:
            begin = self.dashes[bisect_left(self.dashes, begin) - 1]
        return YamlEntry(None, self.node(event), begin, block.column)


@dataclass(slots=True)
class _CommentPlacement:
    """Assigns each comment to the entry or block it belongs to."""

    text: str
    root: YamlBlock
    spans: list[tuple[int, int]]
    entries: list[tuple[int, YamlEntry, tuple[YamlBlock, ...]]] = field(default_factory=list)

    def place(self, remarks: list[Comment]) -> None:
        self._list(self.root, ())
        begins = [begin for begin, _, _ in self.entries]
        led: set[int] = set()
        for remark in remarks:
            after = bisect_left(begins, remark.begin)
            previous = self.entries[after - 1] if after else None
            following = self.entries[after] if after < len(self.entries) else None
            if not remark.alone and previous is not None:
                _set_beside(previous[1], remark)
                continue
            owner = None if after in led else self._footed(remark, previous, following)
            if owner is not None:
                owner.foot += remark.lines
            elif following is not None:
                following[1].before += remark.lines
                led.add(after)
            else:
                self.root.foot += remark.lines
        self._keep_blank_lines()
        self._part_head()

    def _list(self, block: YamlBlock, above: tuple[YamlBlock, ...]) -> None:
        for entry in block.entries:
            path = (*above, block)
            self.entries.append((entry.begin, entry, path))
            if isinstance(entry.value, YamlBlock) and not entry.value.flow:
                self._list(entry.value, path)

    @staticmethod
    def _footed(
        remark: Comment,
        previous: tuple[int, YamlEntry, tuple[YamlBlock, ...]] | None,
        following: tuple[int, YamlEntry, tuple[YamlBlock, ...]] | None,
    ) -> YamlBlock | None:
        """Returns the block at whose end the comment is, None if it is above the next entry."""
        if previous is None:
            return None
        path = previous[2]
        if isinstance(previous[1].value, YamlBlock) and not previous[1].value.flow:
            path = (*path, previous[1].value)
        in_brackets = [block for block in path if not block.lines and block.begin < remark.begin < block.end]
        if in_brackets:
            inside = following is not None and following[0] < in_brackets[-1].end
            return None if inside else in_brackets[-1]
        if following is not None and remark.column <= following[1].column:
            return None
        fitting = [block for block in path if block.column <= remark.column and block.entries]
        return fitting[-1] if fitting else None

    def _keep_blank_lines(self) -> None:
        """Keeps at most one blank line above an entry."""
        kept = {
            line
            for begin, end in self.spans
            if re.match(r"[|>]\d?\+", self.text[begin:end])
            for line in range(self._line(begin), self._line(end) + 1)
        }
        lines = self.text.split("\n")
        for begin, entry, _ in self.entries:
            line = self._line(begin)
            if line and not lines[line - 1].strip() and line - 1 not in kept and self._is_first_on_line(begin):
                entry.before.append("")

    def _line(self, index: int) -> int:
        return self.text.count("\n", 0, index)

    def _is_first_on_line(self, index: int) -> bool:
        return not self.text[self.text.rfind("\n", 0, index) + 1 : index].strip()

    def _part_head(self) -> None:
        """Makes comments at the top that a blank line separates from the first key comments of the file."""
        if not self.root.entries:
            return
        before = self.root.entries[0].before
        if "" in before:
            last = len(before) - 1 - before[::-1].index("")
            self.root.head, self.root.entries[0].before = before[:last], before[last + 1 :]


def _set_beside(entry: YamlEntry, remark: Comment) -> None:
    if entry.beside:
        entry.before.append(entry.beside)
    entry.beside, entry.beside_column = remark.text, remark.column if remark.aligned else 0


def _mark(part: yaml.Event | yaml.Token) -> yaml.Mark | yaml._yaml.Mark:
    """Returns where it begins; the parser marks everything."""
    assert part.start_mark is not None
    return part.start_mark


def _end(event: yaml.Event) -> yaml.Mark | yaml._yaml.Mark:
    assert event.end_mark is not None
    return event.end_mark
