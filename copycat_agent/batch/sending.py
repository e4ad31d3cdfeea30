"""Hands records to the producer: chunks in bulk where possible, all others one by one.

A record that the client refuses at once becomes a dead letter, is passed over, or stops the connector, as `policy` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic

from copycat_agent.batch.policy import ErrorPolicy, RecordOutcome, StopAt, messages_of
from copycat_agent.batch.progress import SplitProgress
from copycat_agent.display import NOTHING_SECRET, SecretMask
from copycat_agent.encoding.bulk import ChunkEncoding, EncodedRecords
from copycat_agent.encoding.encoder import BulkEncoder, SplitEncoder
from copycat_agent.encoding.files_layout import shown_value
from copycat_agent.encoding.layout import SplitLayout
from copycat_agent.errors import BlockedError, DataError, TimestampError
from copycat_agent.formats import Chunk, Draft, Parsed
from copycat_agent.model import Counts, Sample
from copycat_agent.producer import Message, RefusedRecordError, TaskProducer

PIECE_RECORDS = 300
"""Most records that are made into messages at once, which bounds the memory for what steps and templates add to each.

As fast as a whole chunk at once; with 100 the cost of the client's calls begins to show.
"""
CLOSE_RECORDS, CLOSE_TIMES = 4, 8
"""A chunk continues one by one once a bad record has followed fewer than `CLOSE_RECORDS` good ones `CLOSE_TIMES` times in a row."""
_TIMESTAMP = 6
"""Index of the timestamp in a message, see `producer.Message`."""
_OWN_TIME = "the record's own time is too far from now: check its timestamp step, or the topic's message.timestamp.after.max.ms and before"
_SHOWN_BYTES = 4096
"""Bytes of a key, a value or a header that `copycat tap` shows."""


LOOK_SECONDS = 0.1
"""Interval at which work on records checks whether it has to end. A pattern may take this long on a single record."""


class EndCheck:
    """Decides whether work on records has to end early, at little cost: `ends` is called only once it is later than `until`."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self.until = monotonic() + LOOK_SECONDS

    def ends(self) -> bool:
        """Returns whether to work on no more records now."""
        now = monotonic()
        if now <= self.until:
            return False
        self.until = now + LOOK_SECONDS
        return self._is_over()


class Tap:
    """Takes the first records of a batch as they were sent, up to the number it asked for. They count once they are settled."""

    def __init__(self, wanted: int, progresses: Sequence[SplitProgress], mask: SecretMask = NOTHING_SECRET) -> None:
        self._mask = mask
        self._wanted = wanted
        self._progresses = progresses

    @property
    def is_open(self) -> bool:
        """Returns whether more records are wanted."""
        return bool(self._wanted) and self._room() > 0

    def take(self, progress: SplitProgress, outcomes: Sequence[RecordOutcome]) -> None:
        """Takes samples of records in flight, dead letters included."""
        if self._wanted:
            for outcome in [outcome for outcome in outcomes if outcome.messages][: self._room()]:
                progress.sample(self._sample(progress, outcome.draft, outcome.messages[0]))

    def _room(self) -> int:
        return max(0, self._wanted - sum(progress.sampled for progress in self._progresses))

    def _sample(self, progress: SplitProgress, draft: Draft, message: Message) -> Sample:
        """Returns the sample of a message. Secrets are masked before anything is cut."""
        topic, value, key, _, _, _, timestamp, headers = self._mask.value((message[0], shown_value(message[1]), *message[2:]))
        shown = tuple((name, content[:_SHOWN_BYTES]) for name, content in headers or ())
        return Sample(topic, _cut(key), _cut(value), shown, timestamp or None, progress.split.path, draft.start, draft.end)


def _cut(content: bytes | None) -> bytes | None:
    return None if content is None else content[:_SHOWN_BYTES]


