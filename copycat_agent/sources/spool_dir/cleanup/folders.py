"""Directories that cleanup works in, and the targets that files are moved to.

They are held by descriptors: changes apply to the directory that was checked, and no link is followed.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from copycat_agent.errors import BlockedError
from copycat_agent.sources.files.paths.beneath import find_beneath
from copycat_agent.sources.files.paths.matching import normalise
from copycat_agent.sources.spool_dir.spool_options import CleanupOptions

PREFIX = ".copycat-"
"""Prefix of every name that cleanup uses for itself; names with a dot are never read."""
_LOOK = os.O_PATH | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class ChangedError(Exception):
    """The file is not the one that was read: it is left alone. The argument says what it is."""


class CleanupDelayedError(Exception):
    """Cleanup is not possible now: the reason, and after how many seconds to retry (None: with growing pauses)."""

    def __init__(self, why: str, retry_seconds: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.retry_seconds = retry_seconds


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
        """Device and mount: renames work only within one of these, not even between two mounts of one device."""
        with open(f"/proc/self/fdinfo/{self.fd}", encoding="ascii") as stream:  # noqa: PTH123 - a hot path
            numbers = [int(line[7:]) for line in stream if line.startswith("mnt_id:")]
        return self.key[0], numbers[0] if numbers else 0

    def below(self, rest: str) -> Folder:
        """Returns the directory at `rest` below this one; "" is this one. Raises ELOOP for a symbolic link."""
        return Folder(find_beneath(self.fd, rest or "."), os.path.join(self.path, rest) if rest else self.path)  # noqa: PTH118 - a descriptor's name

    def made(self, rest: str) -> Folder:
        """Returns the directory at `rest`, and creates missing ones durably."""
        here = self.below("")
        for part in filter(None, rest.split("/")):
            with here:
                if here.look(part) is None:
                    here.make(part)
                here = here.below(part)
        return here

    def make(self, name: str) -> None:
        """Creates a directory, unless it exists."""
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.fd)
            self.sync()

    def look(self, name: str) -> os.stat_result | None:
        """Returns the stat of a name without following links; None if it does not exist."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Deletes a file if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    def names(self) -> list[str]:
        """Returns the names of everything in it."""
        fd = os.open(".", _LIST, dir_fd=self.fd)
        try:
            return os.listdir(fd)  # noqa: PTH208 - of a descriptor
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Syncs the directory: names added or removed here survive a power cut from now on."""
        fd = os.open(".", _LIST, dir_fd=self.fd)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def prune(self, rest: str) -> None:
        """Deletes the directory at `rest` and its parents, up to this one, as far as they are empty."""
        while rest:
            above, _, name = rest.rpartition("/")
            try:
                with self.below(above) as parent:
                    os.rmdir(name, dir_fd=parent.fd)
                    parent.sync()
            except FileNotFoundError:  # a kill came between it and its parents, or somebody was faster
                pass
            except OSError:  # not empty
                return
            rest = above


def folder(path: str) -> Folder:
    """Opens a directory that a user named; it may be reached through links. Raises OSError."""
    return Folder(os.open(path, _LOOK), path)


def target(path: str, *, make: bool = True) -> Folder:
    """Opens a target directory, and creates it if it is missing. Raises ELOOP if it is a link, so that nobody redirects files; OSError."""
    if make:
        _ensure(path)
    fd = os.open(path, _LOOK | os.O_NOFOLLOW)
    if stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, "is a symbolic link", path)
    return Folder(fd, path)


def _ensure(path: str) -> None:
    """Creates missing directories; links above a target are the user's."""
    if not os.path.lexists(path):
        above, _, name = path.rpartition("/")
        _ensure(above or "/")
        with folder(above or "/") as parent:
            parent.make(name)


class Unsynced:
    """Directories in which names have changed, to be synced together: a hundred files cost two syncs instead of two hundred."""

    def __init__(self) -> None:
        self._folders: dict[tuple[int, int], Folder] = {}

    def add(self, *changed: Folder) -> None:
        """Adds directories to be synced by the next `flush`."""
        for one in changed:
            if one.key not in self._folders:
                self._folders[one.key] = one.below("")

    def flush(self) -> None:
        """Syncs them all. Raises OSError: then none is known to be synced."""
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


_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)


