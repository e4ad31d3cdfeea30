"""The positions of another shipper as its state files tell them, before they are compared with the logs. The files are not trusted.

Nothing here writes, locks or renames files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from copycat_agent.errors import CopycatError
from copycat_agent.formats import Reader
from copycat_agent.small_files import read_with_status

STATE_BYTES_MAX = 256 * 2**20
"""Size limit of a state file. Filebeat keeps 400 to 700 bytes for a log file, others less."""
POSITION_MAX = 2**63 - 1
_INODE_MAX = 2**64 - 1


class HeadProof(NamedTuple):
    """A peer's hash, or copy, of bytes of a file, by default of the first ones.

    `of` computes the same from a present file; it returns None for a file that is too short, and raises OSError. `what` names it in
    messages.
    """

    of: Callable[[Reader], object]
    value: object
    what: str


class PeerPosition(NamedTuple):
    """One position of a peer: the next byte it would have read.

    `path` is the file's last name, "" if the peer keeps none; SpoolDir's has no directory. `device` and `inode` are None if it keeps none.
    `pipeline` is the peer's name of the pipeline that read the file, if known. `unusable` says why the position cannot be used, "" if it
    can. `in_characters`: it counts UTF-16 units, not bytes; `in_lines`: lines. `held` are lines that the peer has read but not sent: if the
    line before the position is their beginning, it is the next to read. `seen_ns` is when the peer saved this at the latest (epoch
    nanoseconds), so that a file created later is another one; 0 if only the whole state has a time. `before` proves the bytes just before
    the position. `is_all`: the file was finished there.
    """

    position: int
    path: str = ""
    device: int | None = None
    inode: int | None = None
    head: HeadProof | None = None
    pipeline: str = ""
    unusable: str = ""
    in_characters: bool = False
    in_lines: bool = False
    held: bytes = b""
    seen_ns: int = 0
    before: HeadProof | None = None
    is_all: bool = False

    @property
    def is_by_name(self) -> bool:
        """Whether only a name identifies the file."""
        return self.inode is None and self.head is None


class PeerState(NamedTuple):
    """All positions of a peer. `saved_ns` is when it last wrote any of them, epoch nanoseconds. `notes` are for people."""

    positions: tuple[PeerPosition, ...]
    saved_ns: int
    notes: tuple[str, ...] = ()


class StateFile(NamedTuple):
    """One of a peer's files, with its modification time."""

    path: Path
    content: bytes
    changed_ns: int

    def broken(self, why: str, hint: str = "") -> CopycatError:
        """Returns the error for invalid contents."""
        return CopycatError(
            f"{self.path}: {why}", hint or "nothing was taken over: name the peer's own state, as it left it when it stopped"
        )

    def parsed(self, content: bytes | None = None, where: str = "") -> Any:  # noqa: ANN401 - any value in a file
        """Parses the file, or a part of it, as JSON; bytes that are not UTF-8 become surrogates. Raises CopycatError."""
        try:
            return json.loads((self.content if content is None else content).decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            detail = "too deeply nested" if isinstance(error, RecursionError) else str(error)
            raise self.broken(f"{where}not JSON: {detail}") from None

    def number(self, value: object, what: str, most: int = POSITION_MAX) -> int:
        """Returns an integer from 0 to `most`. Raises CopycatError for any other value."""
        if type(value) is not int or not 0 <= value <= most:
            raise self.broken(f"{what} is {value!a:.60}, and no whole number from 0 to {most}")
        return value

    def inode(self, value: object, what: str) -> int:
        """Returns the number of an inode, or of a device. Raises CopycatError for any other value."""
        return self.number(value, what, _INODE_MAX)

    def text(self, value: object, what: str) -> str:
        """Returns a text. Raises CopycatError for any other value, and for a text that cannot be a file name."""
        if isinstance(value, str) and "\0" not in value:
            with suppress(UnicodeEncodeError):
                os.fsencode(value)
                return value
        raise self.broken(f"{what} is {value!a:.60}, and no text")


def last_said(changed_ns: int, times: Iterable[int]) -> int:
    """Returns when a peer last wrote its state, by its files' modification time and the `times` in them (epoch nanoseconds, 0 for none).

    A copied state has a later modification time than its contents; files created in between were unknown to the peer. Returns `changed_ns`
    if there are no times in it.
    """
    newest = max(times, default=0)
    return min(changed_ns, newest) if newest else changed_ns


def read_state(path: Path) -> StateFile:
    """Returns a file of a peer's state. Raises CopycatError if it cannot be read, or is too large."""
    try:
        content, status = read_with_status(path, STATE_BYTES_MAX)
    except OSError as error:
        raise unreadable(path, error) from None
    return StateFile(path, content, status.st_mtime_ns)


def files_in(directory: Path, pattern: str) -> list[Path]:
    """Returns the files of a directory that match a pattern, by name. Raises CopycatError if it cannot be listed."""
    try:
        names = sorted(os.listdir(directory))  # noqa: PTH208 - names may be odd bytes; texts stay texts
    except OSError as error:
        raise unreadable(directory, error) from None
    return [directory / name for name in names if Path(name).match(pattern)]


def unreadable(path: Path, error: OSError) -> CopycatError:
    """Returns the error for a path that cannot be read."""
    return CopycatError(f"{path}: {error.strerror}", "run this as a user who may read the peer's state")
