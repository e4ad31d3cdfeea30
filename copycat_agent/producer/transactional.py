"""The steps of a lane on a real broker: `transactions` says which, in which order, and why."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from copycat_agent.model import ClientView, Place
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.lane_producer import LaneProducer
from copycat_agent.producer.pace import Pace
from copycat_agent.producer.positions import Positions
from copycat_agent.producer.shared import Shared
from copycat_agent.transactions.protocol import Entry


class KafkaSteps(Positions):
    """`transactions.protocol.Steps` on a Kafka cluster, for one task, or for the opening of a connector. One user at a time."""

    def __init__(
        self, options: KafkaOptions, client_id: str, *, tracked: bool = False, batch_bytes: int = 0, pace: Pace | None = None,
        stopping: Callable[[], bool] = lambda: False
    ) -> None:  # fmt: skip
        """`tracked`, `batch_bytes` and `pace` are those of `TaskProducer`. `stopping` ends a wait for other transactions."""
        super().__init__(options, client_id, stopping)
        self._shared = Shared(tracked, batch_bytes, pace or Pace(), stopping)
        self._lock = threading.Lock()
        self._live: set[LaneProducer] = set()

    def prepare(self, transactional_id: str) -> LaneProducer:
        """See `Steps`."""
        handle = LaneProducer(self.options, self.client_id, transactional_id, self._shared)
        with self._lock:
            self._live.add(handle)
        return handle

    def ready(self, handle: LaneProducer) -> None:
        """See `Steps`."""
        handle.ready()

    def begin(self, handle: LaneProducer) -> None:
        """See `Steps`."""
        handle.begin_transaction()

    def send(self, handle: LaneProducer, place: Place, entries: Sequence[Entry]) -> None:
        """See `Steps`."""
        handle.send_entries(place, entries)

    def flush(self, handle: LaneProducer) -> None:
        """See `Steps`."""
        handle.settle_entries()

    def commit(self, handle: LaneProducer) -> None:
        """See `Steps`."""
        handle.commit()
        self.rest()

    def close(self, handle: LaneProducer | None = None) -> None:
        """See `Steps`. Without a handle: free everything that is left."""
        with self._lock:
            leaving = [handle] if handle is not None else list(self._live)
            self._live.difference_update(leaving)
        for one in leaving:
            one.close()
        if handle is None:
            self.free()

    @property
    def transaction_seconds(self) -> float:
        """After this time without an end the cluster aborts a transaction."""
        return self._shared.timeout_ms / 1000

    def attend(self) -> None:
        """Take in what idle producers have to say: it would pile up. From any thread; never blocks."""
        with self._lock:
            live = list(self._live)
        for one in live:
            one.attend()

    def take_view(self) -> ClientView | None:
        """The latest word of any producer on itself, as `TaskProducer.take_view`."""
        with self._lock:
            views = [view for one in self._live if (view := one.take_view()) is not None]
        return max(views, key=lambda view: view.at, default=None)
