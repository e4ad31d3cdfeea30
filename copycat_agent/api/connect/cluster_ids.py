"""Looks up the id of the Kafka cluster that connectors send to, once, for clients that show it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from copycat_agent import logs
from copycat_agent.errors import CopycatError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.probing import ClusterProbe

WAIT_SECONDS = 1.0
"""How long a request waits for the id."""
AGAIN_SECONDS = 60.0
"""Wait between a failed attempt and the next."""
_ASK_SECONDS = 10.0
"""Time limit of an attempt."""

_log = logs.get("api")


def asked(kafka: KafkaOptions) -> str:
    """Asks the cluster for its id. Raises CopycatError."""
    probe = ClusterProbe(kafka, time.monotonic() + _ASK_SECONDS)
    try:
        return probe.cluster_id()
    finally:
        probe.close()


class ClusterIds:
    """Asks on a thread of its own, so that a cluster that does not answer delays no request for long. Thread-safe."""

    def __init__(self, ask: Callable[[KafkaOptions], str] = asked) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._kafka: KafkaOptions | None = None
        self._id = ""
        self._begun = float("-inf")
        self._over = threading.Event()

    def of(self, kafka: KafkaOptions) -> str | None:
        """Returns the id of this cluster, None while it is not known."""
        with self._lock:
            is_known = self._id and kafka == self._kafka
            if not is_known and (kafka != self._kafka or (self._over.is_set() and time.monotonic() - self._begun > AGAIN_SECONDS)):
                self._kafka, self._id, self._begun, self._over = kafka, "", time.monotonic(), threading.Event()
                threading.Thread(target=self._find, args=(kafka, self._over), name="api-cluster", daemon=True).start()
            over = self._over
        over.wait(WAIT_SECONDS)
        return self._id or None

    def _find(self, kafka: KafkaOptions, over: threading.Event) -> None:
        try:
            found = self._ask(kafka)
            with self._lock:
                if kafka is self._kafka:
                    self._id = found
        except CopycatError as error:
            _log.debug("which Kafka cluster this is cannot be asked now", error=error)
        finally:
            over.set()
