"""Shared by commands that run parts of an agent: settings from options, agent.yaml and environment, and the end by a signal.

SIGTERM and SIGINT: the first asks to stop, the second exits at once. SIGHUP: reload. The signal handler raises nothing: KeyboardInterrupt
between two arbitrary instructions can leave a lock taken (Python's import lock was seen to be), and then the end of threads hangs for ever.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from copycat_agent.agent import AgentSettings
from copycat_agent.api.server import socket_path
from copycat_agent.cli import exits
from copycat_agent.cli.common_options import state_directory
from copycat_agent.definitions import find_agent_file, load_agent


def overrides(servers: str | None) -> dict[str, object]:
    """Returns what the command line sets over agent.yaml, by dotted option; None sets nothing."""
    return {"kafka.bootstrap_servers": tuple(one.strip() for one in servers.split(",") if one.strip()) if servers else None}


def resolve_settings(
    directory: Path, config: Path | None, state_dir: Path | None, servers: str | None, socket: Path | None = None
) -> AgentSettings:
    """Returns options of the command line over agent.yaml over the environment over defaults. Raises DefinitionError."""
    agent = load_agent(find_agent_file(directory, config), overrides(servers))
    kept_in = state_directory(state_dir, agent)
    return AgentSettings(agent, kept_in, socket_path(socket, agent.api.socket, kept_in))


_LOOK_SECONDS = 0.1


class StopSignals:
    """Stop and reload requests by signals. Installs the handlers when it is made, in the main thread."""

    def __init__(self, *, hangup_reloads: bool = False) -> None:
        """`hangup_reloads`: SIGHUP requests a reload; otherwise its handler is unchanged."""
        self.asked = False
        self.name = ""
        """The name of the first signal, "" if there was none."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._hangup = False
        if hangup_reloads:
            signal.signal(signal.SIGHUP, self._on_hangup)

    def reload_asked(self) -> bool:
        """Returns whether a reload was requested since the last call."""
        asked, self._hangup = self._hangup, False
        return asked

    def check(self) -> None:
        """Raises KeyboardInterrupt if a stop was requested: called where it is safe to leave."""
        if self.asked:
            raise KeyboardInterrupt

    def leave_behind(self, work: Callable[[], object]) -> None:
        """Does `work`, which may take minutes, and returns when it is done; raises what it raises.

        A stop that is requested meanwhile raises KeyboardInterrupt at once and leaves `work` behind, on a daemon thread.
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
