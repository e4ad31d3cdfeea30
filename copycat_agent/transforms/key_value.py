"""`key_value` and `logfmt` parse pairs such as `a:1|b:2`, with configurable separators or as Go's logfmt packages write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NoReturn

from copycat_agent.errors import DataError
from copycat_agent.options import Field
from copycat_agent.transforms.base import Steady, StepOptions, TransformKind
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
_BLANK_FIELDS = 'Between two pairs: one character or more, such as ";" or ", ". A blank stands for any run of white space.'

Pair = tuple[str, str | None]
"""A key and its value; None without one."""


class LogfmtOptions(StepOptions):
    """Parses logfmt."""

    logfmt: ParseOptions = Field(description='Parses logfmt: level=info msg="two words". A key without a value is true.')


def parse_logfmt(text: str) -> dict[str, Any]:
    """Returns the fields of one line: texts, except for keys without a value, which are True. Raises DataError for invalid logfmt."""
    if "=" not in text:
        _refuse_logfmt("no key=value in it")
    has_escapes = "\\" in text
    found: dict[str, Any] = {}
    for key, sign, quoted, bare, bad in _PAIR.findall(text):
        if bad:
            _refuse_rest(text)
        found[key] = (unescaped(quoted) if has_escapes and quoted else quoted or bare) if sign else True
    return found


def unescaped(text: str) -> str:
    """Returns a quoted text without escapes; an unknown escape is its own character, a lone surrogate becomes U+FFFD."""
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
            _refuse_logfmt(f"not a key, or not behind a value, at character {match.start()}")
    raise AssertionError


def _refuse_logfmt(why: str) -> NoReturn:
    raise DataError(f"not logfmt: {why}")


LOGFMT = TransformKind(LogfmtOptions, lambda options: Steady(parse_step(options.logfmt, parse_logfmt)))


class KeyValueParse(ParseOptions):
    """How pairs are written."""

    field_split: str = Field(" ", min_length=1, max_length=16, description=_BLANK_FIELDS)
    value_split: str = Field("=", min_length=1, max_length=16, description="Between a key and its value, where it stands first.")
    quote: str = Field(
        '"',
        min_length=1,
        max_length=4,
        description='Characters around values that may hold field_split, such as "\\"\'". none: there are none.',
    )
    escape: str = Field("\\", max_length=1, description='Within quotes, takes the meaning from the character behind it. "" for none.')
    trim: str = Field(" \t", max_length=32, description='Characters that are taken off around keys and values outside quotes. "" for none.')
    prefix: str = Field("", max_length=64, description="Put before each key.")
    duplicates: Literal["last", "first", "list", "error"] = Field(
        "last", description="A key that is there twice. last, first: that value. list: all of them, as a list. error: a bad record."
    )
    bare: Literal["flag", "drop", "error"] = Field(
        "error", description="A part without value_split. flag: a key whose value is true. drop: passed over. error: a bad record."
    )

    @property
    def quotes(self) -> str:
        """Returns the quotes, "" for none."""
        return "" if self.quote == "none" else self.quote

    def model_post_init(self, context: object) -> None:
        """Raises ValueError for ambiguous separators; pydantic reports it with its place."""
        super().model_post_init(context)
        for name, sign in (("field_split", self.field_split), ("value_split", self.value_split)):
            if any(quote in sign for quote in self.quotes) or (self.escape and self.escape in sign):
                raise ValueError(f"{name} holds the quote or the escape: each needs a sign of its own")
        if self.value_split in self.field_split or (self.field_split.strip() and self.field_split in self.value_split):
            raise ValueError("field_split and value_split need signs of their own")


class KeyValueOptions(StepOptions):
    """Parses pairs of keys and values."""

    key_value: KeyValueParse = Field(description="Parses pairs of keys and values; for logfmt there is logfmt.")


def build_parser(options: KeyValueParse) -> Callable[[str], dict[str, Any]]:
    """Returns a parser from text to fields. It raises DataError in words without the text."""
    plain, quoted, quotes = _plain(options), _quoted(options), options.quotes
    collect = _collector(options)

    def parse(text: str) -> dict[str, Any]:
        fields = collect(quoted(text) if any(map(text.__contains__, quotes)) else plain(text))
        if not fields:
            _refuse("there are none in it", "see field_split and value_split")
        return fields

    return parse


def _plain(options: KeyValueParse) -> Callable[[str], list[Pair]]:
    """Returns a function for texts without quotes."""
    split = None if options.field_split == " " else options.field_split
    sign, trim = options.value_split, options.trim

    def pairs(text: str) -> list[Pair]:
        found: list[Pair] = []
        for part in text.split(split):
            key, is_pair, value = part.partition(sign)
            if trim:
                key, value = key.strip(trim), value.strip(trim)
            if key or is_pair:
                found.append((key, value if is_pair else None))
        return found

    return pairs


def _quoted(options: KeyValueParse) -> Callable[[str], list[Pair]]:
    """Returns a function for texts with quotes: one pattern if all separators are single characters; `_QuotedPairs` else, and on errors."""
    scan = _QuotedPairs(options).pairs
    if any(len(sign) > 1 for sign in (options.field_split, options.value_split, options.quote)):
        return scan
    gap = r"\s" if options.field_split == " " else re.escape(options.field_split)
    blanks = "".join(re.escape(sign) for sign in options.trim if not re.fullmatch(gap, sign))
    blank, sign, quote, escape = f"[{blanks}]*+" if blanks else "", *map(re.escape, (options.value_split, options.quote, options.escape))
    body = rf"((?:[^{quote}{escape}]++|{escape}.)*+)" if escape else rf"([^{quote}]*+)"
    value = rf"{blank}(?:{quote}{body}{quote}{blank}|(?!{quote})([^{gap}]*+))"
    find = re.compile(rf"([^{gap}{sign}]*+)(?:({sign}){value})?(?:{gap}|\Z)|(.)", re.DOTALL).findall
    unescape = re.compile(f"{escape}(.)", re.DOTALL) if escape else None
    trim = options.trim

    def pairs(text: str) -> list[Pair]:
        found: list[Pair] = []
        for key, is_pair, quoted, bare, bad in find(text):
            if bad:
                return scan(text)
            if is_pair:
                value = quoted or bare.strip(trim)
                found.append((key.strip(trim), unescape.sub(r"\1", quoted) if unescape and quoted else value))
            elif key := key.strip(trim):
                found.append((key, None))
        return found

    return pairs


class _QuotedPairs:
    """Parses texts with quotes: a value whose first character is a quote ends at the next one that is not escaped."""

    def __init__(self, options: KeyValueParse) -> None:
        gap = r"\s+" if options.field_split == " " else re.escape(options.field_split)
        escape = re.escape(options.escape)
        self._trim = options.trim
        self._gap = re.compile(gap)
        self._stop = re.compile(f"(?P<gap>{gap})|{re.escape(options.value_split)}")
        self._blanks = re.compile(f"[{re.escape(options.trim)}]*" if options.trim else "")
        self._bodies = {
            quote: re.compile(
                rf"{quote}((?:{escape}.|[^{quote}{escape}])*+){quote}" if escape else rf"{quote}([^{quote}]*+){quote}", re.DOTALL
            )
            for quote in options.quotes
        }
        self._escaped = re.compile(f"{escape}(.)", re.DOTALL) if escape else None

    def pairs(self, text: str) -> list[Pair]:
        """Returns the pairs of `text`. Raises DataError."""
        found: list[Pair] = []
        place = 0
        while place < len(text):
            stop = self._stop.search(text, place)
            key = text[place : stop.start() if stop else len(text)].strip(self._trim)
            place = stop.end() if stop else len(text)
            if stop is None or stop["gap"]:
                if key:
                    found.append((key, None))
            else:
                value, place = self._value(text, place)
                found.append((key, value))
        return found

    def _value(self, text: str, place: int) -> tuple[str, int]:
        """Returns the value from `place` on, and where the next pair begins."""
        if not self._gap.match(text, place):
            begin = self._skip(text, place)
            body = self._bodies.get(text[begin : begin + 1])
            if body is not None:
                return self._in_quotes(text, begin, body)
        end = self._gap.search(text, place)
        return text[place : end.start() if end else len(text)].strip(self._trim), end.end() if end else len(text)

    def _in_quotes(self, text: str, begin: int, body: re.Pattern[str]) -> tuple[str, int]:
        match = body.match(text, begin)
        if match is None:
            _refuse(f"a quote is opened at character {begin} and not closed", "see quote")
        value = match[1] if self._escaped is None else self._escaped.sub(r"\1", match[1])
        end = self._gap.match(text, match.end())
        if end is None:
            place = self._skip(text, match.end())
            end = self._gap.match(text, place)
            if end is None and place < len(text):
                _refuse(f"something follows the closing quote, at character {place}", "see field_split and quote")
        return value, end.end() if end else len(text)

    def _skip(self, text: str, place: int) -> int:
        match = self._blanks.match(text, place)
        return match.end() if match else place


def _collector(options: KeyValueParse) -> Callable[[list[Pair]], dict[str, Any]]:
    prefix, bare, duplicates = options.prefix, options.bare, options.duplicates

    def collect(pairs: list[Pair]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key, text in pairs:
            value: str | bool | None = text
            if value is None:
                if bare == "error":
                    _refuse("a part of it is none", "set bare: flag or bare: drop, or see field_split")
                if bare == "drop":
                    continue
                value = True
            elif not key:
                _refuse("a value has no key", "see field_split and value_split")
            name = prefix + key
            if name not in fields or duplicates == "last":
                fields[name] = value
            elif duplicates == "list":
                _append(fields, name, value)
            elif duplicates == "error":
                _refuse("a key is there twice", "see duplicates")
        return fields

    return collect


def _append(fields: dict[str, Any], name: str, value: object) -> None:
    if isinstance(fields[name], list):
        fields[name].append(value)
    else:
        fields[name] = [fields[name], value]


def _refuse(why: str, hint: str) -> NoReturn:
    raise DataError(f"not pairs of keys and values: {why}", hint)


KEY_VALUE = TransformKind(KeyValueOptions, lambda options: Steady(parse_step(options.key_value, build_parser(options.key_value))))
