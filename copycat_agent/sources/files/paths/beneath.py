"""Calls openat2(2): finds what is at a path below a directory, without following a single link, and without opening it."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from functools import cache

_SYS_OPENAT2 = 437
"""The same on every architecture that was added since system call numbers are unified (Linux 5.6), and on x86-64."""
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_FLAGS = os.O_PATH | os.O_CLOEXEC
_TRIES = 8
"""The kernel asks for a retry if names were moved during the look-up."""


class _OpenHow(ctypes.Structure):
    """struct open_how of linux/openat2.h."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_BENEATH = _OpenHow(_FLAGS, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
_HOW_FOLLOWING = _OpenHow(_FLAGS, 0, _RESOLVE_NO_MAGICLINKS)


def find_beneath(directory_fd: int, rest: str) -> int:
    """Returns an O_PATH descriptor of what is at `rest` below the directory. Raises OSError: ELOOP for a link, EXDEV for `..`.

    Nothing is opened, so a pipe's writer sees no reader, and no device is touched.
    """
    if not has_openat2():
        return walk_beneath(directory_fd, rest)
    return _openat2(directory_fd, rest, _HOW_BENEATH)


def find_following(directory_fd: int, rest: str) -> int:
    """Returns the same through links, wherever they lead, but not those of /proc/*/fd. Raises OSError."""
    if not has_openat2():
        return os.open(rest, _FLAGS, dir_fd=directory_fd)
    return _openat2(directory_fd, rest, _HOW_FOLLOWING)


def walk_beneath(directory_fd: int, rest: str) -> int:
    """Does `find_beneath` for kernels before 5.6 and sandboxes that block openat2: one name after the other."""
    here = os.open(".", _FLAGS, dir_fd=directory_fd)
    try:
        for part in rest.split("/"):
            below = os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
            _refuse(errno.EXDEV if part == ".." else errno.ELOOP if stat.S_ISLNK(os.fstat(here).st_mode) else 0, rest)
    except OSError:
        os.close(here)
        raise
    return here


def _refuse(code: int, path: str) -> None:
    if code:
        raise OSError(code, os.strerror(code), path)


@cache
def has_openat2() -> bool:
    """Returns whether the kernel, and a possible sandbox, allow openat2."""
    try:
        os.close(_openat2(-1, "/", _HOW_FOLLOWING))
    except OSError:
        return False
    return True


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    return libc


def _openat2(directory_fd: int, path: str, how: _OpenHow) -> int:
    call, name = _libc().syscall, os.fsencode(path)
    code = errno.EAGAIN
    for _ in range(_TRIES):
        fd = int(call(_SYS_OPENAT2, directory_fd, name, ctypes.addressof(how), ctypes.sizeof(how)))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), path)
