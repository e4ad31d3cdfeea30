"""Finds mounts that hang and holds the connectors that touch them, so that a dead file server does not take a thread for each of them.

No mount is asked while every step is quick. Once a step takes long, a thread asks the mounts that its connector touches, one after the
other, and marks each while it waits for it: a mount that stays marked hangs. No mount is asked twice at a time, so each hanging mount keeps
only one asking thread. The question is `statvfs`, which goes to the server on FUSE, NFS and CIFS; an answer from a cache would not do.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from copycat_agent import logs
from copycat_agent.mountinfo import mounts
from copycat_agent.sources.files.paths.matching import is_wild, name_regex, split_pattern

HUNG_SECONDS = 2.0
"""A mount that has not answered for this long is logged, and its connectors are BLOCKED. They are held as soon as it is asked."""
LINKS_MAX = 40
"""How many links a path may lead through, as in the kernel."""

_log = logs.get("mounts")


@dataclass(eq=False, slots=True)
class ConnectorMounts:
    """The mounts of a connector: patterns of all absolute paths that it touches, and the mount that was last asked for it."""

    patterns: tuple[str, ...] = ()
    mount: str = ""


@dataclass(eq=False, frozen=True, slots=True)
class MountWait:
    """A mount that is being asked: its id in the kernel, and since when (`time.monotonic()`)."""

    mount_id: str
    since: float


class Mounts:
    """Keeps track of the mounts that do not answer. Thread-safe."""

    def __init__(self, on_answer: Callable[[str], None] = lambda _: None) -> None:
        """`on_answer` is called with a mount that is no longer waited for, from a thread of this class."""
        self._on_answer = on_answer
        self._lock = threading.Lock()
        self.waited: dict[str, MountWait] = {}
        """Mounts that are being asked, by mount point: nearly always empty. Read by other threads."""
        self._reported: set[str] = set()
        self._points: Mapping[str, str] = {}

    def ask(self, users: Iterable[ConnectorMounts]) -> None:
        """Asks the mounts that these connectors touch, on a new thread. Returns at once; asks nothing if no thread can be started.

        Mounts that were asked before and are gone, or covered by another mount, are no longer waited for.
        """
        with suppress(RuntimeError, MemoryError):
            threading.Thread(target=self._ask, args=(tuple(users),), name="mounts", daemon=True).start()

    def waited_for(self, user: ConnectorMounts) -> str:
        """Returns a mount that the connector touches and that has not answered yet, "" when there is none.

        Called by the thread that is about to run the connector's step: it reads links, and may hang as the step would.
        """
        mount = next((one for one in _way(user, self._points) if one in self.waited), "")
        user.mount = mount or user.mount
        return mount

    def hung_seconds(self, user: ConnectorMounts) -> float:
        """Returns for how long the connector's mount has not answered; 0 when it answers, or for less than `HUNG_SECONDS`."""
        asked = self.waited.get(user.mount)
        seconds = 0.0 if asked is None else time.monotonic() - asked.since
        return seconds if seconds > HUNG_SECONDS else 0.0

    def _ask(self, users: Sequence[ConnectorMounts]) -> None:
        """Asks the mounts of each connector, one after the other. Runs on its own thread."""
        self._tell()
        self._points = mount_points()
        for mount, asked in list(self.waited.items()):
            if self._points.get(mount) != asked.mount_id:
                self._leave(mount, asked, "mount is gone, or another one is in its place")
        for user in users:
            self._go(user)

    def _go(self, user: ConnectorMounts) -> None:
        """Asks the mounts of one connector. The next one is asked only when the one before has answered."""
        mount, asked = "", None
        try:
            for following in _way(user, self._points):
                self._leave(mount, asked)
                mount, asked = following, None
                if user.mount not in self.waited:
                    user.mount = mount
                with self._lock:
                    if mount in self.waited:
                        return
                    asked = self.waited[mount] = MountWait(self._points.get(mount, ""), time.monotonic())
                with suppress(OSError, ValueError):  # an error is an answer, too
                    os.statvfs(mount)
        finally:
            self._leave(mount, asked)

    def _leave(self, mount: str, asked: MountWait | None, event: str = "mount answers again") -> None:
        """Stops waiting for a mount, unless that was given up before, or another thread asks it."""
        with self._lock:
            if asked is None or self.waited.get(mount) is not asked:
                return
            del self.waited[mount]
            was_reported = mount in self._reported
            self._reported.discard(mount)
        if was_reported:
            _log.info(event, mount=mount, after_s=round(time.monotonic() - asked.since))
        self._on_answer(mount)

    def _tell(self) -> None:
        """Logs once of each mount that it hangs."""
        now = time.monotonic()
        with self._lock:
            new = [mount for mount, asked in self.waited.items() if now - asked.since > HUNG_SECONDS and mount not in self._reported]
            self._reported.update(new)
        for mount in new:
            hint = "see to its server (dmesg, mount); connectors that read from it are held and go on by themselves, the others go on"
            _log.warning("mount does not answer", mount=mount, hint=hint)


def mount_points(text: str | None = None) -> dict[str, str]:
    """Returns the id of the topmost mount at each mount point; only `/` if the kernel does not tell. `text`: see `mountinfo.mounts`."""
    return {"/": "", **{mount.point: mount.id for mount in mounts(text)}}


def _way(user: ConnectorMounts, points: Collection[str]) -> Iterator[str]:
    return chain.from_iterable(touched(pattern, points) for pattern in user.patterns)


def touched(pattern: str, points: Collection[str]) -> Iterator[str]:
    """Yields each mount, of those in `points`, that a search for the pattern's files enters.

    Links among its names without a wildcard are followed. Nothing in a mount is touched before it was yielded and the next is asked for.
    """
    root, levels = split_pattern(pattern)
    names = [*root.split("/")[1:], *([levels[0]] if len(levels) == 1 and not is_wild(levels[0]) else [])]
    todo, here, links = names[::-1], "/", 0
    yield "/"
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - a path that is text, not to be looked at
            continue
        above, here = here, f"{here.rstrip('/')}/{name}"
        if here in points:
            yield here
        elif links < LINKS_MAX and (target := _link(here)):
            links += 1
            todo += target.split("/")[::-1]
            here = "/" if target.startswith("/") else above
    inside = here.rstrip("/") + "/"
    for point in points:
        if point.startswith(inside) and point != "/" and _leads_to(levels, point.removeprefix(inside).split("/")):
            yield point


def _link(path: str) -> str:
    """Returns the target of a link, "" for anything else."""
    try:
        return os.readlink(path)  # noqa: PTH115 - as text
    except (OSError, ValueError):  # or no name that the kernel takes
        return ""


def _leads_to(levels: Sequence[str], names: Sequence[str]) -> bool:
    """Returns whether a search for a pattern's levels enters the directory with these names."""
    if not names or not levels:
        return not names
    if levels[0] == "**":
        return _leads_to(levels[1:], names) or _leads_to(levels, names[1:])
    return name_regex(levels[0]).match(names[0]) is not None and _leads_to(levels[1:], names[1:])
