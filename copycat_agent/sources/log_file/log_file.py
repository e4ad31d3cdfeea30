"""Source `log_file`: files that grow, are rotated, cut and deleted.

The driver's half: plans splits of files that have something new, and lets go of files that are finished.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent.errors import BlockedError, FileError
from copycat_agent.formats import Frames, LineFrames, MultilineFrames
from copycat_agent.model import SplitResult
from copycat_agent.sources.base import Changes, Closeup, FileView, Keeper, Lag, Offsets, Plan, SourceKind
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.packing.packed_stream import open_stream
from copycat_agent.sources.files.paths.glance import ACTIVE_SECONDS, Glance
from copycat_agent.sources.files.paths.opening import why_not
from copycat_agent.sources.log_file.catalog import Catalog
from copycat_agent.sources.log_file.endings import Released, close_if_stale, enter_damage, give_up, has_no_writer, is_over, remember_sizes
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.sources.log_file.rotation import kin
from copycat_agent.sources.log_file.timers import Timers
from copycat_agent.sources.log_file.tracked import TrackedFile
from copycat_agent.sources.log_file.views import LagView, closeup, view_of

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
UNSEEN_SECONDS = 1.0
"""A file that was empty is first read when a scan was so recent that no rotation can have come between."""
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
        self._unfinished: set[TrackedFile] = set()  # archives that were read to their present end, and something waits there
        self._unsaved: list[Changes] = []
        self._sizes_at = time.monotonic()
        self._finalise = False
        self._needs_scan = False
        self._scanned_at = time.monotonic()
        self.glance = Glance[TrackedFile]()
        self._lag = LagView(self._catalog)
        self._released = Released(self._catalog.lost.add, self._catalog.opener)
        self._timers = Timers(options, self._catalog.touch)
        group_bytes = 0 if options.multiline is None else options.multiline.max_bytes
        self._least_bytes = max(SHARED_BYTES, 2 * options.line.max_bytes + group_bytes + 2**16)

    def keep_with(self, keeper: Keeper) -> None:
        """See `KeepsFiles.keep_with`."""
        self._catalog.descriptors.opened.keeper = keeper

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
        self._catalog.judge(changes, at_once=self._finalise)
        self._needs_scan |= self._catalog.origins.needs_scan
        recent = time.monotonic() - ACTIVE_SECONDS
        self._served = {file for file in self._served if file.grown_at > recent and not file.removed}
        for file in list(self._catalog.gone):
            self._catalog.descriptors.opened.keep_first(file)
            self._follow_to_its_end(file, changes)
        self._released.look(self._catalog.files, changes)
        if time.monotonic() - self._sizes_at > SIZES_SECONDS and not self._unsaved:  # else they would heap up on a full disk
            self._sizes_at = time.monotonic()
            remember_sizes(self._catalog.dirty, changes)
        self._finalise_archives()
        if self._finalise:
            self._finalise_all()
        self._catalog.note(changes)
        self._unsaved.append(changes)
        return changes

    def _scan(self, changes: Changes) -> None:
        begun_ns, begun = time.time_ns(), time.monotonic()
        self._scanned_at = begun
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
        self._needs_scan |= False in known or not self._catalog.directories.isdisjoint(paths)
        return not self._needs_scan

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
        return self._needs_scan or self._catalog.has_rests

    def plan(self, shares: int) -> Plan:
        """See `Source.plan`."""
        followers = self._followers()
        ready = self._ready(FILES_PER_BATCH * shares)
        most = self._catalog.descriptors.limit - len(self._flying)
        if not self._flying:
            most = max(1, most)
        chosen = self._have_open(ready[: max(0, min(-(-len(ready) // shares), most))])
        chosen.sort(key=self._precedence)
        if self._options.multiline is None:  # else a group may stand open at the end of the file that goes first
            chosen = self._with_followers(chosen, followers, most)
        limit = self._delivery.max_batch_bytes
        if len(chosen) > 1:
            limit = max(self._least_bytes, limit // len(chosen))
        for file in chosen:
            self._turn += 1
            file.planned(self._turn)
            self._catalog.dirty.served(file)
            self._catalog.origins.archives.ask(file)
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
            self._catalog.origins.archives.answered(file, result, changes)
            if result.damage:
                enter_damage(result, changes, self._log)
                result = replace(result, offset=replace(result.offset, done=True))  # noqa: PLW2901
            gone = file.gone_since is not None
            if gone or result.offset != result.split.offset:
                assert result.offset.position >= result.split.offset.position, "an offset never moves back"
                now = file.remembered(gone=True) if gone else replace(result.offset, size=file.known_size)
                size = result.offset.size if result.offset.done else now.size  # an archive is read up to the size it had then
                changes.offsets[result.split.partition] = replace(result.offset, path=now.path, size=size, gone_ms=now.gone_ms)
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
        cut = [file for file in self._catalog.files.values() if file.seen.cut is not None]
        for file in {*self._catalog.dirty, *cut}:
            self._leave_behind(file, changes)
        self._catalog.leave(changes)
        return changes

    def _leave_behind(self, file: TrackedFile, changes: Changes) -> None:
        """Nobody will hold `file` any more: the next start finds it by its name, unless it has none."""
        now = file.remembered(gone=file.gone_since is not None)
        known = changes.offsets.get(file.partition, file.offset)
        is_read = known.done and known.size == now.size
        changes.offsets[file.partition] = known = replace(known, path=now.path, size=now.size, gone_ms=now.gone_ms, done=is_read)
        start, end, words = packed.rest(known)
        if self._catalog.descriptors.opened.survives(file):
            return
        if end > start and file.is_deleted() and kin(file.path) not in self._catalog.origins.awaited():
            why = f"the file was deleted and the agent stops before it is read{words}"
            self._catalog.lost.add(file.partition, file.path, start, end, why, changes)
            changes.offsets[file.partition] = replace(known, done=True)

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """See `Source.finish`."""
        self._unsaved = [one for one in self._unsaved if one is not changes]
        if results:  # a scan has noted its own
            self._catalog.note(changes)
        for result in results:
            file = self._flying.pop(result.split.partition)
            file.landed()
            if not result.changed or result.split.partition in changes.offsets:  # else what was read of it, to its end or not, stands
                file.note_progress(changes.offsets.get(result.split.partition, result.offset))
            if isinstance(result.error, FileError):
                delay = file.back_off()
                self._needs_scan |= close_if_stale(file) and file.gone_since is not None
                self._log.warning("file cannot be read, the others go on", path=file.path, why=result.error.message, retry_s=delay)
            elif isinstance(result.error, BlockedError):
                file.block()
            elif result.error is None:
                file.recover()
                if not result.changed:
                    file.note_end(result)
                    self._timers.add(file)
                if file.is_packed and file.packing.rest:
                    self._unfinished.add(file)
            file.compared(is_other=result.changed)
            self._needs_scan |= file.needs_scan
            self._catalog.touch(file)

    def ripen(self, *, at_once: bool) -> float:
        """See `Source.ripen`."""
        return self._timers.ripen(at_once=at_once)

    def drained(self) -> bool:
        """See `Source.drained`."""
        waiting = [file for file in self._catalog.dirty if file.backoff.errors < HOPELESS_ERRORS and (self._finalise or not file.unjudged)]
        if waiting or self._flying or self._catalog.has_rests:
            return False
        self._needs_scan = True  # a glance looks at a part of the files only, and who asks will not look again
        return True

    def finalise(self) -> None:
        """See `Source.finalise`."""
        self._finalise = self._needs_scan = True
        self._finalise_all()

    def files(self) -> tuple[FileView, ...]:
        """See `Source.files`."""
        why = self._catalog.passed_over.reasons()
        unreadable = [FileView(path, "", 0, 0, 0, "failing", is_open=False, why=why[path]) for path in self._catalog.passed_over.paths()]
        return tuple(sorted([*map(view_of, self._catalog.files.values()), *unreadable]))

    def passed_over(self) -> Mapping[str, str]:
        """See `Source.passed_over`."""
        return self._catalog.passed_over.reasons()

    def look_closely(self, path: str, most_bytes: int) -> Closeup | None:
        """See `Source.look_closely`."""
        return closeup(self._catalog, path, most_bytes)

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
            if not (file.unjudged or file.in_flight):
                followers[file.after] = file
        return followers

    def _ready(self, most: int) -> list[TrackedFile]:
        """Up to `most` files whose turn it is, the longest unserved first."""
        now = time.monotonic()
        ready = (file for file in self._catalog.dirty if file.after is None and file.may_be_planned and file.backoff.retry_at <= now)
        return list(itertools.islice(ready, most))

    def _precedence(self, file: TrackedFile) -> tuple[bool, float]:
        """Little before much. Much of one file may be all that a batch gets to: first whoever has not got on for longest."""
        is_much = file.backlog > self._least_bytes
        return is_much, file.schedule.read_at if is_much else file.backlog

    def _with_followers(self, chosen: list[TrackedFile], followers: dict[TrackedFile, TrackedFile], most: int) -> list[TrackedFile]:
        """Behind each file those that wait for it, while one batch reaches that far: a task reads its splits in this order."""
        chain: list[TrackedFile] = []
        left = min(FILES_PER_BATCH, most) - len(chosen)
        for file in chosen:
            chain.append(file)
            while left > 0 and (follower := followers.get(chain[-1])) and self._reaches(chain[-1], follower.rotation.barrier):
                if follower.backoff.retry_at > time.monotonic() or not self._have_open([follower], keep=[*chosen, *chain]):
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
        is_unseen = not (file.offset.position or file.is_packed or file.provenance.first_fingerprint.head_bytes)
        try:
            if is_unseen and time.monotonic() - self._scanned_at > UNSEEN_SECONDS:
                self._needs_scan = True  # it was empty: since then it may have been filled, copied and cut, and the copy goes first
                return False
            if file.open(self._catalog.opener):
                self._take_note(file)
                if file.begins_otherwise():
                    file.note_rewritten()
                self._needs_scan |= file.needs_scan
                return file.unread
        except FileNotFoundError:
            pass
        except OSError as error:
            if not file.backoff.errors:  # else it was told, and is tried again ever more slowly
                self._catalog.passed_over.warn(file.path, why_not(error))
            file.back_off()
            return False
        self._catalog.dirty.discard(file)
        self._needs_scan = True  # a scan knows where it went
        return False

    def _finalise_all(self) -> None:
        for file in self._catalog.files.values():
            self._finalise_one(file)

    def _finalise_one(self, file: TrackedFile) -> None:
        """What is left of it without a delimiter is its last record."""
        if file.backlog and not file.in_flight and file.ending.stalled_size == file.size:
            file.finish()
            self._catalog.touch(file)

    def _finalise_archives(self) -> None:
        """Archives that nobody will add to: a last line without its delimiter is one, and a missing end marker is damage."""
        self._unfinished = {file for file in self._unfinished if file.packing.rest and not file.removed}
        for file in self._unfinished:
            if is_over(file, self._options.rotate_wait):
                self._finalise_one(file)

    def _follow_to_its_end(self, file: TrackedFile, changes: Changes) -> None:
        """A file that is renamed away or deleted: read it, wait for late writes, then let it go."""
        if file.in_flight or file.fd < 0:
            return
        file.refresh()
        if file.needs_scan:
            file = self._catalog.begin_anew(file, "it was cut after it was renamed or deleted", changes)
        if file.removed:
            return
        self._catalog.touch(file)
        if give_up(file, self._options.hold_deleted, self._catalog.lost.add, changes):
            self._catalog.remove(file)
            return
        assert file.gone_since is not None
        quiet = time.monotonic() - max(file.grown_at, file.gone_since)
        over = quiet >= self._options.rotate_wait or (file.is_deleted() and has_no_writer(file.fd))
        file.refresh()  # the last writer may have written once more before it was found to be gone
        self._catalog.touch(file)
        is_being_packed = file.packing.rest > 0 and not file.packing.is_whole and not is_over(file, self._options.rotate_wait)
        if file.unread or is_being_packed or not over:
            return
        if file.backlog:
            self._finalise_one(file)
            return
        changes.offsets[file.partition] = file.remembered(gone=True, done=True)
        now = self._released.add(file)
        self._log.info("file finished and closed", path=file.path, now=now, bytes=file.offset.position)
        self._catalog.remove(file)


def _framing(options: LogFileOptions, *, raw: bool) -> Frames:
    if options.multiline is not None:
        return MultilineFrames(options.line, options.multiline, encoding=options.encoding, raw=raw)
    return LineFrames(options.line, encoding=options.encoding, raw=raw)


LOG_FILE = SourceKind(LogFileOptions, LogFiles, open_stream, _framing, packed.saved)
