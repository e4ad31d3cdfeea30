"""Reads the tracker of Flume's source spooldir, the directory `.flumespool` in its spoolDir.

With `trackingPolicy = tracker_dir` there is an empty file `NAME.COMPLETED` for each finished file; by default the file itself is renamed
instead. `.flumespool-main.meta` is about the file being read: an Avro container whose header names the file, and whose last record is the
next byte to read. A crash may have truncated that record.

Both identify a file only by name. But a file whose status change time is older is the same file, since that time cannot be set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from copycat_agent.workbench.takeover.peer_state import PeerPosition, StateFile, read_state, unreadable

_DIRECTORY, _META, _FINISHED = ".flumespool", ".flumespool-main.meta", ".COMPLETED"
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_VARINT_BYTES = 10


def directory_of(where: Path) -> Path | None:
    """Returns the tracker's directory: `where` itself, or the one in it; None if there is neither."""
    return next((one for one in (where / _DIRECTORY, where) if one.name == _DIRECTORY and one.is_dir()), None)


def read(tracker: Path) -> tuple[tuple[PeerPosition, ...], int]:
    """Returns positions of the finished files and of the one being read, and when they were last saved. Raises CopycatError."""
    saved_ns = os.stat(tracker).st_mtime_ns  # noqa: PTH116 - as everywhere here
    positions = {}
    for path, marked_ns in _finished(tracker):
        saved_ns = max(saved_ns, marked_ns)
        positions[path] = _position(path, None, marked_ns)
    if (tracker / _META).exists():
        meta = read_state(tracker / _META)
        saved_ns = max(saved_ns, meta.changed_ns)
        path, offset = _Container(meta).last()
        positions.setdefault(path, _position(path, offset, meta.changed_ns))
    return tuple(positions.values()), saved_ns


def _finished(tracker: Path) -> Iterator[tuple[str, int]]:
    """Yields the files of the spoolDir that have a marker, and when they got it."""

    def fail(error: OSError) -> None:
        raise unreadable(tracker, error) from None

    spool = os.path.abspath(tracker.parent)  # noqa: PTH100 - names may be odd bytes; texts stay texts
    for directory, _, names in os.walk(tracker, onerror=fail):
        for name in names:
            if name.endswith(_FINISHED):
                marker = os.path.join(directory, name)  # noqa: PTH118 - as above
                try:
                    marked_ns = os.lstat(marker).st_mtime_ns
                except OSError as error:
                    raise unreadable(Path(marker), error) from None
                yield os.path.join(spool, os.path.relpath(marker, tracker).removesuffix(_FINISHED)), marked_ns  # noqa: PTH118


def _position(path: str, offset: int | None, told_ns: int) -> PeerPosition:
    """Returns a position of the file at `path`, at its end if `offset` is None. It has an inode if the file was not changed since."""
    try:
        info = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return PeerPosition(offset or 0, path, seen_ns=told_ns)
    position = info.st_size if offset is None else offset
    if info.st_mtime_ns > told_ns:
        return PeerPosition(position, path, unusable="it was changed after Flume last said where it was in it")
    device, inode = (info.st_dev, info.st_ino) if info.st_ctime_ns <= told_ns else (None, None)
    return PeerPosition(position, path, device, inode, seen_ns=told_ns, is_all=offset is None)


class _Container:
    """An Avro container whose records are single numbers."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._content = file.content
        self._at = 0

    def last(self) -> tuple[str, int]:
        """Returns the file in its header, and the number in the last complete record, 0 without one. Raises CopycatError."""
        try:
            self._expect(_MAGIC)
            name = self._header()["file"].decode("utf-8", "surrogateescape")
            sync = self._take(_SYNC_BYTES)
        except (ValueError, KeyError):
            raise self._file.broken("not what Flume's source spooldir writes") from None
        return self._file.text(name, "its file"), self._file.number(self._last(sync), "its offset")

    def _last(self, sync: bytes) -> int:
        found = 0
        while self._at < len(self._content):
            try:
                self._number()  # of records: Flume writes one at a time
                self._number()  # of their bytes
                number = self._number()
                self._expect(sync)
            except ValueError:
                break  # a crash has truncated it
            found = number
        return found

    def _header(self) -> Mapping[str, bytes]:
        values = {}
        while (count := self._number()) > 0:
            for _ in range(count):
                key = self._take(self._number())
                values[key.decode("ascii")] = self._take(self._number())
        return values

    def _number(self) -> int:
        """Reads Avro's `long`. Raises ValueError."""
        value = 0
        for index in range(_VARINT_BYTES):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
                return (value >> 1) ^ -(value & 1)
        raise ValueError

    def _expect(self, wanted: bytes) -> None:
        """Reads these bytes. Raises ValueError for any others."""
        if self._take(len(wanted)) != wanted:
            raise ValueError

    def _take(self, size: int) -> bytes:
        """Reads `size` bytes. Raises ValueError if there are fewer."""
        found = self._content[self._at : self._at + size]
        if len(found) != size:
            raise ValueError
        self._at += size
        return found
