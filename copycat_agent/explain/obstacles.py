"""What stands between a pattern that names a path and the file: links, missing directories, permissions."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from copycat_agent.doctor.users import find_user, how_to_open
from copycat_agent.sources.files.paths.opening import NotRegularError, open_regular

_FOLLOW = "set follow_symlinks: true to read what it points to"
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


class Refusal(NamedTuple):
    """Why a connector does not read a path, and what to do about it, "" where nothing need be done."""

    why: str
    hint: str = ""


def obstacle(path: str, fixed: int, *, follow_symlinks: bool) -> Refusal | None:
    """The first thing on the way to the file at `path` that keeps it from being read; None when it can be.

    `fixed`: so many directories are named without a wildcard, and may be links whatever `follow_symlinks` says.
    """
    parts = path.strip("/").split("/")
    for number in range(1, len(parts)):
        directory = "/" + "/".join(parts[:number])
        if refusal := _directory(directory, follow_symlinks=follow_symlinks or number <= fixed):
            return refusal
    return _file(path, follow_symlinks=follow_symlinks)


def _directory(path: str, *, follow_symlinks: bool) -> Refusal | None:
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            if not follow_symlinks:
                return Refusal(f"the directory {path} is a symbolic link", _FOLLOW)
            info = os.stat(path)  # noqa: PTH116 - names may be odd bytes; texts stay texts
    except FileNotFoundError:
        return Refusal(f"there is no directory {path}", "the agent looks again every scan_interval")
    except OSError as error:
        return _closed(path, error)
    if not stat.S_ISDIR(info.st_mode):
        return Refusal(f"{path} is not a directory")
    return None


def _file(path: str, *, follow_symlinks: bool) -> Refusal | None:
    """Opens it, as the source would."""
    try:
        info = os.stat(path, follow_symlinks=follow_symlinks)  # noqa: PTH116 - see above
        if not stat.S_ISREG(info.st_mode):
            kind = _KINDS.get(stat.S_IFMT(info.st_mode), "no regular file")
            return Refusal(f"it is {kind}, and only regular files are read", _FOLLOW if stat.S_ISLNK(info.st_mode) else "")
        os.close(open_regular(path, follow_symlinks=follow_symlinks)[0])
    except NotRegularError:
        return Refusal("it is not a regular file")
    except FileNotFoundError:
        if os.path.islink(path):  # noqa: PTH114 - see above
            return Refusal("it is a symbolic link that leads nowhere")
        return Refusal("there is no such file now", "it is taken when it comes: the pattern names it")
    except OSError as error:
        return _closed(path, error)
    return None


def _closed(path: str, error: OSError) -> Refusal:
    """What the kernel said, and how the user who asks could be let in."""
    if error.errno not in (errno.EACCES, errno.EPERM):
        return Refusal(f"{path} cannot be opened: {error.strerror}")
    user = find_user(None)
    above = user.closed_parent(path)
    where, wanted = (above, "x") if above else (path, "r")
    return Refusal(f"user {user.name} may not {'pass through' if above else 'read'} {where}", how_to_open(user, where, wanted))
