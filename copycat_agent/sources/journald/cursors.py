"""Compares cursors of the journal: which of two entries comes first, and how far apart they are.

A cursor is `s=...;i=...;b=...;m=...;t=...;x=...`: id of a sequence, the entry's number in it, boot id, monotonic and real time in
microseconds, and a hash of the entry; numbers are hexadecimal.
"""

from __future__ import annotations

from datetime import UTC, datetime


def parts_of(cursor: str) -> dict[str, str]:
    """Returns the parts of a cursor by letter; {} for a text that is no cursor."""
    parts = dict(one.split("=", 1) for one in cursor.split(";") if "=" in one)
    try:
        for name in ("i", "t"):
            int(parts[name], 16)
    except (KeyError, ValueError):
        return {}
    return parts


def written_at(cursor: str) -> str:
    """Returns when the entry was written, in RFC 3339; "" for a text that is no cursor."""
    parts = parts_of(cursor)
    return datetime.fromtimestamp(int(parts["t"], 16) / 1_000_000, UTC).isoformat(timespec="milliseconds") if parts else ""


def are_same(one: str, other: str) -> bool:
    """Returns whether both cursors name the same entry, which has a different number in each journal that contains it."""
    if one == other:
        return True
    a, b = parts_of(one), parts_of(other)
    if not a or not b:
        return False
    if a.get("s") == b.get("s"):
        return a["i"] == b["i"] and a["t"] == b["t"]
    return all(a.get(name) == b.get(name) for name in ("b", "m", "t", "x"))


def distance(one: str, other: str) -> int:
    """Returns how many entries `other` is after `one`; 0 if their numbers are from different sequences."""
    a, b = parts_of(one), parts_of(other)
    if not a or not b or a.get("s") != b.get("s"):
        return 0
    return int(b["i"], 16) - int(a["i"], 16)


def is_before(one: str, other: str) -> bool:
    """Returns whether `one` comes before `other`, by their numbers if these are comparable, else by their times."""
    a, b = parts_of(one), parts_of(other)
    if not a or not b:
        return False
    if a.get("s") == b.get("s"):
        return int(a["i"], 16) < int(b["i"], 16)
    return int(a["t"], 16) < int(b["t"], 16)
