"""What becomes of objects that are delivered: they stay, are deleted, moved, or get a tag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from copycat_agent.sources.objects.stores import Listed, key_of

if TYPE_CHECKING:
    from copycat_agent.sources.objects.options import ObjectCleanup
    from copycat_agent.sources.objects.stores import Store


class Cleanup:
    """By key. `absent`: the store has them no more. `trouble`: why it failed; it is tried again at each look."""

    def __init__(self, options: ObjectCleanup) -> None:
        self._options = options
        self._delivered: set[str] = set()
        self._tagged: set[str] = set()
        self._damaged: set[str] = set()
        self.absent: set[str] = set()
        self.trouble: dict[str, str] = {}

    def deliver(self, keys: Iterable[str], damaged: Iterable[str]) -> None:
        """All records of these are delivered, and that is saved. Of the `damaged` ones as many as could be read: they stay as they are."""
        self._damaged.update(damaged)
        self._delivered.update(keys, self._damaged)

    def finished(self) -> set[str]:
        """Those that are delivered, stay, and with which nothing more is to be done."""
        policy = self._options.policy
        return (self._delivered if policy == "none" else self._tagged | self._damaged) - self.absent

    def forget_all_but(self, keys: Mapping[str, bool]) -> set[str]:
        """Returns the delivered ones that are forgotten: nothing is saved of them any more."""
        forgotten = self._delivered - keys.keys()
        for group in (self._delivered, self._tagged, self._damaged, self.absent):
            group.intersection_update(keys)
        for key in forgotten:
            self.trouble.pop(key, None)
        return forgotten

    def run(self, store: Store, known: Mapping[str, Listed]) -> None:
        """Do what is to be done with each that is delivered, and known. An object that was replaced meanwhile is left alone."""
        if self._options.policy == "none":
            return
        for key in (self._delivered - self.absent - self._tagged - self._damaged) & known.keys():
            found = known[key]
            try:
                is_there = key_of(store.look(found.name)) == key
                if is_there:
                    self._do(store, found)
                (self._tagged if is_there and self._options.policy == "tag" else self.absent).add(key)
                self.trouble.pop(key, None)
            except FileNotFoundError:
                self.absent.add(key)
            except OSError as error:
                self.trouble[key] = f"it is delivered, and cleanup.policy {self._options.policy} failed: {error.strerror}"

    def _do(self, store: Store, found: Listed) -> None:
        if self._options.policy == "tag":
            store.tag(found.name, *self._options.tag.split("=", 1))
            return
        if self._options.to is not None:
            store.copy(found.name, _target(store, found, self._options.to))
        store.delete(found.name)


def _target(store: Store, found: Listed, directory: str) -> str:
    """Where it is moved to. What is there already is overwritten only by its like: a move that was killed in the middle."""
    name = store.name_at(f"{directory.rstrip('/')}/{found.name.removeprefix(store.prefix)}")
    try:
        there = store.look(name)
    except FileNotFoundError:
        return name
    is_same = (there.size, there.version) == (found.size, found.version)
    return name if is_same else f"{name}.{key_of(found)[-8:]}"
