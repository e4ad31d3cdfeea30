"""A broker in memory for tests of lanes: says which messages it refuses, in which steps it fails, and what is committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from copycat_agent import failpoints
from copycat_agent.errors import CopycatError, DataError, FencedError, RefusedError
from copycat_agent.model import Head, LaneId, LaneOutcome, LanePlan, OffsetsPartition
from copycat_agent.producer import ProducerPool, RefusedRecordError, ReplacementGuard
from copycat_agent.transactions import entries
from copycat_agent.transactions.protocol import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from copycat_agent.model import ClientView, SplitResult
    from copycat_agent.producer import Message

PLACE = OffsetsPartition("positions", 0)


@dataclass
class FakeBroker:
    """`refuses`: what it says to a message once it is sent, None to take it; `refuses_at_once`: what its client says.

    `most`: messages that its topic takes in one batch of a producer, 0 for any number. `fails`: steps that raise, each as often as it
    is there. `transactions` counts those that were begun; `limits` are the batch sizes that clients were made with.
    """

    refuses: Callable[[Message], DataError | None] = lambda _: None
    refuses_at_once: Callable[[Message], DataError | None] = lambda _: None
    most: int = 0
    fails: list[tuple[str, CopycatError]] = field(default_factory=list)
    committed: list[Message] = field(default_factory=list)
    log: list[Entry] = field(default_factory=list)
    owners: dict[str, FakeProducer] = field(default_factory=dict)
    transactions: int = 0
    sizes: list[int] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)

    @property
    def values(self) -> list[Any]:
        """Values of the records that are committed."""
        return [message[1] for message in self.committed]

    def fail(self, step: str) -> None:
        """Raise what is to be raised here, once."""
        for one in self.fails:
            if one[0] == step:
                self.fails.remove(one)
                raise one[1]

    def producers(self) -> ProducerPool:
        """Producers of a process whose lanes are here."""
        return ProducerPool(lambda _options, _client_id, **how: FakeSteps(self, how["batch_bytes"]))


class _Topics:
    def partitions(self, _topic: str) -> int:
        return 1


class FakeProducer:
    """See `producer.transactional.LaneProducer`."""

    run_bytes = 2**24
    topics = _Topics()

    def __init__(self, broker: FakeBroker, batch_bytes: int) -> None:
        self._broker = broker
        self.batch_bytes = self.next_batch_bytes = batch_bytes
        self.entries: list[Entry] = []
        self.messages: list[Message] = []
        self.is_flushed, self.broken, self.is_open, self.is_closed = True, False, False, False

    @property
    def sent(self) -> int:
        return len(self.messages)

    @property
    def has_sent(self) -> bool:
        return self.sent > 0

    def begin(self, stopping: Callable[[], bool]) -> None:
        assert self.is_open
        self.stopping = stopping

    def _fail(self, step: str) -> None:
        try:
            self._broker.fail(step)
        except CopycatError:
            self.broken = True
            raise

    def weigh(self, size_bytes: int) -> None:
        assert size_bytes

    def send(self, topic: str, values: list[bytes], tail: Message) -> None:
        self.send_each((topic, value, *tail) for value in values)

    def send_each(self, messages: Iterable[Message]) -> None:
        assert self.is_open, "no send outside of a transaction"
        for number, message in enumerate(list(messages)):
            self._fail("produce")
            if reason := self._broker.refuses_at_once(message):
                raise RefusedRecordError(number, reason)
            self.messages.append(message)
            self.is_flushed = False

    def flush(self) -> None:
        self._fail("flush_records")
        found = next((reason for message in self.messages if (reason := self._broker.refuses(message))), None)
        most = self._broker.most
        if found is None and most and not self.batch_bytes and len(self.messages) > most:
            found = DataError("the batch is too large")
        if found is not None:
            self.broken = True
            raise RefusedError(found)
        self.is_flushed = True
        failpoints.hit("sending")

    def may_send(self, source: ReplacementGuard, end: int) -> bool:
        return source.is_whole or source.was_still(end)

    def partly_sent(self, reason: DataError) -> None:
        raise RefusedError(reason)

    def smaller_batches(self) -> None:
        self.next_batch_bytes = 1


class FakeSteps:
    """See `transactions.protocol.Steps`. Ids are fenced at once; nothing is committed of a producer that was."""

    transaction_seconds = 60.0

    def __init__(self, broker: FakeBroker, batch_bytes: int) -> None:
        self._broker = broker
        self._batch_bytes = batch_bytes
        broker.limits.append(batch_bytes)
        self.live: set[FakeProducer] = set()

    def prepare(self, transactional_id: str) -> FakeProducer:
        made = FakeProducer(self._broker, self._batch_bytes)
        self._broker.owners[transactional_id] = made
        self.live.add(made)
        return made

    def ready(self, handle: FakeProducer) -> None:
        self._broker.fail("ready")
        self._look(handle)

    def begin(self, handle: FakeProducer) -> None:
        self._broker.fail("begin")
        self._look(handle)
        assert not handle.is_open
        handle.is_open = True
        self._broker.transactions += 1

    def send(self, handle: FakeProducer, place: OffsetsPartition, positions: Sequence[Entry]) -> None:
        assert handle.is_open
        assert handle.is_flushed
        assert place == PLACE
        self._broker.fail("send")
        handle.entries += positions

    def flush(self, _handle: FakeProducer) -> None:
        self._broker.fail("flush")

    def commit(self, handle: FakeProducer) -> None:
        self._broker.fail("commit")
        self._look(handle)
        assert handle.is_open
        assert not handle.broken
        handle.is_open, handle.broken = False, True
        self._broker.sizes.append(handle.sent)
        self._broker.committed += handle.messages
        for entry in handle.entries:
            self._broker.log.append(entry._replace(offset=len(self._broker.log)))
        self._broker.fail("answer")

    def close(self, handle: FakeProducer | None = None) -> None:
        for one in [handle] if handle else list(self.live):
            one.is_closed, one.broken, one.is_open = True, True, False
            self.live.discard(one)

    def end(self, _place: OffsetsPartition) -> int:
        return len(self._broker.log)

    def replay(self, _place: OffsetsPartition, since: int, end: int) -> list[Entry]:
        return self._broker.log[since:end]

    def poll_idle(self) -> None:
        assert not any(one.is_closed for one in self.live)

    def take_view(self) -> ClientView | None:
        return None

    def _look(self, handle: FakeProducer) -> None:
        if handle not in self._broker.owners.values():
            msg = "another producer has taken this id"
            raise FencedError(msg)


class FakeLane:
    """A lane as its driver knows it."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.id = LaneId("agent", "app", 0)
        self.head = Head()
        self.move()

    def move(self) -> None:
        """Fence, and take the head a step further, as the driver's claim does."""
        head = Head(self.head.seq + 1, "n", len(self._broker.log))
        self._broker.log.append(entries.head_entry(self.id, head)._replace(offset=head.offset))
        self._broker.owners.clear()
        self.head = head

    def plan(self, also: Any = ()) -> LanePlan:
        """For a batch that is planned now."""
        return LanePlan(self.id, self.head, PLACE, tuple(also))

    def heard(self, results: tuple[SplitResult, ...]) -> LaneOutcome:
        """What became of a batch; the lane goes on from there. What is promised of any result is looked at."""
        assert [one for one in results if one.outcome] == [results[0]]
        outcome = results[0].outcome
        assert outcome is not None
        assert outcome.head[:2] == (self.head.seq + (outcome.state == "committed"), "n")
        if outcome.state not in ("committed", "idle"):
            nothing = [(one.offset, one.counts.read, one.losses, one.samples, one.delivered) for one in results]
            assert nothing == [(one.split.offset, 0, (), (), ()) for one in results]
        self.head = outcome.head
        return outcome

    def found(self) -> entries.FoundEntries:
        """What the offsets topic says."""
        return entries.read(self._broker.log, self.id.agent, "app")
