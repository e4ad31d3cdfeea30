"""Cursors of the journal: which of two entries comes first, and how far they are apart.

`s=...;i=...;b=...;m=...;t=...;x=...`: the sequence of numbers, the entry's number in it, its boot, monotonic and real time in microseconds,
and a hash of what it holds; numbers are hexadecimal.
"""

from __future__ import annotations

from datetime import UTC, datetime


def parts_of(cursor: str) -> dict[str, str]:
    """What a cursor is made of; {} for a text that is none."""
    parts = dict(one.split("=", 1) for one in cursor.split(";") if "=" in one)
    try:
        for name in ("i", "t"):
            int(parts[name], 16)
    except (KeyError, ValueError):
        return {}
    return parts


def written_at(cursor: str) -> str:
    """When the entry was written, in RFC 3339; "" for a text that is no cursor."""
    parts = parts_of(cursor)
    return datetime.fromtimestamp(int(parts["t"], 16) / 1_000_000, UTC).isoformat(timespec="milliseconds") if parts else ""


def are_same(one: str, other: str) -> bool:
    """Whether both are of one entry. One that several journals hold has a number in each."""
    if one == other:
        return True
    a, b = parts_of(one), parts_of(other)
    if not a or not b:
        return False
    if a.get("s") == b.get("s"):
        return a["i"] == b["i"] and a["t"] == b["t"]
    return all(a.get(name) == b.get(name) for name in ("b", "m", "t", "x"))


def distance(one: str, other: str) -> int:
    """How many entries further the other is; 0 where nobody can tell, for their numbers are from different sequences."""
    a, b = parts_of(one), parts_of(other)
    if not a or not b or a.get("s") != b.get("s"):
        return 0
    return int(b["i"], 16) - int(a["i"], 16)


def is_before(one: str, other: str) -> bool:
    """Whether the other comes later, by their numbers or else by their times."""
    a, b = parts_of(one), parts_of(other)
    if not a or not b:
        return False
    if a.get("s") == b.get("s"):
        return int(a["i"], 16) < int(b["i"], 16)
    return int(a["t"], 16) < int(b["t"], 16)
