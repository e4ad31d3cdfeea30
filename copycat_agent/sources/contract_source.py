"""The driver's half of every source on the contract: what is under way, whose turn it is, what is saved, what is left.

A partition is planned once where it begins is saved, one stretch at a time. After a failure what is there is looked at anew: a stretch
of which nothing is saved may be another one then.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from copycat_agent.errors import BlockedError, CopycatError, FatalError, FileError, RetriableError
from copycat_agent.model import SourceOffset, SourcePartition, Split, SplitResult, Stretch
from copycat_agent.registry import FAULT, told
from copycat_agent.sources.base import Closeup, FileState, FileView, Lag, Offsets, Plan
from copycat_agent.sources.contract import ENDLESS, as_text, from_text
from copycat_agent.sources.contract_threads import WHOLE_SECONDS, Looker
from copycat_agent.sources.planner import READY, Changes, FileBackoff, Planner, TurnQueue, UnsavedChanges, wait_seconds

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.options import DeliveryOptions
    from copycat_agent.sources.contract import AuthorSource, Found, PolledOptions, Position

LOOK_AGAIN_SECONDS = 0.02
"""How often a look that is under way is asked for its answer, at first."""
RETRY_SECONDS = (0.2, 5.0)
"""First and longest wait before a source that failed is asked again."""
_KEY = re.compile(r"[!-~]{1,200}")


@dataclass(eq=False, slots=True)
class _Partition:
    """One that is known. `offset` is saved unless `met`: then where it begins has yet to be. `found`: as the last look has it.

    `next` is what to read next, or what a task reads. `why`: what went wrong last. `unread_since_ms`: since when something is unread, 0
    while nothing is.
    """

    partition: SourcePartition
    offset: SourceOffset
    position: Position
    met: bool = False
    found: Found | None = None
    next: Stretch | None = None
    why: str = ""
    backoff: FileBackoff = READY
    unread_since_ms: int = 0
    read_at: float = 0.0

    @property
    def has_moved(self) -> bool:
        """Whether something of it was ever settled, were it a stretch without records."""
        return bool(self.offset.records or self.offset.mtime_ns)

    @property
    def unread(self) -> int:
        return self.found.unread if self.found is not None and self.next is not None else 0


@dataclass(slots=True)
class _NextLook:
    """When the source is asked next what is there. Times of `time.monotonic()`."""

    is_wanted: bool = True
    not_before: float = 0.0
    asked_at: float = 0.0
    errors: int = 0
    """How often it could not be asked, one after the other."""
    to_the_end: bool = False
    is_over: bool = False
    """Whether everything was read in a run to the end: nothing more is to be found."""


class ContractSource:
    """A `base.Source`."""

    directories: Collection[str] = ()

    def __init__(
        self, connector: str, options: PolledOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log, source: AuthorSource
    ) -> None:
        """`offsets` are the connector's saved ones."""
        self._connector = connector
        self._delivery = delivery
        self._log = log
        self._source = source
        self._type = options.type
        self.scan_seconds = options.poll_interval
        self._looker = Looker(source, connector)
        self._known: dict[str, _Partition] = {}
        for partition, offset in offsets.items():
            if offset.cursor:
                self._known[partition.key] = _Partition(partition, offset, from_text(offset.cursor))
        self._tells = not options.only_looks
        if told := {key: one.position for key, one in self._known.items() if one.has_moved and self._tells}:
            self._looker.committed(told)  # the process that saved them may have died before
        self._planner = Planner[_Partition](delivery.max_batch_bytes, None)
        self._turns = TurnQueue[_Partition]()
        for one in self._known.values():
            self._turns.add(one)
        self._unsaved = UnsavedChanges()
        self._next_look = _NextLook()

    @property
    def needs_scan(self) -> bool:
        return self._looker.is_done

    def scan(self) -> Changes:
        """Takes what a look has found, or asks for one. Raises RetriableError while the source cannot be asked."""
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
        except Exception as error:  # noqa: BLE001 - somebody else's code raises anything, and its text may hold data
            words = f"source {self._type}: {told(error)}"
            raise FatalError(words, FAULT) from None
        if found is None:
            self._next_look.is_wanted = not self._next_look.is_over
            return changes
        self._next_look.errors = 0
        for one in found:
            self._meet(one, changes)
        return self._unsaved.add(changes) if changes.offsets else changes

    def _meet(self, found: Found, changes: Changes) -> None:
        known = self._known.get(found.key)
        if known is None:
            known = self._begin(found)
            changes.offsets[known.partition] = known.offset
        known.found = found
        if known.partition not in self._planner.in_flight:
            self._choose(known)

    def _begin(self, found: Found) -> _Partition:
        if not _KEY.fullmatch(found.key):
            msg = f"a key of the source is no word of up to 200 plain characters: {found.key!a:.80}"
            raise FatalError(msg, "give each partition a short key of its own")
        offset = SourceOffset(0, path=found.name or found.key, cursor=as_text(found.start))
        known = _Partition(SourcePartition(self._connector, found.key), offset, found.start, met=True)
        self._known[found.key] = known
        self._turns.add(known)
        self._log.info("partition begins", partition=found.key)
        return known

    def _choose(self, known: _Partition) -> None:
        """What to read next of it."""
        known.next = None if known.found is None else self._source.plan(known.found, known.position)
        if known.next is None:
            known.unread_since_ms = 0
        elif not known.unread_since_ms:
            known.unread_since_ms = int(time.time() * 1000)

    def wake(self, paths: Collection[str]) -> bool:
        """There are no files."""
        del paths
        return True

    def plan(self, shares: int) -> Plan:
        ready = self._planner.ready((one for one in self._turns if one.next is not None and not one.met), shares)
        chosen = self._planner.fill(ready, lambda one: one.unread)
        for known in chosen:
            self._planner.take(known)
            self._turns.served(known)
        splits = tuple(map(self._split, chosen))
        is_whole = any(one.goes_as_one for one in splits)
        return Plan(splits, max(WHOLE_SECONDS, self._delivery.max_batch_time) if is_whole else self._delivery.max_batch_time)

    def _split(self, known: _Partition) -> Split:
        assert known.next is not None
        return Split(known.partition, known.next.name, "", known.offset, ENDLESS, stretch=known.next)

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        changes = Changes()
        for result in results:
            if result.offset != result.split.offset:
                changes.offsets[result.split.partition] = result.offset
            changes.losses.extend(result.losses)
        return self._unsaved.add(changes)

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        self._unsaved.confirm(changes)
        for partition in changes.offsets:
            self._begun(self._known[partition.key])
        told: dict[str, Position] = {}
        for result in results:
            known = self._planner.land(result.split.partition)
            if result.offset != result.split.offset:
                known.offset, known.position = result.offset, from_text(result.offset.cursor)
                known.read_at = time.time()
                told[known.partition.key] = known.position
            self._go_on(known, result)
        if told and self._tells:
            self._looker.committed(told)

    def _begun(self, known: _Partition) -> None:
        """Where it begins is saved. A look that told no more than that is followed by another one, also in a run to the end."""
        if known.met and known.next is None:
            self._next_look.is_wanted = True
        known.met = False

    def _go_on(self, known: _Partition, result: SplitResult) -> None:
        """Plan what follows, or have everything looked at anew."""
        known.why = "" if result.error is None else result.error.message
        if result.error is not None or result.changed:
            known.found = known.next = None
            self._next_look.is_wanted = True
            if isinstance(result.error, FileError | BlockedError):  # its own trouble; what is everybody's is paced by the connector
                known.backoff = known.backoff.after_error(time.monotonic(), RETRY_SECONDS)
            return
        known.backoff = READY
        self._choose(known)
        if known.next is None:
            self._next_look.is_wanted = True

    def ripen(self, *, at_once: bool) -> float:
        """Asks the source once it is time."""
        self._next_look.to_the_end = at_once
        now = time.monotonic()
        if self._looker.is_done:
            return now
        if self._next_look.is_wanted and not self._looker.is_busy and not self._is_occupied:
            if now < self._next_look.not_before:
                return self._next_look.not_before
            self._next_look.is_wanted, self._next_look.asked_at = False, now
            self._looker.look({key: one.position for key, one in self._known.items() if not one.met}, to_the_end=at_once)
        if self._looker.is_busy:
            return now + max(LOOK_AGAIN_SECONDS, min(0.5, (now - self._next_look.asked_at) / 10))
        return math.inf

    @property
    def _is_occupied(self) -> bool:
        """Whether something is to be read, or being read, of every partition there is: what a look finds would be old by then."""
        known = self._known.values()
        return bool(known) and all(one.next is not None for one in known)

    def look_now(self) -> None:
        """Raises what the source raises, RetriableError too."""
        for _ in range(2):  # where it begins, and what is there from there on
            self._next_look.is_wanted = True
            while not self._looker.is_done:
                self.ripen(at_once=False)
                time.sleep(LOOK_AGAIN_SECONDS)
            self.finish((), self.scan())
            if any(one.next is not None for one in self._known.values()):
                return

    def drained(self) -> bool:
        if self._next_look.is_wanted and not self._next_look.is_over:
            return False
        if self._looker.is_busy or self._looker.is_done:
            return False
        if any(one.next is not None or one.met for one in self._known.values()):
            return False
        self._next_look.is_over = self._next_look.to_the_end
        return True

    def finalise(self) -> None:
        """Records are whole."""

    def files(self) -> tuple[FileView, ...]:
        """Its partitions."""
        return tuple(sorted((_view(one) for one in self._known.values()), key=lambda view: (view.path, view.key)))

    def passed_over(self) -> Mapping[str, str]:
        return {}

    def look_closely(self, path: str, most_bytes: int) -> Closeup | None:
        """By the partition's name or key."""
        del most_bytes
        known = next((one for one in self._known.values() if path in (one.offset.path, one.partition.key)), None)
        if known is None:
            return None
        return Closeup(_view(known), (known.offset.path,), known.offset, None if known.next is None else self._split(known))

    def lag(self) -> Lag:
        waiting = [one for one in self._known.values() if one.next is not None]
        return Lag(
            bytes=sum(one.unread for one in waiting),
            files=len(waiting),
            known_files=len(self._known),
            troubled_files=sum(bool(one.why) for one in self._known.values()),
            oldest_unread_ms=min((one.unread_since_ms for one in waiting if one.unread_since_ms), default=0),
        )

    def leave(self) -> Changes:
        return self._unsaved.joined()

    def close(self) -> None:
        self._looker.close()


def _view(known: _Partition) -> FileView:
    state: FileState = "failing" if known.why else "following"
    offset = known.offset
    view = FileView(offset.path, known.partition.key, offset.position, 0, offset.records, state, is_open=False)
    return view._replace(read_at=known.read_at, unread=known.unread, why=known.why, counts_records=True, cursor=offset.cursor)
