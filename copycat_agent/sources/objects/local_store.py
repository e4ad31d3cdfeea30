"""A directory tree of this host. Links are not followed: one that leads to a directory above it would show a file again and again."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from copycat_agent.extending import Address
from copycat_agent.sources.objects.blocks import BlockFile, ReplacedError
from copycat_agent.sources.objects.passes import NameRange
from copycat_agent.sources.objects.stores import Listed, NoticeQueue, directory_of

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_COPYING = ".copycat-copy"


class LocalStore:
    """Names are absolute paths; bytes that are not UTF-8 stand in them as Python has them."""

    lists_behind = False

    def __init__(self, address: Address) -> None:
        self.prefix = directory_of(address.path) or "/"

    def shown(self, name: str) -> str:
        return f"file://{name}"

    def name_at(self, path: str) -> str:
        return path

    def listed(self, names: NameRange) -> Iterator[Listed]:
        """Raises FileNotFoundError where the tree itself is not there: a mount that is missing is no empty tree."""
        Path(self.prefix).stat()
        yield from sorted(one for one in _files_below(self.prefix) if one.name in names)

    def look(self, name: str) -> Listed:
        info = os.lstat(name)
        if not stat.S_ISREG(info.st_mode):
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        return _listed(name, info)

    def open(self, found: Listed) -> BlockFile:
        fd = os.open(found.name, _FLAGS)

        def fetch(position: int, size: int) -> bytes:
            data = os.pread(fd, size, position)
            if _listed(found.name, os.fstat(fd)) != found:
                raise ReplacedError(errno.ESTALE, "it was changed while it was read")
            return data

        return BlockFile(found.size, fetch, lambda: os.close(fd), ahead=False)

    def queue(self, url: str) -> NoticeQueue:
        raise NotImplementedError

    def delete(self, found: Listed) -> None:
        Path(found.name).unlink(missing_ok=True)

    def copy(self, found: Listed, to: str) -> None:
        """By a second link where that can be, else by a copy that is on the disk before it has its name."""
        parent = Path(to).parent
        parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(found.name, to, follow_symlinks=False)
        except OSError:
            copy = Path(to + _COPYING)
            shutil.copy2(found.name, copy, follow_symlinks=False)
            with copy.open("rb") as file:
                os.fsync(file.fileno())
            copy.replace(to)
        directory = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def tag(self, name: str, tag: str, value: str) -> None:
        raise NotImplementedError


def _files_below(directory: str) -> Iterator[Listed]:
    """Regular files. A directory that goes away meanwhile has none; one that may not be listed raises."""
    found: list[os.DirEntry[str]] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        found = list(entries)
    for one in found:
        with contextlib.suppress(FileNotFoundError):
            if one.is_dir(follow_symlinks=False):
                yield from _files_below(f"{one.path}/")
            elif one.is_file(follow_symlinks=False):
                yield _listed(one.path, one.stat(follow_symlinks=False))


def _listed(name: str, info: os.stat_result) -> Listed:
    return Listed(name, info.st_size, info.st_mtime_ns // 1_000_000, f"{info.st_ino}:{info.st_size}:{info.st_mtime_ns}")
