"""Source `log_file`: files that grow, are rotated, cut and deleted.

The driver's half: plans splits of files that have something new, and lets go of files that are finished.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent.errors import BlockedError, FileError
from copycat_agent.formats import Frames, LineFrames
from copycat_agent.model import SplitResult
from copycat_agent.sources.base import Changes, FileView, Lag, Offsets, Plan, SourceKind
from copycat_agent.sources.catalog import Catalog
from copycat_agent.sources.glance import ACTIVE_SECONDS, Glance
from copycat_agent.sources.log_options import LogFileOptions
from copycat_agent.sources.lost import remember_sizes
from copycat_agent.sources.released import Released
from copycat_agent.sources.stream import Stream
from copycat_agent.sources.tracked import TrackedFile
from copycat_agent.sources.views import LagView, view_of

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.options import DeliveryOptions

FILES_PER_BATCH = 128
"""Files of one batch; the others' turn comes with the next."""
SHARED_BYTES = 4 * 2**20
"""At least this much of each file per batch when several have something to read."""
SHARED_SECONDS = 0.5
"""A batch ends after this time when other files are known to be active, so that a quiet file does not wait behind a backlog."""
SIZES_SECONDS = 60.0
"""How often the sizes of files that are not read are saved."""
HOPELESS_ERRORS = 3
"""A file that failed this often in a row is not waited for when everything else is read."""


