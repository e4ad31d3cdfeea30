"""What commands that run parts of an agent share: settings out of options, agent.yaml and environment, and the end by a signal.

SIGTERM and SIGINT: the first asks to stop, the second exits at once. SIGHUP: reload. Nothing is raised out of the signal handler:
KeyboardInterrupt between two arbitrary instructions can leave a lock taken (Python's import lock was seen to be), and whoever ends
threads afterwards waits for ever.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from copycat_agent.agent import Settings
from copycat_agent.api.server import socket_path
from copycat_agent.cli import exits
from copycat_agent.cli.common_options import state_directory
from copycat_agent.definitions import find_agent_file, load_agent


def overrides(servers: str | None) -> dict[str, object]:
    """What the command line says over agent.yaml, by dotted option; None says nothing."""
    return {"kafka.bootstrap_servers": tuple(one.strip() for one in servers.split(",") if one.strip()) if servers else None}


def resolve_settings(
    directory: Path, config: Path | None, state_dir: Path | None, servers: str | None, socket: Path | None = None
) -> Settings:
    """Options of the command line over agent.yaml over the environment over defaults. Raises DefinitionError."""
    agent = load_agent(find_agent_file(directory, config), overrides(servers))
    kept_in = state_directory(state_dir, agent)
    return Settings(agent, kept_in, socket_path(socket, agent.api.socket, kept_in))


_LOOK_SECONDS = 0.1


class Stopping:
    """Installs the handlers when it is made, in the main thread."""

    def __init__(self, *, hangup_reloads: bool = False) -> None:
        """`hangup_reloads`: SIGHUP asks to reload; otherwise it is left as it is."""
        self.asked = False
        self.name = ""
        """Of the first signal, "" when there was none."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._hangup = False
        if hangup_reloads:
            signal.signal(signal.SIGHUP, self._on_hangup)

    def reload_asked(self) -> bool:
        """Whether a reload was asked for since the last call."""
        asked, self._hangup = self._hangup, False
        return asked

    def check(self) -> None:
        """Raise KeyboardInterrupt when a stop was asked for: called where it is safe to leave."""
        if self.asked:
            raise KeyboardInterrupt

    def leave_behind(self, work: Callable[[], object]) -> None:
        """Do `work`, which may take minutes, and return when it is done; raises what it raises.

        A stop that is asked for meanwhile raises KeyboardInterrupt at once and leaves `work` behind, on a daemon thread.
        """
        problems: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as problem:  # noqa: BLE001 - raised below
                problems.append(problem)

        thread = threading.Thread(target=run, name="left-behind", daemon=True)
        thread.start()
        while thread.is_alive():
            self.check()
            thread.join(_LOOK_SECONDS)
        if problems:
            raise problems[0]

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.asked:
            os._exit(exits.INTERRUPTED if number == signal.SIGINT else 128 + number)
        self.asked, self.name = True, signal.Signals(number).name

    def _on_hangup(self, _number: int, _frame: object) -> None:
        self._hangup = True
