"""Writes a tree as YAML text: ordered keys, two spaces per level, indented lists, brackets kept if they fit, quotes only if needed.

The order of keys is that of the options in the models, which is that of the documentation. Only keys of sections move: in maps whose keys
are the user's own (headers, types) the order is the user's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache

import yaml

from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions.formatting.tree import Alias, Node, YamlBlock, YamlEntry, YamlScalar
from copycat_agent.definitions.models import fields_by_key, models_in
from copycat_agent.definitions.yaml_tree import plain_value
from copycat_agent.formats.records import FORMATS, FormatOptions
from copycat_agent.options import ConverterOptions, Options, SinkOptions, SourceOptions, TransformOptions
from copycat_agent.sinks import SINKS
from copycat_agent.sources import SOURCES
from copycat_agent.transforms import TRANSFORMS

_STEP = ("if", "on_error")


def sort_keys(block: YamlBlock, model: type[Options]) -> None:
    """Sorts the keys of `block`, a section that `model` describes, and of all sections below it."""
    if not block.is_map:
        for entry in block.entries:
            _sort_value(entry, [model])
        return
    places = {key: number for number, key in enumerate(_order(model))}
    block.entries.sort(key=lambda entry: places.get(_name(entry), len(places)))
    fields = fields_by_key(model)
    for entry in block.entries:
        field = fields.get(_name(entry))
        if field is not None:
            _sort_value(entry, list(models_in(field[1].annotation)), is_free=_is_free(field[1].annotation))


def _sort_value(entry: YamlEntry, models: list[type[Options]], *, is_free: bool = False) -> None:
    value = entry.value
    if not isinstance(value, YamlBlock) or not models:
        return
    if is_free and value.is_map:
        for inner in value.entries:
            _sort_value(inner, models)
        return
    if not value.is_map:
        for inner in value.entries:
            _sort_value(inner, models)
        return
    known = [model for one in models if (model := _actual(one, value)) is not None]
    names = {_name(inner) for inner in value.entries}
    if known:
        sort_keys(value, max(known, key=lambda model: len(names & fields_by_key(model).keys())))


def _is_free(annotation: object) -> bool:
    """Returns whether it is a map of sections with the user's own keys, such as matchers by field."""
    return getattr(annotation, "__origin__", None) is dict or any(_is_free(part) for part in getattr(annotation, "__args__", ()))


def _actual(model: type[Options], block: YamlBlock) -> type[Options] | None:
    """Returns the class of a source, transform, converter or format, by its keys; other classes unchanged."""
    if model in _BY_TYPE:
        entry = _BY_TYPE[model]().get(_text(block, "type"))
        return None if entry is None else entry
    if model is TransformOptions:
        names = [_name(entry) for entry in block.entries if _name(entry) in TRANSFORMS]
        return TRANSFORMS[names[0]].options if names else None
    return model


_BY_TYPE: Mapping[type[Options], Callable[[], Mapping[str, type[Options]]]] = {
    SourceOptions: lambda: {name: entry.options for name, entry in SOURCES.items()},
    SinkOptions: lambda: {name: entry.options for name, entry in SINKS.items()},
    ConverterOptions: lambda: {name: entry.options for name, entry in CONVERTERS.items()},
    FormatOptions: lambda: {name: entry.options for name, entry in FORMATS.items()},
}


def _order(model: type[Options]) -> list[str]:
    """Returns the order: `type`, the class's own keys, then inherited ones; `if` and `on_error` after the action."""
    keys = list(fields_by_key(model))
    own = [key for key in keys if fields_by_key(model)[key][0] in model.__annotations__]
    ordered = [*(key for key in keys if key == "type"), *own, *keys]
    if issubclass(model, TransformOptions):
        ordered = [*(key for key in ordered if key not in _STEP), *_STEP]
    return list(dict.fromkeys(ordered))


def _name(entry: YamlEntry) -> str:
    return entry.key.text if entry.key is not None else ""


def _text(block: YamlBlock, key: str) -> str:
    values: Iterable[object] = (entry.value for entry in block.entries if _name(entry) == key)
    return next((value.text for value in values if isinstance(value, YamlScalar)), "")


_SIGNS = re.compile(r"[{}\[\]#,&*!|>%@`?\"'\\]|: |:$|^[-?:]( |$)")
"""A text with one of YAML's special characters keeps its quotes, even if they are not needed: it might be moved into brackets. So does one
with a backslash, since it is mostly a pattern, in which such characters come and go."""
_WORDS = re.compile(r"[^\W_]")
_RESOLVER = yaml.SafeLoader("")
_UNPRINTABLE = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\x1b": "\\e", "\\": "\\\\", '"': '\\"'}
WIDTH = 120
"""Brackets over several lines are joined into one line up to this width, else written as one item per line."""
_INDENT = 2


