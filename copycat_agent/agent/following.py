"""Follows the definitions: looks when something happens to their files, and every few seconds in any case."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.watch import Wake

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.agent.files import DefinitionFiles
    from copycat_agent.watch import Watcher

SCAN_SECONDS = 10.0
"""Between two looks without an event: events may be lost, and what is behind links and references causes none."""
QUIET_SECONDS = 0.3
"""So long nothing may happen before what is there is taken as it is: editors write in steps."""
UNQUIET_SECONDS = 2.0
"""Longest wait for that."""
_JOIN_SECONDS = 5.0

_log = logs.get("reload")


class Follower:
    """A thread. `reload` is called in it when something differs from what was seen last, or when somebody asks."""

    def __init__(self, files: DefinitionFiles, watcher: Watcher, reload: Callable[[], object], scan_seconds: float = SCAN_SECONDS) -> None:
        """`files` have been loaded before."""
        self._files = files
        self._watcher = watcher
        self._reload = reload
        self._scan_seconds = scan_seconds
        self._wake = Wake()
        self._asked = self._again = self._busy = False
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name="definitions", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self) -> None:
        """Reload soon, whatever the files look like. Returns at once."""
        self._asked = True
        self._wake.nudge()

    @property
    def reloading(self) -> bool:
        """Whether a reload that was asked for is not over yet, or another one is under way."""
        return self._asked or self._busy

    def close(self) -> None:
        """No reload begins from now on; waits a little for one under way."""
        self._closing = True
        self._wake.nudge()
        self._thread.join(_JOIN_SECONDS)
        self._watcher.unwatch(self._wake)

    def _follow(self) -> None:
        while not self._closing:
            self._watch()
            self._wait()
            if not self._closing:
                self._look()

    def _watch(self) -> None:
        """The directory, and that of agent.yaml when there is one."""
        directories = {self._files.directory, *([self._files.agent_file.parent] if self._files.agent_file else [])}
        self._watcher.watch(self._wake, [str(one.absolute()) for one in directories])

    def _wait(self) -> None:
        """Until an event and then some quiet, or the time of the next look."""
        self._wake.wait(self._scan_seconds)
        until = time.monotonic() + UNQUIET_SECONDS
        while self._happened() and not (self._asked or self._closing) and time.monotonic() < until:
            self._wake.wait(QUIET_SECONDS, deaf=True)

    def _happened(self) -> bool:
        grown, other = self._wake.take()
        return bool(grown) or other

    def _look(self) -> None:
        self._busy = True
        asked, again, self._asked, self._again = self._asked, self._again, False, False
        try:
            if asked or again or self._files.look() != self._files.seen:
                self._reload()
        except Exception as error:  # noqa: BLE001 - whatever it is, the definitions are to be followed
            self._again = True  # what is there has been seen, but does not run
            _log.error("definitions could not be reloaded, everything goes on as it was", error=error)
        finally:
            self._busy = False
