"""Directories that cleanup works in, held by descriptors: what was looked at is what is changed, and no link is followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from copycat_agent.sources.files.paths.beneath import find_beneath

_LOOK = os.O_PATH | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Folder:
    """A directory, closed at the end of a `with`. `path` is for messages. Methods raise OSError."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path
        info = os.fstat(fd)
        self.key = info.st_dev, info.st_ino
        if not stat.S_ISDIR(info.st_mode):
            os.close(fd)
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory", path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    @property
    def mount(self) -> tuple[int, int]:
        """Device and mount: files are renamed within one of these only, not even between two mounts of one device."""
        with open(f"/proc/self/fdinfo/{self.fd}", encoding="ascii") as stream:  # noqa: PTH123 - a hot path
            numbers = [int(line[7:]) for line in stream if line.startswith("mnt_id:")]
        return self.key[0], numbers[0] if numbers else 0

    def below(self, rest: str) -> Folder:
        """The directory at `rest` below this one; "" is this one. ELOOP where a link is met."""
        return Folder(find_beneath(self.fd, rest or "."), os.path.join(self.path, rest) if rest else self.path)  # noqa: PTH118 - a descriptor's name

    def made(self, rest: str) -> Folder:
        """The same, made where it is missing, durably."""
        here = self.below("")
        for part in filter(None, rest.split("/")):
            with here:
                if here.look(part) is None:
                    here.make(part)
                here = here.below(part)
        return here

    def make(self, name: str) -> None:
        """A directory, unless somebody was faster."""
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.fd)
            self.sync()

    def look(self, name: str) -> os.stat_result | None:
        """What has the name, links as such; None for nothing."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Delete a file; one that is not there is no matter."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    def names(self) -> list[str]:
        """Of everything in it."""
        fd = os.open(".", _LIST, dir_fd=self.fd)
        try:
            return os.listdir(fd)  # noqa: PTH208 - of a descriptor
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Names that were given or taken here survive a power cut from now on."""
        fd = os.open(".", _LIST, dir_fd=self.fd)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def prune(self, rest: str) -> None:
        """Delete the directory at `rest` and those above it, up to this one, as far as they are empty."""
        while rest:
            above, _, name = rest.rpartition("/")
            try:
                with self.below(above) as parent:
                    os.rmdir(name, dir_fd=parent.fd)
                    parent.sync()
            except OSError:  # not empty, or somebody was faster
                return
            rest = above


def folder(path: str) -> Folder:
    """A directory that a person named; links on the way to it were made by those who may. Raises OSError."""
    return Folder(os.open(path, _LOOK), path)


def target(path: str, *, make: bool = True) -> Folder:
    """A directory to put files into, made where it is missing. ELOOP when it is a link: nobody may turn files aside. Raises OSError."""
    try:
        fd = os.open(path, _LOOK | os.O_NOFOLLOW)
    except FileNotFoundError:
        if not make or path == "/":
            raise
        above, _, name = path.rpartition("/")
        _ensure(above or "/")
        with folder(above or "/") as parent:
            parent.make(name)
        fd = os.open(path, _LOOK | os.O_NOFOLLOW)
    if stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, "is a symbolic link", path)
    return Folder(fd, path)


def _ensure(path: str) -> None:
    """All directories above a target; here links are a person's."""
    if not os.path.lexists(path):
        above, _, name = path.rpartition("/")
        _ensure(above or "/")
        with folder(above or "/") as parent:
            parent.make(name)


class Unsynced:
    """Directories in which names have changed, to be synced together: a hundred files cost two syncs, not two hundred."""

    def __init__(self) -> None:
        self._folders: dict[tuple[int, int], Folder] = {}

    def add(self, *changed: Folder) -> None:
        """To be synced by the next `flush`."""
        for one in changed:
            if one.key not in self._folders:
                self._folders[one.key] = one.below("")

    def flush(self) -> None:
        """Sync them all. Raises OSError: then nothing is known of any."""
        folders, self._folders = list(self._folders.values()), {}
        with _closing(folders):
            for one in folders:
                one.sync()


@contextmanager
def _closing(folders: list[Folder]) -> Iterator[None]:
    try:
        yield
    finally:
        for one in folders:
            os.close(one.fd)