def written(text: str) -> str:
    """Returns the text as a one-line scalar that reads back as this text here and in YAML 1.1 (where `no` is a boolean)."""
    return text if _needs_none(text) else quoted(text)


def quoted(text: str) -> str:
    """Returns the text in double quotes, or in single ones if a backslash or a double quote would need a backslash."""
    if _UNPRINTABLE.search(text):
        return '"' + "".join(_escaped(character) for character in text) + '"'
    if '"' in text or "\\" in text:
        return "'" + text.replace("'", "''") + "'"
    return f'"{text}"'


def flow(value: object) -> str:
    """Returns a plain value on one line. A number with its original text keeps that; none gets an exponent, which would make it a text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        text = str(getattr(value, "text", value))
        return text if "e" not in text else f"{Decimal(text):f}" if value % 1 else f"{Decimal(text):f}.0"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{written(str(name))}: {flow(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return written(str(value))


@lru_cache(maxsize=1024)
def _needs_none(text: str) -> bool:
    if text != text.strip() or not _WORDS.search(text) or _SIGNS.search(text) or _UNPRINTABLE.search(text):
        return False
    if not isinstance(plain_value(text), str):
        return False
    if _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) != "tag:yaml.org,2002:str":  # type: ignore[no-untyped-call]
        return False
    return all(_reads_back(text, where) for where in (text, f"{text}: {text}", f"[{text}, {{{text}: {text}}}]"))


def _reads_back(text: str, document: str) -> bool:
    """Returns whether the parser takes it as a plain scalar, in lines and in brackets."""
    try:
        scalars = [event.value for event in yaml.parse(document, Loader=yaml.SafeLoader) if isinstance(event, yaml.ScalarEvent)]
    except yaml.YAMLError:
        return False
    return scalars == [text] * document.count(text)


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if not _UNPRINTABLE.match(character):
        return character
    number = ord(character)
    letter, width = next((letter, width) for letter, width in (("x", 2), ("u", 4), ("U", 8)) if number < 16**width)
    return f"\\{letter}{number:0{width}x}"


def emit(root: YamlBlock) -> str:
    """Returns the whole text, with a newline at the end of the last line."""
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
    """Moves comments between the dash and the first line of a block item above it: the item begins on the line of its dash."""
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
        return [lead + mark, *_block(value, indent + _INDENT)]
    if value.entries:
        # comments above the first line of an item go above its dash
        entry.before += value.entries[0].before
        value.entries[0].before = []
    first, *rest = _block(value, indent + _INDENT)
    return [f"{lead} {first.lstrip()}", *rest]


def _is_inline(block: YamlBlock, used: int) -> bool:
    if not block.entries:
        return not block.foot
    return block.flow and _fits(block) and (block.lines == 1 or used + 1 + len(_flow(block)) <= WIDTH)


def _fits(node: Node) -> bool:
    """Returns whether all of it may be on one line; texts with newlines can, in quotes."""
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
    """Returns it on one line. Text without quotes stays so: only quotes tell a number from a text that looks like one."""
    return text.text if not text.style else written(text.text)


def _scalar(lead: str, value: YamlScalar, indent: int) -> list[str]:
    mark = f" &{value.anchor}" if value.anchor else ""
    if value.style in ("|", ">"):
        return _literal(lead + mark, value, indent)
    if "\n" in value.source:
        first, *rest = value.source.split("\n")
        inner = " " * (indent + _INDENT)
        return [f"{lead}{mark} {first.rstrip()}", *((inner + line.strip()) if line.strip() else "" for line in rest)]
    text = _plain_or_quoted(value)
    return [f"{lead}{mark} {text}" if text else lead + mark]


def _literal(lead: str, value: YamlScalar, indent: int) -> list[str]:
    """Returns a block scalar, its lines unchanged, at the new indentation."""
    header, _, body = value.source.partition("\n")
    if re.match(r"[|>][+-]?\d", header):  # with an indentation of its own: only the value shows what is text
        return [f"{lead} {written(value.text)}"]
    lines = body.split("\n")
    depth = next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), 0)
    if "+" not in header:
        while lines and not lines[-1].strip():
            del lines[-1]
    elif lines and not lines[-1].strip(" "):
        del lines[-1]
    inner = " " * (indent + _INDENT)
    return [f"{lead} {header.rstrip()}", *(inner + line[depth:] if line.strip() or line[depth:] else "" for line in lines)]


def _beside(line: str, entry: YamlEntry) -> str:
    """Adds a comment two spaces after its line, or in the column in which it is aligned with others, if there is room."""
    return f"{line.rstrip():<{max(entry.beside_column - 2, 0)}}  {entry.beside}"


def _comment(line: str, indent: int) -> str:
    return " " * indent + line if line else ""


def _tidy(lines: list[str]) -> list[str]:
    """Returns the lines with at most one blank line in a row."""
    return [line for number, line in enumerate(lines) if line or number == 0 or lines[number - 1]]
