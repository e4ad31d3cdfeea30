"""All files of one connector: which are there, which are new, which are other files under an old name, which are gone."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources import left_behind
from copycat_agent.sources.absent import Absent
from copycat_agent.sources.base import Changes, Offsets
from copycat_agent.sources.descriptors import Descriptors
from copycat_agent.sources.discovery import NO_DESCRIPTORS, Discovery, Found, Mark
from copycat_agent.sources.generations import Generations
from copycat_agent.sources.identity import identify
from copycat_agent.sources.lost import Lost
from copycat_agent.sources.opening import NotRegularError, Opener
from copycat_agent.sources.passed_over import PassedOver
from copycat_agent.sources.queue import Queue
from copycat_agent.sources.rotation import is_newest
from copycat_agent.sources.start import StartAt
from copycat_agent.sources.tracked import TrackedFile

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.log_options import LogFileOptions

LOOKS = 4
"""A rotation is over in milliseconds; a directory that never keeps still is taken as it is."""

STARTED = "started"
"""Key of the row that says that this connector has looked at its directories before; its position is epoch milliseconds."""


class Catalog:
    """The connector's files. `offsets` are what is saved or about to be; who has settled something calls `note`.

    `files` by device and inode; `dirty` those that may have something to read; `gone` those that no pattern finds any more.
    """

    def __init__(self, connector: str, options: LogFileOptions, offsets: Offsets, log: Log) -> None:
        self.connector = connector
        self.offsets = dict(offsets)
        self.files: dict[tuple[int, int], TrackedFile] = {}
        self.dirty = Queue()
        self.gone: set[TrackedFile] = set()
        self.descriptors = Descriptors(options.max_open_files)
        self.passed_over = PassedOver(log)
        self.lost = Lost(log)
        self.rotated_files = self.truncated_files = 0
        self._discovery = Discovery(options.include, options.exclude, follow_symlinks=options.follow_symlinks)
        self._start = StartAt(options.start_at, options.line)
        self.opener = Opener(follow_symlinks=options.follow_symlinks)
        self._log = log
        self._absent = Absent(self.offsets, options.forget_after, self.lost.add, log)
        self._paths: dict[str, tuple[int, int]] = {}
        self._told_unmatched: set[str] = set()
        self._search_for = "the file went away while the agent did not run"
        self.generations = Generations()
        self._take_in()
        if self.descriptors.limit < options.max_open_files:
            self._tell_limit()

    def _take_in(self) -> None:
        """What is saved of files that nobody has met yet. A key that is none of a file's was put there by hand, and is let alone."""
        for partition in self.offsets:
            try:
                if partition.key != STARTED:
                    self._absent.add(partition)
            except ValueError:
                hint = f"remove it: copycat offsets reset {self.connector} --key {partition.key}"
                self._log.warning("a saved offset is passed over, its key is none of a file", key=partition.key, hint=hint)

    @property
    def directories(self) -> set[str]:
        """Directories that the last scan walked."""
        return self._discovery.directories

    @property
    def marks(self) -> Mapping[str, Mark]:
        """Those of the directories, as they were before the last scan listed them."""
        return self._discovery.marks

    def at(self, path: str) -> TrackedFile | None:
        """The file that the last scan found under this name."""
        return self.files.get(self._paths.get(path, (-1, -1)))

    def may_find(self, path: str) -> bool:
        """Whether a scan may find a new file there: the name matches, and what is there has not just been passed over."""
        return path not in self.passed_over and self._discovery.may_match(path)

    @property
    def has_trouble(self) -> bool:
        """Whether something that matches could not be looked at in the last scan: it may be well by now, and no time stamp says so."""
        return bool(self._discovery.unlisted) or self._discovery.has_dangling or bool(self.passed_over.unreadable)

    def look_again(self, file: TrackedFile, changes: Changes) -> bool:
        """Look at a file under the name it had. False when only a scan can tell what has become of it."""
        info = file.found_by_name(follow_symlinks=self.opener.follow_symlinks)
        return info is not None and self._observe(file, Found(file.path, info), changes) is not None

    def scan(self, changes: Changes) -> None:
        """Compare what is there with what is known; `changes` takes up what has to be saved before anything new is read."""
        started = SourcePartition(self.connector, STARTED)
        first = started not in self.offsets
        if first:
            changes.offsets[started] = SourceOffset(int(time.time() * 1000))
        self.passed_over.begin_scan()
        if self._discovery.starved:
            self._shrink()
        for _ in range(LOOKS):
            present, complete = self._compare(changes, first=first)
            if complete:
                break
        self._miss(present, changes)
        if self._search_for:
            may_be_there = left_behind.Search(self._discovery.may_match, self.files, self._follow_left, self.lost.add, self._search_for)
            self._search_for = ""
            may_be_there.look_for(self._absent, changes)
        self._absent.age(changes)
        self.descriptors.make_room(0, unread=True)
        self._tell_unmatched()

    def _compare(self, changes: Changes, *, first: bool) -> tuple[set[TrackedFile], bool]:
        """The files that are there, and whether that is all of them: not when a rename came between a look and an opening."""
        names, strangers = self._look_twice()
        present: set[TrackedFile] = set()
        for file, found in names.items():
            same = self._observe(file, found, changes)
            if same is None:
                strangers.append(found)
            else:
                present.add(same)
        present |= self._meet_all(strangers, changes, first=first)
        slipped = [one for one in strangers if (one.stat.st_dev, one.stat.st_ino) not in self.files and one.path not in self.passed_over]
        return present, not slipped

    def note(self, changes: Changes) -> None:
        """`changes` are in the store, or will be before anything that comes later is."""
        self.offsets.update(changes.offsets)
        for partition in changes.forget:
            self.offsets.pop(partition, None)

    def touch(self, file: TrackedFile) -> None:
        """Note whether there is something to read in `file`."""
        file.note_unread()
        if file.unread and not file.removed:
            self.dirty.add(file)
        else:
            self.dirty.discard(file)

    def begin_anew(self, file: TrackedFile, why: str, changes: Changes) -> TrackedFile:
        """The file no longer holds what was read from it: its next generation begins at byte 0. It is not in flight."""
        self._log.warning("file begun anew, reading from its beginning", path=file.path, why=why, offset=file.offset.position)
        file.cut = file.cut or (file.proven_size, 0)
        self._note_cut(file, changes)
        changes.forget.add(file.partition)
        changes.offsets.pop(file.partition, None)
        fresh = TrackedFile(
            SourcePartition(self.connector, file.identity.key(file.generation + 1)),
            file.identity,
            file.generation + 1,
            file.path,
            SourceOffset(0, path=file.path, size=file.size),
            self.descriptors.opened,
            size=file.size,
            mtime_ns=file.mtime_ns,
            proven_size=file.size,
            gone_since=file.gone_since,
        )
        fd = file.hand_over()
        self.generations.replace(file, fresh)
        self._drop(file)
        if fd >= 0:
            fresh.adopt(fd)
        if fresh.gone_since is not None:
            self.gone.add(fresh)
        self.files[fresh.inode_key] = fresh
        changes.offsets[fresh.partition] = fresh.offset
        self.touch(fresh)
        return fresh

    def remove(self, file: TrackedFile) -> None:
        """Stop following a file; its offset stays saved until it is forgotten."""
        self._drop(file)
        self._absent.add(file.partition)

    def _drop(self, file: TrackedFile) -> None:
        file.close()
        file.removed = True
        self.dirty.discard(file)
        self.gone.discard(file)
        if self.files.get(file.inode_key) is file:
            del self.files[file.inode_key]
        self.generations.remove(file)

    def _look_twice(self) -> tuple[dict[TrackedFile, Found], list[Found]]:
        """Look until two looks agree, when there are unknown files: a rotation under way shows some files twice and others not."""
        names, strangers = self._look()
        for _ in range(LOOKS):
            before = dict(self._paths)
            if not strangers:
                break
            names, strangers = self._look()
            if self._paths == before:
                break
        return names, strangers

    def _look(self) -> tuple[dict[TrackedFile, Found], list[Found]]:
        """What is there: known files with one name each, the old one where it still leads there, and unknown ones."""
        names: dict[TrackedFile, Found] = {}
        strangers: list[Found] = []
        self._paths = {}
        for found in self._discovery.scan(self.passed_over.warn):
            inode_key = (found.stat.st_dev, found.stat.st_ino)
            self._paths[found.path] = inode_key
            file = self.files.get(inode_key)
            if file is None:
                strangers.append(found)
            elif file not in names or found.path == file.path:
                names[file] = found
        return names, strangers

    def _observe(self, file: TrackedFile, found: Found, changes: Changes) -> TrackedFile | None:
        """A known file, under its old name or a new one. None when it is another file, which has its inode now."""
        if file.path != found.path:
            self._log.debug("file renamed", path=file.path, to=found.path)
            self.rotated_files += is_newest(file.path)
            file.path = found.path
        file.gone_since = None
        self.gone.discard(file)
        file.observe(found.stat)
        if file.in_flight:
            return file
        why = self._what_changed(file)
        if file.replaced:
            self._lose_rest(file, changes)
            return None
        if why:
            return self.begin_anew(file, why, changes)
        self._note_cut(file, changes)
        self.touch(file)
        return file

    def _note_cut(self, file: TrackedFile, changes: Changes) -> None:
        """A file that shrank: what lay beyond its new end and was not read is gone. It is not in flight."""
        if file.cut is not None:
            largest, smallest = file.cut
            start = max(file.offset.position, smallest)
            if largest > start:
                self.lost.add(file.partition, file.path, start, largest, "the file was cut before they were read", changes)
            file.cut = None
            file.proven_size = min(file.proven_size, file.size)
            self.truncated_files += 1
            changes.offsets[file.partition] = file.remembered(gone=file.gone_since is not None)

    def _lose_rest(self, file: TrackedFile, changes: Changes) -> None:
        """A closed file whose inode is another file's now: it was deleted, with all that was unread."""
        if file.backlog:
            why = "the file was deleted while it was closed (see max_open_files)"
            self.lost.add(file.partition, file.path, file.offset.position, file.size, why, changes)
        changes.offsets[file.partition] = file.remembered(gone=True, done=True)
        self.remove(file)

    def _what_changed(self, file: TrackedFile) -> str:
        """Why a file that was read is not what was read, as far as can be told without reading on; "" when it is."""
        if file.rewritten:
            return "it holds other bytes than were read"
        position = file.offset.position
        if not position or file.size > position or (file.size == position and file.mtime_ns == file.verified_mtime_ns):
            return ""
        was_open = file.fd >= 0
        try:
            if not file.open(self.opener):
                return ""
            file.verified_mtime_ns = file.mtime_ns
            if file.size < position:
                return f"it is {file.size} bytes long, {position} were read"
            return "" if file.holds() else "it holds other bytes of the same number"  # written to, yet nothing new to read
        except OSError as error:
            self.passed_over.warn(file.path, f"cannot be read: {error.strerror}")
            return ""
        finally:
            if not was_open:
                file.close()

    def _meet_all(self, strangers: list[Found], changes: Changes, *, first: bool) -> set[TrackedFile]:
        """Files that are not being followed, oldest first; as many stay open as there is room for."""
        self.descriptors.make_room(len(strangers), unread=False)
        met: set[TrackedFile] = set()
        for found in sorted(strangers, key=lambda one: (one.stat.st_mtime_ns, one.path)):
            known = (found.stat.st_dev, found.stat.st_ino) in self.files  # another name of a file that was just met
            file = self._meet(found, changes, first=first)
            if file is None:
                continue
            met.add(file)
            if not known and len(self.descriptors.opened) > self.descriptors.limit:
                file.close()
        return met

    def _meet(self, found: Found, changes: Changes, *, first: bool) -> TrackedFile | None:
        """A file that is not being followed: one that was before, or a new one. None when it cannot be read."""
        try:
            fd, info = self._open(found.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = "is not a regular file" if isinstance(error, NotRegularError) else f"cannot be opened: {error.strerror}"
            self.passed_over.warn(found.path, why)
            return None
        try:
            return self._take_up(found.path, fd, info, changes, first=first)
        except OSError as error:
            os.close(fd)
            self.passed_over.warn(found.path, f"cannot be read: {error.strerror}")
            return None

    def _open(self, path: str) -> tuple[int, os.stat_result]:
        """See `open_regular`. When the process may open no more, other files make room."""
        try:
            return self.opener.open(path)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not self._shrink():
                raise
            return self.opener.open(path)

    def _shrink(self) -> bool:
        made_room = self.descriptors.shrink()
        self._tell_limit()
        return made_room

    def _tell_limit(self) -> None:
        """Those that are closed are opened again by turns; one that is deleted meanwhile is lost, hence the warning."""
        hint = "raise LimitNOFILE (ulimit -n) and restart the agent, or lower max_open_files"
        self._log.warning("the process may open too few files, fewer are held open", held=self.descriptors.limit, hint=hint)

    def _take_up(self, path: str, fd: int, info: os.stat_result, changes: Changes, *, first: bool) -> TrackedFile:
        """The file behind `fd`, which belongs to it from now on. Raises OSError, and then `fd` is the caller's."""
        identity = identify(fd, info)
        known = self.files.get((identity.device, identity.inode))
        if known is not None and known.identity == identity:  # another name of it, or it took this one just now
            os.close(fd)
            return known
        if known is not None:  # it was closed, or the kernel would not have given its inode to another file
            self._lose_rest(known, changes)
        partition, offset, generation = self._absent.recall(fd, info, identity, changes)
        if partition is None:
            partition = SourcePartition(self.connector, identity.key(generation))
            offset = replace(self._start.offset(fd, info, path, first=first and not generation), size=info.st_size)
            changes.offsets[partition] = offset  # known from now on, also when it is renamed before anything of it is read
        file = TrackedFile(partition, identity, generation, path, offset, self.descriptors.opened)
        file.observe(info)
        file.verified_mtime_ns, file.proven_size = file.mtime_ns, file.size
        file.adopt(fd)
        self._paths[path] = file.inode_key
        self.files[file.inode_key] = file
        self.generations.add(file)
        self.touch(file)
        return file

    def _miss(self, present: set[TrackedFile], changes: Changes) -> None:
        """Files that no pattern finds any more. What a directory holds that cannot be listed now is not known to be missing."""
        now = time.monotonic()
        unlisted = tuple(f"{directory.rstrip('/')}/" for directory in self._discovery.unlisted)
        for file in [one for one in self.files.values() if one not in present]:
            if unlisted and file.path.startswith(unlisted):
                continue
            if file.fd < 0 and not file.in_flight:
                self.rotated_files += 1
                changes.offsets[file.partition] = file.remembered(gone=True)
                self.remove(file)
                self._search_for = "the file went away while it was closed (see max_open_files)"
            elif file.gone_since is None:
                self.rotated_files += 1
                file.gone_since = now
                self.gone.add(file)
                if not file.in_flight:  # else its offset is about to move, and is saved with its new name then
                    changes.offsets[file.partition] = file.remembered(gone=True)
                self._log.info("file gone from its patterns, still followed", path=file.path, unread_bytes=file.backlog)

    def _follow_left(self, name: str, fd: int, info: os.stat_result, changes: Changes) -> None:
        """A file that has left its patterns while nobody looked. Raises OSError, and then `fd` is the caller's."""
        file = self._take_up(name, fd, info, changes, first=False)
        del self._paths[name]
        file.gone_since = time.monotonic()
        self.gone.add(file)
        changes.offsets[file.partition] = file.remembered(gone=True)
        self._log.info("file has left its patterns, is followed to its end", path=name, unread_bytes=file.backlog)

    def _tell_unmatched(self) -> None:
        """Say once that a pattern matches nothing: it may be wrong, or early."""
        for pattern in sorted(self._discovery.unmatched - self._told_unmatched):
            self._told_unmatched.add(pattern)
            self._log.info("no file matches yet", pattern=pattern)
