"""The driver's part of every source on the contract: it calls `look`, plans stretches, and saves what results change.

A partition is planned one stretch at a time, once its first offset is saved. After a failure the source is asked for its findings again: if
nothing of a stretch was saved, the next one may differ.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from copycat_agent.errors import BlockedError, CopycatError, FatalError, FileError, RetriableError
from copycat_agent.model import Account, SourceOffset, SourcePartition, SplitResult
from copycat_agent.registry import FAULT, described
from copycat_agent.sources.base import FileDetail, FileView, Lag, Offsets, Plan, UnwatchedSource
from copycat_agent.sources.contract import Gone, Remembered, Troubled, as_text, from_text
from copycat_agent.sources.contract_partitions import KnownPartition, PartitionKind
from copycat_agent.sources.contract_threads import WHOLE_SECONDS, LookThread
from copycat_agent.sources.planner import READY, Changes, Planner, TurnQueue, UnsavedChanges, wait_seconds

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.options import DeliveryOptions
    from copycat_agent.sources.contract import AuthorSource, FileSource, Found, PolledOptions, Position

LOOK_AGAIN_SECONDS = 0.02
"""Shortest interval at which a running look is polled for its answer."""
RETRY_SECONDS = (0.2, 5.0)
"""First and longest wait before a source that failed is asked again."""
LAG_SECONDS = 5.0
"""Interval of looks for the lag while every partition has something to read."""
HOPELESS = 3, 15.0
"""A run to the end gives up a file after this many failures in a row, over at least this many seconds."""
_KEY = re.compile(r"[!-~]{1,300}")
"""Room for the longest name of a topic, and a partition's number."""


@dataclass(slots=True)
class _NextLook:
    """When the source is next asked for its findings. Times are `time.monotonic()`."""

    is_wanted: bool = True
    not_before: float = 0.0
    asked_at: float = 0.0
    errors: int = 0
    """Number of failed looks in a row."""
    to_the_end: bool = False
    is_over: bool = False
    """Whether a run to the end has read everything, so that no further look is needed."""


