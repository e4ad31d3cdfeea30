"""Identifies files (device, inode, and birth time if the file system keeps one, never a name alone), and finds them again."""

from __future__ import annotations

import ctypes
import os
from collections import defaultdict
from collections.abc import Container
from functools import cache
from pathlib import PurePosixPath
from typing import NamedTuple

_AT_EMPTY_PATH = 0x1000
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_BTIME = 0x800
_STATX_INO = 0x100


class Identity(NamedTuple):
    """The identity of a file in the kernel. `birth_ns` is 0 if the file system has no birth time."""

    device: int
    inode: int
    birth_ns: int

    @property
    def lasting(self) -> Identity:
        """The part that survives a reboot or a remount: device numbers change, but without a birth time they have to count."""
        return self._replace(device=0) if self.birth_ns else self

    def key(self, generation: int) -> str:
        """Returns the key of the file's partition. A file that is cut and begun anew keeps its identity and gets the next generation."""
        return f"{self.device:x}:{self.inode:x}:{self.birth_ns:x}:{generation}"

    @property
    def name(self) -> str:
        """Name of the open file for a service manager: ASCII without colons, under 64 characters."""
        return f"copycat-{self.device:x}-{self.inode:x}-{self.birth_ns:x}"

    @classmethod
    def parse(cls, key: str) -> tuple[Identity, int]:
        """Returns identity and generation of a partition's key. Raises ValueError if it is not one."""
        device, inode, birth, generation = key.split(":")
        return cls(int(device, 16), int(inode, 16), int(birth, 16)), int(generation)


def identify(fd: int, stat: os.stat_result) -> Identity:
    """Returns the identity of an open file; `stat` is its fstat."""
    return Identity(stat.st_dev, stat.st_ino, _birth_ns(fd))


def identify_by_name(path: str, stat: os.stat_result, *, follow_symlinks: bool) -> Identity | None:
    """Returns the identity of a file that need not be readable; `stat` is its stat. None if another file has the name now."""
    found = _statx(_AT_FDCWD, os.fsencode(path), 0 if follow_symlinks else _AT_SYMLINK_NOFOLLOW)
    if found is None or found.ino != stat.st_ino:
        return None
    return Identity(stat.st_dev, stat.st_ino, _birth(found))


def is_at(path: str, identity: Identity) -> bool:
    """Returns whether `path` is a name of this file, whatever its device number is now; a link is not followed. Raises OSError."""
    info = os.lstat(path)
    if info.st_ino != identity.inode:
        return False
    now = identify_by_name(path, info, follow_symlinks=False)
    if now is None or not identity.birth_ns:  # its birth time is not known
        return info.st_dev == identity.device
    return now.lasting == identity.lasting


class _Timestamp(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_int64), ("nsec", ctypes.c_uint32), ("pad", ctypes.c_int32))


class _Statx(ctypes.Structure):
    """struct statx of linux/stat.h, as far as the birth time."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("blksize", ctypes.c_uint32),
        ("attributes", ctypes.c_uint64),
        ("nlink", ctypes.c_uint32),
        ("uid", ctypes.c_uint32),
        ("gid", ctypes.c_uint32),
        ("mode", ctypes.c_uint16),
        ("pad", ctypes.c_uint16),
        ("ino", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("attributes_mask", ctypes.c_uint64),
        ("atime", _Timestamp),
        ("btime", _Timestamp),
        ("rest", ctypes.c_uint8 * 256),
    )


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _birth_ns(fd: int) -> int:
    """Returns the birth time of an open file, 0 if unknown. Python's stat has none on Linux, statx(2) has."""
    found = _statx(fd, b"", _AT_EMPTY_PATH)
    return 0 if found is None else _birth(found)


def _statx(fd: int, path: bytes, flags: int) -> _Statx | None:
    found = _Statx()
    try:
        failed = _libc().statx(fd, path, flags, _STATX_BTIME | _STATX_INO, ctypes.byref(found))
    except AttributeError:  # a libc without statx
        return None
    return None if failed else found


def _birth(found: _Statx) -> int:
    return int(found.btime.sec * 1_000_000_000 + found.btime.nsec) if found.mask & _STATX_BTIME else 0


class InodeFinder:
    """Finds files by inode. Each directory is listed once, so one search for very many files stays cheap."""

    def __init__(self) -> None:
        self._listings: dict[str, dict[int, list[str]]] = {}

    def find(self, path: str, identity: Identity) -> str | None:
        """Returns a name of the file last known as `path`, None if its directory does not have it (any more). Raises OSError.

        A missing directory raises as well: its files may come back with it.
        """
        beside = str(PurePosixPath(path).parent)
        name = self._find_in(beside, path, identity)
        if name is None and os.path.islink(path):  # noqa: PTH114 - a str path
            target = os.path.realpath(path)
            name = self._find_in(str(PurePosixPath(target).parent), target, identity)
        return name

    def seen(self, path: str, identity: Identity, devices: Container[int] = ()) -> bool | None:
        """Returns whether the file last known as `path` exists, under any name in its directory.

        None if that is not known: the directory cannot be listed, or is on another file system than the file's, which may not be mounted.
        `devices`: other numbers that its device has had.
        """
        directory = beside = os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path)  # noqa: PTH114, PTH120 - a str path
        try:
            while (device := _device_of(directory)) is None:
                directory = os.path.dirname(directory)  # noqa: PTH120 - as above
            names = {path, *self._listing(directory).get(identity.inode, ())} if directory == beside else ()
            if any(_is_file(name, identity) for name in names):
                return True
        except OSError:
            return None
        return False if device == identity.device or device in devices else None

    def _find_in(self, directory: str, path: str, identity: Identity) -> str | None:
        names = sorted(self._listing(directory).get(identity.inode, []), key=lambda one: one != path)
        return next((name for name in names if is_at(name, identity)), None)

    def _listing(self, directory: str) -> dict[int, list[str]]:
        if directory not in self._listings:
            names = defaultdict(list)
            with os.scandir(directory) as listing:
                for entry in listing:
                    names[entry.inode()].append(entry.path)
            self._listings[directory] = names
        return self._listings[directory]


def _device_of(directory: str) -> int | None:
    """Returns the device, None if there is no such directory. Raises OSError if that cannot be determined, and if the root is missing."""
    try:
        return os.stat(directory or "/").st_dev  # noqa: PTH116 - a str path
    except (FileNotFoundError, NotADirectoryError):
        if directory in {"", "/"}:
            raise
        return None


def _is_file(name: str, identity: Identity) -> bool:
    """Returns whether it is this file's name; its device may have another number now. Raises OSError."""
    try:
        info = os.lstat(name)
    except FileNotFoundError:
        return False
    if info.st_ino != identity.inode:
        return False
    now = identify_by_name(name, info, follow_symlinks=False)
    return now is None or now == identity or (now.birth_ns == identity.birth_ns > 0)
