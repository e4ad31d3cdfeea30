"""A file system that loses its power: what was not synced is lost, or kept, as the dice fall.

Within `Recording`, every name that is made or removed through `os` is noted, and every sync, which is not done: it takes time. `cut` makes
the directory that is found after a loss of power at any of these moments: a file that was not synced is empty, and in a directory only the
first few changes since its last sync are there.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, NamedTuple, Self
from unittest.mock import patch

DIRECTORY = 0


class Event(NamedTuple):
    """A name is now that of a file, by number, of a directory, or of nothing (None); or what has it is synced."""

    path: str
    what: int | None
    is_sync: bool = False


class Recording:
    """Of what is done below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.events: list[Event] = []
        self._contents: dict[int, bytes] = {}
        self._numbers: dict[int, int] = {}
        """Of files, by their inodes as they are now: an inode is used again."""
        self._count = 0
        fakes = {"link": self._link, "rename": self._rename, "unlink": self._unlink, "mkdir": self._mkdir, "fsync": self._fsync}
        self._real = {name: getattr(os, name) for name in fakes}
        self._patches = [patch.object(os, name, fake) for name, fake in fakes.items()]

    def __enter__(self) -> Self:
        for one in self._patches:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._patches:
            one.stop()

    def _number(self, inode: int) -> int:
        if inode not in self._numbers:
            self._count += 1
            self._numbers[inode] = self._count
        return self._numbers[inode]

    def _link(self, source: Any, to: Any, **more: Any) -> None:
        self._real["link"](source, to, **more)
        self.events.append(Event(os.fspath(to), self._number(Path(to).stat().st_ino)))

    def _rename(self, source: Any, to: Any, **more: Any) -> None:
        self._real["rename"](source, to, **more)
        info = Path(to).stat()
        what = DIRECTORY if Path(to).is_dir() else self._number(info.st_ino)
        self.events += [Event(os.fspath(source), None), Event(os.fspath(to), what)]

    def _unlink(self, path: Any, **more: Any) -> None:
        info = Path(path).stat() if Path(path).exists() else None
        self._real["unlink"](path, **more)
        if info is not None and info.st_nlink == 1:
            self._numbers.pop(info.st_ino, None)
        self.events.append(Event(os.fspath(path), None))

    def _mkdir(self, path: Any, *more: Any, **names: Any) -> None:
        self._real["mkdir"](path, *more, **names)
        self.events.append(Event(os.fspath(path), DIRECTORY))

    def _fsync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        number = DIRECTORY if path.is_dir() else self._number(os.fstat(fd).st_ino)
        if number:
            self._contents[number] = path.read_bytes()
        self.events.append(Event(str(path), number, is_sync=True))

    def cut(self, moment: int, rng: random.Random, to: Path) -> None:
        """Make the directory `to`, as it may be after a loss of power behind so many events."""
        synced: set[int | None] = set()
        there: dict[str, int | None] = {}
        waiting: dict[str, list[Event]] = {}
        for event in self.events[:moment]:
            if not event.is_sync:
                waiting.setdefault(event.path.rpartition("/")[0], []).append(event)
            elif event.what == DIRECTORY:
                there |= {one.path: one.what for one in waiting.pop(event.path, [])}
            else:
                synced.add(event.what)
        for events in waiting.values():
            there |= {one.path: one.what for one in events[: rng.randint(0, len(events))]}
        to.mkdir()
        made: dict[int, Path] = {}
        for path, what in sorted(there.items()):
            place = Path(to, path.removeprefix(f"{self._root}/"))
            if what is None or not place.parent.is_dir():
                continue
            if what == DIRECTORY:
                place.mkdir(exist_ok=True)
            elif what in made:
                place.hardlink_to(made[what])
            else:
                place.write_bytes(self._contents[what] if what in synced else b"")
                made[what] = place