class Sender:
    """Sends the records of one batch one by one. `refused` counts refused records, `refusals` are the expected ones that are left."""

    def __init__(self, producer: TaskProducer, policy: ErrorPolicy) -> None:
        self._producer = producer
        self._policy = policy
        self.refused = 0
        self.refusals: list[DataError] = []
        self._expects = False

    def expect(self, refusals: Sequence[DataError]) -> None:
        """Sets the first messages to be refused, one for each reason: Kafka has refused them in a transaction that was aborted."""
        self.refusals = list(refusals)
        self._expects = bool(refusals)

    @property
    def has_found(self) -> bool:
        """Returns whether all expected refusals have occurred."""
        return self._expects and not self.refusals

    def produce(self, progress: SplitProgress, outcomes: list[RecordOutcome]) -> tuple[list[RecordOutcome], StopAt | None]:
        """Sends records; one that the client refuses at once becomes a dead letter or is passed over. Returns the final outcomes."""
        todo, stop = self._with_topics(outcomes)
        done: list[RecordOutcome] = []
        while todo:
            sending = [(index, message) for index, outcome in enumerate(todo) for message in outcome.messages]
            try:
                self._send([message for _, message in sending])
            except RefusedRecordError as refused:
                index = sending[refused.sent][0]
                if refused.sent and sending[refused.sent - 1][0] == index:
                    self._producer.partly_sent(refused.reason)
                done += todo[:index]
                try:
                    replacement, stop_here = self._with_topics([self.instead(progress, todo[index], refused.reason)])
                except StopAt as found:
                    return done, found
                if stop_here:
                    return done, stop_here
                todo = [*replacement, *todo[index + 1 :]]
            else:
                return done + todo, stop
        return done, stop

    def _send(self, messages: list[Message]) -> None:
        if self.refusals and messages:
            raise RefusedRecordError(0, self.refusals.pop(0))
        self._producer.send_each(messages)

    def _with_topics(self, outcomes: list[RecordOutcome]) -> tuple[list[RecordOutcome], StopAt | None]:
        """Returns the outcomes up to the first whose topic is missing or closed to this user, and a StopAt for that one."""
        known: set[str] = set()
        for index, outcome in enumerate(outcomes):
            for message in outcome.messages:
                if message[0] not in known:
                    try:
                        self._producer.topics.partitions(message[0])
                    except BlockedError as error:
                        return outcomes[:index], StopAt(outcome.draft, error)
                    known.add(message[0])
        return outcomes, None

    def instead(self, progress: SplitProgress, outcome: RecordOutcome, reason: DataError) -> RecordOutcome:
        """Returns what is sent instead of a record that was refused. Raises StopAt."""
        if isinstance(reason, TimestampError):
            if not _has_timestamp(outcome):
                raise StopAt(outcome.draft, BlockedError(reason.message, reason.hint))  # the clock is wrong, which affects all records
            reason = DataError(reason.message, _OWN_TIME)
        self.refused += 1
        if outcome.counts_as == "dead_lettered":
            return self._policy.smaller(progress, outcome, reason)
        return self._policy.bad(progress, outcome, "send", reason)


def _has_timestamp(outcome: RecordOutcome) -> bool:
    """Returns whether the record has its own time. Others get one when they are sent."""
    return bool(outcome.messages) and outcome.messages[0][_TIMESTAMP] != 0