class CleanupTargets:
    """The target directories of one connector, and its own directory. Used by one caller at a time."""

    def __init__(self, directory: str, options: CleanupOptions, *, recursive: bool) -> None:
        self._directory = directory
        self._recursive = recursive
        self._copies = options.across_devices == "copy"
        self._deletes = options.policy == "delete"
        moves = options.policy in ("move", "move_by_date")
        self._to = normalise(options.to) if moves and options.to else None
        self._failed_to = normalise(options.failed_to) if options.failed_to else None

    @property
    def paths(self) -> dict[str, str]:
        """The target directories, each with the option that names it."""
        options = {self._failed_to: "cleanup.failed_to", self._to: "cleanup.to"}
        return {path: option for path, option in options.items() if path}

    def path_of(self, *, troubled: bool) -> str | None:
        """Returns the target of delivered, or of bad files; None if there is none."""
        return self._failed_to if troubled else self._to

    def check(self) -> BlockedError | None:
        """Returns the first thing that a person has to change; None if there is nothing. Creates missing targets."""
        for path, option in self.paths.items():
            if problem := self._check(path, option):
                return problem
        if (self.paths or self._deletes) and (why := _unwritable(self._directory)):
            return BlockedError(f"files cannot be taken out of {self._directory}: {why}", _chmod(self._directory))
        return None

    def _check(self, path: str, option: str) -> BlockedError | None:
        try:
            with target(path) as root:
                try:
                    with folder(self._directory) as home:
                        self.refuse(root, home)
                except FileNotFoundError:  # reading says so
                    pass
                _probe(root)
        except CleanupDelayedError as error:
            return BlockedError(f"{option}: {error.why}")
        except OSError as error:
            return BlockedError(f"{option}: {self.words(error, path=path)}", _chmod(path) if error.errno in _CLOSED else "")
        return None

    def refuse(self, root: Folder, home: Folder) -> None:
        """Raises CleanupDelayedError for a target that is read by this connector, or on another mount without copying. Raises OSError."""
        with folder(self._directory) as top:
            real, own = os.path.realpath(root.path), os.path.realpath(self._directory)
            inside = real.startswith(own.rstrip("/") + "/")
            around = own.startswith(real.rstrip("/") + "/")
            if root.key == top.key or (self._recursive and (inside or around)):
                raise CleanupDelayedError(
                    f"{root.path} is read by this connector too, so what goes there would be read again; "
                    f"choose a directory outside {self._directory}"
                )
        if root.mount != home.mount and not self._copies:
            raise CleanupDelayedError(_apart(root, home))

    def words(self, error: OSError, *, path: str = "", troubled: bool = False) -> str:
        """Returns an operating system's error in words that name the next step."""
        where = path or (error.filename if isinstance(error.filename, str) and error.filename.startswith("/") else "")
        where = where or self.path_of(troubled=troubled) or self._directory
        if error.errno in _FULL:
            return f"{where}: no space is left; make room, or shorten cleanup.retain"
        if error.errno == errno.ELOOP:
            return f"{where} is, or leads through, a symbolic link, which is not followed; name the real directory"
        if error.errno in _CLOSED:
            return f"{where} cannot be written to: {error.strerror}; {_chmod(where)}"
        return f"{where}: {error.strerror or error}"


def _probe(root: Folder) -> None:
    """Checks that files can be created there: on network file systems only trying shows it. A full one passes. Raises OSError."""
    name = f"{PREFIX}probe-{os.getpid()}"
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=root.fd))
    except OSError as error:
        if error.errno not in _FULL:
            raise
    with suppress(OSError):
        root.remove(name)


def _unwritable(path: str) -> str:
    """Returns why names cannot be removed from a directory, according to the kernel; "" if they can, or it does not exist."""
    if not os.path.lexists(path) or os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        return ""
    return "it cannot be written to"


def _chmod(path: str) -> str:
    return f"let the agent's user write to it: setfacl -m u:{os.geteuid()}:rwx {shlex.quote(path)}"


def _apart(root: Folder, home: Folder) -> str:
    if root.key[0] == home.key[0]:  # as systemd's sandbox does
        what, hint = "another mount", "in the service, name one directory above both in ReadWritePaths="
    else:
        what, hint = "another file system", "choose a directory on the same one"
    way_out = f"allow that with cleanup.across_devices: copy, or {hint}"
    return f"{root.path} is on {what} than {home.path}, so files would have to be copied; {way_out}"
