"""Handing chunks of records to the producer: as they are where only values differ, through the steps, or row by row."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from copycat_agent.batch.bound import Bound, Bulk
from copycat_agent.batch.fast import Shaped, Walk
from copycat_agent.batch.items import Items
from copycat_agent.batch.passing import count, messages_of, passed, passed_up_to
from copycat_agent.batch.progress import Progress
from copycat_agent.batch.samples import Samples
from copycat_agent.batch.sending import Sender
from copycat_agent.batch.shaping import Shape
from copycat_agent.errors import BlockedError, DataError
from copycat_agent.formats import Chunk, Parsed, Row
from copycat_agent.model import Counts
from copycat_agent.producer import Refused, TaskProducer

CLOSE_RECORDS, CLOSE_TIMES = 4, 8
"""A chunk in which a bad record follows fewer than so many good ones, so often in a row, goes on row by row."""


class Chunks:
    """Sends the chunks of one batch."""

    def __init__(self, producer: TaskProducer, items: Items, sender: Sender, samples: Samples) -> None:
        self._producer = producer
        self._items = items
        self._sender = sender
        self._samples = samples

    def send(self, progress: Progress, bound: Bound, chunk: Chunk | Parsed) -> int:
        """Hand all of it over. Returns how many records that made for Kafka. Raises StopAt when it is handed over up to a bad record."""
        begun = records = 0
        if bound.bulk is None and (bound.fast is None or self._samples.are_wanted):
            pass  # each row is looked at
        elif isinstance(chunk, Parsed) and len(parts := chunk.sorted_out()) > 1:
            return sum(self.send(progress, bound, part) for part in parts)
        elif bound.bulk is not None:
            begun = records = 0 if chunk.partial else self._send_bulk(progress, bound.bulk, chunk)
        elif bound.fast is not None and (walk := bound.fast.walk(chunk, progress.sent_records + 1)):
            begun, records = self._walk(progress, bound, chunk, walk)
        if begun < len(chunk.values):
            records += self._send_rows(progress, bound, chunk, islice(chunk.rows(), begun, None), begun)
        passed(progress, chunk)
        return records

    def _send_bulk(self, progress: Progress, bulk: Bulk, chunk: Chunk | Parsed) -> int:
        """The fastest way, for records that differ in their value only. Returns how many values went before the first bad one."""
        try:
            values = bulk.values(chunk)
        except DataError:
            return 0
        sent = len(values)
        try:
            self._producer.send(bulk.topic, values, bulk.tail)
        except Refused as refused:
            sent = refused.sent
        self._samples.of_values(progress, chunk, bulk.topic, values[:sent] if sent < len(values) else values, bulk.tail)
        progress.count(Counts(acknowledged=sent))
        return sent

    def _walk(self, progress: Progress, bound: Bound, chunk: Chunk | Parsed, walk: Walk) -> tuple[int, int]:
        """Through the steps without an object for each row, but for bad ones. Returns how many values are done, and the records they made.

        Where that is not all of the chunk, the rest is to be sent row by row: something about it has to be looked at, or so much of it
        is bad that going back and forth costs more.
        """
        begun = records = close = 0
        while True:
            shaped = walk.take()
            going = self._hand_over(walk.shape, shaped)
            begun, records = begun + going.total, records + len(going.messages)
            progress.count(going.counts())
            for trouble in going.troubles:
                self._items.step_failed(progress, trouble)
            if going is not shaped or shaped.row is None:
                return begun, records
            if not isinstance(shaped.error, DataError):
                assert shaped.error is not None
                passed_up_to(progress, chunk, shaped.row, begun)
                raise self._items.stop_at(progress, shaped.row, shaped.error)
            records += self._send_rows(progress, bound, chunk, (shaped.row,), begun)
            begun += 1
            close = close + 1 if going.total < CLOSE_RECORDS else 0
            if close == CLOSE_TIMES:
                return begun, records

    def _hand_over(self, shape: Shape, shaped: Shaped) -> Shaped:
        """Send the messages. Returns the part that went, which is `shaped` itself when it is all."""
        try:
            if shape.is_steady:
                self._producer.send(shape.literal_topic, shaped.messages, shape.tail())
                return shaped
            for topic in set() if shape.literal_topic else {message[0] for message in shaped.messages}:
                self._producer.topics.partitions(topic)
            self._producer.send_each(shaped.messages)
        except Refused as refused:
            return shaped.up_to(refused.sent)
        except BlockedError:
            if self._producer.broken:
                raise
            return Shaped()  # which record is the first that has to wait for its topic shows row by row
        return shaped

    def _send_rows(self, progress: Progress, bound: Bound, chunk: Chunk | Parsed, rows: Iterable[Row], begun: int) -> int:
        """The other way, for some rows from the `begun`-th value on: each on its own account."""
        items, stop = self._items.of_rows(progress, bound, rows, partial=chunk.partial)
        sent, earlier = self._sender.hand_over(progress, items)
        count(progress, sent)
        self._samples.of_items(progress, sent)
        stop = earlier or stop
        if stop:
            passed_up_to(progress, chunk, stop.row, begun + len(sent))
            raise stop
        return messages_of(sent)
