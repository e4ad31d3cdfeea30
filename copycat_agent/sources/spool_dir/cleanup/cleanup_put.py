"""Putting files into a target: by a new name, or by a copy on another device."""

from __future__ import annotations

import os
from collections.abc import Callable

from copycat_agent.sources.spool_dir.cleanup.cleanup_copy import Copies
from copycat_agent.sources.spool_dir.cleanup.cleanup_folders import Folder, Unsynced, folder
from copycat_agent.sources.spool_dir.cleanup.cleanup_moves import Item, free_name, item_at, move
from copycat_agent.sources.spool_dir.cleanup.retain import Retention


class Put:
    """Puts files into `goal`, the directory `rest` below the target `root`, and remembers what, when it is to be deleted one day."""

    def __init__(self, root: Folder, rest: str, goal: Folder, retention: Retention | None, copies: Copies) -> None:
        self.root = root
        self.goal = goal
        self._rest = rest
        self._retention = retention
        self._copies = copies

    def file(self, home: Folder, item: Item, choose: Callable[[], str]) -> str:
        """Returns its name there. Raises KeptError while a copy goes on, ChangedError, OSError."""
        copied = home.mount != self.goal.mount

        def chosen() -> str:
            name = choose()
            held = self.root.look(self._copies.part_name(item)) if copied else home.look(item.name)
            self.note(name, held)
            return name

        return self._copies.carry(home, item, self.root, self.goal, chosen) if copied else move(home, item, self.goal, chosen)

    def done_file(self, path: str, unsynced: Unsynced) -> None:
        """A done file, at once; "" is none. Raises KeptError, OSError."""
        if found := _done_folder(path):
            with found[0] as home:
                if item := item_at(home, found[1]):
                    unsynced.add(home)
                    self._mark(home, item)

    def _mark(self, home: Folder, item: Item) -> None:

        def chosen() -> str:
            name = free_name(self.goal, item.name)
            self.note(name, self.root.look(self._copies.part_name(item)) if copied else home.look(item.name))
            return name

        copied = home.mount != self.goal.mount
        if copied:
            self._copies.carry_mark(home, item, self.root, self.goal, chosen)
        else:
            move(home, item, self.goal, chosen)

    def note(self, name: str, info: os.stat_result | None = None) -> None:
        """What is about to get this name, or has it, is ours to delete after `retain`."""
        info = info or self.goal.look(name)
        if self._retention is not None and info is not None:
            path = f"{self._rest}/{name}" if self._rest else name
            self._retention.note(self.root, path, (info.st_ino, info.st_size, info.st_mtime_ns))


def remove_done_file(path: str, unsynced: Unsynced) -> None:
    """Delete a done file; "" is none. Raises OSError."""
    if found := _done_folder(path):
        with found[0] as home:
            if item_at(home, found[1]):
                unsynced.add(home)
                home.remove(found[1])


def _done_folder(path: str) -> tuple[Folder, str] | None:
    """Where a done file is."""
    above, _, name = path.rpartition("/")
    try:
        return (folder(above or "/"), name) if name else None
    except FileNotFoundError:
        return None
