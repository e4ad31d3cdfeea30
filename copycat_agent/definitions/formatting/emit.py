"""A tree as text: two blanks per level, lists indented, brackets where they stood and fit, comments where they were."""

from __future__ import annotations

import re

from copycat_agent.definitions.formatting.quoting import written
from copycat_agent.definitions.formatting.tree import Alias, Block, Entry, Node, Text

WIDTH = 120
"""What stood in brackets over several lines comes into one line up to this width, else one item per line."""
_STEP = 2


def emit(root: Block) -> str:
    """The whole text, with a line end behind the last line."""
    head = [*_tidy(root.head), ""] if any(root.head) else []
    lines = [*head, *_block(root, 0)]
    return "\n".join(line.rstrip() if not line.strip() else line for line in lines) + "\n"


def _block(block: Block, indent: int) -> list[str]:
    lines: list[str] = []
    for number, entry in enumerate(block.entries):
        made = _entry(entry, indent)
        while number == 0 and made and not made[0]:
            del made[0]
        lines += made
    return lines + [_comment(line, indent) for line in _tidy(block.foot)]


def _entry(entry: Entry, indent: int) -> list[str]:
    before, body = list(entry.before), _body(entry, indent)
    if entry.key is None and isinstance(entry.value, Block) and not _is_inline(entry.value, indent):
        before, body = _lifted(entry, before, body)
    elif entry.beside:
        body[0] = _beside(body[0], entry)
    return [_comment(line, indent) for line in _tidy(before)] + body


def _lifted(entry: Entry, before: list[str], body: list[str]) -> tuple[list[str], list[str]]:
    """An item that is a block begins on the line of its dash: comments between dash and first line go above it."""
    assert isinstance(entry.value, Block)
    return [*before, *([entry.beside] if entry.beside else [])], body


def _body(entry: Entry, indent: int) -> list[str]:
    blanks, value = " " * indent, entry.value
    lead = f"{blanks}-" if entry.key is None else f"{blanks}{_key(entry.key)}:"
    if isinstance(value, Text):
        return _scalar(lead, value, indent)
    if isinstance(value, Alias):
        return [f"{lead} *{value.name}"]
    mark = f" &{value.anchor}" if value.anchor else ""
    if _is_inline(value, len(lead) + len(mark)):
        return [f"{lead} {_flow(value)}"]
    if entry.key is not None or mark:
        return [lead + mark, *_block(value, indent + _STEP)]
    if value.entries:
        # what stands above the first line of an item stands above its dash
        entry.before += value.entries[0].before
        value.entries[0].before = []
    first, *rest = _block(value, indent + _STEP)
    return [f"{lead} {first.lstrip()}", *rest]


def _is_inline(block: Block, used: int) -> bool:
    if not block.entries:
        return not block.foot
    return block.flow and _fits(block) and (block.lines == 1 or used + 1 + len(_flow(block)) <= WIDTH)


def _fits(node: Node) -> bool:
    """Whether all of it can stand in one line; texts with line ends can, in quotes."""
    return not isinstance(node, Block) or all(_fits(entry.value) for entry in node.entries)


def _flow(node: Node) -> str:
    mark = f"&{node.anchor} " if not isinstance(node, Alias) and node.anchor else ""
    if isinstance(node, Alias):
        return f"*{node.name}"
    if isinstance(node, Text):
        return mark + (_plain_or_quoted(node) or "null")
    if node.is_map:
        return mark + "{" + ", ".join(f"{_key(entry.key)}: {_flow(entry.value)}" for entry in node.entries if entry.key is not None) + "}"
    return mark + "[" + ", ".join(_flow(entry.value) for entry in node.entries) + "]"


def _key(key: Text) -> str:
    if not key.text and not key.style and key.source.startswith("*"):
        return key.source
    return (f"&{key.anchor} " if key.anchor else "") + _plain_or_quoted(key)


def _plain_or_quoted(text: Text) -> str:
    """On one line. What stood without quotes stays so: a number and a text that looks like one differ by nothing else."""
    return text.text if not text.style else written(text.text)


def _scalar(lead: str, value: Text, indent: int) -> list[str]:
    mark = f" &{value.anchor}" if value.anchor else ""
    if value.style in ("|", ">"):
        return _literal(lead + mark, value, indent)
    if "\n" in value.source:
        first, *rest = value.source.split("\n")
        inner = " " * (indent + _STEP)
        return [f"{lead}{mark} {first.rstrip()}", *((inner + line.strip()) if line.strip() else "" for line in rest)]
    text = _plain_or_quoted(value)
    return [f"{lead}{mark} {text}" if text else lead + mark]


def _literal(lead: str, value: Text, indent: int) -> list[str]:
    """A block scalar, its lines as they are, at the new indentation."""
    header, _, body = value.source.partition("\n")
    if re.match(r"[|>][+-]?\d", header):  # with an indentation of its own: only the value tells what is text
        return [f"{lead} {written(value.text)}"]
    lines = body.split("\n")
    depth = next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), 0)
    if "+" not in header:
        while lines and not lines[-1].strip():
            del lines[-1]
    elif lines and not lines[-1].strip(" "):
        del lines[-1]
    inner = " " * (indent + _STEP)
    return [f"{lead} {header.rstrip()}", *(inner + line[depth:] if line.strip() or line[depth:] else "" for line in lines)]


def _beside(line: str, entry: Entry) -> str:
    """A comment stands two blanks behind its line, or in the column in which it is aligned with others, where there is room."""
    return f"{line.rstrip():<{max(entry.beside_column - 2, 0)}}  {entry.beside}"


def _comment(line: str, indent: int) -> str:
    return " " * indent + line if line else ""


def _tidy(lines: list[str]) -> list[str]:
    """At most one blank line in a row."""
    return [line for number, line in enumerate(lines) if line or number == 0 or lines[number - 1]]
