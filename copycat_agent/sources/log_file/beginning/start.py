"""Decides where a file that was never seen before begins, and why."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.formats.text import Encoding
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.options import format_duration
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import identify_by_name
from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.files.paths.regular_files import PassedOverError
from copycat_agent.sources.log_file.beginning import since
from copycat_agent.sources.log_file.beginning.since import LineStarts
from copycat_agent.sources.log_file.rotation import PACKED_SUFFIXES

if TYPE_CHECKING:
    from copycat_agent.formats import Reader
    from copycat_agent.sources.files.paths.discovery import MatchedFile
    from copycat_agent.sources.log_file.followed import FollowedFiles
    from copycat_agent.sources.log_file.log_options import LogFileOptions
    from copycat_agent.sources.planner import Changes


_LONGEST_DELIMITER_BYTES = 256

AT_BEGINNING = "start_at beginning: it was never read before"
AT_END = "start_at end: it was there when this connector first looked"
LATER = "it was not there when this connector first looked: from its beginning"
"""Reasons for the first position of a file."""


class Beginning(NamedTuple):
    """The first offset of a file, and the reason as a message. `is_old`: because of `ignore_older`."""

    offset: SourceOffset
    why: str
    is_old: bool = False


class StartAt:
    """Applies `start_at` to files that exist at the connector's first scan, and `ignore_older` to all files that are new to it.

    With neither, a file begins at byte 0. Its end is after its last whole line: a line that is being written is new once it is whole.
    """

    def __init__(self, options: LogFileOptions) -> None:
        """Raises ValueError if `start_at` is neither a known word nor a time."""
        self._options = options
        is_time = options.start_at not in {"beginning", "end"}
        self._encoding = Encoding(options.encoding, options.line.delimiter, is_raw=False)
        self._look_back = options.line.max_bytes + _LONGEST_DELIMITER_BYTES
        self._since = datetime.fromisoformat(options.start_at).timestamp() if is_time else None

    def begin(self, fd: int, info: os.stat_result, path: str, *, first: bool) -> Beginning:
        """Returns where the open file begins. `first`: it existed at the connector's first scan. Raises OSError."""
        here = self._here(fd, info.st_size, path)
        if self._options.compression == "auto" and (codec := compressions.recognise(here.read(0, compressions.MAGIC_BYTES))):
            return self._begin_packed(codec, info, path, first=first)
        if info.st_size and (why := self._too_old(info)):
            return Beginning(here.at_end(), why, is_old=True)
        if not first:
            return Beginning(here.at(0), LATER)
        if self._since is not None and info.st_size:
            return self._at_time(here, info, self._since)
        if self._options.start_at == "end":
            return Beginning(here.at_end(), AT_END)
        return Beginning(here.at(0), AT_BEGINNING)

    def _begin_packed(self, codec: str, info: os.stat_result, path: str, *, first: bool) -> Beginning:
        """Begins a packed file without unpacking it, by its modification time, which packers keep. If too old, it counts as read."""
        why = self._left_out(info, first=first)
        offset = SourceOffset(0, done=bool(why), path=path, size=info.st_size, compression=codec)
        return Beginning(offset, why or (AT_BEGINNING if first else LATER), is_old=why.startswith("ignore_older"))

    def _left_out(self, info: os.stat_result, *, first: bool) -> str:
        """Returns why a file's present content is left out, judging without reading it; "" if nothing says so."""
        if why := self._too_old(info):
            return why
        if first and self._options.start_at == "end":
            return AT_END
        if first and self._since is not None and info.st_mtime < self._since:
            return self._said("last changed before it")
        return ""

    def unopened(self, info: os.stat_result, path: str) -> SourceOffset | None:
        """Returns the offset of a file that existed at the first scan and could not be opened: its end at that time.

        None if it begins elsewhere, or its content would have to be read. See `opened`.
        """
        if info.st_size and self._left_out(info, first=True):
            return SourceOffset(info.st_size, path=path, size=info.st_size)
        return None

    def opened(self, fd: int, offset: SourceOffset) -> SourceOffset:
        """Returns an offset of `unopened`, now of an open file, at a line's beginning and with a fingerprint; others unchanged.

        Raises OSError.
        """
        if not offset.position or offset.fingerprint.head_bytes or offset.compression or offset.skipping:
            return offset
        return replace(
            self._here(fd, offset.position, offset.path).at_end(), records=offset.records, size=max(offset.size, offset.position)
        )

    def _too_old(self, info: os.stat_result) -> str:
        """Returns why `ignore_older` leaves out the present content; "" if it does not."""
        limit, age = self._options.ignore_older, time.time() - info.st_mtime
        if limit == "off" or age <= limit:
            return ""
        return f"ignore_older {format_duration(limit)}: last changed {_roughly(age)} ago: at its end"

    def _at_time(self, here: _FileHead, info: os.stat_result, wanted: float) -> Beginning:
        found = since.find(info.st_size, here.lines(), wanted, info.st_mtime)
        if found is None and info.st_mtime < wanted:
            return Beginning(here.at_end(), self._said("last changed before it: at its end"))
        if found is None:
            return Beginning(here.at(0), self._said("changed since, and its lines do not say when they were written: from its beginning"))
        if found.line is not None:
            when = datetime.fromtimestamp(found.line.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            return Beginning(here.at(found.position), self._said(f"the first line at or after it is at byte {found.line.start}, {when}"))
        if found.position < 0:
            return Beginning(here.at_end(), self._said("all its lines are older: at its end"))
        why = "its lines are in no order: from its beginning" if not found.position else "after the last line that is certainly older"
        return Beginning(here.at(found.position), self._said(why))

    def _here(self, fd: int, size: int, path: str) -> _FileHead:
        return _FileHead(fingerprint.reader(fd), self._encoding, size, self._look_back, path)

    def _said(self, why: str) -> str:
        return f"start_at {self._options.start_at}: {why}"


def _roughly(seconds: float) -> str:
    """Returns the duration in the largest unit of which it has two or more."""
    size, unit = next((one for one in ((86400, "days"), (3600, "hours"), (60, "minutes")) if seconds >= 2 * one[0]), (1, "s"))
    return f"{seconds // size:.0f} {unit}"


class _FileHead(NamedTuple):
    """The first `size` bytes of an open file, and offsets in them."""

    read: Reader
    encoding: Encoding
    size: int
    look_back: int
    path: str

    def lines(self) -> LineStarts:
        return LineStarts(self.read, self.encoding.of(self.read, 0))

    def at(self, position: int, *, skipping: bool = False) -> SourceOffset:
        proof = fingerprint.take(self.read, position)
        return SourceOffset(position, skipping=skipping, path=self.path, fingerprint=proof)

    def at_end(self) -> SourceOffset:
        """Returns the offset after the last whole line; inside the last line if that is longer than the limit."""
        lines = self.lines()
        end = lines.last_end(self.size, self.look_back)
        if end is None and self.size > self.look_back:
            return self.at(lines.last_possible(self.size), skipping=True)
        return self.at(end or 0)


class UnopenedFiles:
    """Remembers files that could not be opened: by a saved offset if that can be known without opening them, else until the agent ends."""

    def __init__(self, followed: FollowedFiles, start: StartAt, *, follow_symlinks: bool) -> None:
        self._followed = followed
        self._start = start
        self._follow_symlinks = follow_symlinks
        self._there: set[tuple[int, int]] = set()

    def note(self, found: MatchedFile, error: OSError, changes: Changes) -> None:
        """Notes a file of the first scan that could not be opened or read. Ignores files that are passed over on purpose."""
        inode_key = (found.stat.st_dev, found.stat.st_ino)
        if isinstance(error, PassedOverError) or inode_key in self._there:
            return
        self._there.add(inode_key)
        if found.path.endswith(PACKED_SUFFIXES):  # its unpacked size is not known without opening it
            return
        offset = self._start.unopened(found.stat, found.path)
        identity = identify_by_name(found.path, found.stat, follow_symlinks=self._follow_symlinks)
        if offset is None or identity is None:
            return
        partition = SourcePartition(self._followed.connector, identity.key(0))
        changes.offsets[partition] = offset
        self._followed.unfollowed.add(partition, offset)

    def was_there(self, info: os.stat_result) -> bool:
        """Returns whether the now open file is one of them."""
        return (info.st_dev, info.st_ino) in self._there
