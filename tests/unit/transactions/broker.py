"""A broker in memory, as far as transactions go: what `faults.md` calls the model, and the unpleasant parts of a real one.

One object is the coordinator of every transactional id, the leader of every partition, and the network before them. Requests are lost,
answers are lost, copies of requests come late; a decided transaction takes a while until its markers are written; brokers without
verification take records outside of a transaction. Nothing here waits: a step that would wait returns WAIT and is tried again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from copycat_agent.errors import FencedError, RetriableError
from copycat_agent.model import OffsetsPartition
from copycat_agent.transactions.protocol import Entry

WAIT = object()
"""What a step returns that has to be tried again later."""

Tell = Callable[[str], None]


@dataclass(slots=True)
class Record:
    """A record, or a marker (`value` None). `state`: open, committed, aborted, or marker."""

    value: Any
    state: str


@dataclass(slots=True)
class Log:
    """A partition. `opened` are offsets of open records by transactional id, `epochs` what its leader knows of each id."""

    records: list[Record] = field(default_factory=list)
    opened: dict[str, list[int]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min((offsets[0] for offsets in self.opened.values()), default=len(self.records))

    def copy(self) -> Log:
        """As it is now."""
        opened = {tid: list(offsets) for tid, offsets in self.opened.items()}
        return Log([replace(record) for record in self.records], opened, dict(self.epochs))

    def append(self, tid: str, epoch: int, value: Any) -> int:
        """A record of a transaction. FencedError when the leader has seen a later epoch."""
        if epoch < self.epochs.get(tid, 0):
            raise FencedError("leader: old epoch")
        self.epochs[tid] = epoch
        self.opened.setdefault(tid, []).append(len(self.records))
        self.records.append(Record(value, "open"))
        return len(self.records) - 1

    def mark(self, tid: str, epoch: int, state: str) -> None:
        """End whatever is open of this id here: a leader does not know which transaction a record was meant for."""
        self.epochs[tid] = max(epoch, self.epochs.get(tid, 0))
        for offset in self.opened.pop(tid, ()):
            self.records[offset].state = state
        self.records.append(Record(None, "marker"))

    def visible(self) -> list[Any]:
        """What a read_committed reader sees."""
        return [record.value for record in self.records[: self.stable] if record.state == "committed"]


@dataclass(slots=True)
class Coordinated:
    """What the coordinator knows of one id. `state`: empty, open, committed or aborted (decided: markers are still to be written)."""

    epoch: int = -1
    state: str = "empty"
    touched: list[OffsetsPartition] = field(default_factory=list)
    marker_epoch: int = -1
    last: str = ""
    since: int = 0


@dataclass(slots=True, eq=False)
class Producer:
    """A client's handle. `epoch` None: its init_transactions has not come to its end."""

    tid: str
    epoch: int | None = None
    added: set[OffsetsPartition] = field(default_factory=set)
    failed: bool = False
    closed: bool = False
    acknowledged: int = 0
    committed: bool = False
    used: bool = False


