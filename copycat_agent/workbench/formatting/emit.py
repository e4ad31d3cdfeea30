"""A tree as YAML text: two blanks per level, lists indented, brackets where they stood and fit, quotes only where needed."""

from __future__ import annotations

import re
from functools import lru_cache

import yaml

from copycat_agent.definitions.yaml_tree import plain_value
from copycat_agent.workbench.formatting.tree import Alias, Node, YamlBlock, YamlEntry, YamlScalar

_SIGNS = re.compile(r"[{}\[\]#,&*!|>%@`?\"'\\]|: |:$|^[-?:]( |$)")
"""A text with one of YAML's own signs keeps its quotes, also where the sign means nothing: it might be moved into brackets.
So does one with a backslash, since it is mostly a pattern, in which signs come and go."""
_WORDS = re.compile(r"[^\W_]")
_RESOLVER = yaml.SafeLoader("")
_UNPRINTABLE = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\x1b": "\\e", "\\": "\\\\", '"': '\\"'}
WIDTH = 120
"""What stood in brackets over several lines comes into one line up to this width, else one item per line."""
_STEP = 2


def written(text: str) -> str:
    """The text as a scalar of one line, that is this text for us and for readers of YAML 1.1 (where `no` is a boolean)."""
    return text if _needs_none(text) else quoted(text)


def quoted(text: str) -> str:
    """In quotes: double ones, single ones where a backslash or a double quote would need a backslash."""
    if _UNPRINTABLE.search(text):
        return '"' + "".join(_escaped(character) for character in text) + '"'
    if '"' in text or "\\" in text:
        return "'" + text.replace("'", "''") + "'"
    return f'"{text}"'


@lru_cache(maxsize=1024)
def _needs_none(text: str) -> bool:
    if text != text.strip() or not _WORDS.search(text) or _SIGNS.search(text) or _UNPRINTABLE.search(text):
        return False
    if not isinstance(plain_value(text), str):
        return False
    if _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) != "tag:yaml.org,2002:str":  # type: ignore[no-untyped-call]
        return False
    return _reads_back(text) and _reads_back(f"{text}: {text}", count=2)


def _reads_back(document: str, count: int = 1) -> bool:
    """The parser is the judge of what is a plain scalar."""
    try:
        scalars = [event for event in yaml.parse(document, Loader=yaml.SafeLoader) if isinstance(event, yaml.ScalarEvent)]
    except yaml.YAMLError:
        return False
    return len(scalars) == count and {scalar.value for scalar in scalars} == {
        document if count == 1 else document[: (len(document) - 2) // 2]
    }


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if not _UNPRINTABLE.match(character):
        return character
    number = ord(character)
    letter, width = next((letter, width) for letter, width in (("x", 2), ("u", 4), ("U", 8)) if number < 16**width)
    return f"\\{letter}{number:0{width}x}"


def emit(root: YamlBlock) -> str:
    """The whole text, with a line end behind the last line."""
    head = [*_tidy(root.head), ""] if any(root.head) else []
    lines = [*head, *_block(root, 0)]
    return "\n".join(line.rstrip() if not line.strip() else line for line in lines) + "\n"


def _block(block: YamlBlock, indent: int) -> list[str]:
    lines: list[str] = []
    for number, entry in enumerate(block.entries):
        made = _entry(entry, indent)
        while number == 0 and made and not made[0]:
            del made[0]
        lines += made
    return lines + [_comment(line, indent) for line in _tidy(block.foot)]


def _entry(entry: YamlEntry, indent: int) -> list[str]:
    before, body = list(entry.before), _body(entry, indent)
    if entry.key is None and isinstance(entry.value, YamlBlock) and not _is_inline(entry.value, indent):
        before, body = _lifted(entry, before, body)
    elif entry.beside:
        body[0] = _beside(body[0], entry)
    return [_comment(line, indent) for line in _tidy(before)] + body


def _lifted(entry: YamlEntry, before: list[str], body: list[str]) -> tuple[list[str], list[str]]:
    """An item that is a block begins on the line of its dash: comments between dash and first line go above it."""
    assert isinstance(entry.value, YamlBlock)
    return [*before, *([entry.beside] if entry.beside else [])], body


def _body(entry: YamlEntry, indent: int) -> list[str]:
    blanks, value = " " * indent, entry.value
    lead = f"{blanks}-" if entry.key is None else f"{blanks}{_key(entry.key)}:"
    if isinstance(value, YamlScalar):
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


def _is_inline(block: YamlBlock, used: int) -> bool:
    if not block.entries:
        return not block.foot
    return block.flow and _fits(block) and (block.lines == 1 or used + 1 + len(_flow(block)) <= WIDTH)


def _fits(node: Node) -> bool:
    """Whether all of it can stand in one line; texts with line ends can, in quotes."""
    return not isinstance(node, YamlBlock) or all(_fits(entry.value) for entry in node.entries)


def _flow(node: Node) -> str:
    mark = f"&{node.anchor} " if not isinstance(node, Alias) and node.anchor else ""
    if isinstance(node, Alias):
        return f"*{node.name}"
    if isinstance(node, YamlScalar):
        return mark + (_plain_or_quoted(node) or "null")
    if node.is_map:
        return mark + "{" + ", ".join(f"{_key(entry.key)}: {_flow(entry.value)}" for entry in node.entries if entry.key is not None) + "}"
    return mark + "[" + ", ".join(_flow(entry.value) for entry in node.entries) + "]"


def _key(key: YamlScalar) -> str:
    if not key.text and not key.style and key.source.startswith("*"):
        return key.source
    return (f"&{key.anchor} " if key.anchor else "") + _plain_or_quoted(key)


def _plain_or_quoted(text: YamlScalar) -> str:
    """On one line. What stood without quotes stays so: a number and a text that looks like one differ by nothing else."""
    return text.text if not text.style else written(text.text)


def _scalar(lead: str, value: YamlScalar, indent: int) -> list[str]:
    mark = f" &{value.anchor}" if value.anchor else ""
    if value.style in ("|", ">"):
        return _literal(lead + mark, value, indent)
    if "\n" in value.source:
        first, *rest = value.source.split("\n")
        inner = " " * (indent + _STEP)
        return [f"{lead}{mark} {first.rstrip()}", *((inner + line.strip()) if line.strip() else "" for line in rest)]
    text = _plain_or_quoted(value)
    return [f"{lead}{mark} {text}" if text else lead + mark]


def _literal(lead: str, value: YamlScalar, indent: int) -> list[str]:
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


def _beside(line: str, entry: YamlEntry) -> str:
    """A comment stands two blanks behind its line, or in the column in which it is aligned with others, where there is room."""
    return f"{line.rstrip():<{max(entry.beside_column - 2, 0)}}  {entry.beside}"


def _comment(line: str, indent: int) -> str:
    return " " * indent + line if line else ""


def _tidy(lines: list[str]) -> list[str]:
    """At most one blank line in a row."""
    return [line for number, line in enumerate(lines) if line or number == 0 or lines[number - 1]]
