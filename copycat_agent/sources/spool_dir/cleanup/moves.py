"""Moves and deletions within one file system, in steps that the next call can finish, and names for files whose name is taken.

Nothing is ever overwritten: `orders-1.csv.gz` goes beside `orders.csv.gz`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import NamedTuple

from copycat_agent.sources.files.identity import Identity, identify
from copycat_agent.sources.files.paths.beneath import find_beneath
from copycat_agent.sources.files.paths.regular_files import is_open_for_writing
from copycat_agent.sources.spool_dir.cleanup.folders import PREFIX, ChangedError, CleanupDelayedError, Folder

NAME_BYTES = 255
"""The longest name that file systems allow."""
_ONE_BY_ONE = 8
"""How many numbers are tried one by one before larger steps."""
_MOST = 2**40
_PACKED = r"(?:\.(?:gz|zst|zstd|bz2|xz|lz4|sz|snappy|lzma|Z))"
_SUFFIX = re.compile(rf"(?<=[^.])(?:\.[A-Za-z][A-Za-z0-9_]{{0,15}})?{_PACKED}\Z|(?<=[^.])\.[A-Za-z][A-Za-z0-9_]{{0,15}}\Z")


def numbered(name: str, number: int, most_bytes: int = NAME_BYTES) -> str:
    """Returns `name` with a number before its suffixes; 0 is the name itself. A stem that is too long is cut at its end."""
    found = _SUFFIX.search(name)
    stem, suffix = (name[: found.start()], found[0]) if found else (name, "")
    tail = (f"-{number}" if number else "") + suffix
    room = most_bytes - len(os.fsencode(tail))
    return _cut(stem, room) + tail if room > 0 else _cut(name, most_bytes - len(f"-{number}")) + f"-{number}"


def _cut(text: str, most_bytes: int) -> str:
    """Returns the beginning that fits, without splitting a character."""
    raw = os.fsencode(text)
    if len(raw) <= most_bytes:
        return text
    while most_bytes and raw[most_bytes] & 0xC0 == 0x80:  # noqa: PLR2004 - inside a UTF-8 character
        most_bytes -= 1
    return os.fsdecode(raw[:most_bytes])


def is_numbered(name: str, candidate: str) -> bool:
    """Returns whether `candidate` is `name` or one of its numbered forms."""
    found = re.search(r"-(\d{1,13})(?=\D*\Z)", candidate)
    return candidate == numbered(name, 0) or (found is not None and candidate == numbered(name, int(found[1])))


def first_free(name: str, taken: Callable[[str], bool], most_bytes: int = NAME_BYTES) -> str:
    """Returns the name with the least number that is not taken; after the first few, a free one whose predecessor is taken.

    Otherwise each new file of a name that a hundred thousand have would check all of those names.
    """

    def is_taken(number: int) -> bool:
        return taken(numbered(name, number, most_bytes))

    for number in range(_ONE_BY_ONE):
        if not is_taken(number):
            return numbered(name, number, most_bytes)
    low, high = _ONE_BY_ONE - 1, _ONE_BY_ONE * 2
    while is_taken(high) and high < _MOST:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_taken(middle) else (low, middle)
    return numbered(name, high, most_bytes)


_RENAME_NOREPLACE = 1
_NO_RENAME = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
NO_LINK = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of file systems that have no hard links."""
_TRIES = 16
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW


class CleanupItem(NamedTuple):
    """A file to clean up, as it was when it was read. `saved_as`: the identity in cleanup's own names, None for the file's own."""

    name: str
    identity: Identity
    size: int
    mtime_ns: int
    saved_as: Identity | None = None

    @property
    def key(self) -> str:
        """Identifies the file in cleanup's own names, wherever it is and whatever number its device has after a reboot."""
        return "-".join(f"{part:x}" for part in self.saved_as or self.identity)


class NameState(Enum):
    """What a name refers to: the very file, unchanged; something else; nothing."""

    IT = "it"
    OTHER = "other"
    NOTHING = "nothing"


Choose = Callable[[], str]
"""Chooses a free name in the target. Called again if somebody else took it first."""


def seen(folder: Folder, name: str, item: CleanupItem) -> NameState:
    """Returns whether `name` is the file that was read, by device, inode, birth time, size and modification time. Raises OSError."""
    try:
        fd = find_beneath(folder.fd, name)
    except FileNotFoundError:
        return NameState.NOTHING
    except OSError as error:
        if error.errno == errno.ELOOP:
            return NameState.OTHER
        raise
    try:
        info = os.fstat(fd)
        now = (identify(fd, info), info.st_size, info.st_mtime_ns)
        return NameState.IT if stat.S_ISREG(info.st_mode) and now == (item.identity, item.size, item.mtime_ns) else NameState.OTHER
    finally:
        os.close(fd)


def item_at(folder: Folder, name: str) -> CleanupItem | None:
    """Returns the regular file of that name in its present state; None if there is none. Raises OSError."""
    info = folder.look(name)
    if info is None or not stat.S_ISREG(info.st_mode):
        return None
    fd = find_beneath(folder.fd, name)
    try:
        now = os.fstat(fd)
        return CleanupItem(name, identify(fd, now), now.st_size, now.st_mtime_ns)
    finally:
        os.close(fd)


