"""Compiles a format to a pattern: strptime's directives, and the names of standard formats.

Texts are English in any locale. Where Python's strptime would guess (digits without a separator between them), the widths are fixed. Beyond
strptime: `%e %h %k %l %T %D %F %R %s`, `%L` and `%N` for fractions as others write them, fractions of any number of digits, full and short
names of months for both of `%b` and `%B`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_OFFSET = r"[+-][0-9]{2}(?::?[0-5][0-9](?::?[0-5][0-9])?)?"
_MONTH = r"(?P<m>[A-Za-z]{3,9})"
_WEEKDAY = r"(?i:mon(?:day)?|tue(?:s|sday)?|wed(?:nesday)?|thu(?:r|rs|rsday)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?)"
_NUMERIC = {"Y": 4, "y": 2, "m": 2, "d": 2, "j": 3, "H": 2, "I": 2, "M": 2, "S": 2}
"""Directives of digits only, and their maximum number of digits."""

_PATTERNS = {
    "b": _MONTH,
    "a": _WEEKDAY,
    "f": r"(?P<f>[0-9]{1,18})",
    "p": r"(?P<p>(?i:[ap]\.?m\.?))",
    "z": rf"(?P<z>[Zz]|{_OFFSET})",
    "Z": rf"(?P<Z>[A-Za-z]{{1,5}}(?:{_OFFSET})?|{_OFFSET})",
    "s": r"(?P<s>[+-]?[0-9]{1,12})",
    "u": r"[0-7]",
    "%": "%",
}
_SAME_AS = {"B": "b", "h": "b", "A": "a", "e": "d", "k": "H", "l": "I", "L": "f", "N": "f", "w": "u", "n": " ", "t": " "}
_OF_OTHERS = (("%:z", "%z"), ("%.3f", ".%f"), ("%.6f", ".%f"), ("%.9f", ".%f"), ("%3f", "%f"), ("%6f", "%f"), ("%9f", "%f"))
"""Notations of other programs, and their equivalents here."""
_NAMES_OF_OTHERS = {
    **dict.fromkeys(("epoch", "unix_s", "epoch_s", "epoch_second", "unixtime", "timestamp"), "unix"),
    **dict.fromkeys(("epoch_ms", "epoch_millis", "unixms", "unix_milliseconds"), "unix_ms"),
    **dict.fromkeys(("epoch_us", "epoch_micros"), "unix_us"),
    **dict.fromkeys(("epoch_ns", "epoch_nanos"), "unix_ns"),
    **dict.fromkeys(("iso", "rfc3339nano", "strict_date_time"), "iso8601"),
    **dict.fromkeys(("rfc822", "rfc1123", "httpdate"), "rfc2822"),
}
_OF_JAVA = re.compile("yyyy|uuuu|MMM|HH:mm")
_OF_GO = re.compile("2006|15:04|Jan")
_SHORT_FOR = {"T": "%H:%M:%S", "R": "%H:%M", "D": "%m/%d/%y", "F": "%Y-%m-%d", "r": "%I:%M:%S %p"}
_REFUSED = {
    **dict.fromkeys("cxX", "means something else in each locale: write it out, such as %Y-%m-%d %H:%M:%S"),
    **dict.fromkeys("UWVG", "counts weeks, of which no time is made here"),
}

PARTS = ("Y", "m", "d", "H", "M", "S", "f", "z")
"""The groups that every pattern has, in this order in `TimeLayout.parts`; one that a format lacks is empty."""

_DAY = r"(?P<Y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"
_CLOCK = r"(?P<H>[0-9]{2}):(?P<M>[0-9]{2}):(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,18}))?"
_NAMED = {
    "rfc3339": rf"{_DAY}[Tt ]{_CLOCK}(?P<z>[Zz]|[+-][0-9]{{2}}:[0-5][0-9])",
    "iso8601": (
        r"(?P<Y>[0-9]{4})(?P<sign>-?)(?P<m>[0-9]{2})(?P=sign)(?P<d>[0-9]{2})"
        r"(?:[Tt ](?P<H>[0-9]{2})(?::?(?P<M>[0-9]{2})(?::?(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,18}))?)?)?"
        rf"(?: ?(?P<z>[Zz]|{_OFFSET}))?)?"
    ),
    "rfc2822": (
        rf"(?:{_WEEKDAY},? +)?(?P<d>[0-9]{{1,2}})[ -]{_MONTH}[ -](?P<Y>[0-9]{{4}}|[0-9]{{2}}) +"
        rf"(?P<H>[0-9]{{2}}):(?P<M>[0-9]{{2}})(?::(?P<S>[0-9]{{2}}))? +(?P<z>[A-Za-z]{{1,3}}|[+-][0-9]{{4}})(?: *\([^()]{{0,40}}\))?"
    ),
}
NAMES = tuple(_NAMED)
"""Formats by name."""
EPOCH_UNITS = {"unix": 10**9, "unix_ms": 10**6, "unix_us": 10**3, "unix_ns": 1}
"""Counts since 1970 by name, and their units in nanoseconds."""


class TimeLayout(NamedTuple):
    """A compiled format. `parts` are the indexes of the groups `PARTS`, `others` those of the rarer directives that it has.

    `has_year` is False for formats whose year has to be found. `obsolete_names`: zones may be those that RFC 5322 defines, CST too.
    """

    pattern: re.Pattern[str]
    parts: tuple[int, ...]
    others: dict[str, int]
    has_year: bool
    obsolete_names: bool = False

    @property
    def second(self) -> int:
        """Returns the index of the second's group."""
        return self.parts[PARTS.index("S")]

    @property
    def fraction(self) -> int:
        """Returns the index of the group of the fraction that directly follows the second, or of an empty one."""
        return self.parts[PARTS.index("f")]


