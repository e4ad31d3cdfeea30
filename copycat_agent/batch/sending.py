"""Handing items to the producer: what is refused becomes a dead letter, is passed over, or stops the connector."""

from __future__ import annotations

from copycat_agent.batch.items import Item, Items, StopAt
from copycat_agent.batch.passing import count
from copycat_agent.batch.progress import Progress
from copycat_agent.errors import BlockedError, DataError, TimestampError
from copycat_agent.producer import Outgoing, Refused, TaskProducer

_TIMESTAMP = 6
"""Its place in a message, see `producer.Outgoing`."""


class Sender:
    """Sends the items of one batch. `refused` counts what Kafka or its client would not take.

    `refusals`: so many of the first messages are refused, for these reasons; Kafka has refused them in a transaction that was undone.
    """

    def __init__(self, producer: TaskProducer, items: Items) -> None:
        self._producer = producer
        self._items = items
        self.refused = 0
        self.refusals: list[DataError] = []

    def hand_over(self, progress: Progress, items: list[Item]) -> tuple[list[Item], StopAt | None]:
        """Send `items`; what is refused on the spot becomes a dead letter or is passed over. Returns the items as they went."""
        todo, stop = self._with_topics(items)
        done: list[Item] = []
        while todo:
            sending = [(index, message) for index, item in enumerate(todo) for message in _messages(item)]
            try:
                self._send([message for _, message in sending])
            except Refused as refused:
                index = sending[refused.sent][0]
                if refused.sent and sending[refused.sent - 1][0] == index:
                    self._producer.partly_sent(refused.reason)
                done += todo[:index]
                try:
                    replacement, stop_here = self._with_topics([self._instead(progress, todo[index], refused.reason)])
                except StopAt as found:
                    return done, found
                if stop_here:
                    return done, stop_here
                todo = [*replacement, *todo[index + 1 :]]
            else:
                return done + todo, stop
        return done, stop

    def _send(self, messages: list[Outgoing]) -> None:
        if self.refusals and messages:
            raise Refused(0, self.refusals.pop(0))
        self._producer.send_each(messages)

    def _with_topics(self, items: list[Item]) -> tuple[list[Item], StopAt | None]:
        """The items up to the first whose topic is missing or closed to this user, and that one as what stops here."""
        known: set[str] = set()
        for index, item in enumerate(items):
            for message in _messages(item):
                if message[0] not in known:
                    try:
                        self._producer.topics.partitions(message[0])
                    except BlockedError as error:
                        return items[:index], StopAt(item.row, error)
                    known.add(message[0])
        return items, None

    def _instead(self, progress: Progress, item: Item, reason: DataError) -> Item:
        if isinstance(reason, TimestampError) and not _has_timestamp(item):
            raise StopAt(item.row, BlockedError(reason.message, reason.hint))  # the clock is wrong, for every record there will be
        self.refused += 1
        if item.outcome == "dead_lettered":
            return self._items.smaller(progress, item, reason)
        return self._items.bad(progress, item, "send", reason)

    def deliver(self, progress: Progress, items: list[Item]) -> tuple[int, StopAt | None]:
        """Send and settle a group; a group with a refused record is sent once more, record by record.

        Returns how many items are settled, from the first on, and why the next one is not, when it stops the connector.
        """
        sent, stop = self.hand_over(progress, items)
        try:
            self._producer.settle()
        except DataError as refused:
            return self._deliver_singly(progress, sent, refused, stop)
        count(progress, sent)
        return len(sent), stop

    def _deliver_singly(self, progress: Progress, items: list[Item], refused: DataError, stop: StopAt | None) -> tuple[int, StopAt | None]:
        for index, item in enumerate(items):
            try:
                replacement = item if len(items) > 1 else self._instead(progress, item, refused)
            except StopAt as found:
                return index, found
            _, found_later = self.deliver(progress, [replacement])
            if found_later:
                return index, found_later
        return len(items), stop


def _messages(item: Item) -> tuple[Outgoing, ...]:
    """What is sent for it, in order."""
    return () if item.message is None else (item.message, *item.more)


def _has_timestamp(item: Item) -> bool:
    """Whether the record says its time itself. Else it is given one when it is sent."""
    return item.message is not None and len(item.message) > _TIMESTAMP and item.message[_TIMESTAMP] != 0
