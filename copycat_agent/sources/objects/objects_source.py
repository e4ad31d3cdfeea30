"""The `FileSource` of `objects`: finds objects, and knows which of them were read.

An object is a partition while it is read, and until enough are done to be stored together in a `ReadHistory`. A `ListingPass` goes through
the names in order; it stops while many objects wait to be read, and later resumes where it stopped.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

from copycat_agent.extending import (
    Address,
    BlockedError,
    FatalError,
    Finding,
    Found,
    Gone,
    Position,
    Remembered,
    RetriableError,
    Stretch,
    Troubled,
    excluded_by,
    parse_address,
)
from copycat_agent.sources.objects.blocks import BlockFile
from copycat_agent.sources.objects.cleanup import Cleanup
from copycat_agent.sources.objects.daemon_pool import DaemonPool
from copycat_agent.sources.objects.listing_schedule import ListingPass, ListingSchedule, NameRange
from copycat_agent.sources.objects.local_store import LocalStore
from copycat_agent.sources.objects.memory import CHUNK_IDS, ReadHistory
from copycat_agent.sources.objects.notifications import ReceivedNotifications
from copycat_agent.sources.objects.options import ObjectsOptions
from copycat_agent.sources.objects.stores import KEY, ListedObject, Store, key_of

WAITING_MOST = 1000
"""A pass stops at this many unread objects, and resumes at half as many."""
FAILING_MOST = 10_000
"""Most objects that cannot be read and do not count as waiting."""
CHECKS = 32
"""Most failing objects per look that are checked one by one for whether they still exist."""
CHECK_SECONDS = 5.0
"""Interval of such checks for one object."""
REMEMBER_AT = 256
"""Least number of finished objects that move to the `ReadHistory` together."""
LOCAL_AGE_SECONDS = 5.0
"""Default of `min_age` where files grow under their final names."""
TIME_SECONDS = 1.0
"""Stores round times of objects to this."""
BEGUN_SECONDS = 86_400
"""With `start_at: end`, objects changed within this time before the newest are remembered one by one."""
FUTURE_MOST = 100_000
"""So many objects whose time lies in the future are watched at a time."""
FUTURE_SECONDS = 86_400.0
"""One that was not seen for so long, and for two full listings, is no longer watched."""
REFUSED_SHOWN = 20
"""Most directories that are told because they cannot be listed."""
_BEGUN = "begun"
_DELETED = "it was deleted before it was read to its end"
_REPLACED = "it was replaced before it was read to its end"
_MISSING = "it is not there any more, or source.uri, pattern or exclude leave it out, and it was not read to its end"


def id_of(key: str) -> int:
    """Returns the 64-bit id under which an object's key is remembered."""
    return int(key.removeprefix(KEY)[:16], 16)


def store_at(address: Address) -> Store:
    """Returns the store at an address. It holds connections. Raises FatalError if its client is not installed."""
    if address.scheme == "file":
        return LocalStore(address)
    if address.scheme != "s3":
        from copycat_agent.sources.objects.arrow_store import ArrowStore  # noqa: PLC0415 - imports pyarrow, 0.15 s

        return ArrowStore(address)
    try:
        from copycat_agent.sources.objects.s3_store import S3Store  # noqa: PLC0415 - imports boto3, an extra, 0.3 s
    except ImportError:
        raise FatalError("source objects needs boto3 for s3://", 'pip install "copycat-agent[s3]"') from None
    return S3Store(address)


class _Future(NamedTuple):
    """When an object whose time lies in the future was seen first, and last."""

    first: float
    seen: float


