"""All files of one connector: which are there, which are new, which are other files under an old name, which are gone."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources import fingerprint
from copycat_agent.sources.base import Changes, Offsets
from copycat_agent.sources.discovery import Discovery, Found
from copycat_agent.sources.identity import Identity, identify
from copycat_agent.sources.rotation import family
from copycat_agent.sources.start import StartAt
from copycat_agent.sources.tracked import NotRegularError, TrackedFile, open_regular

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.log_options import LogFileOptions

STARTED = "started"
"""Key of the row that says that this connector has looked at its directories before; its position is epoch milliseconds."""


class Catalog:
    """The connector's files. `offsets` are the saved ones; who saves changes calls `saved`."""

    def __init__(self, connector: str, discovery: Discovery, options: LogFileOptions, offsets: Offsets, log: Log) -> None:
        self.connector = connector
        self.offsets = dict(offsets)
        self.files: dict[tuple[int, int], TrackedFile] = {}
        self.by_path: dict[str, TrackedFile] = {}
        self.dirty: set[TrackedFile] = set()
        self.lost_bytes = 0
        self._discovery = discovery
        self._start = StartAt(options.start_at, options.line)
        self._follow = options.follow_symlinks
        self._forget_seconds = options.forget_after
        self._max_open = options.max_open_files
        self._aged_at = 0.0
        self._log = log
        self._warned: dict[str, str] = {}
        self._warned_before: dict[str, str] = {}
        self._latest: dict[tuple[str, str], TrackedFile] = {}
        self._unmet: dict[int, list[SourcePartition]] = {}
        for partition in self.offsets:
            self._remember(partition)

    @property
    def directories(self) -> set[str]:
        """Directories that the last scan walked."""
        return self._discovery.directories

    def scan(self) -> Changes:
        """Compare what is there with what is known. Returns what has to be saved before anything new is read."""
        changes = Changes({}, set())
        first = SourcePartition(self.connector, STARTED) not in self.offsets
        if first:
            now_ms = int(time.time() * 1000)
            changes.offsets[SourcePartition(self.connector, STARTED)] = SourceOffset(now_ms)
        self._warned_before, self._warned = self._warned, {}
        by_path: dict[str, TrackedFile] = {}
        present: set[TrackedFile] = set()
        strangers: list[Found] = []
        for found in self._discovery.scan(self._warn):
            file = self.files.get((found.stat.st_dev, found.stat.st_ino))
            if file is None:
                strangers.append(found)
            elif file not in present:
                by_path[found.path] = self._observe(file, found, changes)
                present.update((file, by_path[found.path]))
        opened: deque[TrackedFile] = deque()
        for found in sorted(strangers, key=lambda one: (one.stat.st_mtime_ns, one.path)):
            met = self._meet(found, changes, first=first)
            if met is not None:
                present.add(met)
                by_path[found.path] = met
                opened.append(met)
                if len(opened) > self._max_open:
                    opened.popleft().close()
        self.by_path = by_path
        self._miss(present)
        self._age(changes)
        return changes

    def saved(self, changes: Changes) -> None:
        """`changes` are in the store."""
        self.offsets.update(changes.offsets)
        for partition in changes.forget:
            self.offsets.pop(partition, None)

    def touch(self, file: TrackedFile) -> None:
        """Note whether there is something to read in `file`."""
        if file.unread:
            self.dirty.add(file)
        else:
            self.dirty.discard(file)

    def begin_anew(self, file: TrackedFile, why: str, changes: Changes) -> TrackedFile:
        """The file no longer holds what was read from it: its next generation begins at byte 0."""
        self._log.warning("file begun anew, reading from its beginning", path=file.path, why=why, offset=file.offset.position)
        self.note_cut(file)
        partition = SourcePartition(self.connector, file.identity.key(file.generation + 1))
        changes.forget.add(file.partition)
        self.dirty.discard(file)
        fresh = TrackedFile(
            partition, file.identity, file.generation + 1, file.path, SourceOffset(0, path=file.path), size=file.size,
            mtime_ns=file.mtime_ns, fd=file.fd, gone_since=file.gone_since, family=file.family,
        )
        file.fd = -1  # the fresh one has it now
        self.files[fresh.inode_key] = fresh
        if self._latest.get(file.family) is file:
            self._latest[file.family] = fresh
        if self.by_path.get(file.path) is file:
            self.by_path[file.path] = fresh
        self.touch(fresh)
        return fresh

    def lose(self, path: str, start: int, end: int, why: str) -> None:
        """Bytes that can never be read: counted and told, never silent."""
        self.lost_bytes += end - start
        self._log.error("bytes were destroyed before they could be read", path=path, start=start, end=end, why=why)

    def remove(self, file: TrackedFile) -> None:
        """Stop following a file; its offset stays saved until it is forgotten."""
        file.close()
        self.dirty.discard(file)
        if self.files.get(file.inode_key) is file:
            del self.files[file.inode_key]
            self._remember(file.partition)
        if self._latest.get(file.family) is file:
            del self._latest[file.family]

    def warn(self, path: str, why: str) -> None:
        """Say once what is wrong with a path, and again only after it was right for a scan or is wrong in another way."""
        self._warn(path, why)

    def _warn(self, path: str, why: str) -> None:
        if self._warned_before.get(path) != why and self._warned.get(path) != why:
            self._log.warning("path passed over", path=path, why=why)
        self._warned[path] = why

    def _remember(self, partition: SourcePartition) -> None:
        """A saved partition whose file may come back."""
        if partition.key != STARTED:
            identity, _ = Identity.parse(partition.key)
            self._unmet.setdefault(identity.inode, []).append(partition)

    def _observe(self, file: TrackedFile, found: Found, changes: Changes) -> TrackedFile:
        """A known file, under its old name or a new one."""
        if file.path != found.path and file.path in self.by_path:
            self._log.info("file renamed", path=file.path, to=found.path)
        file.path = found.path
        file.gone_since = None
        file.observe(found.stat)
        if file.in_flight:
            return file
        why = self._what_changed(file)
        if why:
            return self.begin_anew(file, why, changes)
        self.note_cut(file)
        self.touch(file)
        return file

    def note_cut(self, file: TrackedFile) -> None:
        """A file that shrank: what lay beyond its new end and was not read is gone. It is not in flight."""
        if file.cut is not None:
            largest, smallest = file.cut
            start = max(file.offset.position, smallest)
            if largest > start:
                self.lose(file.path, start, largest, "the file was cut before they were read")
            file.cut = None

    def _what_changed(self, file: TrackedFile) -> str:
        """Why a file that was read is not what was read, as far as can be told without reading on; "" when it is."""
        if file.rewritten:
            return "it holds other bytes than were read"
        if file.size < file.offset.position:
            return f"it is {file.size} bytes long, {file.offset.position} were read"
        if file.size > file.offset.position or file.mtime_ns == file.verified_mtime_ns or not file.offset.position:
            return ""
        try:  # nothing new to read, yet written to: the same number of other bytes?
            if not file.open(follow_symlinks=self._follow):
                return ""
            file.verified_mtime_ns = file.mtime_ns
            return "" if file.holds() else "it holds other bytes of the same number"
        except OSError as error:
            self._warn(file.path, f"cannot be read: {error.strerror}")
            return ""

    def _meet(self, found: Found, changes: Changes, *, first: bool) -> TrackedFile | None:
        """A file that is not being followed: one that was before, or a new one."""
        try:
            fd, info = open_regular(found.path, follow_symlinks=self._follow)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = "is not a regular file" if isinstance(error, NotRegularError) else f"cannot be opened: {error.strerror}"
            self._warn(found.path, why)
            return None
        try:
            return self._take_up(found.path, fd, info, changes, first=first)
        except OSError as error:
            os.close(fd)
            self._warn(found.path, f"cannot be read: {error.strerror}")
            return None

    def _take_up(self, path: str, fd: int, info: os.stat_result, changes: Changes, *, first: bool) -> TrackedFile:
        identity = identify(fd, info)
        known = self.files.get((identity.device, identity.inode))
        if known is not None:  # it took this name between the listing and now
            os.close(fd)
            if known.identity == identity:
                return known
            self.remove(known)
            return self._take_up(path, open_regular(path, follow_symlinks=self._follow)[0], info, changes, first=first)
        partition, offset, generation = self._recall(fd, info, identity, changes)
        if partition is None:
            partition = SourcePartition(self.connector, identity.key(generation))
            offset = self._start.offset(fd, info, path, first=first and not generation)
            if offset.position:
                changes.offsets[partition] = offset
        file = TrackedFile(partition, identity, generation, path, offset, fd=fd)
        file.observe(info)
        file.verified_mtime_ns = file.mtime_ns
        self.files[file.inode_key] = file
        self._put_in_line(file)
        self.touch(file)
        return file

    def _recall(
        self, fd: int, info: os.stat_result, identity: Identity, changes: Changes
    ) -> tuple[SourcePartition | None, SourceOffset, int]:
        """The saved offset of this very file, if it still holds what was read. Else None, and the generation to begin."""
        generation = 0
        for partition in self._unmet.pop(identity.inode, []):
            offset = self.offsets.get(partition)
            saved, saved_generation = Identity.parse(partition.key)
            if offset is None:
                continue
            if not _may_be_same(saved, identity, offset):
                self._remember(partition)
            elif info.st_size >= offset.position and fingerprint.holds(_reader(fd), offset.fingerprint, offset.position):
                if offset.gone_ms:
                    offset = changes.offsets[partition] = replace(offset, gone_ms=0)
                return partition, offset, saved_generation
            else:
                changes.forget.add(partition)
                if saved == identity:
                    generation = saved_generation + 1
                    self._log.warning("file begun anew while the agent was away, reading from its beginning", path=offset.path)
        return None, SourceOffset(0), generation

    def _put_in_line(self, file: TrackedFile) -> None:
        """Generations of one log are read oldest first: this one after the latest that is known."""
        file.family = family(file.path)
        before = self._latest.get(file.family)
        if before is not None and before.fd >= 0:
            before.refresh()
            if before.unread or before.in_flight:
                file.after, file.barrier = before, before.size
        self._latest[file.family] = file

    def _age(self, changes: Changes) -> None:
        """Offsets of files that are gone: noted when, and forgotten `forget_after` later."""
        if time.monotonic() - self._aged_at < min(60.0, self._forget_seconds / 2):
            return
        self._aged_at = time.monotonic()
        now_ms = int(time.time() * 1000)
        for inode, partitions in list(self._unmet.items()):
            for partition in list(partitions):
                offset = self.offsets.get(partition)
                if offset is not None and not offset.gone_ms:
                    changes.offsets[partition] = replace(offset, gone_ms=now_ms)
                elif offset is None or now_ms - offset.gone_ms > self._forget_seconds * 1000:
                    partitions.remove(partition)
                    changes.forget.add(partition)
            if not partitions:
                del self._unmet[inode]

    def _miss(self, present: set[TrackedFile]) -> None:
        """Files that no pattern finds any more."""
        now = time.monotonic()
        for file in [one for one in self.files.values() if one not in present]:
            if file.fd < 0 and not file.in_flight:
                if file.unread:
                    self.lose(file.path, file.offset.position, file.size, "the file went away while it was closed (see max_open_files)")
                self.remove(file)
            elif file.gone_since is None:
                file.gone_since = now
                self._log.info("file gone from its patterns, still followed", path=file.path, unread_bytes=file.backlog)


def _may_be_same(saved: Identity, met: Identity, offset: SourceOffset) -> bool:
    """Inodes are equal. Another device number is the same file only with its birth time and something read to prove it."""
    if saved.birth_ns != met.birth_ns:
        return False
    return saved.device == met.device or bool(met.birth_ns and offset.fingerprint.head_bytes)


def _reader(fd: int) -> fingerprint.Reader:
    return lambda position, size: os.pread(fd, size, position)
