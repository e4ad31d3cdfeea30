"""The id of the Kafka cluster that connectors send to, for clients that show it: asked once, and remembered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from copycat_agent import logs
from copycat_agent.errors import CopycatError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.probing import ClusterProbe

WAIT_SECONDS = 1.0
"""How long a client waits for it."""
AGAIN_SECONDS = 60.0
"""From a try that failed to the next one."""
_ASK_SECONDS = 10.0

_log = logs.get("api")


def asked(kafka: KafkaOptions) -> str:
    """The id that the cluster says. Raises CopycatError."""
    probe = ClusterProbe(kafka, time.monotonic() + _ASK_SECONDS)
    try:
        return probe.cluster_id()
    finally:
        probe.close()


class ClusterIds:
    """Asks in a thread of its own: a cluster that does not answer holds nobody up for long. Thread-safe."""

    def __init__(self, ask: Callable[[KafkaOptions], str] = asked) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._kafka: KafkaOptions | None = None
        self._id = ""
        self._begun = float("-inf")
        self._over = threading.Event()

    def of(self, kafka: KafkaOptions) -> str | None:
        """The id of this cluster, None while it is not known."""
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
