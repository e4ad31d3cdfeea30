"""Users and mounts: what the kernel lets a user do (mode bits and POSIX ACLs), and which file system a path is on."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from copycat_agent.errors import CopycatError
from copycat_agent.mountinfo import Mount
from copycat_agent.small_files import is_directory, is_there

SERVICE_USER = "copycat"
"""The user that the packaged service runs as."""

_ACL = "system.posix_acl_access"
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 1, 2, 4, 8, 16, 32  # linux/posix_acl.h
_BITS = {"r": 4, "w": 2, "x": 1}


def mount_of(path: str, known: list[Mount]) -> Mount | None:
    """Returns the mount that `path` is on, or would be; the last one of several on one point."""
    real = os.path.realpath(path)
    best: Mount | None = None
    for mount in known:
        inside = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


@dataclass(frozen=True, slots=True)
class User:
    """A user with all groups. `is_current`: this process runs as that user, so the kernel can be asked."""

    name: str
    uid: int
    groups: frozenset[int]
    is_current: bool

    def may(self, path: str, wanted: str) -> bool:
        """Returns whether this user has the permissions `wanted` (some of `rwx`) on the target of `path`, without its parents.

        False also for a path that does not exist, or that this process cannot inspect.
        """
        try:
            if self.is_current:
                return os.access(path, sum(_BITS[one] for one in wanted), effective_ids=True)
            info = os.stat(path)  # noqa: PTH116 - many thousand paths
        except OSError:
            return False
        needed = sum(_BITS[one] for one in wanted)
        if self.uid == 0:
            return "x" not in wanted or stat.S_ISDIR(info.st_mode) or bool(info.st_mode & 0o111)
        return self._allowed(path, info) & needed == needed

    def _allowed(self, path: str, info: os.stat_result) -> int:
        """Returns the permission bits that apply: an ACL's, else those of the mode."""
        entries = _acl(path)
        if entries:
            return self._by_acl(info, entries)
        if info.st_uid == self.uid:
            return info.st_mode >> 6 & 7
        return (info.st_mode >> 3 if info.st_gid in self.groups else info.st_mode) & 7

    def _by_acl(self, info: os.stat_result, entries: list[tuple[int, int, int]]) -> int:
        """Returns the permissions by the algorithm of acl(5). Of several matching groups only the one with most permissions counts."""
        by_tag = {tag: permissions for tag, permissions, _ in entries if tag in (_USER_OBJ, _MASK, _OTHER)}
        if info.st_uid == self.uid:
            return by_tag[_USER_OBJ]
        mask = by_tag.get(_MASK, 7)
        for tag, permissions, who in entries:
            if tag == _USER and who == self.uid:
                return permissions & mask
        groups = [
            permissions
            for tag, permissions, who in entries
            if (tag == _GROUP and who in self.groups) or (tag == _GROUP_OBJ and info.st_gid in self.groups)
        ]
        if groups:
            return max(groups, key=lambda permissions: permissions.bit_count()) & mask
        return by_tag[_OTHER]

    def closed_parent(self, path: str) -> str:
        """Returns the first directory above `path` that this user may not pass through, from the root on; "" without one."""
        above = list(reversed(Path(os.path.realpath(path)).parents))
        return next((str(one) for one in above if is_there(one) and not self.may(str(one), "x")), "")


def find_user(name: str | None) -> User:
    """Returns the user with this name or number; None: the user of this process. Raises CopycatError for an unknown one."""
    current = os.geteuid()
    if name is None:
        return User(_name(current), current, frozenset((os.getegid(), *os.getgroups())), is_current=True)
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        raise CopycatError(f"there is no user {name}", f"create it: useradd --system --no-create-home {shlex.quote(name)}") from None
    groups = frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return User(entry.pw_name, entry.pw_uid, groups, is_current=entry.pw_uid == current)


def exists(name: str) -> bool:
    """Returns whether the host has this user."""
    with suppress(KeyError):
        pwd.getpwnam(name)
        return True
    return False


def drop_in(setting: str, name: str) -> str:
    """Returns the commands that write a systemd drop-in with one `[Service]` setting, and apply it."""
    directory = "/etc/systemd/system/copycat.service.d"
    return (
        f"mkdir -p {directory} && printf '[Service]\\n{setting}\\n' > {directory}/{name}.conf"
        " && systemctl daemon-reload && systemctl restart copycat"
    )


def how_to_open(user: User, path: str, wanted: str) -> str:
    """Returns the commands that grant `user` the permissions `wanted` on `path`: through its group where that suffices, or by an ACL."""
    lines = [f"setfacl -m u:{user.name}:{wanted} {shlex.quote(path)}"]
    directory = path if is_directory(path) else str(Path(path).parent)
    if "r" in wanted:  # for files created later, by a rotation
        lines.append(f"setfacl -d -m u:{user.name}:rX {shlex.quote(directory)}")
    with suppress(OSError, KeyError):
        info = Path(path).stat()
        needed = sum(_BITS[one] for one in wanted)
        if info.st_gid and info.st_mode >> 3 & needed == needed:
            group = grp.getgrgid(info.st_gid).gr_name
            lines[:0] = [f"usermod -aG {group} {user.name}", f"or: {drop_in(f'SupplementaryGroups={group}', 'groups')}"]
            lines[2] = f"or: {lines[2]}"
    return "\n".join(lines)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _acl(path: str) -> list[tuple[int, int, int]]:
    """Returns the entries (tag, permissions, id) of the access ACL; empty without one beyond the mode."""
    try:
        raw = os.getxattr(path, _ACL)
    except OSError:
        return []
    (version,) = struct.unpack_from("<I", raw)
    return list(struct.iter_unpack("<HHI", raw[4:])) if version == 2 else []  # noqa: PLR2004 - POSIX_ACL_XATTR_VERSION
