"""Text for people: without known secrets, without control characters, and problems of definitions with their place.

Secrets are found by their text, wherever it appears; what is sent to Kafka is never masked. All of this is below `definitions`: commands
that only query the agent do not import what loads a definition.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from copycat_agent.errors import Problem

HIDDEN = "********"
"""Shown in place of a secret."""
SHORTEST = 4
"""A secret of fewer characters is hidden only if it stands alone: replacing every "a" would hide everything."""
_SECRET_WORDS = re.compile(
    r"passw|passphrase|secret|credential|jaas|(private|api|access)[._-]?key|(^|[._-])(token|pem|pwd|auth)$|oauthbearer\.config$",
    re.IGNORECASE,
)
_LOOKS_LIKE = ("password", "passwd", "passphrase", "key_password", "client_secret", "secret", "credentials")
_AGES = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_SIZES = ("KiB", "MiB", "GiB", "TiB")
_KIB = 1024
_MANY = 10_000
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_BOLD, _RED, _YELLOW, _CYAN, _END = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[36m", "\x1b[0m"


class SecretMask:
    """Replaces secrets, and each of their lines: unchanged, and as a template, JSON or a repr writes them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {part for secret in secrets for part in (secret, *secret.splitlines()) if part.strip()}
        self._alone = frozenset(one for one in known if len(one.strip()) < SHORTEST)
        forms = {form: HIDDEN for one in known - self._alone for form in _forms(one)}
        forms |= {json.dumps(one): json.dumps(HIDDEN) for one in self._alone}
        self._forms = sorted(forms.items(), key=lambda item: len(item[0]), reverse=True)

    def text(self, shown: str) -> str:
        """Returns the text with every secret hidden, the longest first."""
        if shown in self._alone:
            return HIDDEN
        for form, instead in self._forms:
            shown = shown.replace(form, instead)
        return shown

    def content(self, content: bytes) -> bytes:
        """Hides secrets in the bytes of a record; call it before the bytes are cut."""
        if not (self._forms or self._alone):
            return content
        return self.text(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def value(self, value: Any) -> Any:  # noqa: ANN401 - whatever is shown
        """Hides secrets in texts and bytes within dicts, lists and tuples; everything else stays unchanged."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.content(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            items = [self.value(one) for one in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return value


NOTHING_SECRET = SecretMask(())


def _forms(secret: str) -> Iterator[str]:
    for text in (secret, secret.replace("{{", "{").replace("}}", "}")):  # the latter: the result of a template
        yield from (text, repr(text)[1:-1], json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Returns whether a key of this name holds a secret, or was probably meant to (`pasword`)."""
    if _SECRET_WORDS.search(name):
        return True
    last = re.split(r"[.\s]", name.lower())[-1]
    return bool(difflib.get_close_matches(last, _LOOKS_LIKE, n=1, cutoff=0.8))


def printable(text: str) -> str:
    """Returns `text` as one line with unprintable characters (controls, bidi marks, surrogates) as U+FFFD."""
    return text if text.isprintable() else "".join(character if character.isprintable() else "\ufffd" for character in text)


def visible(text: str, *, backslash: bool = False) -> str:
    r"""Returns `text` as one line with controls, bidi marks and odd bytes as escapes (`\x1b`, `\u202e`, `\xff`).

    `backslash` doubles backslashes too, so that escapes can be told from original text.
    """
    if text.isprintable() and not (backslash and "\\" in text):
        return text
    return "".join(_character(one) if not one.isprintable() or (backslash and one == "\\") else one for one in text)


def _character(one: str) -> str:
    code = ord(one)
    if one in _ESCAPES:
        return _ESCAPES[one]
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004 - an odd byte of a file name, see os.fsdecode
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - widths of escapes


def age(seconds: float) -> str:
    """Returns a duration in the largest unit that fits: `3m`; `0s` for one that a clock set back makes negative."""
    whole = max(0, int(seconds))
    for unit, letter in _AGES:
        if whole >= unit:
            return f"{whole // unit}{letter}"
    return "0s"


def size(size_bytes: float) -> str:
    """Returns bytes with a unit: `0 B`, `1.5 MiB`."""
    if size_bytes < _KIB:
        return f"{size_bytes:.0f} B"
    for unit in _SIZES:
        size_bytes /= _KIB
        if size_bytes < _KIB or unit == _SIZES[-1]:
            break
    return f"{size_bytes:.1f} {unit}"


def rate(per_second: float) -> str:
    """Returns records per second, with a decimal below 10."""
    return f"{per_second:.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"  # noqa: PLR2004 - two digits are enough


def count(number: int) -> str:
    """Returns a whole number with thousands separated, in millions if it would be long."""
    return f"{number:,}" if number < 100 * _MANY * 100 else f"{number / 1e6:,.1f}M"


def without_nulls(value: object) -> object:
    """Returns a value of a definition without null options."""
    if isinstance(value, Mapping):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return value


def render(problem: Problem, *, kind: str = "error", color: bool = False) -> str:
    """Returns `file:line:col: error[CODE] text`, the line, a caret and the hint, without a newline at the end.

    The caller decides about colors (terminal, NO_COLOR, --no-color). `kind` is `error` or `warning`.
    """
    bold, paint, cyan, end = (_BOLD, _RED if kind == "error" else _YELLOW, _CYAN, _END) if color else ("", "", "", "")
    place = f":{problem.line}:{problem.column}" if problem.line else ""
    lines = [f"{bold}{printable(problem.path)}{place}:{end} {paint}{kind}[{problem.code}]{end} {problem.text}"]
    if problem.source_line.strip():
        number = str(problem.line)
        column = min(problem.column, len(problem.source_line) + 1)
        lines.append(f"{cyan}{number} |{end} {problem.source_line}")
        lines.append(f"{' ' * len(number)} {cyan}|{end} {' ' * (column - 1)}{paint}^{end}")
    if problem.hint:
        lines.append(f"  {cyan}hint:{end} {problem.hint}")
    return "\n".join(lines)
