"""The mounted file systems that this process sees, from /proc/self/mountinfo (proc(5))."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_FIELDS, _SYSTEM_FIELDS = 6, 3
_NO_EVENTS = re.compile(r"nfs\d?|cifs|smb\w*|fuse(\..*)?|9p|ceph|glusterfs|lustre|afs|gpfs|beegfs|virtiofs|vboxsf|vmhgfs|overlay")
"""File systems that can change without this kernel's knowledge (overlay: through another layer), and so without events."""


class Mount(NamedTuple):
    """A mounted file system. `options` are the mount's own and the file system's; `device` is `major:minor`."""

    point: str
    kind: str
    options: frozenset[str]
    device: str = ""
    id: str = ""

    @property
    def is_silent(self) -> bool:
        """Returns whether file-system events may be missing."""
        return _NO_EVENTS.fullmatch(self.kind) is not None


def mounts(text: str | None = None) -> list[Mount]:
    """Returns all mounts, of several on one point the topmost last; none where the kernel does not tell. `text`: the file's content."""
    if text is None:
        try:
            text = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return []
    return [mount for line in text.splitlines() if (mount := _parse(line))]


def _parse(line: str) -> Mount | None:
    """Parses `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda rw`. Returns None for another form."""
    own, separator, system = line.partition(" - ")
    fields, kinds = own.split(" "), system.split(" ")
    if not separator or len(fields) < _FIELDS or len(kinds) < _SYSTEM_FIELDS:
        return None
    point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
    return Mount(point, kinds[0], frozenset((*fields[5].split(","), *kinds[2].split(","))), fields[2], fields[0])
