"""How a text is written in YAML: without quotes where every reader takes it for the same text, else in the quotes that need least."""

from __future__ import annotations

import re
from functools import lru_cache

import yaml

from copycat_agent.definitions.reading import plain_value

_SIGNS = re.compile(r"[{}\[\]#,&*!|>%@`?\"'\\]|: |:$|^[-?:]( |$)")
"""A text with one of YAML's own signs keeps its quotes, also where the sign means nothing: it might be moved into brackets.
So does one with a backslash, since it is mostly a pattern, in which signs come and go."""
_WORDS = re.compile(r"[^\W_]")
_RESOLVER = yaml.SafeLoader("")
_UNPRINTABLE = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\x1b": "\\e", "\\": "\\\\", '"': '\\"'}


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