def free_name(goal: Folder, name: str) -> str:
    """Returns its own name, or the next numbered one."""
    return first_free(name, lambda one: goal.look(one) is not None)


def move(home: Folder, item: CleanupItem, goal: Folder, choose: Choose) -> str:
    """Gives the file a new name in `goal`, on the same device. Returns the name. Raises CleanupDelayedError, ChangedError, OSError.

    A crash leaves it under the old name, the new one, or (if the file system has no other way) both: the next call finishes that.
    """
    if home.key == goal.key:
        raise CleanupDelayedError("the target is the directory that it is in")
    info = home.look(item.name)
    if info is not None and info.st_nlink > 1 and (name := linked(goal, item.name, info)):
        home.remove(item.name)
        return name
    for _ in range(_TRIES):
        name = choose()
        try:
            rename_new(home, item.name, goal, name)
        except FileExistsError:
            continue
        if seen(goal, name, item) is NameState.OTHER:
            put_back(goal, name, home, item.name)
            raise ChangedError("it was replaced or written to while it was moved")
        return name
    raise FileExistsError(errno.EEXIST, "every name that was tried is taken", goal.path)


def linked(goal: Folder, name: str, info: os.stat_result) -> str:
    """Returns the name in `goal`, possibly numbered, under which the same file is already linked; "" for none."""
    for other in goal.names():
        if is_numbered(name, other):
            found = goal.look(other)
            if found is not None and (found.st_dev, found.st_ino) == (info.st_dev, info.st_ino):
                return other
    return ""


def put_back(here: Folder, name: str, home: Folder, original: str) -> None:
    """Puts a file back that was taken by mistake; under a numbered name if its own is taken now. Raises OSError."""
    for _ in range(_TRIES):
        try:
            rename_new(here, name, home, free_name(home, original))
        except FileExistsError:
            continue
        return
    raise FileExistsError(errno.EEXIST, "every name that was tried is taken", home.path)


def delete(home: Folder, item: CleanupItem, *, unless_written: bool) -> None:
    """Renames the file aside, checks it again, and deletes it. Raises ChangedError, CleanupDelayedError, OSError.

    Without the rename, a file that replaces it between the check and the deletion would be lost. `unless_written`: not while a program has
    it open for writing.
    """
    aside = aside_name(item)
    if seen(home, aside, item) is NameState.NOTHING:
        os.rename(item.name, aside, src_dir_fd=home.fd, dst_dir_fd=home.fd)
    if seen(home, aside, item) is not NameState.IT:
        put_back(home, aside, home, item.name)
        raise ChangedError("it was replaced or written to while it was deleted")
    if unless_written and is_written(home, aside):
        put_back(home, aside, home, item.name)
        raise CleanupDelayedError("a program has it open for writing")
    home.remove(aside)


def finish_deletion(home: Folder, item: CleanupItem) -> bool:
    """Finishes a deletion after a kill. Returns whether it did. A file that was renamed aside by mistake is put back. Raises OSError."""
    aside = aside_name(item)
    state = seen(home, aside, item)
    if state is NameState.OTHER:
        put_back(home, aside, home, item.name)
    elif state is NameState.IT:
        home.remove(aside)
    return state is NameState.IT


def aside_name(item: CleanupItem) -> str:
    """Returns the name of a file for the moment before it is deleted."""
    return f"{PREFIX}{item.key}.gone"


def is_written(folder: Folder, name: str) -> bool:
    """Returns whether somebody has `name` open for writing; also False if that cannot be determined (not the owner, or no leases)."""
    try:
        fd = os.open(name, _READ, dir_fd=folder.fd)
    except OSError:
        return False
    try:
        return is_open_for_writing(fd)
    finally:
        os.close(fd)


def rename_new(home: Folder, name: str, goal: Folder, new: str) -> None:
    """Renames to a name that does not exist. Raises OSError: FileExistsError if it exists, EXDEV for another device."""
    call = _renameat2()
    code = errno.ENOSYS
    if call is not None:
        if call(home.fd, os.fsencode(name), goal.fd, os.fsencode(new), _RENAME_NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
    if code not in _NO_RENAME:
        raise OSError(code, os.strerror(code), f"{goal.path}/{new}")
    _link_new(home, name, goal, new)


def _link_new(home: Folder, name: str, goal: Folder, new: str) -> None:
    """Renames by link and unlink, for file systems without RENAME_NOREPLACE: NFS, some of FUSE."""
    try:
        os.link(name, new, src_dir_fd=home.fd, dst_dir_fd=goal.fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        why = "this file system can neither rename without overwriting nor make hard links"
        raise OSError(errno.EOPNOTSUPP, why, goal.path) from None
    there, here = goal.look(new), home.look(name)
    if there and here and there.st_ino == here.st_ino:  # else somebody replaced it meanwhile: that one stays
        home.remove(name)


@cache
def _renameat2() -> Callable[..., int] | None:
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # a libc without it
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    call.restype = ctypes.c_int
    return call
