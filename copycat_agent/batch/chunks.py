"""Handing chunks of records to the producer: as they are where only values differ, through the steps, or row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from copycat_agent.batch.bound import Bound, Bulk
from copycat_agent.batch.budget import Watch
from copycat_agent.batch.fast import Shaped, Walk
from copycat_agent.batch.items import Items, StopAt
from copycat_agent.batch.passing import count, messages_of, passed, passed_up_to, passed_with
from copycat_agent.batch.progress import Progress
from copycat_agent.batch.samples import Samples
from copycat_agent.batch.sending import Sender
from copycat_agent.batch.shaping import Shape
from copycat_agent.errors import BlockedError, DataError
from copycat_agent.formats import Chunk, Parsed, Row
from copycat_agent.model import Counts
from copycat_agent.producer import Refused, TaskProducer

PIECE_RECORDS = 300
"""So many are made into messages at once: what steps and templates add to each is in memory then, however small they are in the file.

As fast as a whole chunk at once; with 100 the client's calls begin to show.
"""
CLOSE_RECORDS, CLOSE_TIMES = 4, 8
"""A chunk in which a bad record follows fewer than so many good ones, so often in a row, goes on row by row."""


class Chunks:
    """Sends the chunks of one batch."""

    def __init__(self, producer: TaskProducer, items: Items, sender: Sender, samples: Samples, watch: Watch) -> None:
        self._producer = producer
        self._items = items
        self._sender = sender
        self._samples = samples
        self._watch = watch

    def send(self, progress: Progress, bound: Bound, chunk: Chunk | Parsed) -> int:
        """Hand it over: all of it, or, where the batch has to end, as much as `progress` says then, which is at least one record.

        Returns how many records that made for Kafka. Raises StopAt when it is handed over up to a bad record.
        """
        is_looked_at = bool(self._sender.refusals) or (bound.bulk is None and (bound.fast is None or self._samples.are_wanted))
        if not is_looked_at and isinstance(chunk, Parsed) and len(parts := chunk.sorted_out()) > 1:
            return self._send_parts(progress, bound, parts)
        way = Way(progress, bound, chunk)
        if is_looked_at:
            pass
        elif bound.bulk is not None:
            self._send_bulk(way, bound.bulk)
        elif bound.fast is not None and (walk := bound.fast.walk(chunk, progress.sent_records + 1)):
            self._walk(way, walk)
        rows = islice(chunk.rows(), way.begun, None)
        while way.goes_on:
            self._send_rows(way, islice(rows, PIECE_RECORDS))
        way.end()
        return way.records

    def _send_parts(self, progress: Progress, bound: Bound, parts: Iterable[Parsed]) -> int:
        records = 0
        for part in parts:
            records += self.send(progress, bound, part)
            if progress.sent_position != part.end:
                break
        return records

    def _send_bulk(self, way: Way, bulk: Bulk) -> None:
        """The fastest way, for records that differ in their value only: up to the first bad one."""
        if way.chunk.partial:
            return
        try:
            values = bulk.values(way.chunk)
        except DataError:
            return
        sent = len(values)
        try:
            self._producer.send(bulk.topic, values, bulk.tail)
        except Refused as refused:
            sent = refused.sent
        going = values[:sent] if sent < len(values) else values
        self._samples.of_values(way.progress, way.chunk, bulk.topic, going, bulk.tail)
        way.goes(sent, sent, Counts(acknowledged=sent))

    def _walk(self, way: Way, walk: Walk) -> None:
        """Through the steps without an object for each row, but for bad ones.

        Where that does not come to the chunk's end, the rest is to be sent row by row: something about it has to be looked at, or so
        much of it is bad that going back and forth costs more.
        """
        close = 0
        while way.goes_on:
            shaped = walk.take(PIECE_RECORDS, self._watch.until)
            going = self._hand_over(walk.shape, shaped)
            way.goes(going.total, len(going.messages), going.counts())
            for trouble in going.troubles:
                self._items.step_failed(way.progress, trouble)
            if going is not shaped:
                return
            if shaped.error is None:
                self._look(way, walk.row)
            elif isinstance(shaped.error, DataError):
                self._send_rows(way, (walk.row(),))
                close = close + 1 if going.total < CLOSE_RECORDS else 0
                if close == CLOSE_TIMES:
                    return
            else:
                raise way.stopped(self._items.stop_at(way.progress, walk.row(), shaped.error))

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

    def _send_rows(self, way: Way, rows: Iterable[Row]) -> None:
        """The other way, for some rows from the next one on: each on its own account."""
        progress = way.progress
        items, stop = self._items.of_rows(progress, way.bound, rows, self._watch.until, partial=way.chunk.partial)
        assert items or stop, "rows are as many as values"
        sent, earlier = self._sender.hand_over(progress, items)
        count(progress, sent)
        self._samples.of_items(progress, sent)
        way.goes(len(sent), messages_of(sent))
        if stop := earlier or stop:
            raise way.stopped(stop)
        self._look(way, lambda: items[-1].row)

    def _look(self, way: Way, row: Callable[[], Row]) -> None:
        """Go no further than to this row when the batch has to end."""
        if way.goes_on and self._watch.ends():
            way.last = row()


@dataclass(slots=True)
class Way:
    """How far a chunk is handed over: `begun` of its values, which made `records` for Kafka. `last`: the row with which it ends for now."""

    progress: Progress
    bound: Bound
    chunk: Chunk | Parsed
    begun: int = 0
    records: int = 0
    last: Row | None = None

    @property
    def goes_on(self) -> bool:
        """Whether there is more to do."""
        return self.last is None and self.begun < len(self.chunk.values)

    def goes(self, values: int, records: int, counts: Counts | None = None) -> None:
        """So many more are on their way."""
        self.begun += values
        self.records += records
        self.progress.hand_over(records)
        if counts is not None:
            self.progress.count(counts)

    def stopped(self, stop: StopAt) -> StopAt:
        """What ends it before a row: nothing from there on counts."""
        passed_up_to(self.progress, self.chunk, stop.row, self.begun)
        return stop

    def end(self) -> None:
        """All of it is on its way, or what stands before the end of `last`."""
        if self.last is None:
            passed(self.progress, self.chunk)
        else:
            passed_with(self.progress, self.chunk, self.last, self.begun)
