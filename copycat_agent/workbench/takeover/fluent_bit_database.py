"""Reads Fluent Bit's `DB` of input tail: table `in_tail_files` of a SQLite file, with a row for each file by inode.

It has no device, so an inode is taken on the device where a definition finds it. Rows of removed files stay until Fluent Bit restarts: like
Fluent Bit, this takes the newest of several rows with one inode. A file younger than its row has the inode of a removed one. From 5.0 on a
row has a hash of up to 32 bytes before the offset.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from copycat_agent.errors import CopycatError
from copycat_agent.formats import Reader
from copycat_agent.offsets.other_database import is_database, rows_of
from copycat_agent.workbench.takeover import xxh3
from copycat_agent.workbench.takeover.peer_state import STATE_BYTES_MAX, HeadProof, PeerPosition, PeerState, StateFile, files_in, unreadable

_TABLE = "in_tail_files"
_COLUMNS = ("name", "offset", "inode", "created", "offset_marker", "offset_marker_size")
_SECONDS_MAX = 2**33
_HINT = "name the file of the option DB, or the directory that the files of several inputs are in"


def read(where: Path) -> PeerState:
    """Returns the positions of tail inputs. `where` is a database, or a directory with databases. Raises CopycatError."""
    databases = _databases(where)
    positions: dict[tuple[Path, int], PeerPosition] = {}
    changed_ns = 0
    for database in databases:
        file = StateFile(database, b"", _changed_ns(database))
        changed_ns = max(changed_ns, file.changed_ns)
        for row in rows_of(database, _TABLE, _COLUMNS, bytes_max=STATE_BYTES_MAX):
            found = _position(file, *row)
            if found.inode is not None:
                positions[database, found.inode] = found
    return PeerState(tuple(positions.values()), changed_ns)


def _databases(where: Path) -> list[Path]:
    try:
        chosen = files_in(where, "*") if where.is_dir() else [where]
        found = [one for one in chosen if one.is_file() and is_database(one)]
        if not found and not where.is_dir():
            os.stat(where)  # noqa: PTH116 - for its error
    except OSError as error:
        raise unreadable(where, error) from None
    if not found:
        raise CopycatError(f"{where} is no database of Fluent Bit", _HINT)
    return found


def _changed_ns(database: Path) -> int:
    """Returns when the database, or its write-ahead log, was last written."""
    times = []
    for path in (database, Path(f"{database}-wal")):
        try:
            times.append(path.stat().st_mtime_ns)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable(path, error) from None
    return max(times, default=0)


def _position(file: StateFile, name: object, offset: object, inode: object, created: object, marker: object, size: object) -> PeerPosition:
    if not isinstance(name, bytes):
        raise file.broken(f"a name is {name!a:.60}, and no text", _HINT)
    path = file.text(os.fsdecode(name), "a name")
    number = file.number(offset, f"the offset of {path!a:.200}")
    begun = created + 1 if type(created) is int and 0 < created < _SECONDS_MAX else 0  # seconds, rounded up
    before = None
    if type(marker) is int and type(size) is int and 0 < size <= min(xxh3.BYTES_MAX, number):
        before = HeadProof(partial(_marker, number, size), marker % 2**64, f"{size} bytes")
    told = file.number(inode, f"the inode of {path!a:.200}")
    return PeerPosition(number, path, inode=told, seen_ns=begun * 1_000_000_000, before=before)


def _marker(offset: int, size: int, read: Reader) -> int | None:
    found = read(offset - size, size)
    return xxh3.xxh3(found) if len(found) == size else None
