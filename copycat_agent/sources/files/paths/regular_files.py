"""Opens files that match: regular ones only, without blocking, and no further than the definition and others' hard links allow."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from copycat_agent.sources.files.paths.beneath import find_beneath, find_following
from copycat_agent.sources.files.paths.matching import fixed_part, path_regex

SYSCTL = Path("/proc/sys/fs/protected_hardlinks")
"""1: nobody can link a file that is not his own and that he may not write to. Tests set another file here."""
_OPENED = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_F_SETSIG = 10  # fcntl.h; Python's fcntl does not name it
_WRITABLE_FOR_OTHERS = 0o022
_NOBODY = 65534
"""The user that a user namespace (systemd's PrivateUsers=) shows for unmapped users: any user of the host."""


def kernel_protects() -> bool | None:
    """Returns whether users cannot link others' files; None if that cannot be read, as in a sandbox that hides /proc/sys."""
    try:
        return SYSCTL.read_text("ascii").strip() not in ("0", "")
    except (OSError, UnicodeError):
        return None


def is_doubtful(found: int, info: os.stat_result) -> bool:
    """Returns whether someone else may have linked an open (O_PATH) file to its place; `info` is its fstat. Raises OSError.

    Its owner may have done so: the agent's user, unless that is root, or the owner of a directory that nobody else may write to.
    """
    if kernel_protects() or (info.st_uid == os.geteuid() and info.st_uid):
        return False
    directory, _, name = os.readlink(f"/proc/self/fd/{found}").rpartition("/")  # noqa: PTH115 - names may be odd bytes
    above = os.open(directory or "/", _OPENED)
    try:
        is_there = os.path.samestat(os.stat(name, dir_fd=above, follow_symlinks=False), info)
        owner = os.fstat(above)
    finally:
        os.close(above)
    return not is_there or owner.st_uid != info.st_uid or info.st_uid == _NOBODY or bool(owner.st_mode & _WRITABLE_FOR_OTHERS)


_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_ROOT_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LINKED = (
    "has several hard links, and somebody other than its owner may have put it there; set fs.protected_hardlinks to 1 and remove the link,"
    " or set follow_hard_links: true to read it"
)
SPARE = 48
"""Descriptors of the process that files leave free for everything else: the store, sockets, runners, directories that are listed."""
_HELD_ROOTS = 16
"""How many descriptors of the patterns' fixed parts a scan keeps open; the rest are opened each time."""


class PassedOverError(OSError):
    """The path leads to something that is not read on purpose. `strerror` says what it is, and how to have it read."""


class NotRegularError(PassedOverError):
    """The path leads to something that is not a regular file."""


class LinkError(PassedOverError):
    """The path leads through a link that the definition does not allow."""


class Opener:
    """Opens what one connector's patterns find. Used by one caller at a time.

    A pattern's fixed part was written by a person and may lead through links. Below it none is followed; with `follow_symlinks` the target
    has to be beneath the real path of a fixed part, or of one of `symlink_roots`. Something other than a regular file is never opened, not
    even for a moment: a name is resolved without opening (O_PATH), and then the resolved file is opened, so nobody can replace it in
    between. Nor is a file opened that somebody else may have linked to its place (`is_doubtful`), unless `follow_hard_links` is set. This
    costs 10 µs a file instead of 4.
    """

    def __init__(
        self,
        include: tuple[str, ...],
        *,
        follow_symlinks: bool = False,
        symlink_roots: tuple[str, ...] = (),
        follow_hard_links: bool = False,
    ) -> None:
        self.follow_symlinks = follow_symlinks
        self._follow_hard_links = follow_hard_links
        self._patterns = [(fixed_part(pattern), path_regex(pattern)) for pattern in include]
        self._real_roots = tuple(dict.fromkeys([*(root for root, _ in self._patterns), *symlink_roots]))
        self._holds = False
        self._held: dict[str, int] = {}
        self._allowed: tuple[str, ...] = ()

    def open(self, path: str, *, is_known: bool = False) -> tuple[int, os.stat_result]:
        """Returns descriptor and fstat of the regular file at `path`. Raises OSError.

        `is_known`: the caller takes only a file that it has read before, so it does not matter who links it.
        """
        found = self._find(path, self.roots_of(path))
        try:
            info = os.fstat(found)
            if not stat.S_ISREG(info.st_mode):
                raise NotRegularError(0, "is not a regular file", path)
            if self.follow_symlinks and (target := self._outside(found)):
                raise _leads_out(target, path)
            if info.st_nlink > 1 and not (is_known or self._follow_hard_links) and is_doubtful(found, info):
                raise LinkError(errno.EPERM, _LINKED, path)
            return os.open(f"/proc/self/fd/{found}", _FLAGS), info
        finally:
            os.close(found)

    def open_directory(self, path: str, root: str) -> int:
        """Opens a directory to list, `root` itself or one below it; `root` is a pattern's fixed part. Raises OSError."""
        found = self._find(path, (root,))
        try:
            if self.follow_symlinks and (target := self._outside(found)):
                raise _leads_out(target, path)
            return os.open(".", _FLAGS | os.O_DIRECTORY, dir_fd=found)
        finally:
            os.close(found)

    def check(self, path: str) -> None:
        """Raises LinkError if a link at `path` leads outside of what may be read. Other errors are left to the opening of the file."""
        try:
            found = self._find(path, self.roots_of(path))
        except OSError:
            return
        try:
            if target := self._outside(found):
                raise _leads_out(target, path)
        finally:
            os.close(found)

    @contextlib.contextmanager
    def held_roots(self) -> Iterator[None]:
        """Looks up the patterns' fixed parts only once within the block: for one pass over everything, no longer."""
        self._holds, self._allowed = True, ()
        try:
            yield
        finally:
            self._holds, self._allowed = False, ()
            for fd in self._held.values():
                os.close(fd)
            self._held.clear()

    def roots_of(self, path: str) -> tuple[str, ...]:
        """Returns the fixed parts below which `path` may be, the shortest first: below it, most of the path must be free of links.

        A file that has left its patterns is searched for under its last name, which is a real path without links.
        """
        if len(self._patterns) == 1 and _is_below(path, self._patterns[0][0]):
            return (self._patterns[0][0],)
        matching = [root for root, regex in self._patterns if regex.match(path)]
        around = matching or [root for root, _ in self._patterns if _is_below(path, root)]
        return tuple(sorted(set(around), key=len)) or ("/",)

    def _find(self, path: str, roots: tuple[str, ...]) -> int:
        """Returns an O_PATH descriptor of what is at `path`. Raises OSError."""
        if self.follow_symlinks:
            return self._find_from(roots[0], path, find_following)
        for root in roots:
            try:
                return self._find_from(root, path, find_beneath)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.EXDEV):
                    raise
        raise LinkError(errno.ELOOP, "is or leads through a symbolic link; set follow_symlinks: true to read what it points to", path)

    def _find_from(self, root: str, path: str, find: Callable[[int, str], int]) -> int:
        rest = path[len(root) :].strip("/") or "."
        if root in self._held:
            return find(self._held[root], rest)
        fd = os.open(root, _ROOT_FLAGS)
        if self._holds and len(self._held) < _HELD_ROOTS:
            self._held[root] = fd
            return find(fd, rest)
        try:
            return find(fd, rest)
        finally:
            os.close(fd)

    def _outside(self, fd: int) -> str:
        """Returns where the descriptor leads, if that is outside of what may be read; else ""."""
        target = _path_of(fd)
        allowed = self._allowed or tuple(filter(None, map(_real, self._real_roots)))
        if self._holds:
            self._allowed = allowed
        return "" if any(_is_below(target, root) or target == root for root in allowed) else target


