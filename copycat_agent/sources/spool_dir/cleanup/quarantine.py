"""The explanation beside a bad file: `NAME.error.json`. Never its data."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from copycat_agent import __version__
from copycat_agent.sources.spool_dir.cleanup.folders import PREFIX, Folder
from copycat_agent.sources.spool_dir.cleanup.moves import NAME_BYTES, Item, first_free, rename_new

SUFFIX = ".error.json"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
ROOM_BYTES = NAME_BYTES - len(SUFFIX)
"""The longest name of a bad file, so that its explanation has a name too."""
_MOST_BYTES = 64 * 1024
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_WHAT_TO_DO = (
    "The records before this position were delivered, what follows was not read. Repair the file and drop it again under another name "
    "(what was delivered is then sent again), or cut off what was delivered first, or delete it together with this explanation."
)


def explanation(facts: Mapping[str, Any], item: Item, why: str) -> bytes:
    """The JSON text. `facts` come first; empty ones are left out."""
    said = {name: value for name, value in facts.items() if value not in (None, "")}
    content = {
        **said,
        "size_bytes": item.size,
        "modified": _text(moment(item.mtime_ns)),
        "reason": why,
        "set_aside": _text(datetime.now(UTC)),
        "what_to_do": _WHAT_TO_DO,
        "agent_version": __version__,
        "identity": item.key,
    }
    return json.dumps(content, indent=2, ensure_ascii=True).encode() + b"\n"


def _text(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(time_ns: int) -> datetime:
    """A file's time in UTC, the same on every host. One beyond the calendar, as some file systems keep, is the calendar's end."""
    try:
        return _EPOCH + timedelta(microseconds=time_ns // 1000)
    except OverflowError:
        return _LAST if time_ns > 0 else _FIRST


def free_pair(goal: Folder, item: Item) -> str:
    """A name that is free, and whose explanation is free or this file's own already."""

    def taken(name: str) -> bool:
        return goal.look(name) is not None or (goal.look(name + SUFFIX) is not None and not explains(goal, name, item))

    return first_free(item.name, taken, ROOM_BYTES)


def explains(goal: Folder, name: str, item: Item) -> bool:
    """Whether the explanation of `name` is that of this very file: written before a crash, then."""
    try:
        fd = os.open(name + SUFFIX, _READ, dir_fd=goal.fd)
    except OSError:
        return False
    try:
        said = json.loads(os.read(fd, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    finally:
        os.close(fd)
    return isinstance(said, dict) and said.get("identity") == item.key


def write_explanation(goal: Folder, name: str, item: Item, text: bytes) -> None:
    """Put it beside `name`, whole and on disk; one that is there already stays. Raises OSError: FileExistsError for another file's."""
    part = f"{PREFIX}{item.key}{SUFFIX}.part"
    goal.remove(part)
    if explains(goal, name, item):
        return
    fd = os.open(part, _WRITE, 0o644, dir_fd=goal.fd)
    try:
        if os.write(fd, text) != len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{goal.path}/{part}")
        os.fsync(fd)
    finally:
        os.close(fd)
    try:
        rename_new(goal, part, goal, name + SUFFIX)
    except OSError:
        goal.remove(part)
        raise
