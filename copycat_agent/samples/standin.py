"""What stands in for producers where nothing is sent: it takes what would be, and keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from copycat_agent.errors import DataError
from copycat_agent.model import TaskId
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import Intact, Message, Place, Producers, TaskProducer

_RUN_BYTES = 2**20
"""What is taken comes in runs of this size, once the pipeline has settled them."""


class StandIn(TaskProducer):
    """Stands in for a task's producer. `kept` is what would have been sent, in order."""

    def __init__(self) -> None:
        self.kept: list[Message] = []
        self.topics = cast("Any", _AnyTopic())
        self.broken = False
        self.batch_bytes = self.next_batch_bytes = 0

    def begin(self, stopping: Callable[[], bool]) -> None:
        """See `TaskProducer.begin`."""
        del stopping

    def attribute(self, place: Place) -> None:
        """See `TaskProducer.attribute`: nothing comes to lie anywhere."""

    def send(self, topic: str, values: list[bytes], tail: Message) -> None:
        """See `TaskProducer.send`."""
        self.send_each((topic, value, *tail) for value in values)

    def send_each(self, messages: Iterable[Message]) -> None:
        """See `TaskProducer.send_each`."""
        self.kept += messages

    def settle(self) -> None:
        """See `TaskProducer.settle`: all has arrived, as far as the pipeline is concerned."""

    @property
    def run_bytes(self) -> int:
        """See `TaskProducer.run_bytes`."""
        return _RUN_BYTES

    def weigh(self, size_bytes: int) -> None:
        """See `TaskProducer.weigh`."""

    def may_send(self, source: Intact, end: int) -> bool:
        """See `TaskProducer.may_send`."""
        del source, end
        return True

    def partly_sent(self, reason: DataError) -> None:
        """See `TaskProducer.partly_sent`."""

    def smaller_batches(self) -> None:
        """See `TaskProducer.smaller_batches`."""

    def take_view(self) -> None:
        """See `TaskProducer.take_view`."""

    def attend(self) -> None:
        """See `TaskProducer.attend`."""

    def close(self) -> None:
        """See `TaskProducer.close`."""


class StandIns(Producers):
    """Hands out what `make(connector)` makes instead of producers, anew for each batch."""

    def __init__(self, make: Callable[[str], TaskProducer]) -> None:
        super().__init__()
        self._make = make

    def take(self, task: TaskId, options: KafkaOptions, *, tracked: bool = False) -> TaskProducer:
        """See `Producers.take`."""
        del options, tracked
        return self._make(task.connector)

    def give_back(self, task: TaskId, options: KafkaOptions, producer: TaskProducer) -> None:
        """See `Producers.give_back`."""


class _AnyTopic:
    """Every topic is there, as far as anyone can tell without Kafka."""

    def partitions(self, topic: str) -> int:
        """One, so that no record is held back."""
        del topic
        return 1
