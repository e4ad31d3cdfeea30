"""The source of a backfill of PATHs: reads given files once, to the end they had when the run first met them.

This is the driver's side; tasks open splits and find records as the definition's own source does. No directory is watched, options about
when a file is ready or where to begin do not apply, and files are never cleaned up.

Worker, deliveries and batches are those of live connectors: there is no second data path.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from copycat_agent.backfill.backfill_file import BackfillFile
from copycat_agent.backfill.delivered import EarlierDeliveries, identity_of
from copycat_agent.errors import BlockedError, CopycatError, FileError
from copycat_agent.logs import Log
from copycat_agent.model import Account, SourceOffset, SourcePartition, SplitResult
from copycat_agent.options import DeliveryOptions, SourceOptions
from copycat_agent.sources import Changes, FileView, Lag, Offsets, Plan, Source, SourceKind
from copycat_agent.sources.base import UnwatchedSource
from copycat_agent.sources.log_file.rotation import log_of
from copycat_agent.sources.planner import PER_BATCH, READY, Planner, UnsavedChanges
from copycat_agent.sources.spool_dir.outcomes import damage_loss

HOPELESS_ERRORS = 3
"""Number of consecutive read errors after which a file is left out of the run."""
BLOCKED_SECONDS = (5.0, 5.0)
"""First and longest pause before a file whose topic is missing is tried again."""


def maker(kind: SourceKind, paths: Sequence[str], delivered: EarlierDeliveries | None) -> Callable[..., Source]:
    """Returns a replacement of `kind.make` for exactly these files (absolute). `delivered` None: what was sent before is sent again."""

    def make(connector: str, options: SourceOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> _PathSource:
        return _PathSource(connector, kind, options, delivery, offsets, log, paths=paths, delivered=delivered)

    return make


class _PathSource(UnwatchedSource):
    """A `sources.base.Source`."""

    needs_scan = False

    def __init__(  # noqa: PLR0913 - the arguments of `SourceKind.make`, and the files
        self,
        connector: str,
        kind: SourceKind,
        options: SourceOptions,
        delivery: DeliveryOptions,
        offsets: Offsets,
        log: Log,
        *,
        paths: Sequence[str],
        delivered: EarlierDeliveries | None,
    ) -> None:
        """`offsets` are those of an earlier part of this run."""
        form: Any = kind.framing(options, raw=False)
        self._connector = connector
        self._options: Any = options
        self._delivery = delivery
        self._log = log
        self._delivered = delivered
        self._counts_records = bool(getattr(form, "counts_records", False))
        self._is_whole = hasattr(form, "counts_records")  # a format of whole files: what was sent is recognised by all of its content
        self._offsets = dict(offsets)
        self._unsaved = UnsavedChanges()
        self._files: dict[SourcePartition, BackfillFile] = {}
        self._waiting: dict[SourcePartition, BackfillFile] = {}
        self._planner = Planner[BackfillFile](delivery.max_batch_bytes)
        self._paths = tuple(paths)
        self._is_met = False

    def scan(self) -> Changes:
        """Returns the changes of the first look; later ones change nothing, since the files are given."""
        changes = Changes()
        if not self._is_met:
            self._is_met = True
            self._meet_all(changes)
            self._line_up()
            self._unsaved.add(changes)
        return changes

    def _meet_all(self, changes: Changes) -> None:
        """Meets every file of an earlier part of this run, whatever names they have now, and the PATHs that had no file then.

        Files go before names: after a rotation a PATH may be the name of another file of the run, or of a newer one, which is not read.
        """
        saved = dict(self._offsets)
        known = {identity.lasting: partition for partition in saved if (identity := identity_of(partition.key))}
        names = {offset.path for offset in saved.values()}
        for path in self._paths:
            file = BackfillFile(path, self._options)
            partition = None if file.why else known.get(file.identity.lasting)
            if partition is not None:
                self._meet(file, partition, saved.pop(partition, None), changes)
            elif path not in names:
                self._meet(file, SourcePartition(self._connector, file.key), None, changes)
        for partition, offset in saved.items():
            file = BackfillFile(offset.path, self._options)
            if not (offset.done or file.find_again(partition.key)):
                file.why = "the file that was being read here is gone or was replaced; give it as a PATH of another run"
            self._meet(file, partition, offset, changes)

    def _meet(self, file: BackfillFile, partition: SourcePartition, offset: SourceOffset | None, changes: Changes) -> None:
        """Meets a file. `offset` is that of an earlier part of this run, None without one."""
        file.partition = partition
        if file.partition in self._files:
            return  # another name of the same file
        self._files[file.partition] = file
        if offset is not None:
            file.go_on(offset)
        if offset is not None and offset.done:
            file.why = ""  # it may be gone by now
        elif file.why:
            self._leave_out(file, file.why, changes, file.offset.position)
        else:
            if offset is not None:
                changes.accounts[file.partition] = Account(path=file.path, state="read")
            if not file.offset.position:  # of what was delivered of a packed file, nothing is saved before it is read
                self._begin(file, changes)
                changes.offsets[file.partition] = file.offset
        if not file.is_over:
            self._waiting[file.partition] = file

    def _begin(self, file: BackfillFile, changes: Changes) -> None:
        """Sets where to begin, by what Kafka has already."""
        file.formers = ()
        if self._delivered is None:
            return
        try:
            former = file.former(self._delivered, whole=self._is_whole)
        except OSError as error:
            self._log.warning("file cannot be looked at", path=file.path, why=error.strerror)
            return
        if former is None:
            return
        if file.is_over:
            changes.accounts[file.partition] = Account(path=file.path, state="skipped", why=former.words)
        else:
            changes.accounts[file.partition] = Account(
                path=file.path, state="read", why=f"begun at byte {file.offset.position}: what is before was {former.words}"
            )

    def _line_up(self) -> None:
        """Orders the files of one log, so that they are read one after the other, the oldest first, where order is guaranteed."""
        if self._is_whole or self._delivery.ordering != "file":
            return
        lines: dict[tuple[str, str], list[BackfillFile]] = {}
        for file in self._waiting.values():
            lines.setdefault(log_of(file.path), []).append(file)
        for line in lines.values():
            line.sort(key=lambda file: file.age)
            for before, file in itertools.pairwise(line):
                file.after, before.before = before, file

    def plan(self, shares: int) -> Plan:
        """Returns as many files as make a batch, and no more than this task's share of those that can be read now."""
        firsts = self._planner.ready((file for file in self._waiting.values() if file.is_first), shares)
        chosen = self._planner.fill(firsts, lambda file: file.unread, self._follower, PER_BATCH - len(firsts))
        for file in chosen:
            self._planner.take(file)
        splits = tuple(file.split(counts_records=self._counts_records) for file in chosen)
        return Plan(splits, self._delivery.max_batch_time)

    def _follower(self, file: BackfillFile) -> BackfillFile | None:
        """Returns the next file of its log that can be read after it, None without one."""
        younger = file.before
        return younger if younger is not None and not younger.is_over and self._planner.may_follow(younger) else None

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        changes = Changes()
        for result in results:
            file = self._planner.in_flight[result.split.partition]
            changes.losses.extend(result.losses)
            if result.origin >= 0:
                self._note_origin(file, result, changes)
            offset = self._judge(file, result, file.taken_in(result), changes)
            if offset != result.split.offset:
                changes.offsets[file.partition] = offset
            file.packed_position = max(file.packed_position, result.packed_position)
        return self._unsaved.add(changes)

    def _judge(self, file: BackfillFile, result: SplitResult, offset: SourceOffset, changes: Changes) -> SourceOffset:
        """Handles a file's result, and leaves it out where it has to be. Returns the offset to save."""
        why = result.damage
        if result.damage:
            self._damaged(file, result, changes)
        elif result.changed:
            why = f"it was cut, rewritten or replaced while it was read, {offset.position} bytes or records of it were"
            self._leave_out(file, why, changes, offset.position)
        elif offset.done and (cut := file.cut_to(result)) is not None:
            why = f"it was cut to {cut} bytes after the run had met it with {file.end}"
            self._leave_out(file, why, changes, offset.position)
        elif offset.done and not result.split.final:  # it is still written to
            changes.accounts[file.partition] = Account(path=file.path, why=f"read up to byte {offset.position}: it is still written to")
        elif result.error is None:
            file.backoff = READY
        else:
            self._held_up(file, result.error, changes)
        return replace(offset, done=True, trouble=why) if why else offset

    def _held_up(self, file: BackfillFile, error: CopycatError, changes: Changes) -> None:
        if isinstance(error, FileError):
            self._failed(file, error, changes)
        elif isinstance(error, BlockedError):
            file.backoff = file.backoff.after_block(time.monotonic(), BLOCKED_SECONDS)

    def _note_origin(self, file: BackfillFile, result: SplitResult, changes: Changes) -> None:
        """Notes what a task has found of a compressed file that was delivered before."""
        former = file.formers[result.origin]
        is_all = result.at_end and not result.counts.read and result.error is None and not result.damage
        why = former.words if is_all else f"begun at unpacked byte {former.offset.position}: what is before was {former.words}"
        changes.accounts[file.partition] = Account(path=file.path, state="skipped" if is_all else "", why=why)

    def _damaged(self, file: BackfillFile, result: SplitResult, changes: Changes) -> None:
        if loss := damage_loss(result, counts_records=self._counts_records):
            changes.losses.append(loss)
        self._leave_out(file, result.damage, changes, result.offset.position)

    def _failed(self, file: BackfillFile, error: FileError, changes: Changes) -> None:
        """Retries a file that could not be read later, or leaves it out of this run."""
        file.backoff = file.backoff.after_error(time.monotonic())
        if file.backoff.errors >= HOPELESS_ERRORS:
            self._leave_out(file, error.message, changes, file.offset.position)
            return
        self._log.warning("file cannot be read, the others go on", path=file.path, why=error.message)

    def _leave_out(self, file: BackfillFile, why: str, changes: Changes, read: int) -> None:
        """Ends the work on a file. `read`: the position up to which its records were sent before."""
        words = "the rest of a file is left out of this run, what comes before it was sent" if read else "file is left out of this run"
        self._log.error(words, path=file.path, why=why)
        file.state, file.why = "failed", why
        changes.accounts[file.partition] = Account(path=file.path, state="failed", why=why)

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        self._unsaved.confirm(changes)
        for result in results:
            partition = result.split.partition
            file = self._planner.release(partition)
            file.offset = changes.offsets.get(partition, file.offset)
            if file.is_over:
                file.close()
                self._waiting.pop(partition, None)

    def end_timed_out(self, *, at_once: bool) -> float:
        """Returns infinity: nothing waits for its time."""
        del at_once
        return math.inf

    def drained(self) -> bool:
        return self._is_met and not self._waiting

    def files(self) -> tuple[FileView, ...]:
        return tuple(file.view() for _, file in sorted(self._files.items(), key=lambda one: one[1].path))

    def lag(self) -> Lag:
        """Returns the lag; files that are left out count as troubled."""
        unread = sum(file.unread for file in self._waiting.values())
        failed = sum(file.state == "failed" or bool(file.offset.trouble) for file in self._files.values())
        blocked = sum(file.backoff.blocked > 0 for file in self._waiting.values())
        opened = sum(file.fd >= 0 for file in self._planner.in_flight.values())
        return Lag(unread, len(self._waiting), len(self._files), opened, blocked_files=blocked, troubled_files=failed)

    def leave(self) -> Changes:
        return self._unsaved.joined()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
