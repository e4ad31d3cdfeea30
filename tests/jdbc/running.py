"""Connectors that read tables of a database, of an agent that the tests of this directory share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from copycat_agent.api import AgentClient
from copycat_agent.cli.main import app
from copycat_agent.errors import CopycatError
from tests.rig.kafka import consume, create_topic, unique_topic
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from tests.rig.agent import AgentProcess

SECONDS = 240.0
"""For what arrives. The machine may be busy."""


class Running:
    """Connectors of an agent on a host of another zone than the database's; each has a topic of its own."""

    def __init__(self, agent: AgentProcess, group: str, where: dict[str, Any]) -> None:
        """`group`: begins the connectors' names, which the agent has once; `where`: options of each source, such as its URL."""
        self.agent = agent
        self._group = group
        self._where = where
        self.topics: dict[str, str] = {}

    def name(self, name: str) -> str:
        """What the agent calls a connector."""
        return f"{self._group}-{name}"

    def define(self, name: str, source: dict[str, Any], record: dict[str, Any] | None = None, **sections: Any) -> None:
        """A connector that is there from now on, or once the agent is started. `source`: what is not the same for all."""
        topic = self.topics.setdefault(name, create_topic(self.agent.bootstrap, unique_topic(name)))
        options = {"type": "jdbc", "poll_interval": "200ms", **self._where, **source}
        self.agent.define(self.name(name), {"source": options, "record": {"topic": topic, **(record or {})}, **sections})

    def start(self) -> None:
        """The agent runs."""
        if not self.agent.is_running:
            self.agent.start(env={"TZ": "Europe/Berlin"})

    def read(self, name: str, *tables: str, record: dict[str, Any] | None = None, **source: Any) -> None:
        """A connector that is there and runs from now on."""
        self.define(name, {**({"tables": list(tables)} if tables else {}), **source}, record)
        self.start()

    def forget(self) -> None:
        """None of these connectors is there any more: one that goes on looking for rows costs the others' time."""
        for name in self.topics:
            (self.agent.connectors_dir / f"{self.name(name)}.yaml").unlink(missing_ok=True)

    def raw(self, name: str, until: int | None = None) -> list[Any]:
        """The records of a connector, or dead letters, once they are so many."""
        try:
            return consume(self.agent.bootstrap, self.topics[name], "read_committed", until, SECONDS)
        except AssertionError as error:
            error.add_note(f"the log ends:\n{self.agent.log[-3000:]}")
            raise

    def rows(self, name: str, until: int | None = None) -> list[dict[str, Any]]:
        """The same, as JSON, with the key of those that have one."""
        found = self.raw(name, until)
        return [{**json.loads(one.value or b""), **({} if one.key is None else {"key of record": one.key.decode()})} for one in found]

    def state(self, name: str) -> tuple[str, str]:
        """As `copycat status` has it: state and reason; no state while nobody answers."""
        try:
            status = AgentClient(self.agent.state_dir / "agent.sock").get(f"/v1/connectors/{self.name(name)}")
        except CopycatError as error:  # an agent that is busy answers late, and one that starts not yet
            return "", str(error)
        return str(status["state"]), str(status["reason"])

    def is_told(self, name: str, state: str, *words: str) -> None:
        """Waits until people are told so."""

        def is_so() -> bool:
            now, why = self.state(name)
            return now == state and all(word in why for word in words)

        wait_until(is_so, SECONDS, lambda: f"{name}: {self.state(name)}; the log ends:\n{self.agent.log[-3000:]}")

    def losses(self, name: str) -> str:
        """What the ledger says of a connector."""
        command = ["losses", self.name(name), "--state-dir", str(self.agent.state_dir), "--format", "json"]
        return CliRunner().invoke(app, command, catch_exceptions=False).stdout
