"""Fluent Bit's `DB` of input tail: table `in_tail_files` of a SQLite file, with a row for each file by inode.

The device is not in it, so an inode counts where a definition finds it. Rows of files that are gone stay until Fluent Bit starts again: of
several rows with one inode it takes the newest, and so do we. A file that is younger than its row has got the inode of one that is gone.
From 5.0 on a row has a hash of the up to 32 bytes before the offset.
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
    """The positions of tail inputs. `where`: a database, or a directory with some. Raises CopycatError."""
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
    """When the database was last written: a commit is in its write-ahead log first."""
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
