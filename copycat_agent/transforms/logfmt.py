r"""`logfmt`: `level=info msg="a \"b\"" slow` as fields; as Go's logfmt packages write it.

Pairs are separated by blanks and control characters. A value is bare, or in double quotes with the escapes of JSON. A key without
`=` is `true`; a key twice has its last value. A text without any `=` is no logfmt, and one that goes on behind a closing quote neither.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from copycat_agent.errors import DataError
from copycat_agent.options import Field
from copycat_agent.transforms.base import Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.parsing import ParseOptions, parse_step

_PAIR = re.compile(
    r"""
    ([^\x00-\x20="]++)                                                              # a key
    (?:(=)(?:"((?:[^"\\]++|\\.)*+)"(?![^\x00-\x20])|([^\x00-\x20"]*+)(?!")))?+     # a value in quotes, or bare
    (?!")
    | ([^\x00-\x20])                                                               # anything else
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}


class LogfmtOptions(StepOptions):
    """Parses logfmt."""

    logfmt: ParseOptions = Field(description='Parses logfmt: level=info msg="two words". A key without a value is true.')


def parse_logfmt(text: str) -> dict[str, Any]:
    """The fields of one line, texts but for keys without a value. DataError for what is no logfmt."""
    if "=" not in text:
        _refuse("no key=value in it")
    has_escapes = "\\" in text
    found: dict[str, Any] = {}
    for key, sign, quoted, bare, bad in _PAIR.findall(text):
        if bad:
            _refuse_rest(text)
        found[key] = (unescaped(quoted) if has_escapes and quoted else quoted or bare) if sign else True
    return found


def unescaped(text: str) -> str:
    """A text in quotes without its escapes; those that mean nothing stand for their sign, half of a surrogate pair for U+FFFD."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    high, low, code, sign = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if code:
        return "\ufffd" if code[0] in "dD" and code[1] in "89abcdefABCDEF" else chr(int(code, 16))
    return _ESCAPED.get(sign, sign)


def _refuse_rest(text: str) -> NoReturn:
    for match in _PAIR.finditer(text):
        if match[5]:
            _refuse(f"not a key, or not behind a value, at character {match.start()}")
    raise AssertionError


def _refuse(why: str) -> NoReturn:
    msg = f"not logfmt: {why}"
    raise DataError(msg)


def _build(options: LogfmtOptions) -> Transform:
    return Steady(parse_step(options.logfmt, parse_logfmt))


LOGFMT = TransformKind(LogfmtOptions, _build)