class ContractSource(UnwatchedSource):
    """A `base.Source` that drives an author's source."""

    def __init__(
        self,
        connector: str,
        options: PolledOptions,
        delivery: DeliveryOptions,
        offsets: Offsets,
        log: Log,
        source: AuthorSource | FileSource,
        kind: PartitionKind,
    ) -> None:
        """`offsets` are the connector's saved offsets; `kind` interprets them."""
        self._connector = connector
        self._delivery = delivery
        self._log = log
        self._kind = kind
        self._type = options.type
        self.scan_seconds = options.look_seconds
        self._looker = LookThread(source, connector)
        self._known: dict[str, KnownPartition] = {}
        self._remembered: dict[str, Position] = {}
        for partition, offset in offsets.items():
            if offset.cursor and offset.done:
                self._remembered[partition.key] = from_text(offset.cursor)
            elif self._kind.is_position(offset):
                self._known[partition.key] = KnownPartition(partition, offset, self._kind.position_of(offset))
        self._tells = not options.only_looks
        if committed := {key: one.position for key, one in self._known.items() if self._kind.has_moved(one.offset) and self._tells}:
            self._looker.committed(committed)  # the process that saved them may have died before it told the source
        self._planner = Planner[KnownPartition](delivery.max_batch_bytes, self._kind.most_per_batch)
        self._turns = TurnQueue[KnownPartition]()
        for one in self._known.values():
            self._turns.add(one)
        self._unsaved = UnsavedChanges()
        self._troubles: dict[str, str] = {}
        self._next_look = _NextLook()

    @property
    def needs_scan(self) -> bool:
        return self._looker.is_done

    def scan(self) -> Changes:
        """Takes the findings of a look, or asks for one. Raises RetriableError while the source cannot be asked."""
        changes = Changes()
        try:
            found = self._looker.take()
        except RetriableError:
            self._next_look.not_before = time.monotonic() + wait_seconds(RETRY_SECONDS, self._next_look.errors)
            self._next_look.errors += 1
            self._next_look.is_wanted = True
            raise
        except CopycatError:
            raise
        except Exception as error:  # noqa: BLE001 - third-party code may raise anything, and its text may hold data
            raise FatalError(f"source {self._type}: {described(error)}", FAULT) from None
        if found is None:
            self._next_look.is_wanted = not self._next_look.is_over
            return changes
        self._next_look.errors = 0
        troubles = {}
        for one in found:
            if isinstance(one, Remembered):
                self._remember(one, changes)
            elif isinstance(one, Gone):
                self._forget(one, changes)
            elif isinstance(one, Troubled):
                troubles[one.name] = one.why
            elif self._partition(one.key) not in changes.forget:
                self._meet(one, changes)
        self._log_troubles(troubles)
        return self._unsaved.add(changes) if changes.offsets or changes.forget else changes

    def _log_troubles(self, troubles: dict[str, str]) -> None:
        for name in troubles.keys() - self._troubles.keys():
            self._log.warning("source has a problem that does not stop reading", what=name, why=troubles[name])
        self._troubles = troubles

    def _remember(self, one: Remembered, changes: Changes) -> None:
        partition = self._partition(one.key)
        changes.offsets[partition] = SourceOffset(0, done=True, cursor=as_text(one.value))
        changes.forget.discard(partition)

    def _forget(self, gone: Gone, changes: Changes) -> None:
        known = self._known.get(gone.key)
        if known is None and gone.key not in self._remembered:
            return
        partition = self._partition(gone.key)
        if partition in self._planner.in_flight:
            return
        changes.offsets.pop(partition, None)
        changes.forget.add(partition)
        if known is not None:
            del self._known[gone.key]
            self._turns.discard(known)
            if gone.why:
                changes.losses.extend(self._kind.losses_of(known.partition, known.offset, gone.why))

    def _partition(self, key: str) -> SourcePartition:
        """Returns the partition of a key. Raises FatalError for an invalid key."""
        if not _KEY.fullmatch(key):
            msg = f"a key of the source is no word of up to 300 plain characters: {key!a:.80}"
            raise FatalError(msg, "give each partition a short key of its own")
        return SourcePartition(self._connector, key)

    def _meet(self, found: Found, changes: Changes) -> None:
        known = self._known.get(found.key)
        if known is None:
            known = self._begin(found)
            changes.offsets[known.partition] = known.offset
        known.found, known.trouble = found, found.trouble
        self._measure(known)
        if known.partition not in self._planner.in_flight:
            self._choose(known)

    def _begin(self, found: Found) -> KnownPartition:
        partition, offset = self._partition(found.key), self._kind.first_offset(found)
        known = KnownPartition(partition, offset, self._kind.position_of(offset), met=True)
        self._known[found.key] = known
        self._turns.add(known)
        self._log.info("partition begins", partition=found.key, name=found.name)
        return known

    def _measure(self, known: KnownPartition) -> None:
        """Updates `behind`, which keeps its last value while it cannot be measured."""
        behind = None if known.found is None else self._kind.behind_of(known.found, known.position)
        known.behind = known.behind if behind is None else behind

    def _choose(self, known: KnownPartition) -> None:
        """Chooses what to read next of it."""
        known.next = None if known.found is None else self._kind.next_of(known.found, known.offset, known.position)
        known.unread = 0 if known.found is None or known.next is None else self._kind.unread_of(known.found, known.offset)
        if known.next is None:
            known.unread_since_ms = 0
        elif not known.unread_since_ms:
            known.unread_since_ms = int(time.time() * 1000)

    def plan(self, shares: int) -> Plan:
        ready = self._planner.ready((one for one in self._turns if one.next is not None and not one.met), shares)
        chosen = self._planner.fill(ready, lambda one: one.unread)
        for known in chosen:
            self._planner.take(known)
            if self._kind.takes_turns:
                self._turns.served(known)
        splits = tuple(map(self._kind.split_of, chosen))
        least_seconds = WHOLE_SECONDS if any(one.goes_as_one for one in splits) else self._kind.least_seconds
        return Plan(splits, max(least_seconds, self._delivery.max_batch_time))

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        changes = Changes()
        for result in results:
            offset, losses = self._kind.outcome_of(result)
            if offset != result.split.offset:
                changes.offsets[result.split.partition] = offset
            changes.losses.extend(losses)
            self._account(self._planner.in_flight[result.split.partition], result, changes)
        return self._unsaved.add(changes)

    def _account(self, known: KnownPartition, result: SplitResult, changes: Changes) -> None:
        """Accounts for a file that a run to the end gives up, or that can be read after all."""
        path, was_hopeless = known.offset.path, known.is_hopeless
        if isinstance(result.error, FileError):
            errors, seconds = HOPELESS
            is_old = known.failing_since > 0 and time.monotonic() - known.failing_since >= seconds
            known.is_hopeless = self._next_look.to_the_end and is_old and known.backoff.errors >= errors - 1
            if known.is_hopeless:
                changes.accounts[known.partition] = Account(path=path, state="failed", why=result.error.message)
        elif was_hopeless and not result.changed:
            known.is_hopeless = False
            changes.accounts[known.partition] = Account(path=path, state="read")

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        self._unsaved.confirm(changes)
        for loss in changes.losses:
            if loss.reason in ("destroyed", "damaged"):
                key, why = loss.partition.key, loss.detail
                self._log.error("what was not read yet is lost", path=loss.path, partition=key, why=why, records=loss.records)
        committed = self._take_in(changes)
        for result in results:
            known = self._planner.release(result.split.partition)
            if settled := changes.offsets.get(known.partition):
                known.offset, known.position = settled, self._kind.position_of(settled)
                known.read_at = time.time()
                self._measure(known)
                committed[known.partition.key] = known.position
            self._go_on(known, result)
        if committed and self._tells:
            self._looker.committed(committed)

    def _take_in(self, changes: Changes) -> dict[str, Position]:
        """Notes that the findings of a look are saved. Returns the positions of partitions that are already done: empty files."""
        done: dict[str, Position] = {}
        for partition, offset in changes.offsets.items():
            if known := self._known.get(partition.key):
                if known.met and self._kind.has_moved(offset):
                    done[partition.key] = known.position
                self._begun(known)
            elif offset.done and offset.cursor:
                self._remembered[partition.key] = from_text(offset.cursor)
                self._next_look.is_wanted = True
        for partition in changes.forget:
            self._remembered.pop(partition.key, None)
        return done

    def _begun(self, known: KnownPartition) -> None:
        """Notes that its first offset is saved. If the look found nothing to read yet, another one follows, also in a run to the end."""
        if known.met and known.next is None:
            self._next_look.is_wanted = True
        known.met = False

    def _go_on(self, known: KnownPartition, result: SplitResult) -> None:
        """Chooses what follows a result, or asks for another look."""
        known.why = result.damage if result.error is None else result.error.message
        if not (result.changed or isinstance(result.error, FileError)):
            known.failing_since = 0.0
        elif not known.failing_since:
            known.failing_since = time.monotonic()
        if result.error is not None or result.changed:
            known.forget_next()
            self._next_look.is_wanted = True
            if isinstance(result.error, FileError | BlockedError):  # of this partition alone; the connector backs off for all other errors
                delay = wait_seconds(RETRY_SECONDS, known.backoff.errors)
                known.backoff = known.backoff.after_error(time.monotonic(), RETRY_SECONDS)
                self._turns.served(known)
                path = known.offset.path
                self._log.warning("partition cannot be read, the others go on", path=path, why=known.why, retry_s=delay)
            return
        known.backoff = READY
        self._choose(known)
        if known.next is None:
            self._next_look.is_wanted = True

    def end_timed_out(self, *, at_once: bool) -> float:
        """Starts a look once it is due, and what the last one told is saved: until then the source would tell the same again."""
        self._next_look.to_the_end = at_once
        now = time.monotonic()
        if self._looker.is_done:
            return -math.inf  # as soon as `scan` may be called
        if self._next_look.is_wanted and not (self._looker.is_busy or self._unsaved) and self._may_look(now):
            if now < self._next_look.not_before:
                return self._next_look.not_before
            self._next_look.is_wanted, self._next_look.asked_at = False, now
            saved = {key: self._kind.shown_to_look(one) for key, one in self._known.items() if not one.met}
            self._looker.look({**saved, **self._remembered}, to_the_end=at_once)
        if self._looker.is_busy:
            return now + max(LOOK_AGAIN_SECONDS, min(0.5, (now - self._next_look.asked_at) / 10))
        return math.inf

    def _may_look(self, now: float) -> bool:
        """Returns whether a look is useful: not while every partition has something to read, for its findings would be old by then."""
        if self._kind.tells_lag and now >= self._next_look.asked_at + LAG_SECONDS:
            return True
        known = self._known.values()
        return not known or any(one.next is None for one in known)

    def look_now(self) -> None:
        """Looks until there is something to read, twice at most. Raises what the source raises, RetriableError too."""
        for _ in range(2):  # the first look may only find where a partition begins, the second what to read from there
            self._next_look.is_wanted = True
            while not self._looker.is_done:
                self.end_timed_out(at_once=False)
                time.sleep(LOOK_AGAIN_SECONDS)
            self.finish((), self.scan())
            if any(one.next is not None for one in self._known.values()):
                return

    def drained(self) -> bool:
        if self._next_look.is_wanted and not self._next_look.is_over:
            return False
        if self._looker.is_busy or self._looker.is_done:
            return False
        if any((one.next is not None or one.met) and not one.is_hopeless for one in self._known.values()):
            return False
        self._next_look.is_over = self._next_look.to_the_end
        return True

    def files(self) -> tuple[FileView, ...]:
        """Returns the partitions, and an entry for each `Troubled`."""
        troubled = [FileView(name, "", 0, 0, 0, "failing", is_open=False, why=why) for name, why in self._troubles.items()]
        return tuple(sorted([*troubled, *map(self._kind.view_of, self._known.values())], key=lambda view: (view.path, view.key)))

    def look_closely(self, path: str, most_bytes: int) -> FileDetail | None:
        """Returns details of the partition with the name or key `path`; None if there is none."""
        del most_bytes
        known = next((one for one in self._known.values() if path in (one.offset.path, one.partition.key)), None)
        if known is None:
            return None
        return FileDetail(
            self._kind.view_of(known), (known.offset.path,), known.offset, None if known.next is None else self._kind.split_of(known)
        )

    def lag(self) -> Lag:
        waiting = [one for one in self._known.values() if one.next is not None]
        behind = [one for one in self._known.values() if one.behind is not None]
        return Lag(
            records=sum(one.behind or 0 for one in behind) if behind else None,
            waiting_records=sum(one.behind or 0 for one in behind if one.next is None),
            bytes=sum(one.unread for one in waiting),
            files=len(waiting),
            known_files=len(self._known),
            troubled_files=len(self._troubles) + sum(bool(one.why or one.trouble) for one in self._known.values()),
            oldest_unread_ms=min((one.unread_since_ms for one in waiting if one.unread_since_ms), default=0),
        )

    def leave(self) -> Changes:
        return self._unsaved.joined()

    def close(self) -> None:
        self._looker.close()
