"""Hard links: whoever may write to a directory may put files of other users there, where the kernel lets everybody link everything."""

from __future__ import annotations

import os
from pathlib import Path

SYSCTL = Path("/proc/sys/fs/protected_hardlinks")
"""1: nobody can link a file that is not his own and that he may not write to. A test names another file here."""
_OPENED = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_WRITABLE_FOR_OTHERS = 0o022
_NOBODY = 65534
"""Whom a user namespace (systemd's PrivateUsers=) has no number for: any user of the host."""


def kernel_protects() -> bool | None:
    """Whether nobody can link other users' files; None when that cannot be read, as where a sandbox hides /proc/sys."""
    try:
        return SYSCTL.read_text("ascii").strip() not in ("0", "")
    except (OSError, UnicodeError):
        return None


def is_doubtful(found: int, info: os.stat_result) -> bool:
    """Whether somebody else may have put an open (O_PATH) file with several links where it is. `info` is its fstat. Raises OSError.

    Its owner may: the agent's user, unless that is root, or the owner of a directory that nobody else may write to.
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
