"""What a catalog of files looks like from outside."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from copycat_agent.sources.base import Closeup, FileState, FileView, Lag

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.model import Split
    from copycat_agent.sources.log_file.catalog import Catalog
    from copycat_agent.sources.log_file.tracked import TrackedFile


UNJUDGED = "it may be a copy, or the rest, of another file: it is read once that is known"
"""Why a file is not read yet, for people."""
CROWD = 1000
"""With more files that have something to read, the lag is looked at now and then, not in every cycle."""
KEEP_SECONDS = 0.5
KEEP_COST = 20.0
"""So long a lag of a crowd holds, or this many times what it took to look at it, whichever is longer."""


class LagView:
    """The lag of a catalog. Called in every cycle, and a first start finds 100,000 files with something to read."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._clock = clock
        self._last = Lag()
        self._until = 0.0

    def now(self) -> Lag:
        """The lag; that of a crowd may be a little old."""
        begin = self._clock()
        crowd = len(self._catalog.followed.dirty) > CROWD
        if crowd and begin < self._until:
            return self._last
        self._last = lag_of(self._catalog)
        end = self._clock()
        self._until = end + max(KEEP_SECONDS, KEEP_COST * (end - begin))
        return self._last


def lag_of(catalog: Catalog) -> Lag:
    """What is unread, and how things are. Takes time by the files that have something to read, not by all."""
    unread = oldest = troubled = blocked = 0
    for file in catalog.followed.dirty:
        unread += file.backlog
        troubled += file.backoff.errors > 0
        blocked += file.backoff.blocked > 0
        since_ms = file.schedule.unread_since_ms
        if since_ms and not 0 < oldest <= since_ms:
            oldest = since_ms
    return Lag(
        bytes=unread,
        files=len(catalog.followed.dirty),
        known_files=len(catalog.followed.files),
        open_files=len(catalog.followed.descriptors.opened),
        lost_bytes=catalog.followed.lost.bytes,
        troubled_files=catalog.passed_over.unreadable + troubled,
        blocked_files=blocked,
        oldest_unread_ms=oldest,
        rotated_files=catalog.rotated_files,
        truncated_files=catalog.truncated_files,
    )


def view_of(file: TrackedFile) -> FileView:
    """One file, for people."""
    state: FileState = "following"
    if file.backoff.blocked:
        state = "blocked"
    elif file.backoff.errors:
        state = "failing"
    elif file.unread and (file.unjudged or file.after is not None):
        state = "waiting"
    elif file.gone_since is not None:
        state = "gone"
    offset = file.offset
    after = file.after.path if state == "waiting" and file.after is not None else ""
    now = (file.path, file.partition.key, offset.position, file.size, offset.records, state, file.fd >= 0, file.schedule.read_at)
    why = f"{UNJUDGED} ({file.provenance.unjudged})" if file.unjudged and file.unread else file.provenance.why
    return FileView(*now, file.backlog, why, after, offset.compression)


def closeup(catalog: Catalog, path: str, most_bytes: int) -> Closeup | None:
    """The file at `path` as it was found last, or one that is followed though no pattern names it any more."""
    file = catalog.at(path) or next((one for one in catalog.followed.gone if one.path == path), None)
    if file is None:
        return None
    return Closeup(view_of(file), catalog.names_of(file), file.offset, _next_split(catalog, file, most_bytes))


def _next_split(catalog: Catalog, file: TrackedFile, most_bytes: int) -> Split | None:
    """Whether it is its turn or not."""
    try:
        is_decided = not file.unjudged or file.is_packed  # what a packed file is the rest of is found by who reads it
        if not (file.unread and is_decided and file.open(catalog.opener)):
            return None
        catalog.newcomers.archives.ask(file)
        return file.split(most_bytes)
    except OSError:
        return None