class LogFiles:
    """See `base.Source`."""

    def __init__(self, connector: str, options: LogFileOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> None:
        """`offsets` are the connector's saved ones."""
        self._catalog = Catalog(connector, options, offsets, log)
        self._options = options
        self._delivery = delivery
        self._log = log
        self._turn = 0
        self._flying: dict[object, TrackedFile] = {}
        self._served: set[TrackedFile] = set()  # had something to read lately, and may be closed for room by now
        self._unsaved: list[Changes] = []
        self._sizes_at = time.monotonic()
        self._finalise = False
        self._needs_scan = False
        self.glance = Glance()
        self._lag = LagView(self._catalog)
        self._released = Released(self._catalog.lost.add)
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
        changes = Changes()
        if self._needs_scan or not self._glance_over(changes):
            self._scan(changes)
        self._needs_scan = False
        recent = time.monotonic() - ACTIVE_SECONDS
        self._served = {file for file in self._served if file.grown_at > recent and not file.removed}
        for file in list(self._catalog.gone):
            self._follow_to_its_end(file, changes)
        self._released.look(self._catalog.files, changes)
        if time.monotonic() - self._sizes_at > SIZES_SECONDS and not self._unsaved:  # else they would heap up on a full disk
            self._sizes_at = time.monotonic()
            remember_sizes(self._catalog.dirty, changes)
        if self._finalise:
            self._finalise_all()
        self._catalog.note(changes)
        self._unsaved.append(changes)
        return changes

    def _scan(self, changes: Changes) -> None:
        begun_ns, begun = time.time_ns(), time.monotonic()
        self._catalog.scan(changes)
        self.glance.scanned(self._catalog.marks, begun_ns, time.monotonic() - begun)

    def _glance_over(self, changes: Changes) -> bool:
        """Look at the files that may have changed when no directory has. False when a scan is needed."""
        catalog = self._catalog
        if catalog.has_trouble or not self.glance.suffices():
            return False
        chosen = self.glance.choose(catalog.files.values(), {*catalog.descriptors.opened, *self._served})
        return all(catalog.look_again(file, changes) for file in chosen if file.gone_since is None)

    def wake(self, paths: Collection[str]) -> bool:
        """See `Source.wake`. Writes to files that match no pattern wake nobody, but they may be to a file that was renamed."""
        known = [self._look_at(path) for path in paths]
        if None in known:
            known += [self._take_note(file) for file in self._catalog.gone]
        self._needs_scan |= False in known
        return False not in known

    def _look_at(self, path: str) -> bool | None:
        """A file was written to. False when only a scan can tell what happened, None when it is no business of ours."""
        file = self._catalog.at(path)
        if file is None:
            return False if self._catalog.may_find(path) else None
        if file.fd >= 0 and not file.in_flight:
            return self._take_note(file)  # by its descriptor; another file under this name comes with an event of its own
        try:
            info = Path(path).stat(follow_symlinks=self._options.follow_symlinks)
        except OSError:
            return False
        if (info.st_dev, info.st_ino) != file.inode_key:
            return False
        file.observe(info)
        return self._take_note(file)

    def _take_note(self, file: TrackedFile) -> bool:
        file.refresh()
        self._catalog.touch(file)
        return file.in_flight or not file.needs_scan

    @property
    def needs_scan(self) -> bool:
        """See `Source.needs_scan`."""
        return self._needs_scan

    def plan(self, shares: int) -> Plan:
        """See `Source.plan`."""
        followers = self._followers()
        ready = self._ready(FILES_PER_BATCH * shares)
        most = self._catalog.descriptors.limit - len(self._flying)
        if not self._flying:
            most = max(1, most)
        chosen = self._have_open(ready[: max(0, min(-(-len(ready) // shares), most))])
        chosen.sort(key=lambda file: file.backlog)
        chosen = self._with_followers(chosen, followers, most)
        limit = self._delivery.max_batch_bytes
        if len(chosen) > 1:
            limit = max(self._least_bytes, limit // len(chosen))
        for file in chosen:
            self._turn += 1
            file.planned_at = self._turn
            self._catalog.dirty.served(file)
            file.in_flight = True
            self._flying[file.partition] = file
            self._served.add(file)
        alone = len(self._catalog.files) == 1
        seconds = self._delivery.max_batch_time if alone else min(self._delivery.max_batch_time, SHARED_SECONDS)
        return Plan(tuple(file.split(max(limit, self._least_bytes)) for file in chosen), seconds)

    def settle(self, results: Sequence[SplitResult]) -> Changes:
        """See `Source.settle`."""
        changes = Changes()
        for result in results:
            file = self._flying[result.split.partition]
            gone = file.gone_since is not None
            if gone or result.offset != result.split.offset:
                assert result.offset.position >= result.split.offset.position, "an offset never moves back"
                now = file.remembered(gone=True) if gone else replace(result.offset, size=file.known_size)
                changes.offsets[result.split.partition] = replace(result.offset, path=now.path, size=now.size, gone_ms=now.gone_ms)
            changes.losses.extend(result.losses)
        self._unsaved.append(changes)
        return changes

    def leave(self) -> Changes:
        """See `Source.leave`."""
        changes = Changes()
        for one in self._unsaved:  # the last chance to save it; losses and offsets that belong together stay together
            changes.offsets.update(one.offsets)
            changes.forget.update(one.forget)
            changes.losses.extend(one.losses)
        cut = [file for file in self._catalog.files.values() if file.cut is not None]
        for file in {*self._catalog.dirty, *cut}:
            self._leave_behind(file, changes)
        return changes

    def _leave_behind(self, file: TrackedFile, changes: Changes) -> None:
        """Nobody will hold `file` any more: the next start finds it by its name, unless it has none."""
        now = file.remembered(gone=file.gone_since is not None)
        known = changes.offsets.get(file.partition, file.offset)
        changes.offsets[file.partition] = known = replace(known, path=now.path, size=now.size, gone_ms=now.gone_ms)
        if known.size > known.position and file.is_deleted():
            why = "the file was deleted and the agent stops before it is read"
            self._catalog.lost.add(file.partition, file.path, known.position, known.size, why, changes)
            changes.offsets[file.partition] = replace(known, done=True)

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """See `Source.finish`."""
        self._unsaved = [one for one in self._unsaved if one is not changes]
        if results:  # a scan has noted its own
            self._catalog.note(changes)
        for result in results:
            file = self._flying.pop(result.split.partition)
            file.in_flight = False
            file.note_progress(changes.offsets.get(result.split.partition, result.offset))
            if isinstance(result.error, FileError):
                delay = file.back_off()
                self._log.warning("file cannot be read, the others go on", path=file.path, why=result.error.message, retry_s=delay)
            elif isinstance(result.error, BlockedError):
                file.block()
            elif result.error is None:
                file.recover()
                if not result.changed:
                    file.proven_size = max(file.proven_size, result.split.end)
                if result.at_end and result.split.end >= file.size:
                    file.stalled_size = result.split.end
                    file.final = False
            file.rewritten = result.changed
            self._needs_scan |= file.needs_scan
            self._catalog.touch(file)

    def drained(self) -> bool:
        """See `Source.drained`."""
        waiting = [file for file in self._catalog.dirty if file.errors < HOPELESS_ERRORS]
        if waiting or self._flying:
            return False
        self._needs_scan = True  # a glance looks at a part of the files only, and who asks will not look again
        return True

    def finalise(self) -> None:
        """See `Source.finalise`."""
        self._finalise = True
        self._finalise_all()

    def files(self) -> tuple[FileView, ...]:
        """See `Source.files`."""
        unreadable = [FileView(path, "", 0, 0, 0, "failing", is_open=False) for path in self._catalog.passed_over.paths()]
        return tuple(sorted([*map(view_of, self._catalog.files.values()), *unreadable]))

    def lag(self) -> Lag:
        """See `Source.lag`."""
        return self._lag.now()

    def close(self) -> None:
        """See `Source.close`."""
        for file in self._catalog.files.values():
            file.close()

    def _followers(self) -> dict[TrackedFile, TrackedFile]:
        """Files that wait for another one, by that one."""
        followers = {}
        for file in self._catalog.generations.waiting(self._catalog.dirty):
            assert file.after is not None
            self._catalog.touch(file.after)  # what was just seen of it is read now, not when an event says so
            followers[file.after] = file
        return followers

    def _ready(self, most: int) -> list[TrackedFile]:
        """Up to `most` files whose turn it is, the longest unserved first."""
        now = time.monotonic()
        ready = (file for file in self._catalog.dirty if file.after is None and not file.in_flight and file.retry_at <= now and file.unread)
        return list(itertools.islice(ready, most))

    def _with_followers(self, chosen: list[TrackedFile], followers: dict[TrackedFile, TrackedFile], most: int) -> list[TrackedFile]:
        """Behind each file those that wait for it, while one batch reaches that far: a task reads its splits in this order."""
        chain: list[TrackedFile] = []
        left = min(FILES_PER_BATCH, most) - len(chosen)
        for file in chosen:
            chain.append(file)
            while left > 0 and (follower := followers.get(chain[-1])) and self._reaches(chain[-1], follower.barrier):
                if follower.retry_at > time.monotonic() or not self._have_open([follower], keep=[*chosen, *chain]):
                    break
                chain.append(follower)
                left -= 1
        return chain

    def _reaches(self, file: TrackedFile, position: int) -> bool:
        return file.offset.position + self._least_bytes >= position

    def _have_open(self, files: list[TrackedFile], keep: Collection[TrackedFile] = ()) -> list[TrackedFile]:
        """Those of `files` that are open, or can be opened now, and do have something to read."""
        closed = sum(file.fd < 0 for file in files)
        room = self._catalog.descriptors.make_room(closed, [*files, *keep], unread=True)
        if not self._flying and not keep:
            room = max(1, room)
        usable = []
        for file in files:
            if file.fd < 0:
                if room <= 0:
                    continue
                room -= 1
            if self._open(file):
                usable.append(file)
        return usable

    def _open(self, file: TrackedFile) -> bool:
        """Have `file` open for its turn. False when it cannot be, or is not what it was."""
        try:
            if file.open(self._catalog.opener):
                self._take_note(file)
                self._needs_scan |= file.needs_scan
                return file.unread
        except FileNotFoundError:
            pass
        except OSError as error:
            file.back_off()
            self._catalog.passed_over.warn(file.path, f"cannot be opened: {error.strerror}")
            return False
        self._catalog.dirty.discard(file)
        self._needs_scan = True  # a scan knows where it went
        return False

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
        over = quiet >= self._options.rotate_wait or (file.is_deleted() and file.has_no_writer())
        file.refresh()  # the last writer may have written once more before it was found to be gone
        self._catalog.touch(file)
        if file.unread or not over:
            return
        if file.backlog:
            self._finalise_one(file)
            return
        changes.offsets[file.partition] = file.remembered(gone=True, done=True)
        now = self._released.add(file)
        self._log.info("file finished and closed", path=file.path, now=now, bytes=file.offset.position)
        self._catalog.remove(file)


def _framing(options: LogFileOptions, *, raw: bool) -> Frames:
    del raw
    return LineFrames(options.line)


LOG_FILE = SourceKind(LogFileOptions, LogFiles, Stream, _framing)
