"""Hands the current Spark session to threads that need one. A session ends with its JVM, and another follows."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from copycat_agent.errors import FatalError, RetriableError

if TYPE_CHECKING:
    from pyspark import SparkContext

    from copycat_agent.spark.jvm import Jvm

State = Literal["new", "starting", "running", "failed", "closed"]


@dataclass(frozen=True, slots=True)
class Session:
    """A session of one JVM. `context` raises py4j's errors once the JVM has ended; `number` grows by one with each session."""

    number: int
    context: SparkContext
    jvm: Jvm


class CurrentSession:
    """Holds the current session, None between two sessions. Thread-safe.

    `count` is the number of sessions so far; `failure` says why there will be no more.
    """

    def __init__(self) -> None:
        self.state: State = "new"
        self.failure: FatalError | None = None
        self.count = 0
        self._session: Session | None = None
        self._changed = threading.Condition()

    def wait(self, seconds: float | None) -> Session:
        """Returns the session as soon as there is one. Raises RetriableError after `seconds`, or if it is closed; raises `failure`."""
        with self._changed:
            self._changed.wait_for(lambda: self._alive() or self.state in {"failed", "closed"}, seconds)
            if self.failure:
                raise self.failure
            if self._session is None or not self._alive():
                raise RetriableError("the Spark session is closed" if self.state == "closed" else "the Spark session is not up")
            return self._session

    def _alive(self) -> bool:
        return self._session is not None and self._session.jvm.runs()

    def starts(self) -> None:
        """Notes that there is no session, and the next one is starting."""
        with self._changed:
            self._session = None
            self.state = "closed" if self.state == "closed" else "starting"

    def is_up(self, session: Session) -> None:
        """Sets the current session. No effect once closed."""
        with self._changed:
            self.count = session.number
            if self.state != "closed":
                self._session, self.state = session, "running"
            self._changed.notify_all()

    def fail(self, failure: FatalError) -> None:
        """Notes that there will be no more sessions."""
        with self._changed:
            self.failure, self.state = failure, "failed"
            self._changed.notify_all()

    def close(self) -> Session | None:
        """Hands out no more sessions. Returns the last one, for its owner to end."""
        with self._changed:
            session, self._session, self.state = self._session, None, "closed"
            self._changed.notify_all()
            return session
