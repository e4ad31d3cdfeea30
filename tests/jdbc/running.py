"""An agent that reads tables of a database for many tests."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.rig.agent import AgentProcess
from tests.rig.kafka import consume, create_topic, unique_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = 240.0
"""For what arrives. The machine may be busy."""


class Running:
    """An agent on a host of another zone than the database's; each connector of it has a topic of its own."""

    def __init__(self, root: Path, bootstrap: str, where: dict[str, Any]) -> None:
        """`where`: options of each source, such as its URL."""
        self.agent = AgentProcess(root, bootstrap)
        self._where = where
        self.topics: dict[str, str] = {}

    def read(self, name: str, *tables: str, record: dict[str, Any] | None = None, **source: Any) -> None:
        """A connector that is there from now on."""
        self.topics[name] = create_topic(self.agent.bootstrap, unique_topic())
        chosen = {"tables": list(tables)} if tables else {}
        options = {"type": "jdbc", **self._where, **chosen, "poll_interval": "200ms", **source}
        self.agent.define(name, {"source": options, "record": {"topic": self.topics[name], **(record or {})}})
        if not self.agent.is_running:
            self.agent.start(env={"TZ": "Europe/Berlin"})

    def forget(self) -> None:
        """No connector is there any more: one that goes on looking for rows costs the others' time."""
        for path in self.agent.connectors_dir.glob("*.yaml"):
            path.unlink()

    def rows(self, name: str, until: int | Callable[[list[dict[str, Any]]], bool] | None = None) -> list[dict[str, Any]]:
        """What has arrived of a connector, once it is so much, or enough for `until`."""
        wanted = (
            until if until is None or isinstance(until, int) else (lambda found: until([json.loads(one.value or b"") for one in found]))
        )
        try:
            found = consume(self.agent.bootstrap, self.topics[name], "read_committed", wanted, SECONDS)
        except AssertionError as error:
            error.add_note(f"the log ends:\n{self.agent.log[-3000:]}")
            raise
        return [{**json.loads(one.value or b""), **({} if one.key is None else {"key of record": one.key.decode()})} for one in found]

    def losses(self) -> str:
        """What the ledger says."""
        command = [sys.executable, "-m", "copycat_agent", "losses", "--state-dir", str(self.agent.state_dir), "--format", "json"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
