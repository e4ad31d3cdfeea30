r"""Translates grok's patterns (in Ruby's syntax, of Oniguruma) into Python's: with the same meaning, or a refusal with the reason.

Translated: `(?<name>`, `\h`, POSIX classes and sets within sets, `\z`, `\Z`, `\e`, `(?m)` (Ruby's name for "a dot is a newline too"), and
flags in the middle. Groups without a name are not captured, as in Ruby. Unlike in Ruby: `^` and `$` are the ends of the text, not of each
of its lines, and `\w`, `\d`, `\s` know more than ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_POSIX = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "ascii": r"\x00-\x7f", "blank": r"\ \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": r"\ -~", "punct": r"!-/:-@\[-`{-~", "space": r"\s", "upper": "A-Z", "word": r"\w",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_ESCAPES = {"h": "[0-9a-fA-F]", "H": "[^0-9a-fA-F]", "z": r"\Z", "Z": r"(?=\n?\Z)", "e": r"\x1b"}
_IN_SETS = {"h": "0-9a-fA-F", "e": r"\x1b", "b": r"\x08"}
_PLAIN_ESCAPES = frozenset("dDwWsSbBAnrtfvaux0")
_REFUSED = {
    "R": "a line break",
    "X": "a grapheme",
    "K": "keep",
    "G": "the last match's end",
    "g": "a subexpression call",
    "H": "no hexadecimal digit",
}
_FLAGS = re.compile(r"\(\?([imx]*)(?:-([imx]*))?([:)])")
_NAMED = re.compile(r"\(\?(?:P?<|')([^>'=!][^>']*)[>']")
_KEPT = ("(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?#")
_REFERENCE = re.compile(r"%\{([^{}]*)\}")
_BACK = re.compile(r"\\k<([^>]*)>")
_PROPERTY = re.compile(r"\\[pP]\{(\^?)(\w+)\}")

Expand = Callable[[str], str]
"""Returns the pattern for the content of `%{}`. Raises ValueError."""
Name = Callable[[str], str]
"""Returns the new name of a group. Raises ValueError."""


class Translation:
    """Translates one pattern. Each method returns its translation of what begins at `_at`, and moves `_at` past it."""

    def __init__(self, text: str, expand: Expand, opened: Name, again: Name) -> None:
        self._text = text
        self._at = 0
        self._expand = expand
        self._opened = opened
        self._again = again

    def whole(self) -> str:
        """Returns the whole pattern. Raises ValueError for syntax that Python has no equivalent of."""
        done = self._until_closed()
        if self._at < len(self._text):
            raise ValueError(f"a ) too many at position {self._at}")
        return done

    def _until_closed(self) -> str:
        """Translates up to the `)` of the group, or the end."""
        parts: list[str] = []
        flagged = 0
        while self._at < len(self._text) and self._text[self._at] != ")":
            flags = _FLAGS.match(self._text, self._at)
            if flags is not None and flags[3] == ")":
                self._at = flags.end()
                parts.append(_flagged(flags))
                flagged += 1
            else:
                parts.append(self._next())
        return "".join(parts) + ")" * flagged

    def _next(self) -> str:
        first = self._text[self._at]
        if first == "%" and (reference := _REFERENCE.match(self._text, self._at)):
            self._at = reference.end()
            return self._expand(reference[1])
        if first == "\\":
            return self._escape()
        if first == "[":
            return f"[{self._set()}]"
        if first == "(":
            return self._group()
        self._at += 1
        return first

    def _group(self) -> str:
        flags = _FLAGS.match(self._text, self._at)
        named = _NAMED.match(self._text, self._at)
        if self._text.startswith("(?#", self._at):
            self._at = self._text.find(")", self._at) + 1 or len(self._text)
            return ""
        if flags is not None:
            self._at = flags.end()
            return _flagged(flags) + self._closed()
        if named is not None:
            self._at = named.end()
            return f"(?P<{self._opened(named[1])}>" + self._closed()
        kept = next((sign for sign in sorted(_KEPT, key=len, reverse=True) if self._text.startswith(sign, self._at)), None)
        if kept is None and self._text.startswith("(?", self._at):
            raise ValueError(f"{self._text[self._at : self._at + 4]!r} at position {self._at} has no counterpart here")
        self._at += len(kept or "(")
        return (kept or "(?:") + self._closed()

    def _closed(self) -> str:
        inner = self._until_closed()
        if self._at >= len(self._text):
            raise ValueError("a ) is missing")
        self._at += 1
        return inner + ")"

    def _escape(self) -> str:
        if back := _BACK.match(self._text, self._at):
            self._at = back.end()
            return f"(?P={self._again(back[1])})"
        if found := _PROPERTY.match(self._text, self._at):
            return f"[{'^' if found[1] or found[0][1] == 'P' else ''}{self._property(found)}]"
        letter = self._letter()
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter in "123456789":
            msg = rf"\{letter} refers to a group by its number, and groups without a name are not kept: name it and write \k<name>"
            raise ValueError(msg)
        return self._plain(letter)

    def _plain(self, letter: str) -> str:
        if letter in _REFUSED or (letter.isalnum() and letter.isascii() and letter not in _PLAIN_ESCAPES):
            msg = rf"\{letter} ({_REFUSED[letter]}) has no counterpart here" if letter in _REFUSED else rf"\{letter} is not known"
            raise ValueError(msg)
        return f"\\{letter}"

    def _letter(self) -> str:
        letter = self._text[self._at + 1 : self._at + 2]
        if not letter:
            msg = r"ends with \ "
            raise ValueError(msg.rstrip())
        self._at += 2
        return letter

    def _property(self, found: re.Match[str]) -> str:
        self._at = found.end()
        name = found[2].lower()
        if name not in _POSIX:
            raise ValueError(f"{found[0]} is not known: write the characters, or one of {', '.join(_POSIX)}")
        return _POSIX[name]

    def _set(self) -> str:
        r"""Returns the content of `[...]`, with the sets within it unnested."""
        begin, self._at = self._at, self._at + 1
        done = ""
        if self._text.startswith("^", self._at):
            done, self._at = "^", self._at + 1
        if self._text.startswith("]", self._at):
            done, self._at = done + r"\]", self._at + 1
        while self._at < len(self._text) and self._text[self._at] != "]":
            done += self._member()
        if self._at >= len(self._text):
            raise ValueError(f"the set that begins at position {begin} has no ]")
        self._at += 1
        return done

    def _member(self) -> str:
        if posix := re.compile(r"\[:(\^?)(\w+):\]").match(self._text, self._at):
            if posix[1] or posix[2] not in _POSIX:
                raise ValueError(f"{posix[0]} is not known: write one of {', '.join(_POSIX)}, without ^")
            self._at = posix.end()
            return _POSIX[posix[2]]
        character = self._text[self._at]
        if character == "[":
            inner = self._set()
            if inner.startswith("^"):
                raise ValueError("a set within a set cannot be negated here")
            return inner
        if character == "\\":
            found = _PROPERTY.match(self._text, self._at)
            if found is not None and not found[1] and found[0][1] == "p":
                return self._property(found)
            letter = self._letter()
            return _IN_SETS[letter] if letter in _IN_SETS else self._plain(letter)
        if self._text.startswith("&&", self._at):
            raise ValueError("an intersection of sets (&&) has no counterpart here")
        self._at += 1
        return f"\\{character}" if character in "&~|" else character


def _flagged(found: re.Match[str]) -> str:
    """Returns the opening of a group with flags, `(?mi-x:`: Ruby's m is Python's s."""
    if "x" in (found[1] or "") + (found[2] or ""):
        raise ValueError("(?x) has no counterpart here: write the pattern without blanks and comments")
    on, off = found[1].replace("m", "s"), (found[2] or "").replace("m", "s")
    return f"(?{on}{'-' + off if off else ''}:"
