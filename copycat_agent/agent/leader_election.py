"""Leader election: of several processes with one agent id, one leads and the others stand by in a consumer group (`LeaderGroup`).

The leader takes over the agent's state from Kafka (`StateTopic`), which fences the previous leader, and runs until it ends or another
process leads. So a process that was suspended or disconnected can repeat records at worst, but cannot save anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from copycat_agent import logs
from copycat_agent.backoff import Backoff
from copycat_agent.errors import FatalError, FencedError, RetriableError
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import ErrorsOptions, KafkaOptions
from copycat_agent.producer.leader_group import SESSION_SECONDS, LeaderGroup, group_of
from copycat_agent.producer.state_topic import StateTopic

WAIT_SECONDS = 2 * SESSION_SECONDS
"""How long a process without --standby waits to lead: longer than the group keeps a member that was killed."""
STAND_BY = "start this one with --standby, to take over when that one is gone"
_LOOK_SECONDS = 0.2
_TELL_SECONDS = 30.0

_log = logs.get("agent")


class StoppedError(Exception):
    """This process was asked to stop before it had the state of its agent."""


class LeaderElection:
    """Makes this process one of those with its agent id. Use as a context manager around the agent."""

    def __init__(self, kafka: KafkaOptions, agent_id: str, *, stopping: Callable[[], bool], tick: Callable[[str], None]) -> None:
        """`tick` gets the reason for a wait, about five times a second. Raises FatalError without bootstrap servers."""
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
        """Waits until this process leads. Returns False if it was asked to stop before that.

        Raises FatalError if another process leads and this one does not stand by.
        """
        self._asked(self._state.ensure)
        self._asked(self._join)
        group = self._group
        if group is None or self._stopping():
            return False
        since, told_at = time.monotonic(), 0.0
        while not group.leads.wait(_LOOK_SECONDS):
            if self._stopping():
                return False
            now, trouble = time.monotonic(), group.trouble
            if trouble is None and not stands_by and now - since > WAIT_SECONDS:
                raise FatalError(f"another process runs as agent {self.agent_id}", f"{STAND_BY}; or give it another agent_id")
            if now - told_at > _TELL_SECONDS:
                told_at = now
                _log.info("stands by: another process seems to lead", agent=self.agent_id, trouble=trouble or "")
            self._tick(f"stands by for agent {self.agent_id}")
        _log.info("leads from now on", agent=self.agent_id)
        return True

    def _join(self) -> None:
        self._group = LeaderGroup(self._kafka, self._state.place.topic, group_of(self.agent_id))

    def store(self, state_dir: Path, *, rebuild: bool) -> OffsetStore:
        """Returns the agent's store from its state in Kafka, which other processes cannot change any more.

        Raises as `OffsetStore.open`, and StoppedError.
        """
        found: list[OffsetStore] = []

        def take() -> None:
            if self._has_lost():  # taking over once more would end the process that leads now
                raise FencedError("it leads instead")
            found.append(OffsetStore.open_replicated(state_dir, self._state, self.agent_id, rebuild=rebuild))

        self._asked(take)
        if not found:
            raise StoppedError
        return found[0]

    def check(self, store: OffsetStore) -> None:
        """Deposes the store if another process leads. Thread-safe."""
        if self._has_lost() and store.failure is None:
            _log.error("another process leads: this one ends", agent=self.agent_id)
            store.mark_fenced(f"agent {self.agent_id} runs elsewhere")

    def _has_lost(self) -> bool:
        group = self._group
        return group is not None and group.lost_leadership.is_set()

    def _asked(self, ask: Callable[[], object]) -> None:
        """Calls `ask`, and retries while Kafka does not answer, until this process is asked to stop. Raises FatalError if fenced."""
        pauses = Backoff(ErrorsOptions())
        while not self._stopping():
            try:
                ask()
            except FencedError as error:
                raise FatalError(f"another process has taken over agent {self.agent_id}: {error.message}", STAND_BY) from error
            except RetriableError as error:
                _log.warning("the agent's state cannot be read from Kafka now; it is tried again", agent=self.agent_id, error=error)
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
        """Leaves the group, so that another process leads at once. Call it after the store is closed."""
        self.leave()
        self._state.close()
