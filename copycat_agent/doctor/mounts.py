"""Which file system a path is on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

_NO_EVENTS = re.compile(r"nfs\d?|cifs|smb\w*|fuse(\..*)?|9p|ceph|glusterfs|lustre|afs|gpfs|beegfs|virtiofs|vboxsf|vmhgfs|overlay")
"""Others can write there without this kernel's knowledge (overlay: through another layer), so it tells nobody."""


class Mount(NamedTuple):
    """A mounted file system. `options` are the mount's own and the file system's."""

    point: str
    kind: str
    options: frozenset[str]

    @property
    def is_silent(self) -> bool:
        """Whether file-system events may be missing."""
        return _NO_EVENTS.fullmatch(self.kind) is not None


def mounts(text: str | None = None) -> list[Mount]:
    """All mounts as this process sees them, from /proc/self/mountinfo (`text`: its content); empty where there is none."""
    if text is None:
        try:
            text = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return []
    return [mount for line in text.splitlines() if (mount := _parse(line))]


def mount_of(path: str, known: list[Mount]) -> Mount | None:
    """The mount that `path` is on, or would be; of several on one point the last one counts."""
    real = os.path.realpath(path)
    best: Mount | None = None
    for mount in known:
        inside = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _parse(line: str) -> Mount | None:
    """`36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda rw`, see proc(5)."""
    own, separator, system = line.partition(" - ")
    fields, kinds = own.split(" "), system.split(" ")
    if not separator or len(fields) < 6 or len(kinds) < 3:  # noqa: PLR2004 - the format's
        return None
    point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
    return Mount(point, kinds[0], frozenset((*fields[5].split(","), *kinds[2].split(","))))