class ObjectsSource:
    """An `extending.FileSource`.

    `_known` holds the objects that are partitions, by key; `_names` their keys by name; `_paths` the shown names of saved partitions.
    `_left_out` are saved partitions that are done, and that the definition no longer includes: it may include them again.
    `_lost` says why partitions are gone. `_checked_at` is when failing objects were last checked, `_future` are new objects
    whose modification time lies in the future, by key, the one that was seen the longest ago first (`time.monotonic()`).
    """

    def __init__(self, options: ObjectsOptions) -> None:
        self._options = options
        self._address = parse_address(options.uri)
        is_local = self._address.scheme in ("file", "hdfs", "viewfs")
        self._min_age = options.min_age if options.min_age is not None else LOCAL_AGE_SECONDS if is_local else 0.0
        self._memory = ReadHistory()
        self._cleanup = Cleanup(options.cleanup)
        self._known: dict[str, ListedObject] = {}
        self._names: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._checked_at: dict[str, float] = {}
        self._future: dict[str, _Future] = {}
        self._notices = ReceivedNotifications(options.notify.sqs if options.notify else "")
        self._pool: DaemonPool[tuple[str, ListedObject | None] | None] = DaemonPool()
        self._paths: dict[str, str] = {}
        self._left_out: set[str] = set()

    @cached_property
    def _store(self) -> Store:
        return store_at(self._address)

    @cached_property
    def _passes(self) -> ListingSchedule:
        return ListingSchedule(self._store.prefix, self._options.poll_interval, self._options.relist)

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Finding]:
        """Raises RetriableError, or BlockedError, if the store cannot be listed."""
        if self._options.start_at == "end" and not saved:
            yield from self._begin_at_end()
            return
        self._memory.recall(saved, time.monotonic())
        rows = {key: bool(saved[key]["done"]) for key in saved if key.startswith(KEY)}
        self._paths = {key: saved[key]["name"] for key in rows}
        self._cleanup.run(self._store, self._known, time.monotonic(), to_the_end=to_the_end)
        gone = self._forgotten(rows)
        yield from map(Gone, gone)
        if self._cleanup.left:
            yield self._trouble_of_cleanup()
        failing = {key for key in self._known if key in saved and saved[key]["failed"]}
        self._check(rows, failing, saved.get(_BEGUN, -1), to_the_end=to_the_end)
        try:
            self._list(rows, failing, saved.get(_BEGUN, -1), to_the_end=to_the_end)
        except OSError as error:
            raise self.failure(self._address, error) from None
        yield from self._left_alone(to_the_end=to_the_end)
        if self._notices.trouble:
            yield Troubled("source.notify", self._notices.trouble)
        yield from self._remember(0.0 if to_the_end else max(TIME_SECONDS, self._min_age))
        for key, why in self._lost.items():
            yield Gone(key, why)
        for key, found in self._known.items():
            if key not in self._lost and key not in gone:
                yield self._found(key, found)

    def _left_alone(self, *, to_the_end: bool) -> Iterator[Troubled]:
        """Tells what the last listing left out. A run to the end would end without it: raises BlockedError."""
        wanted = (
            (name, why) for name, why in self._store.refused.items() if not excluded_by(self._options.exclude, self._below(f"{name}x"))
        )
        refused = [(self._store.shown(name), why) for name, why in itertools.islice(wanted, REFUSED_SHOWN)]
        if refused and to_the_end:
            name, why = refused[0]
            raise BlockedError(f"{name} cannot be listed: {why}", "give this user the right to list it")
        yield from (Troubled(name, f"it cannot be listed, and what is in it is not read: {why}") for name, why in refused)

    def _begin_at_end(self) -> Iterator[Finding]:
        """Skips what is there: old objects by their time, those of the last day one by one.

        Only the store's times count, which have seconds at best, and which for an upload under way may be older than its end.
        """
        try:
            found = [(one.mtime_ms, id_of(key_of(one)), one.name) for one in self._store.listed(NameRange())]
        except OSError as error:
            raise self.failure(self._address, error) from None
        newest_ms = max((one[0] for one in found), default=-1)
        begun_ms = min(newest_ms, int(time.time() * 1000)) - BEGUN_SECONDS * 1000
        recent = [one for one in found if one[0] > begun_ms]
        for begin in range(0, len(recent), CHUNK_IDS):
            times, ids, names = zip(*recent[begin : begin + CHUNK_IDS], strict=True)
            yield from self._memory.add(ids, min(max(times), int(time.time() * 1000)), max(names))
        yield Remembered(_BEGUN, max(-1, begun_ms))

    def _trouble_of_cleanup(self) -> Troubled:
        words = f"{self._cleanup.left:,} objects more than are tried again could not be cleaned up, and stay as they are"
        return Troubled("source.cleanup", f"{words}: {self._cleanup.left_why}")

    def _found(self, key: str, found: ListedObject) -> Found:
        name, work, trouble = self._store.shown(found.name), json.dumps(found).encode(), self._cleanup.trouble.get(key, "")
        return Found(key, name=name, work=work, size=found.size, mtime_ms=found.mtime_ms, trouble=trouble)

    @staticmethod
    def failure(address: Address, error: OSError) -> RetriableError:
        """Returns why the store at an address cannot be listed, with a hint."""
        words = f"{address.shown} cannot be listed: {error.strerror}"
        if isinstance(error, FileNotFoundError):
            return BlockedError(words, "look at the name of the bucket or directory in source.uri; it is looked for again")
        if isinstance(error, PermissionError):
            return BlockedError(words, "give this user the right to list and read, or its environment other credentials")
        return RetriableError(words, "look at the network, and at endpoint_override, region and scheme in source.uri")

    def _forgotten(self, rows: Mapping[str, bool]) -> set[str]:
        """Returns keys whose row is no longer needed: the object is remembered, or gone."""
        for key in [key for key in self._lost if key not in rows]:
            del self._lost[key]
            self._drop(key)
        for key in self._cleanup.forget_all_but(rows):
            self._drop(key)
        self._left_out.intersection_update(rows)
        return {key for key, is_done in rows.items() if is_done and (key in self._cleanup.absent or id_of(key) in self._memory)}

    def _drop(self, key: str) -> None:
        found = self._known.pop(key, None)
        if found is not None and self._names.get(found.name) == key:
            del self._names[found.name]

    def _remember(self, age_seconds: float) -> Iterator[Finding]:
        """Remembers finished objects. A listing may have left out what was younger than `age_seconds` when it began."""
        there = self._left_out | (self._cleanup.finished() & self._known.keys())
        done = [key for key in there if id_of(key) not in self._memory][:CHUNK_IDS]
        if len(done) < REMEMBER_AT:
            yield from self._memory.joined(self._passes.full_since - age_seconds)
            return
        known = [self._known[key] for key in done if key in self._known]
        now_ms = int(time.time() * 1000)
        newest_ms = min(max(one.mtime_ms for one in known), now_ms) if len(known) == len(done) else now_ms
        yield from self._memory.add(map(id_of, done), newest_ms, max((one.name for one in known), default=""))

    def _check(self, rows: Mapping[str, bool], failing: Collection[str], begun_ms: int, *, to_the_end: bool) -> None:
        """Checks objects that could not be read: the next listing of them may be far, and a run to the end lists once."""
        now, min_age = time.monotonic(), self._min_age_in(to_the_end=to_the_end)
        self._checked_at = {key: self._checked_at.get(key, -math.inf) for key in failing if key not in self._lost}
        due = sorted((at, key) for key, at in self._checked_at.items() if now - at >= CHECK_SECONDS)
        self._checked_at.update({key: now for _, key in due[:CHECKS]})
        names = {key: self._known[key].name for _, key in due[:CHECKS]}
        found = self._look_at(names.values())
        for key, name in names.items():
            if name in found:  # otherwise its next read tells what is wrong
                one = found[name]
                if one is None:
                    self._lost[key] = _DELETED
                elif key_of(one) != key:
                    self._lost[key] = _REPLACED
                    if self._is_settled(one, min_age, begun_ms):  # else a listing meets it once nobody writes to it
                        self._meet(one, rows, begun_ms)

    def _min_age_in(self, *, to_the_end: bool) -> float:
        return 0.0 if to_the_end else self._min_age

    def _list(self, rows: Mapping[str, bool], failing: Collection[str], begun_ms: int, *, to_the_end: bool) -> None:
        waiting = sum(not rows.get(key, False) for key in self._known) - min(len(failing), FAILING_MOST)
        if waiting > WAITING_MOST // 2:
            return
        now = time.monotonic()
        min_age = self._min_age_in(to_the_end=to_the_end)
        old_ms = (time.time() - self._options.look_back) * 1000
        expires = now - FUTURE_SECONDS - 2 * self._options.relist
        if self._future and next(iter(self._future.values())).seen < expires:
            self._future = {key: one for key, one in self._future.items() if one.seen >= expires}
        one = self._passes.current(now, lists_behind=self._store.lists_behind, to_the_end=to_the_end)
        if self._options.notify is not None and not self._options.only_looks:
            self._receive(rows, begun_ms, now, min_age, waits=one is None)
        while one is not None:
            one.seen.intersection_update(self._known)  # keeps the set small
            for found in one.through(self._store.listed):
                if waiting >= WAITING_MOST:
                    return
                one.passed(found.name)
                self._passes.note(one, found.name, now, is_old=found.mtime_ms <= old_ms)
                known = len(self._known)
                if self.is_wanted(found.name) and self._is_settled(found, min_age, begun_ms) and (key := self._meet(found, rows, begun_ms)):
                    self._passes.saw(one, key)
                    waiting += len(self._known) > known and not rows.get(key, False)
            if one.is_through:
                self._complete(one, rows)
            else:
                self._passes.rest()
            one = self._passes.current(now, lists_behind=self._store.lists_behind, to_the_end=to_the_end)

    def _meet(self, found: ListedObject, rows: Mapping[str, bool], begun_ms: int) -> str:
        """Notes an object that exists and is wanted. Returns its key if it is a partition, "" if it was read before."""
        key = key_of(found)
        former = self._names.get(found.name, key)
        if former != key and not rows.get(former, False):
            self._lost[former] = _REPLACED
        if not (key in rows or key in self._known or self._is_new(key, found, begun_ms)):
            return ""
        self._known[key], self._names[found.name] = found, key
        self._lost.pop(key, None)
        return key

    def _receive(self, rows: Mapping[str, bool], begun_ms: int, now: float, min_age: float, *, waits: bool) -> None:
        """Takes messages of the queue. One is deleted once all its objects are saved; one whose objects cannot be looked at comes again."""
        told = self._notices.receive(self._store, lambda key: key in rows or key not in self._known, now, waits=waits)
        wanted = {one.receipt: [name for name in one.names if self.is_wanted(name)] for one in told}
        now_there = self._look_at(name for names in wanted.values() for name in names)
        for receipt, names in wanted.items():
            found = [now_there[name] for name in names if name in now_there]
            there = [one for one in found if one is not None]
            if len(found) == len(names) and all(self._is_settled(one, min_age, begun_ms) for one in there):
                self._notices.keep(receipt, {key for one in there if (key := self._meet(one, rows, begun_ms))})

    def _is_settled(self, found: ListedObject, min_age: float, begun_ms: int) -> bool:
        """Returns whether an object has not changed for `min_age` seconds: by its time, or by ours where its time lies in the future."""
        now_ms = time.time() * 1000
        if not min_age or found.mtime_ms <= now_ms - min_age * 1000:
            return True
        if found.mtime_ms <= now_ms:
            return False
        key = key_of(found)
        if key in self._known or not self._is_new(key, found, begun_ms):
            return True
        now = time.monotonic()
        first = self._future.pop(key, _Future(now, now)).first
        if now - first >= min_age:
            return True
        if len(self._future) < FUTURE_MOST:  # else it waits for its turn
            self._future[key] = _Future(first, now)
        return False

    def is_wanted(self, name: str) -> bool:
        """Returns whether the definition includes this name."""
        path = self._below(name)
        is_below = name.startswith(self._store.prefix) and not name.endswith("/")
        return is_below and bool(excluded_by(self._options.pattern, path)) and not excluded_by(self._options.exclude, path)

    def _below(self, name: str) -> str:
        return "/" + name.removeprefix(self._store.prefix)

    def _is_new(self, key: str, found: ListedObject, begun_ms: int) -> bool:
        was_read = id_of(key) in self._memory or self._memory.is_forgotten(found.name, found.mtime_ms)
        return not was_read and found.mtime_ms > begun_ms

    def _complete(self, one: ListingPass, rows: Mapping[str, bool]) -> None:
        """Ends a pass. Known objects in its range that it did not list are looked at one by one before they count as gone."""
        self._passes.complete(one, time.monotonic())
        unseen = {key: found.name for key, found in self._known.items() if key not in one.seen and one.covers(found.name)}
        if one.is_full:  # saved partitions that no listing has shown since the start
            unseen |= {key: self._name_in(self._paths[key]) for key in rows if key not in self._known}
        unseen = {key: name for key, name in unseen.items() if key not in self._lost and key not in self._cleanup.absent}
        now = self._look_at(name for name in unseen.values() if name)
        for key, name in unseen.items():
            found = now.get(name)
            if found is not None and key_of(found) == key:
                self._known[key], self._names[name] = found, key
            elif name and name not in now:
                continue
            elif rows.get(key, False):
                (self._cleanup.absent if name else self._left_out).add(key)
            else:
                self._lost[key] = _MISSING if not name else _DELETED if found is None else _REPLACED

    def _name_in(self, path: str) -> str:
        """Returns the name that was shown as `path`; "" if the definition no longer includes it."""
        prefix = self._store.shown(self._store.prefix)
        name = self._store.prefix + path.removeprefix(prefix)
        return name if path.startswith(prefix) and self.is_wanted(name) else ""

    def _look_at(self, names: Iterable[str]) -> dict[str, ListedObject | None]:
        """Returns the present state of each name, None for one that does not exist. Names that cannot be looked at are left out."""
        for name in set(names):
            self._pool.add(partial(self._now, name))
        self._pool.wait(math.inf)
        return dict(filter(None, self._pool.answers()))

    def _now(self, name: str) -> tuple[str, ListedObject | None] | None:
        try:
            return name, self._store.look(name)
        except OSError as error:
            return (name, None) if isinstance(error, FileNotFoundError) and error.errno != errno.ENODEV else None

    def open(self, stretch: Stretch) -> BlockFile:
        return self._store.open(ListedObject(*json.loads(stretch.work)))

    def committed(self, positions: Mapping[str, Any]) -> None:
        self._cleanup.deliver({key: one["damaged"] for key, one in positions.items() if key.startswith(KEY) and one["done"]})

    def close(self) -> None:
        """Drops cleanups that have not begun. Connections stay open for the process."""
        self._cleanup.close()