def compile_layout(text: str) -> TimeLayout:
    """Compiles a format, or the name of one. Raises ValueError that says what is wrong with it."""
    if text in _NAMED:
        return _layout(_NAMED[text], is_rfc2822=text == "rfc2822")
    if "%" not in text:
        msg = f"a format has directives such as %Y-%m-%d %H:%M:%S, or is one of {', '.join((*NAMES, *EPOCH_UNITS))}"
        raise ValueError(msg + _elsewhere(text))
    pattern = "".join(_pieces(text))
    layout = _layout(pattern)
    _check([name for name in layout.pattern.groupindex if name not in _empty(pattern)])
    return layout


def _elsewhere(text: str) -> str:
    """Returns the equivalent of another program's format, as an end of a message; "" if unknown."""
    if name := _NAMES_OF_OTHERS.get(text.lower()):
        return f": here it is {name}"
    if _OF_JAVA.search(text):
        return ": yyyy-MM-dd HH:mm:ss,SSS is %Y-%m-%d %H:%M:%S,%f here"
    return ": 2006-01-02 15:04:05 is %Y-%m-%d %H:%M:%S here" if _OF_GO.search(text) else ""


def _layout(pattern: str, *, is_rfc2822: bool = False) -> TimeLayout:
    missing = "".join(f"(?P<{name}>)" for name in sorted(_empty(pattern)))
    compiled = re.compile(pattern + missing, re.ASCII)
    index = compiled.groupindex
    others = {name: index[name] for name in "yjIpsZ" if name in index}
    return TimeLayout(
        compiled, tuple(index[name] for name in PARTS), others, "(?P<Y>" in pattern or bool({"y", "s"} & set(others)), is_rfc2822
    )


def _empty(pattern: str) -> set[str]:
    return {name for name in PARTS if f"(?P<{name}>" not in pattern}


