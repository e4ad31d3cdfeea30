"""Where cleaned files go, and what a person has to change before they can."""

from __future__ import annotations

import errno
import os
import shlex
from contextlib import suppress

from copycat_agent.errors import BlockedError
from copycat_agent.sources.files.paths.matching import normalise
from copycat_agent.sources.spool_dir.cleanup.cleanup_folders import Folder, folder, target
from copycat_agent.sources.spool_dir.cleanup.cleanup_moves import PREFIX, KeptError
from copycat_agent.sources.spool_dir.spool_options import CleanupOptions

_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)


class Targets:
    """The target directories of one connector, and its own one. Used by its thread only."""

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
        """Each with the option that names it."""
        options = {self._failed_to: "cleanup.failed_to", self._to: "cleanup.to"}
        return {path: option for path, option in options.items() if path}

    def path_of(self, *, troubled: bool) -> str | None:
        """Where delivered, or bad, files go; None when they go nowhere."""
        return self._failed_to if troubled else self._to

    def check(self) -> BlockedError | None:
        """The first thing that a person has to change; None when all is well. Makes targets that are missing."""
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
        except KeptError as error:
            return BlockedError(f"{option}: {error.why}")
        except OSError as error:
            return BlockedError(f"{option}: {self.words(error, path=path)}", _chmod(path) if error.errno in _CLOSED else "")
        return None

    def refuse(self, root: Folder, home: Folder) -> None:
        """Raises KeptError for a target that cannot be meant, OSError."""
        with folder(self._directory) as top:
            real, own = os.path.realpath(root.path), os.path.realpath(self._directory)
            inside = real.startswith(own.rstrip("/") + "/")
            around = own.startswith(real.rstrip("/") + "/")
            if root.key == top.key or (self._recursive and (inside or around)):
                raise KeptError(
                    f"{root.path} is read by this connector too, so what goes there would be read again; "
                    f"choose a directory outside {self._directory}"
                )
        if root.mount != home.mount and not self._copies:
            raise KeptError(_apart(root, home))

    def words(self, error: OSError, *, path: str = "", troubled: bool = False) -> str:
        """An operating system's error in words that name the next step."""
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
    """Whether files can be made there: only trying tells on network file systems. A full one is no reason not to start. Raises OSError."""
    name = f"{PREFIX}probe-{os.getpid()}"
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=root.fd))
    except OSError as error:
        if error.errno not in _FULL:
            raise
    with suppress(OSError):
        root.remove(name)


def _unwritable(path: str) -> str:
    """Why names cannot be taken from a directory, as far as the kernel tells; "" when they can, or it is not there."""
    if not os.path.lexists(path) or os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        return ""
    return "it cannot be written to"


def _chmod(path: str) -> str:
    return f"let the agent's user write to it: setfacl -m u:{os.geteuid()}:rwx {shlex.quote(path)}"


def _apart(root: Folder, home: Folder) -> str:
    if root.key[0] == home.key[0]:  # as systemd's sandbox does it
        what, hint = "another mount", "in the service, name one directory above both in ReadWritePaths="
    else:
        what, hint = "another file system", "choose a directory on the same one"
    way_out = f"allow that with cleanup.across_devices: copy, or {hint}"
    return f"{root.path} is on {what} than {home.path}, so files would have to be copied; {way_out}"