def open_regular(path: str, *, follow_symlinks: bool) -> tuple[int, os.stat_result]:
    """Opens a regular file that a user named: without blocking, through a final symlink only if asked. Raises OSError."""
    fd = os.open(path, _FLAGS | (0 if follow_symlinks else os.O_NOFOLLOW))
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise NotRegularError(0, "is not a regular file", path)
    return fd, info


def open_again(fd: int) -> tuple[int, os.stat_result]:
    """Returns another descriptor of an open file, and its fstat. Permissions are checked again. Raises OSError."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise NotRegularError(0, "is not a regular file", f"/proc/self/fd/{fd}")
    found = os.open(f"/proc/self/fd/{fd}", _FLAGS)
    return found, os.fstat(found)


def why_not(error: OSError) -> str:
    """Returns the reason why a path was not opened."""
    return str(error.strerror) if isinstance(error, PassedOverError) else f"cannot be opened: {error.strerror}"


def _leads_out(target: str, path: str) -> LinkError:
    where = f"leads to {target}, beyond where the patterns begin"
    return LinkError(errno.ELOOP, f"{where}; to read it, list a directory above it in symlink_roots", path)


def _real(directory: str) -> str:
    """Returns the directory's path without links, "" if it cannot be opened."""
    try:
        fd = os.open(directory, _ROOT_FLAGS)
    except OSError:
        return ""
    try:
        return _path_of(fd)
    finally:
        os.close(fd)


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - a hot path


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory if directory == "/" else f"{directory}/")


def is_open_for_writing(fd: int) -> bool:
    """Returns whether somebody has the open file open for writing; also False if that is not known (not the owner, or no leases)."""
    return _lease_refusal(fd) == errno.EAGAIN


def has_no_writer(fd: int) -> bool:
    """Returns whether nobody has the open file open for writing; also False if that is not known."""
    return _lease_refusal(fd) == 0


def _lease_refusal(fd: int) -> int:
    """Returns 0 if the kernel grants a read lease, which it does only while nobody has the file open for writing; else the errno.

    A lease is refused without ownership or CAP_LEASE, and on a file system without leases.
    """
    try:
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)  # breaking a lease sends SIGIO, which kills; SIGURG is ignored
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno or errno.EIO
    return 0
