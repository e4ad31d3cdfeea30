"""The driver's part for files at URIs: listed once, and read by a run to the end. A file replaced meanwhile is read from its beginning."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from copycat_agent.errors import FileError
from copycat_agent.logs import Log
from copycat_agent.model import Account, SourceOffset, SourcePartition, Split, SplitResult
from copycat_agent.options import DeliveryOptions, SourceOptions
from copycat_agent.sources.base import FileState, FileView, Lag, Offsets, Plan, Source, SourceKind, UnwatchedSource
from copycat_agent.sources.files.packing.compressions import MAGIC_BYTES
from copycat_agent.sources.files.packing.unpacking import asks_head, codec_of
from copycat_agent.sources.files.paths.matching import excluded_by
from copycat_agent.sources.files.reading.address import parse_address
from copycat_agent.sources.files.reading.remote_objects import RemoteFile, list_files, look, opened
from copycat_agent.sources.planner import READY, Changes, Planner, UnsavedChanges, wait_seconds
from copycat_agent.sources.spool_dir.outcomes import damage_loss
from copycat_agent.sources.spool_dir.ready import sort_key
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS

FILES_PER_BATCH = 32
"""Most files of one batch. Each keeps up to 8 MiB of fetched data while the batch runs."""
ASKED_AT_ONCE = 16
"""Most files whose first bytes are fetched in parallel, to see how they are packed."""
HOPELESS_ERRORS = 5
"""A file is given up after this many failed reads in a row; the run ends without it, and says so."""
MOST_VERSIONS = 4
"""Most versions of one file that a run begins to read: the beginning of one that grows all the time would be sent again and again."""
_RETRY_SECONDS = (1.0, 30.0)
_GONE = "it is gone, was replaced or is excluded since an earlier part of this run read from it"


def key_of(file: RemoteFile) -> str:
    """Returns the key of the partition of one version of a file. A replaced file has another key."""
    version = f"{file.address.shown}\0{file.size}\0{file.mtime_ns}"
    return "r:" + hashlib.blake2b(version.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def maker(kind: SourceKind, patterns: Sequence[str]) -> Callable[..., Source]:
    """Returns a replacement for `kind.make` that reads the files at these addresses instead. Raises FatalError for a bad address."""
    addresses = [parse_address(pattern) for pattern in patterns]

    def make(connector: str, options: SourceOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> RemoteFilesSource:
        """Lists the files, without those that the definition excludes. Raises what `list_files` raises."""
        found = {file.address: file for address in addresses for file in list_files(address)}
        exclude: tuple[str, ...] = getattr(options, "exclude", ())
        excluded = [address for address in found if excluded_by(exclude, address.path)]
        if excluded:
            log.info("files left out, see source.exclude", files=len(excluded), first=excluded[0].shown)
        for address in excluded:
            del found[address]
        return RemoteFilesSource(connector, kind, options, delivery, found.values(), offsets, log)

    return make


class _RemoteProgress:
    """A file and its progress. `codec` is None until its first bytes were read."""

    def __init__(self, file: RemoteFile, partition: SourcePartition, offset: SourceOffset) -> None:
        self.file = file
        self.partition = partition
        self.offset = offset
        self.codec: str | None = offset.compression or None
        self.packed_position = 0
        self.backoff = READY
        self.why = ""
        self.read_at = 0.0

    @property
    def unread(self) -> int:
        """The number of unread bytes; an estimate for a packed file."""
        if self.offset.done:
            return 0
        return max(0, self.file.size - (self.packed_position if self.offset.compression else self.offset.position))

    def fail(self, why: str) -> float:
        """Notes a failed read. Returns the seconds to wait before the next attempt."""
        delay = wait_seconds(_RETRY_SECONDS, self.backoff.errors)
        self.why, self.backoff = why, self.backoff.after_error(time.monotonic(), _RETRY_SECONDS)
        return delay

    @property
    def is_wanted(self) -> bool:
        """Whether it has something to read and is not given up."""
        return not self.offset.done and self.backoff.errors < HOPELESS_ERRORS


class RemoteFilesSource(UnwatchedSource):
    """A `base.Source` of files that were listed once."""

    needs_scan = False

    def __init__(
        self,
        connector: str,
        kind: SourceKind,
        options: SourceOptions,
        delivery: DeliveryOptions,
        files: Iterable[RemoteFile],
        offsets: Offsets,
        log: Log,
    ) -> None:
        self._connector = connector
        self._options: Any = options
        self._most_seconds = delivery.max_batch_time
        self._planner = Planner[_RemoteProgress](delivery.max_batch_bytes, FILES_PER_BATCH)
        self._unsaved = UnsavedChanges()
        self._counts_records = getattr(kind.framing(options, raw=False), "counts_records", False)
        self._log = log
        self._offsets = dict(offsets)
        self._new: dict[SourcePartition, SourceOffset] = {}
        self._files: dict[SourcePartition, _RemoteProgress] = {}
        self._given_up: list[_RemoteProgress] = []
        for file in sorted(files, key=self._order):
            self._meet(file)
        self._gone = {one: self._gone_account(offset) for one, offset in offsets.items() if not offset.done and one not in self._files}
        self._untold = dict(self._gone)

    def _gone_account(self, offset: SourceOffset) -> Account:
        """Returns the account of a file that an earlier part of this run did not finish and the listing does not have any more."""
        self._log.error("the rest of a file is left out of this run", path=offset.path, offset=offset.position, why=_GONE)
        return Account(path=offset.path, state="failed", why=_GONE)

    def _order(self, file: RemoteFile) -> tuple[Any, str]:
        shown = file.address.shown
        return sort_key(self._options, shown, file.size, file.mtime_ns) if hasattr(self._options, "order_by") else (0, shown)

    def _meet(self, file: RemoteFile) -> None:
        partition = SourcePartition(self._connector, key_of(file))
        offset = self._offsets.get(partition)
        if offset is None:
            offset = SourceOffset(0, path=file.address.shown, size=file.size, mtime_ns=file.mtime_ns, done=not file.size)
            self._new[partition] = offset
        self._files[partition] = _RemoteProgress(file, partition, offset)

    def scan(self) -> Changes:
        """Returns the first offsets of new files, and accounts for files that were given up or are gone. Nothing is listed again."""
        self.needs_scan = False
        changes = Changes(offsets=self._new, accounts=self._untold)
        self._new, self._untold = {}, {}
        given_up, self._given_up = self._given_up, []
        for one in given_up:
            changes.offsets.setdefault(one.partition, one.offset)
            changes.accounts[one.partition] = Account(path=one.file.address.shown, state="failed", why=one.why)
        return self._unsaved.add(changes)

    def plan(self, shares: int) -> Plan:
        ready = self._planner.ready((one for one in self._files.values() if one.is_wanted), shares)
        chosen = self._planner.fill(ready, lambda one: one.unread)
        self._recognise([one for one in chosen if one.codec is None])
        splits = []
        for one in chosen:
            if one.codec is not None:
                self._planner.take(one)
                splits.append(self._split(one, one.codec))
        return Plan(tuple(splits), self._most_seconds)

    def _split(self, one: _RemoteProgress, codec: str) -> Split:
        file = one.file
        end = ENDLESS if codec or self._counts_records else file.size
        offset = replace(one.offset, compression=codec)
        mtime_ms = file.mtime_ns // 1_000_000
        return Split(one.partition, file.address.shown, file.address.uri, offset, end, final=True, mtime_ms=mtime_ms)

    def _recognise(self, files: list[_RemoteProgress]) -> None:
        """Sets the files' codecs, by their first bytes or by the options."""
        if not asks_head(self._options):
            for one in files:
                one.codec = codec_of(b"", self._options)
        elif files:
            with ThreadPoolExecutor(min(len(files), ASKED_AT_ONCE)) as threads:
                for one, found in zip(files, threads.map(partial(_codec, self._options), [one.file for one in files]), strict=True):
                    if isinstance(found, OSError):
                        self._fail(one, f"{one.file.address.shown} cannot be read: {found.strerror}")
                    else:
                        one.codec = found

    def _fail(self, one: _RemoteProgress, why: str) -> None:
        delay = one.fail(why)
        path = one.file.address.shown
        if one.is_wanted:
            self._log.warning("file cannot be read, the others go on", path=path, why=why, retry_s=delay)
        else:
            self._given_up.append(one)
            self.needs_scan = True
            self._log.error("file is given up in this run", path=path, why=why, hint="name it in another run once it can be read")

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        changes = Changes()
        for result in results:
            one = self._files[result.split.partition]
            offset = replace(result.offset, size=one.file.size, mtime_ns=one.file.mtime_ns, path=one.file.address.shown)
            is_read = result.at_end and result.error is None and not result.changed
            if result.damage:
                offset = replace(offset, done=True, trouble=result.damage)
                loss = damage_loss(replace(result, offset=offset), counts_records=self._counts_records)
                changes.losses.extend([loss] if loss else [])
            elif result.changed:
                offset = replace(offset, done=True, trouble="it was replaced while it was read")
            else:
                offset = replace(offset, done=is_read)
            if offset != one.offset:
                changes.offsets[one.partition] = offset
            changes.losses.extend(result.losses)
        return self._unsaved.add(changes)

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        self._unsaved.confirm(changes)
        for result in results:
            one = self._planner.release(result.split.partition)
            one.offset = changes.offsets.get(one.partition, one.offset)
            one.packed_position = max(one.packed_position, result.packed_position)
            one.read_at = time.time()
            if result.changed:
                self._begin_anew(one)
            elif isinstance(result.error, FileError):
                self._fail(one, str(result.error.message))
            elif result.error is None:
                one.backoff, one.why = READY, result.damage
            if result.damage:
                path, position = one.file.address.shown, one.offset.position
                self._log.error("file is damaged, what comes before is sent", path=path, offset=position, why=result.damage)

    def _begin_anew(self, one: _RemoteProgress) -> None:
        """Reads the file that has replaced it from its beginning."""
        shown = one.file.address.shown
        one.why = one.offset.trouble
        if sum(other.file.address == one.file.address for other in self._files.values()) >= MOST_VERSIONS:
            hint = "name it in another run once nothing writes to it"
            self._log.error("file is replaced again and again while it is read, it is given up in this run", path=shown, hint=hint)
            return
        try:
            now = look(one.file.address)
        except OSError as error:
            self._log.error("file went away while it was read", path=shown, why=error.strerror)
            return
        self._log.warning("file was replaced while it was read, it is read from its beginning", path=shown)
        self._meet(RemoteFile(one.file.address, now.st_size, now.st_mtime_ns))
        self._files = dict(sorted(self._files.items(), key=lambda item: self._order(item[1].file)))
        self.needs_scan = bool(self._new)

    def end_timed_out(self, *, at_once: bool) -> float:
        """Returns when the next failed file may be tried again; 0 once the run is over."""
        del at_once
        if self.drained():
            return 0.0
        waiting = (one for one in self._files.values() if one.backoff.errors and one.is_wanted)
        return min((one.backoff.retry_at for one in waiting), default=float("inf"))

    def drained(self) -> bool:
        return not (self._planner.in_flight or any(one.is_wanted for one in self._files.values()))

    def files(self) -> tuple[FileView, ...]:
        return tuple(sorted(_view(one, is_open=key in self._planner.in_flight) for key, one in self._files.items()))

    def lag(self) -> Lag:
        unread = [one for one in self._files.values() if not one.offset.done]
        troubled = sum(not one.is_wanted for one in unread) + sum(bool(one.offset.trouble) for one in self._files.values())
        return Lag(sum(one.unread for one in unread), len(unread), len(self._files), troubled_files=troubled + len(self._gone))

    def leave(self) -> Changes:
        """Returns what is not saved yet, also what no scan has returned so far."""
        self.scan()
        return self._unsaved.joined()

    def close(self) -> None:
        """Does nothing: the driver holds no file open."""


def _codec(options: object, file: RemoteFile) -> str | OSError:
    try:
        with opened(file.address) as source:
            return codec_of(source.read_at(MAGIC_BYTES, 0), options)
    except OSError as error:
        return error if error.strerror else OSError(error.errno, "it cannot be read now")


def _view(one: _RemoteProgress, *, is_open: bool) -> FileView:
    state: FileState = "failing" if one.why else "following"
    shown, offset = one.file.address.shown, one.offset
    return FileView(
        shown,
        one.partition.key,
        offset.position,
        one.file.size,
        offset.records,
        state,
        is_open=is_open,
        read_at=one.read_at,
        unread=one.unread,
        why=one.why,
        compression=offset.compression,
    )