class Broker:
    """All of it. `trouble` is how often a request or an answer is lost; `verifies`: records outside of a transaction are refused."""

    def __init__(self, rng: random.Random, *, trouble: float = 0.0, verifies: bool = True, tell: Tell | None = None) -> None:
        self.rng, self.trouble, self.verifies = rng, trouble, verifies
        self.logs: dict[OffsetsPartition, Log] = {}
        self.ids: dict[str, Coordinated] = {}
        self.late: list[tuple[str, Callable[[], object]]] = []
        self.starting: list[Producer] = []
        self.producers: list[Producer] = []
        self.cluster = "c1"
        self.clock = 0
        self.frozen: dict[OffsetsPartition, Log] | None = None
        """What a leader shows that is cut off from the others, to those who still reach it."""
        self.is_reached_by_asker = False
        self._joins_at = 0
        self.tell: Tell = tell or (lambda _: None)

    def log(self, place: OffsetsPartition) -> Log:
        """The partition, made when it is first used."""
        found = self.logs.get(place)
        if found is None:
            found = self.logs[place] = Log()
        return found

    # What the coordinator does.

    def init(self, tid: str) -> int | None:
        """InitProducerId: the new epoch, or None while the last transaction is being ended."""
        one = self.ids.setdefault(tid, Coordinated())
        if one.state == "open":
            self._decide(tid, one, one.epoch + 1, "aborted")
        if one.state != "empty":
            return None
        one.epoch += 1
        one.last = ""
        return one.epoch

    def _decide(self, tid: str, one: Coordinated, epoch: int, state: str) -> None:
        one.epoch, one.marker_epoch, one.state, one.last = epoch, epoch, state, state
        self.tell(f"    broker: {tid[-12:]} epoch {epoch} {state}")

    def end_transaction(self, tid: str, epoch: int, state: str) -> None:
        """EndTxn."""
        one = self.ids[tid]
        if epoch != one.epoch:
            raise FencedError("coordinator: old epoch")
        if one.state == "open":
            self._decide(tid, one, epoch, state)
        elif one.last != state:
            raise RetriableError("invalid transaction state")

    def add(self, tid: str, epoch: int, place: OffsetsPartition) -> None:
        """AddPartitionsToTxn."""
        one = self.ids[tid]
        if epoch != one.epoch:
            raise FencedError("coordinator: old epoch")
        if one.state not in ("open", "empty"):
            raise RetriableError("concurrent transactions")
        if one.state == "empty":
            one.state, one.since = "open", self.clock
        if place not in one.touched:
            one.touched.append(place)

    def _append(self, tid: str, epoch: int, place: OffsetsPartition, values: Sequence[Any]) -> int:
        one, log = self.ids[tid], self.log(place)
        if self.verifies and tid not in log.opened and not (one.state == "open" and one.epoch == epoch and place in one.touched):
            raise FencedError("leader: not in a transaction")
        return [log.append(tid, epoch, value) for value in values][-1]

    def write_marker(self, tid: str) -> None:
        """One marker of a decided transaction."""
        one = self.ids[tid]
        if one.touched:
            place = one.touched.pop(self.rng.randrange(len(one.touched)))
            self.log(place).mark(tid, one.marker_epoch, one.state)
        if not one.touched:
            one.state = "empty"

    def time_out(self, tid: str) -> None:
        """The transaction has been open for too long."""
        one = self.ids[tid]
        if one.state == "open":
            self.tell(f"    broker: {tid[-12:]} times out")
            self._decide(tid, one, one.epoch + 1, "aborted")

    def compact(self, place: OffsetsPartition) -> None:
        """Only the last of each key stays, of what is stable."""
        seen = set()
        log = self.log(place)
        for record in reversed(log.records[: log.stable]):
            if record.state == "committed":
                entry: Entry = record.value
                if entry.key in seen or (entry.value is None and self.rng.random() < 0.3):
                    record.state = "compacted"
                seen.add(entry.key)

    def cut_off(self, topic: str, ticks: int) -> None:
        """The leaders of a topic are cut off from the others, which choose new ones."""
        self.frozen = {place: log.copy() for place, log in self.logs.items() if place.topic == topic}
        self._joins_at = self.clock + ticks
        self.tell("    broker: leaders are cut off")

    def shown(self, place: OffsetsPartition) -> Log:
        """The partition, as it is shown to who asks."""
        if self.frozen is not None and self.is_reached_by_asker:
            return self.frozen.get(place, Log())
        return self.log(place)

    # What happens by itself.

    def tick(self, rng: random.Random, time_outs: float) -> None:
        """Something that was under way comes to pass, if there is anything."""
        self.clock += 1
        if self.frozen is not None and self.clock > self._joins_at:
            self.frozen = None
            self.tell("    broker: who was cut off is back")
        if rng.random() < time_outs or self.clock % 64 == 0:
            opened = [tid for tid, one in self.ids.items() if one.state == "open" and (self.clock % 64 or one.since < self.clock - 128)]
            if opened:
                self.time_out(rng.choice(opened))
        decided = [tid for tid, one in self.ids.items() if one.state in {"committed", "aborted"}]
        n = int(rng.random() * (len(decided) + len(self.late) + len(self.starting)))
        if n < len(decided):
            self.write_marker(decided[n])
        elif n < len(decided) + len(self.late):
            self._arrive(*self.late.pop(n - len(decided)))
        elif self.starting:
            self._start(self.starting[n - len(decided) - len(self.late)])

    def _arrive(self, name: str, request: Callable[[], object]) -> None:
        try:
            request()
            self.tell(f"    broker: late {name} is taken")
        except RetriableError as error:
            self.tell(f"    broker: late {name}: {error}")

    def _start(self, producer: Producer) -> bool:
        """Its InitProducerId arrives."""
        epoch = self.init(producer.tid)
        if epoch is None:
            return False
        producer.epoch = epoch
        self.starting.remove(producer)
        self.tell(f"    broker: {producer.tid[-12:]} init, epoch {epoch}")
        return True

    # The steps, as a client sees them.

    def _network(self, name: str, request: Callable[[], Any], late: Callable[[], Any] | None = None) -> Any:
        """A request and its answer, one of which may be lost; or the request comes late, or a copy of it."""
        if self.rng.random() >= self.trouble:
            return request()
        way = self.rng.randrange(4)
        if way == 1:
            request()
        elif way == 2 and late:
            self.late.append((name, late))
        elif way == 3 and late:
            answer = request()
            self.late.append((f"copy of {name}", late))
            return answer
        raise RetriableError(f"{name}: no answer")

    def prepare(self, tid: str) -> Producer:
        """See `Steps`."""
        producer = Producer(tid)
        self.starting.append(producer)
        self.producers.append(producer)
        return producer

    def ready(self, producer: Producer) -> object:
        """See `Steps`."""
        if self.rng.random() < self.trouble:
            if self.rng.random() < 0.5:
                self.late.append((f"init of {producer.tid[-12:]}", lambda: self.init(producer.tid)))
            else:
                raise RetriableError("init: no answer")
        if producer.epoch is None and not self._start(producer):
            return WAIT
        return None

    def begin(self, producer: Producer) -> None:
        """See `Steps`."""
        assert producer.epoch is not None, "begin before ready"
        assert not producer.closed
        assert not producer.used, "a producer is used for one transaction"
        producer.used = True

    def send(self, producer: Producer, place: OffsetsPartition, entries: Sequence[Any]) -> None:
        """See `Steps`. Acknowledged at once."""
        assert producer.epoch is not None
        assert producer.used
        assert not producer.closed
        tid, epoch = producer.tid, producer.epoch
        if producer.failed:
            raise RetriableError("the producer has failed")
        try:
            if place not in producer.added:
                self._network("add", lambda: self.add(tid, epoch, place))
                producer.added.add(place)
            late = self._late_produce(producer, place, entries)
            self._network("produce", lambda: self._append(tid, epoch, place, entries), late)
            producer.acknowledged += 1
        except RetriableError:
            producer.failed = True
            raise

    def _late_produce(self, producer: Producer, place: OffsetsPartition, entries: Sequence[Any]) -> Callable[[], Any]:
        """A request that comes late, unless it is a copy of one that was taken (sequence numbers see to that)."""
        tid, epoch, before = producer.tid, producer.epoch, producer.acknowledged

        def arrive() -> None:
            if producer.acknowledged == before:
                self._append(tid, epoch or 0, place, entries)

        return arrive

    def flush(self, producer: Producer) -> None:
        """See `Steps`."""
        if producer.failed:
            raise RetriableError("the producer has failed")

    def commit(self, producer: Producer) -> None:
        """See `Steps`."""
        assert producer.used
        assert not producer.closed
        tid, epoch = producer.tid, producer.epoch or 0
        ask = lambda: self.end_transaction(tid, epoch, "committed")  # noqa: E731
        self._network(f"commit of {tid[-12:]} epoch {epoch}", ask, ask)

    def abort(self, producer: Producer) -> None:
        """As a client does it that asks for it."""
        tid, epoch = producer.tid, producer.epoch or 0
        ask = lambda: self.end_transaction(tid, epoch, "aborted")  # noqa: E731
        with suppress(RetriableError):
            self._network(f"abort of {tid[-12:]} epoch {epoch}", ask, ask)

    def close(self, producer: Producer) -> None:
        """See `Steps`. An InitProducerId that is under way may still arrive."""
        producer.closed = True
        if producer in self.starting and self.rng.random() < 0.5:
            self.starting.remove(producer)

    def cluster_id(self) -> str:
        """See `Steps`."""
        return self.cluster

    def end(self, place: OffsetsPartition) -> int:
        """See `Steps`."""
        if self.rng.random() < self.trouble:
            raise RetriableError("end: no answer")
        return len(self.shown(place).records)

    def replay(self, place: OffsetsPartition, since: int, end: int) -> object:
        """See `Steps`."""
        log = self.shown(place)
        if end > len(log.records):
            raise RetriableError("replay: the log is shorter")
        if log.stable < end:
            return WAIT
        records = log.records
        return [records[n].value._replace(offset=n) for n in range(since, end) if records[n].state == "committed"]
