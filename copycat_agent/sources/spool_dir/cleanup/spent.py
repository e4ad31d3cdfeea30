"""What cleanup is given, and what it answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from copycat_agent.model import Counts
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.spool_dir.cleanup.cleanup_moves import Item

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Spent(NamedTuple):
    """A file that is done, and whose row says so on disk.

    `path` is at or below the source's directory; `identity`, `size` and `mtime_ns` are those of what was read, `saved_as` is the identity
    in its row's key. `done_file` is the path of the one that says that this file, and no other, is complete; "" for none. `trouble` is why
    it could not be read to its end; "": it was delivered. The rest is for the explanation of a bad file: `position` is the byte reached, or
    with `counts_records` the record.
    """

    path: str
    identity: Identity
    size: int
    mtime_ns: int
    done_file: str = ""
    trouble: str = ""
    position: int = 0
    records: int = 0
    counts_records: bool = False
    counts: Counts | None = None
    digest: str = ""
    saved_as: Identity | None = None


class Outcome(NamedTuple):
    """What became of it.

    cleaned: as the policy says, durably; `target` is where it is now, "" when it was deleted. gone: somebody else took it away. changed:
    at its path is something that was not read; it is left alone. kept: not now, `why` says it; ask again after `retry_seconds`.
    stays: the policy leaves it where it is.
    """

    state: Literal["cleaned", "gone", "changed", "kept", "stays"]
    target: str = ""
    why: str = ""
    retry_seconds: float = 0.0


def item_of(file: Spent) -> Item:
    """The file as the steps want it."""
    return Item(file.path.rpartition("/")[2], file.identity, file.size, file.mtime_ns, file.saved_as)


def moment(time_ns: int) -> datetime:
    """A file's time in UTC, the same on every host. One beyond the calendar, as some file systems keep, is the calendar's end."""
    try:
        return _EPOCH + timedelta(microseconds=time_ns // 1000)
    except OverflowError:
        return _LAST if time_ns > 0 else _FIRST
