"""The way from an object to the array of records in it, and back out behind that."""

from __future__ import annotations

from copycat_agent.errors import DamageError
from copycat_agent.formats.records.trees.json_scan import COLON, COMMA, NOTHING, QUOTE, Cursor, Extent
from copycat_agent.formats.records.trees.json_values import parse

_OPEN, _CLOSE, _OPEN_ARRAY = b"{}["


def enter(cursor: Cursor, path: tuple[str, ...]) -> None:
    """Go from the file's beginning to the `[` behind the keys of `path`. Raises DamageError where they do not lead to one."""
    for number, key in enumerate(path, 1):
        way = ".".join(path[:number])
        if cursor.skip_blanks() != _OPEN:
            raise DamageError(f"no object stands at byte {cursor.position}, where path {way!r} is looked for")
        _find(cursor, key, way)
    if cursor.skip_blanks() != _OPEN_ARRAY:
        raise DamageError(f"no array stands at byte {cursor.position}, behind path {'.'.join(path)!r}")


def _find(cursor: Cursor, key: str, way: str) -> None:
    """Pass the members of the object that begins here, up to the value of `key`."""
    cursor.index += 1
    while cursor.skip_blanks() == QUOTE:
        name = _key(cursor)
        if cursor.skip_blanks() != COLON:
            break
        cursor.index += 1
        if name == key:
            return
        if cursor.skip_blanks() == NOTHING or not cursor.follow(Extent()) or cursor.skip_blanks() != COMMA:
            break
        cursor.index += 1
    raise DamageError(f"path {way!r} is not there: the object ends, or is damaged, at byte {cursor.position}")


def _key(cursor: Cursor) -> str | None:
    """Pass a key. None for one that cannot be read, or is too long to be looked for."""
    start = cursor.position
    size = None
    while size is None:
        looked = Extent().look(cursor.data, cursor.index)
        if looked.is_end:
            size = looked.place - cursor.index
        elif cursor.left > _LONGEST_KEY or not cursor.more():
            cursor.follow(Extent())
            return None
    text = cursor.data[cursor.index : cursor.index + size]
    cursor.index += size
    assert cursor.position == start + size
    found = parse(b'{"key":' + text + b"}")
    return found["key"] if isinstance(found, dict) else None


_LONGEST_KEY = 4096


def leave(cursor: Cursor, depth: int) -> DamageError | None:
    """Pass what stands behind the array, out of `depth` objects, up to the end of the file. Returns what is wrong with it."""
    if cursor.skip_blanks() == NOTHING or not cursor.follow(Extent(depth)):
        return DamageError(f"the file ends behind its records, before its end, at byte {cursor.position}")
    if cursor.skip_blanks() != NOTHING:
        return DamageError(f"something else stands behind the object, at byte {cursor.position}")
    return None