class ChunkSender:
    """Sends the chunks of one batch."""

    def __init__(self, producer: TaskProducer, policy: ErrorPolicy, sender: Sender, tap: Tap, watch: EndCheck) -> None:
        self._producer = producer
        self._policy = policy
        self._sender = sender
        self._tap = tap
        self.watch = watch

    def send(self, progress: SplitProgress, encoder: SplitEncoder, chunk: Chunk | Parsed) -> int:
        """Hands over the chunk, or, if the batch has to end, a part of at least one record, to which `progress` is moved.

        Returns the number of messages. Raises StopAt when it is handed over up to a bad record.
        """
        bulk = None if self._sender.refusals else encoder.bulk
        if bulk is not None and isinstance(chunk, Parsed) and len(parts := chunk.sorted_out()) > 1:
            return self._send_parts(progress, encoder, parts)
        handover, number = _Handover(progress, encoder, chunk), progress.sent_records + 1
        if bulk is not None:
            if self._tap.is_open:
                self._send_records(handover, chunk.rows(number), while_open=True)
            if handover.goes_on and (values := bulk.values(chunk)) is not None:
                self._send_values(handover, bulk, values)
            elif handover.goes_on and (encoding := bulk.begin(chunk, number)):
                self._send_bulk(handover, encoding)
        if handover.goes_on:
            self._send_records(handover, islice(chunk.rows(number), handover.begun, None))
        handover.end()
        return handover.messages

    def _send_parts(self, progress: SplitProgress, encoder: SplitEncoder, parts: Iterable[Parsed]) -> int:
        messages = 0
        for part in parts:
            messages += self.send(progress, encoder, part)
            if progress.sent_position != part.end:
                break
        return messages

    def _send_values(self, handover: _Handover, bulk: BulkEncoder, values: list[bytes]) -> None:
        """Sends all values in one call. If the client refuses one, it and the following ones have to be sent one by one."""
        assert bulk.tail is not None
        going = values[handover.begun :] if handover.begun else values
        try:
            self._producer.send(bulk.literal_topic, going, bulk.tail)
            sent = len(going)
        except RefusedRecordError as refused:
            sent = refused.sent
        handover.goes(sent, sent, Counts(acknowledged=sent))

    def _send_bulk(self, handover: _Handover, encoding: ChunkEncoding) -> None:
        """Sends records without an object for each, except for bad ones.

        If this does not reach the chunk's end, the rest has to be sent one by one: a record needs to be handled by itself, or there are
        so many bad ones that switching costs more.
        """
        close = 0
        if handover.begun:
            encoding.skip(handover.begun)
        while handover.goes_on:
            encoded = encoding.take(PIECE_RECORDS, self.watch.until)
            going = self._hand_over(handover.encoder.layout, encoded)
            handover.goes(going.total, len(going.messages), going.counts())
            for trouble in going.troubles:
                self._policy.step_failed(handover.progress, trouble)
            if going is not encoded:
                return
            if encoded.error is None:
                self._look(handover, encoding.draft)
            elif isinstance(encoded.error, DataError):
                self._send_some(handover, (encoding.draft(),))
                close = close + 1 if going.total < CLOSE_RECORDS else 0
                if close == CLOSE_TIMES:
                    return
            else:
                raise handover.stopped(self._policy.stop_at(handover.progress, encoding.draft(), encoded.error))

    def _hand_over(self, layout: SplitLayout, encoded: EncodedRecords) -> EncodedRecords:
        """Sends the messages. Returns the part that was sent, which is `encoded` itself when it is all."""
        try:
            if layout.is_steady:
                self._producer.send(layout.literal_topic, encoded.messages, layout.tail)
                return encoded
            for topic in set() if layout.literal_topic else {message[0] for message in encoded.messages}:
                self._producer.topics.partitions(topic)
            self._producer.send_each(encoded.messages)
        except RefusedRecordError as refused:
            return encoded.up_to(refused.sent)
        except BlockedError:
            if self._producer.broken:
                raise
            return EncodedRecords()  # sending one by one finds the first record that has to wait for its topic
        return encoded

    def _send_records(self, handover: _Handover, drafts: Iterable[Draft], *, while_open: bool = False) -> None:
        """Sends records one by one, from the next one on: all, or, with `while_open`, as long as the tap is open."""
        rest = iter(drafts)
        while handover.goes_on and (self._tap.is_open or not while_open):
            self._send_some(handover, islice(rest, PIECE_RECORDS))

    def _send_some(self, handover: _Handover, drafts: Iterable[Draft]) -> None:
        """Sends some records from the next one on, each by itself."""
        progress = handover.progress
        outcomes, stop = self._policy.outcomes(progress, handover.encoder, drafts, self.watch.until)
        assert outcomes or stop, "records are as many as values"
        sent, earlier = self._sender.produce(progress, outcomes)
        self._policy.count(progress, sent)
        self._tap.take(progress, sent)
        handover.goes(len(sent), messages_of(sent))
        if stop := earlier or stop:
            raise handover.stopped(stop)
        self._look(handover, lambda: outcomes[-1].draft)

    def _look(self, handover: _Handover, draft: Callable[[], Draft]) -> None:
        """Ends the handover at this record if the batch has to end."""
        if handover.goes_on and self.watch.ends():
            handover.last = draft()


@dataclass(slots=True)
class _Handover:
    """How far a chunk is handed over: `begun` of its records, with `messages`. `last`: the record it ends with for now."""

    progress: SplitProgress
    encoder: SplitEncoder
    chunk: Chunk | Parsed
    begun: int = 0
    messages: int = 0
    last: Draft | None = None

    @property
    def goes_on(self) -> bool:
        """Returns whether there is more to do."""
        return self.last is None and self.begun < len(self.chunk.values)

    def goes(self, records: int, messages: int, counts: Counts | None = None) -> None:
        """Notes that `records` more are in flight, as `messages` messages."""
        self.begun += records
        self.messages += messages
        self.progress.sent.messages += messages
        if counts is not None:
            self.progress.count(counts)

    def stopped(self, stop: StopAt) -> StopAt:
        """Ends the handover before a record, and returns `stop`: nothing from there on counts."""
        self.progress.pass_up_to(self.chunk, stop.draft, self.begun)
        return stop

    def end(self) -> None:
        """Called when the whole chunk, or what precedes the end of `last`, is in flight."""
        if self.last is None:
            self.progress.pass_chunk(self.chunk)
        else:
            self.progress.pass_with(self.chunk, self.last, self.begun)