def _pieces(text: str) -> list[str]:
    """Returns the pattern of each directive and of the text between them."""
    tokens = _tokens(text)
    seen: set[str] = set()
    found = []
    for number, token in enumerate(tokens):
        if len(token) == 1:
            found.append(r"\s+" if token.isspace() else re.escape(token))
            continue
        name = token[1]
        if name in _NUMERIC:
            beside = [
                other[1] in _NUMERIC for other in (*tokens[max(0, number - 1) : number], *tokens[number + 1 : number + 2]) if other[1:]
            ]
            found.append(_number(name, is_fixed=any(beside)))
        else:
            found.append(_PATTERNS[name])
        group = "m" if name == "b" else name
        if group in seen and group not in "au%":
            raise ValueError(f"{token} stands twice, or what it gives does")
        seen.add(group)
    return found


def _tokens(text: str) -> list[str]:
    """Returns directives, two characters each, and single other characters; a run of blanks is one blank."""
    expanded = re.sub("%[TRDFr%]", lambda match: _SHORT_FOR.get(match[0][1], match[0]), text)
    for theirs, ours in _OF_OTHERS:
        expanded = expanded.replace(theirs, ours)
    tokens: list[str] = []
    for token in re.findall(r"%[-_0^]?.|\s+|.", expanded, re.DOTALL):
        plain = token[0] + token[-1] if len(token) > 1 and token[0] == "%" else " " if token.isspace() else token
        plain = _known(plain)
        if not (plain == " " and tokens[-1:] == [" "]):
            tokens.append(plain)
    return tokens


def _known(piece: str) -> str:
    """Returns a piece by its plain name. Raises ValueError for an unknown directive."""
    if piece == "%":
        raise ValueError("a % at the end: write %% for the sign itself")
    if len(piece) == 1:
        return piece
    name = _SAME_AS.get(piece[1], piece[1])
    if name == " ":
        return name
    if name in _REFUSED:
        raise ValueError(f"%{name} {_REFUSED[name]}")
    if name not in _PATTERNS and name not in _NUMERIC:
        msg = (
            f"{piece} is no directive; there are {' '.join(f'%{each}' for each in sorted({*_PATTERNS, *_NUMERIC, *_SAME_AS, *_SHORT_FOR}))}"
        )
        raise ValueError(msg)
    return f"%{name}"


def _number(name: str, *, is_fixed: bool) -> str:
    most = _NUMERIC[name]
    digits = f"[0-9]{{{most}}}" if is_fixed or name in "Yy" else f"[0-9]{{1,{most}}}"
    blank = " ?" if name in "dHI" and not is_fixed else ""
    return f"{blank}(?P<{name}>{digits})"


def _check(order: list[str]) -> None:
    """Raises ValueError for directives that do not make a time together."""
    names = set(order)
    rules: tuple[tuple[Callable[[], bool], str], ...] = (
        (lambda: "s" in names and bool(names - {"s", "f", "z", "Z"}), "%s is all of a time: nothing but a fraction may stand beside it"),
        (lambda: not ({"m", "d"} <= names or "j" in names or "s" in names), "a format needs a day: %d with %m or %b, or %j, or %s"),
        (lambda: "j" in names and not {"Y", "y"} & names, "%j needs a year, %Y"),
        (lambda: "j" in names and bool({"m", "d"} & names), "%j is the day and the month: leave out %m, %b and %d"),
        (lambda: {"Y", "y"} <= names, "%Y and %y are both the year"),
        (lambda: {"H", "I"} <= names, "%H and %I are both the hour"),
        (lambda: ("p" in names) != ("I" in names), "%I and %p belong together"),
        (lambda: "M" in names and not {"H", "I"} & names, "minutes need an hour, %H"),
        (lambda: "S" in names and "M" not in names, "seconds need minutes, %M"),
        (lambda: "f" in names and not {"S", "s"} & names, "a fraction needs seconds, %S or %s"),
        (lambda: {"S", "f"} <= names and order.index("f") != order.index("S") + 1, "a fraction stands behind its seconds, as in %S.%f"),
    )
    for is_broken, why in rules:
        if is_broken():
            raise ValueError(why)
