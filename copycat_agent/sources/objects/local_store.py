"""A store for a directory tree of this host.

Symbolic links are not followed: one that leads to a parent directory would show its files again and again. Nor are links that replace a
directory later: whoever writes to the tree could otherwise have any file of this host read, moved or deleted.
"""

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
from copycat_agent.sources.objects.listing_schedule import NameRange
from copycat_agent.sources.objects.stores import ListedObject, NotificationQueue, directory_of, key_of

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalStore:
    """A `Store` whose names are absolute paths, with bytes that are not UTF-8 as surrogates."""

    lists_behind = False

    def __init__(self, address: Address) -> None:
        self.prefix = directory_of(address.path) or "/"
        self.refused: dict[str, str] = {}

    def shown(self, name: str) -> str:
        return f"file://{name}"

    def name_at(self, path: str) -> str:
        return path

    def listed(self, names: NameRange) -> Iterator[ListedObject]:
        """Raises FileNotFoundError if the tree itself does not exist: a missing mount is no empty tree."""
        Path(self.prefix).stat()
        refused: dict[str, str] = {}
        found = sorted(one for one in _files_below(self.prefix, refused) if one.name in names)
        self.refused = refused
        yield from found

    def look(self, name: str, *, is_certain: bool = True) -> ListedObject:  # noqa: ARG002 - it always is
        with self._beneath(name) as path:
            info = os.lstat(path)
        if not stat.S_ISREG(info.st_mode):
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        return _listed(name, info)

    @contextlib.contextmanager
    def _beneath(self, name: str) -> Iterator[str]:
        """Yields a path to this name that passes through no symbolic link below the tree, valid within the context."""
        *directories, last = name.removeprefix(self.prefix).split("/")
        with contextlib.ExitStack() as opened:
            path = self.prefix
            for one in ("", *directories):
                try:
                    fd = os.open(path + one, _DIRECTORY if one else _DIRECTORY & ~os.O_NOFOLLOW)
                except NotADirectoryError:
                    raise FileNotFoundError(errno.ENOENT, "there is no such file") from None
                except FileNotFoundError:
                    if one:
                        raise
                    raise OSError(errno.ENODEV, "the tree is not there: its mount may be missing") from None
                opened.close()  # the parent: a tree may be deeper than there are descriptors
                opened.callback(os.close, fd)
                path = f"/proc/self/fd/{fd}/"
            yield path + last

    def open(self, found: ListedObject) -> BlockFile:
        with self._beneath(found.name) as path:
            fd = os.open(path, _FLAGS)

        def fetch(position: int, size: int) -> bytes:
            data = os.pread(fd, size, position)
            if _listed(found.name, os.fstat(fd)) != found:
                raise ReplacedError(errno.ESTALE, "it was changed while it was read")
            return data

        return BlockFile(found.size, fetch, lambda: os.close(fd), ahead=False)

    def queue(self, url: str) -> NotificationQueue:
        raise NotImplementedError

    def delete(self, found: ListedObject) -> None:
        with self._beneath(found.name) as path:
            self._compare(found, path)
            Path(path).unlink()

    @staticmethod
    def _compare(found: ListedObject, path: str) -> None:
        if _listed(found.name, os.lstat(path)) != found:
            raise ReplacedError(errno.ESTALE, "it was replaced")

    def copy(self, found: ListedObject, to: str) -> None:
        """Makes a hard link if possible, else a copy that is synced before it gets its name."""
        parent = Path(to).parent
        parent.mkdir(parents=True, exist_ok=True)
        with self._beneath(found.name) as path:
            self._compare(found, path)
            try:
                os.link(path, to, follow_symlinks=False)
            except OSError:
                copy = parent / f".{key_of(found)[-16:]}.copycat-copy"  # a suffix could make the name too long
                shutil.copy2(path, copy, follow_symlinks=False)
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


@contextlib.contextmanager
def _one_by_one(name: str, refused: dict[str, str]) -> Iterator[None]:
    """Leaves out a name that has vanished; one that this user may not look at, or that is too long, is entered in `refused`."""
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
            raise
        refused[name] = error.strerror or str(error)


def _files_below(directory: str, refused: dict[str, str]) -> Iterator[ListedObject]:
    """Yields regular files. Raises if `directory` itself may not be listed; what may not be below it is in `refused` (`_one_by_one`)."""
    directories = [directory]
    while directories:
        found: list[os.DirEntry[str]] = []
        name = directories.pop()
        with _one_by_one(name, refused), os.scandir(name) as entries:
            found = list(entries)
        if directory in refused:
            raise PermissionError(errno.EACCES, refused[directory])
        for one in found:
            with _one_by_one(one.path, refused):
                if one.is_dir(follow_symlinks=False):
                    directories.append(f"{one.path}/")
                elif one.is_file(follow_symlinks=False):
                    yield _listed(one.path, one.stat(follow_symlinks=False))


def _listed(name: str, info: os.stat_result) -> ListedObject:
    return ListedObject(name, info.st_size, info.st_mtime_ns // 1_000_000, f"{info.st_ino}:{info.st_size}:{info.st_mtime_ns}")
