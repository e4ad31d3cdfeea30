"""Where another shipper was, as its own files say it, before anybody has looked at the logs. Those files may hold anything.

Nothing here writes, locks or renames: a peer's state is only read.
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
"""Of one file of state. Filebeat keeps 400 to 700 bytes of a log file, the others less."""
POSITION_MAX = 2**63 - 1
_INODE_MAX = 2**64 - 1


class HeadProof(NamedTuple):
    """What a peer remembers of bytes of a file, of its first ones if nothing else is said.

    `of` makes the same of a file that is there, None where it is too short; it raises OSError. `what` names it for people.
    """

    of: Callable[[Reader], object]
    value: object
    what: str


class PeerPosition(NamedTuple):
    """One position of a peer: the next byte it would have read.

    `path` is the file's last name, "" where the peer keeps none; SpoolDir's is a name without a directory. `device` and `inode` are None
    where it keeps none. `pipeline` is the peer's own name of what read the file, where its state has one. `unusable` says why the number
    is no position for us, "" where it is one. `in_characters`: it counts UTF-16 units, not bytes; `in_lines`: lines. `held` is what the
    peer has read and not sent: where the line before the position is its beginning, that line is the next to read. `seen_ns` is when the
    peer said so at the latest (epoch nanoseconds), so that a file that was made after that is another one; 0 where only the state as a
    whole has a time. `before` is what the peer remembers of the bytes just before its position. `is_all`: the file was finished there.
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
        """Whether nothing but a name says which file is meant."""
        return self.inode is None and self.head is None


class PeerState(NamedTuple):
    """All that a peer knew. `saved_ns`: when it last wrote any of it, epoch nanoseconds. `notes` are for people."""

    positions: tuple[PeerPosition, ...]
    saved_ns: int
    notes: tuple[str, ...] = ()


class StateFile(NamedTuple):
    """One of a peer's files. `changed_ns` is its time of change."""

    path: Path
    content: bytes
    changed_ns: int

    def broken(self, why: str, hint: str = "") -> CopycatError:
        """Returns the error of what cannot be read from it."""
        return CopycatError(
            f"{self.path}: {why}", hint or "nothing was taken over: name the peer's own state, as it left it when it stopped"
        )

    def parsed(self, content: bytes | None = None, where: str = "") -> Any:  # noqa: ANN401 - what stands in a file
        """Returns the JSON in it, or in a part of it; bytes that are not UTF-8 are in texts as in file names. Raises CopycatError."""
        try:
            return json.loads((self.content if content is None else content).decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            detail = "too deeply nested" if isinstance(error, RecursionError) else str(error)
            raise self.broken(f"{where}not JSON: {detail}") from None

    def number(self, value: object, what: str, most: int = POSITION_MAX) -> int:
        """Returns a whole number from 0. Raises CopycatError for anything else."""
        if type(value) is not int or not 0 <= value <= most:
            raise self.broken(f"{what} is {value!a:.60}, and no whole number from 0 to {most}")
        return value

    def inode(self, value: object, what: str) -> int:
        """Returns the number of an inode, or of a device. Raises CopycatError for anything else."""
        return self.number(value, what, _INODE_MAX)

    def text(self, value: object, what: str) -> str:
        """Returns a text. Raises CopycatError for anything else, and for one that can be no file's name."""
        if isinstance(value, str) and "\0" not in value:
            with suppress(UnicodeEncodeError):
                os.fsencode(value)
                return value
        raise self.broken(f"{what} is {value!a:.60}, and no text")


def last_said(changed_ns: int, times: Iterable[int]) -> int:
    """When a peer last wrote its state: its files say `changed_ns`, and `times` (epoch nanoseconds, 0 for none) stand in them.

    A copy of a state is younger than what it says, and files that came in between were not seen by the peer. Returns `changed_ns` where
    nothing in it has a time.
    """
    newest = max(times, default=0)
    return min(changed_ns, newest) if newest else changed_ns


def read_state(path: Path) -> StateFile:
    """Returns a file of a peer's state. Raises CopycatError where it cannot be read, or is too large to be one."""
    try:
        content, status = read_with_status(path, STATE_BYTES_MAX)
    except OSError as error:
        raise unreadable(path, error) from None
    return StateFile(path, content, status.st_mtime_ns)


def files_in(directory: Path, pattern: str) -> list[Path]:
    """Returns the files of a directory that a pattern names, by name. Raises CopycatError where it cannot be listed."""
    try:
        names = sorted(os.listdir(directory))  # noqa: PTH208 - names may be odd bytes; texts stay texts
    except OSError as error:
        raise unreadable(directory, error) from None
    return [directory / name for name in names if Path(name).match(pattern)]


def unreadable(path: Path, error: OSError) -> CopycatError:
    """Returns the error of a path that the kernel refuses."""
    return CopycatError(f"{path}: {error.strerror}", "run this as a user who may read the peer's state")
