"""Values as texts that can be encoded as UTF-8."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal


def scalar_text(value: object) -> str | None:
    """Returns `value` as people expect it as text (`true`, `12.5`, RFC 3339); None for null, objects, lists and `MISSING`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, date | time):  # datetime is a date
        return value.isoformat()
    return str(value) if isinstance(value, int | float | Decimal) else None


def is_not_utf8(text: str) -> bool:
    """Returns whether `text` holds surrogates, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def readable(text: str) -> str:
    """Returns `text` with surrogate escapes and lone surrogates as backslash escapes; anything else unchanged."""
    if text.isascii() or not is_not_utf8(text):
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
