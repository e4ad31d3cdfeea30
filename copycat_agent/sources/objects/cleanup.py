"""Cleans up objects whose records are all delivered: deletes, moves or tags them, or leaves them."""

from __future__ import annotations

import errno
import itertools
import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from copycat_agent.sources.objects.blocks import ReplacedError
from copycat_agent.sources.objects.daemon_pool import DaemonPool
from copycat_agent.sources.objects.stores import ListedObject, Store, key_of

if TYPE_CHECKING:
    from copycat_agent.sources.objects.options import ObjectCleanup

UNDER_WAY_MOST = 1000
"""Most cleanups that are queued or under way."""
WAIT_SECONDS = 0.25
"""How long a look waits for cleanups: a slow store must not delay listings."""
FAILING_MOST = 1000
"""Most objects whose failed cleanup is repeated; each keeps a row in the store. Beyond that, the first are left as they are."""
_RETRY_SECONDS = (1.0, 300.0)


class Cleanup:
    """Cleans up delivered objects. Used by one thread; the requests run on a `DaemonPool`. All objects are identified by key.

    `absent` are those that the store no longer has. `trouble` says why cleanups failed, the oldest first; they are repeated. `left` counts
    objects that were given up because too many failed, `left_why` says why for the last; 0 again once nothing fails.
    """

    def __init__(self, options: ObjectCleanup) -> None:
        self._options = options
        self._pool: DaemonPool[tuple[str, str | None]] = DaemonPool()
        self._under_way: set[str] = set()
        self._delivered: set[str] = set()
        self._finished: set[str] = set()
        self._failures: dict[str, tuple[int, float]] = {}
        self.absent: set[str] = set()
        self.trouble: dict[str, str] = {}
        self.left = 0
        self.left_why = ""

    def deliver(self, done: Mapping[str, bool]) -> None:
        """Adds objects whose delivery is saved. Damaged ones (True) were delivered in part, and are left as they are."""
        self._delivered.update(done)
        self._finished.update(key for key, is_damaged in done.items() if is_damaged or self._options.policy == "none")

    def finished(self) -> set[str]:
        """Returns the delivered objects that stay in the store and need no further cleanup."""
        return self._finished - self.absent

    def forget_all_but(self, keys: Mapping[str, bool]) -> set[str]:
        """Forgets all objects but those that still have a row (`keys`). Returns the delivered ones that it has forgotten."""
        forgotten = self._delivered - keys.keys()
        for group in (self._delivered, self._finished, self.absent):
            group.intersection_update(keys)
        for key in forgotten:
            self._clear_trouble(key)
        return forgotten

    def run(self, store: Store, known: Mapping[str, ListedObject], now: float, *, to_the_end: bool) -> None:
        """Starts cleanups of delivered and known objects. `to_the_end`: waits for their end."""
        if self._options.policy == "none":
            return
        self._take_in(now)
        waiting = (self._delivered - self._finished - self.absent - self._under_way) & known.keys()
        due = (key for key in waiting if self._failures.get(key, (0, now))[1] <= now)
        chosen = list(itertools.islice(due, UNDER_WAY_MOST - len(self._under_way)))
        self._under_way.update(chosen)
        for key in chosen:
            self._pool.add(partial(self._clean_up, store, key, known[key]))
        self._pool.wait(math.inf if to_the_end else WAIT_SECONDS)
        self._take_in(now)

    def _clean_up(self, store: Store, key: str, found: ListedObject) -> tuple[str, str | None]:
        return key, self._failure_of(store, key, found)

    def _failure_of(self, store: Store, key: str, found: ListedObject) -> str | None:
        """Cleans up one object, on a thread of the pool. Returns why it failed, "" if the object still exists, None if it does not.

        An object that was replaced meanwhile is left alone.
        """
        try:
            if key_of(store.look(found.name)) != key:
                return None
            if self._options.policy == "tag":
                store.tag(found.name, *self._options.tag.split("=", 1))
                return ""
            if self._options.to is not None:
                store.copy(found, _target(store, found, self._options.to))
            store.delete(found)
        except ReplacedError:
            return None
        except OSError as error:
            if isinstance(error, FileNotFoundError) and error.errno != errno.ENODEV:
                return None
            return f"it is delivered, and cleanup.policy {self._options.policy} failed: {error.strerror}"
        return None

    def _take_in(self, now: float) -> None:
        for key, why in self._pool.answers():
            self._under_way.discard(key)
            if why:
                failures, _ = self._failures.get(key, (0, now))
                self._failures[key] = failures + 1, now + min(_RETRY_SECONDS[0] * 2**failures, _RETRY_SECONDS[1])
                self.trouble[key] = why
            else:
                (self.absent if why is None else self._finished).add(key)
                self._clear_trouble(key)
        for key in [*itertools.islice(self.trouble, max(0, len(self.trouble) - FAILING_MOST))]:
            self.left, self.left_why = self.left + 1, self.trouble[key]
            self._finished.add(key)
            self._clear_trouble(key)
        if not self.trouble:
            self.left = 0

    def _clear_trouble(self, key: str) -> None:
        self._failures.pop(key, None)
        self.trouble.pop(key, None)

    def close(self) -> None:
        """Drops cleanups that have not begun."""
        self._pool.close()


def _target(store: Store, found: ListedObject, directory: str) -> str:
    """Returns the name to move an object to. An existing object there is overwritten only if it is a copy, of a move that was killed."""
    name = store.name_at(f"{directory.rstrip('/')}/{found.name.removeprefix(store.prefix)}")
    try:
        there = store.look(name, is_certain=False)
    except FileNotFoundError:
        return name
    is_same = (there.size, there.version) == (found.size, found.version)
    return name if is_same else f"{name}.{key_of(found)[-8:]}"
