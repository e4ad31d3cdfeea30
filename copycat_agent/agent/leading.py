"""Which process is the agent, where several have its id: they stand by in a group, and one of them leads (`LeaderGroup`).

Who leads takes the agent's state over from Kafka (`StateTopic`), which also keeps out whoever led before, and is the agent until it ends or
another one leads. So a process that was stopped, or cut off, for a while can repeat records at worst, and save nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from copycat_agent import logs
from copycat_agent.backoff import Backoff
from copycat_agent.errors import FatalError, FencedError, RetriableError
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import ErrorsOptions
from copycat_agent.producer.leader_group import SESSION_SECONDS, LeaderGroup, group_of
from copycat_agent.producer.state_topic import StateTopic

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.options import KafkaOptions

WAIT_SECONDS = 2 * SESSION_SECONDS
"""How long a process that is not to stand by waits: longer than the group remembers one that was killed."""
STAND_BY = "start this one with --standby, to take over when that one is gone"
_LOOK_SECONDS = 0.2
_TELL_SECONDS = 30.0

_log = logs.get("agent")


class Leading:
    """This process as one of those with its id. Use as a context manager around the agent."""

    def __init__(self, kafka: KafkaOptions, agent_id: str, *, stopping: Callable[[], bool], tick: Callable[[str], None]) -> None:
        """`tick` is called about five times a second while this process waits, with what for. Raises FatalError without an address."""
        if not kafka.bootstrap_servers:
            words = f"agent {agent_id} keeps its state in Kafka, and no address is known"
            raise FatalError(words, "set kafka.bootstrap_servers in agent.yaml, or --bootstrap-servers")
        self.agent_id = agent_id
        self._kafka = kafka
        self._stopping = stopping
        self._tick = tick
        self._state = StateTopic(kafka, agent_id, stopping=stopping)
        self._group: LeaderGroup | None = None

    def begin(self, *, stands_by: bool) -> bool:
        """Wait until this process leads; False when it was asked to stop before.

        FatalError when another one leads and this one is not to stand by.
        """
        self._asked(self._state.ensure)
        if self._stopping():
            return False
        self._group = group = LeaderGroup(self._kafka, self._state.place.topic, group_of(self.agent_id))
        since, told_at = time.monotonic(), 0.0
        while not group.leads.wait(_LOOK_SECONDS):
            if self._stopping():
                return False
            now, trouble = time.monotonic(), group.trouble
            if trouble is None and not stands_by and now - since > WAIT_SECONDS:
                words = f"another process runs as agent {self.agent_id}"
                raise FatalError(words, f"{STAND_BY}; or give it another agent_id")
            if now - told_at > _TELL_SECONDS:
                told_at = now
                _log.info("stands by: another process leads, as far as is known", agent=self.agent_id, trouble=trouble or "")
            self._tick(f"stands by for agent {self.agent_id}")
        _log.info("leads from now on", agent=self.agent_id)
        return True

    def store(self, state_dir: Path, *, rebuild: bool) -> OffsetStore:
        """The agent's store as its state in Kafka says, which no other process can change from now on. Raises as `OffsetStore.open`."""
        found: list[OffsetStore] = []
        self._asked(lambda: found.append(OffsetStore.open_replicated(state_dir, self._state, self.agent_id, rebuild=rebuild)))
        if not found:
            raise FatalError("stopped before the state of this agent was read")
        return found[0]

    def check(self, store: OffsetStore) -> None:
        """Give the store up when another process leads. From any thread."""
        group = self._group
        if group is not None and group.deposed.is_set() and store.failure is None:
            _log.error("another process leads: this one ends", agent=self.agent_id)
            store.depose(f"agent {self.agent_id} runs elsewhere")

    def _asked(self, ask: Callable[[], object]) -> None:
        """Do it, again and again while Kafka does not answer, until it is done or this process is asked to stop."""
        pauses = Backoff(ErrorsOptions())
        while not self._stopping():
            try:
                ask()
            except FencedError as error:
                raise FatalError(f"another process has taken over agent {self.agent_id}: {error.message}", STAND_BY) from error
            except RetriableError as error:
                _log.warning(
                    "the state of this agent cannot be had from Kafka now, and is asked for again", agent=self.agent_id, error=error
                )
                end = time.monotonic() + pauses.failed(error)
                while time.monotonic() < end and not self._stopping():
                    self._tick(f"waits for Kafka: {error.message}")
                    time.sleep(_LOOK_SECONDS)
            else:
                return

    def leave(self) -> None:
        """Leave the group: another process that stands by leads at once. Once nothing is saved any more; what is left may take long."""
        group, self._group = self._group, None
        if group is not None:
            group.close()
            _log.info("leads no more", agent=self.agent_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """After the store is closed."""
        self.leave()
        self._state.close()
