"""Source `log_file`: files that grow, are rotated, cut and deleted.

The driver's half: plans splits of files that have something new, and lets go of files that are finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from copycat_agent.errors import FileError
from copycat_agent.formats import LineFrames
from copycat_agent.model import SplitResult
from copycat_agent.sources.base import Changes, Lag, Offsets, Plan, SourceKind
from copycat_agent.sources.catalog import Catalog
from copycat_agent.sources.discovery import Discovery
from copycat_agent.sources.log_options import LogFileOptions
from copycat_agent.sources.stream import Stream
from copycat_agent.sources.tracked import TrackedFile

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.options import DeliveryOptions

FILES_PER_BATCH = 128
"""Files of one batch; the others' turn comes with the next."""
SHARED_BYTES = 4 * 2**20
"""At least this much of each file per batch when several have something to read."""
SHARED_SECONDS = 0.5
"""A batch ends after this time when other files are known to be active, so that a quiet file does not wait behind a backlog."""
HOPELESS_ERRORS = 3
"""A file that failed this often in a row is not waited for when everything else is read."""


class LogFiles:
    """See `base.Source`."""

    def __init__(self, connector: str, options: LogFileOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> None:
        """`offsets` are the connector's saved ones."""
        discovery = Discovery(options.include, options.exclude, follow_symlinks=options.follow_symlinks)
        self._catalog = Catalog(connector, discovery, options, offsets, log)
        self._options = options
        self._delivery = delivery
        self._log = log
        self._turn = 0
        self._flying: dict[object, TrackedFile] = {}
        self._finalise = False
        self._needs_scan = False
        self._released: dict[str, tuple[int, int, int]] = {}
        self._least_bytes = max(SHARED_BYTES, 2 * options.line.max_bytes + 2**16)

    @property
    def directories(self) -> Collection[str]:
        """See `Source.directories`."""
        return self._catalog.directories if self._options.watch == "auto" else ()

    @property
    def scan_seconds(self) -> float:
        """See `Source.scan_seconds`."""
        return self._options.scan_interval

    def scan(self) -> Changes:
        """See `Source.scan`."""
        self._needs_scan = False
        changes = self._catalog.scan()
        for file in [one for one in self._catalog.files.values() if one.gone_since is not None]:
            self._follow_to_its_end(file, changes)
        self._look_after_released()
        if self._finalise:
            self._finalise_all()
        self._close_surplus(0)
        return changes

    def wake(self, paths: Collection[str]) -> bool:
        """See `Source.wake`."""
        known = True
        for path in paths:
            file = self._catalog.by_path.get(path)
            try:
                info = os.stat(path, follow_symlinks=self._options.follow_symlinks)
            except OSError:
                info = None
            if file is None or info is None or (info.st_dev, info.st_ino) != file.inode_key:
                known = False
                continue
            file.observe(info)
            known = known and (file.in_flight or not file.needs_scan)
            self._catalog.touch(file)
        return known

    @property
    def needs_scan(self) -> bool:
        """See `Source.needs_scan`."""
        return self._needs_scan

    def plan(self, shares: int) -> Plan:
        """See `Source.plan`."""
        now = time.monotonic()
        ready = sorted((file for file in list(self._catalog.dirty) if self._is_ready(file, now)), key=lambda file: file.planned_at)
        chosen = [file for file in ready[: min(FILES_PER_BATCH, -(-len(ready) // shares))] if self._open(file)]
        chosen.sort(key=lambda file: file.backlog)
        limit = self._delivery.max_batch_bytes
        if len(chosen) > 1:
            limit = max(self._least_bytes, limit // len(chosen))
        for file in chosen:
            self._turn += 1
            file.planned_at = self._turn
            file.in_flight = True
            self._flying[file.partition] = file
        alone = len(self._catalog.files) == 1
        seconds = self._delivery.max_batch_time if alone else min(self._delivery.max_batch_time, SHARED_SECONDS)
        return Plan(tuple(file.split(max(limit, self._least_bytes)) for file in chosen), seconds)

    def settle(self, results: Sequence[SplitResult]) -> Changes:
        """See `Source.settle`."""
        changes = Changes({}, set())
        for result in results:
            if result.offset != result.split.offset:
                assert result.offset.position >= result.split.offset.position, "an offset never moves back"
                changes.offsets[result.split.partition] = result.offset
        return changes

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """See `Source.finish`."""
        self._catalog.saved(changes)
        for result in results:
            file = self._flying.pop(result.split.partition)
            file.in_flight = False
            file.offset = result.offset
            if isinstance(result.error, FileError):
                delay = file.back_off()
                self._log.warning("file cannot be read, the others go on", path=file.path, why=result.error.message, retry_s=delay)
            elif result.error is None:
                file.recover()
                if result.at_end and result.split.end >= file.size:
                    file.stalled_size = result.split.end
                    file.final = False
            file.rewritten = result.changed
            self._needs_scan |= file.needs_scan
            self._catalog.touch(file)

    def drained(self) -> bool:
        """See `Source.drained`."""
        waiting = [file for file in self._catalog.dirty if file.errors < HOPELESS_ERRORS]
        return not waiting and not self._flying

    def finalise(self) -> None:
        """See `Source.finalise`."""
        self._finalise = True
        self._finalise_all()

    def lag(self) -> Lag:
        """See `Source.lag`."""
        behind = list(self._catalog.dirty)
        opened = sum(1 for file in self._catalog.files.values() if file.fd >= 0)
        return Lag(sum(file.backlog for file in behind), len(behind), len(self._catalog.files), opened, self._catalog.lost_bytes)

    def close(self) -> None:
        """See `Source.close`."""
        for file in self._catalog.files.values():
            file.close()

    def _is_ready(self, file: TrackedFile, now: float) -> bool:
        return not file.in_flight and file.retry_at <= now and file.unread and not file.waits()

    def _open(self, file: TrackedFile) -> bool:
        """Have `file` open for its turn. False when it cannot be."""
        if file.fd >= 0:
            file.refresh()
            self._needs_scan |= file.needs_scan
            return file.unread
        self._close_surplus(1)
        try:
            if file.open(follow_symlinks=self._options.follow_symlinks):
                return file.unread
        except FileNotFoundError:
            pass  # the next scan knows where it went
        except OSError as error:
            file.back_off()
            self._catalog.warn(file.path, f"cannot be opened: {error.strerror}")
            return False
        self._catalog.dirty.discard(file)
        return False

    def _close_surplus(self, wanted: int) -> None:
        """Close files that are up to date, the longest unused first, so that `wanted` more fit under the limit."""
        opened = [file for file in self._catalog.files.values() if file.fd >= 0]
        surplus = len(opened) + wanted - self._options.max_open_files
        if surplus <= 0:
            return
        closable = [file for file in opened if not file.in_flight and file.gone_since is None]
        closable.sort(key=lambda file: (file.unread, file.planned_at))
        for file in closable[:surplus]:
            file.close()

    def _finalise_all(self) -> None:
        for file in self._catalog.files.values():
            self._finalise_one(file)

    def _finalise_one(self, file: TrackedFile) -> None:
        """What is left of it without a delimiter is its last record."""
        if file.backlog and not file.in_flight and file.stalled_size == file.size:
            file.final = True
            self._catalog.touch(file)

    def _follow_to_its_end(self, file: TrackedFile, changes: Changes) -> None:
        """A file that is renamed away or deleted: read it, wait for late writes, then let it go."""
        if file.in_flight or file.fd < 0:
            return
        file.refresh()
        if file.needs_scan:
            file = self._catalog.begin_anew(file, "it was cut after it was renamed or deleted", changes)
        self._catalog.touch(file)
        assert file.gone_since is not None
        quiet = time.monotonic() - max(file.grown_at, file.gone_since)
        if file.unread or (quiet < self._options.rotate_wait and not (file.is_deleted() and file.has_no_writer())):
            return
        if file.backlog:
            self._finalise_one(file)
            return
        self._release(file)

    def _release(self, file: TrackedFile) -> None:
        name = os.readlink(f"/proc/self/fd/{file.fd}")
        if not file.is_deleted():
            self._released[name] = (*file.inode_key, file.offset.position)
            if len(self._released) > self._options.max_open_files:
                del self._released[next(iter(self._released))]
        self._log.info("file finished and closed", path=file.path, now=name, bytes=file.offset.position)
        self._catalog.remove(file)

    def _look_after_released(self) -> None:
        """Bytes that come to a file after `rotate_wait` are not read; say so."""
        for name, (device, inode, position) in list(self._released.items()):
            try:
                info = os.stat(name, follow_symlinks=False)
            except OSError:
                del self._released[name]
                continue
            if (info.st_dev, info.st_ino) != (device, inode):
                del self._released[name]
            elif info.st_size > position:
                self._catalog.lose(name, position, info.st_size, "written after rotate_wait to a file that no pattern matches")
                self._released[name] = (device, inode, info.st_size)


def _framing(options: LogFileOptions) -> LineFrames:
    return LineFrames(options.line)


LOG_FILE = SourceKind(LogFileOptions, LogFiles, Stream, _framing)
