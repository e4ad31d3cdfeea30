"""An agent for the simulation: its disk, its driver and its runners, each a generator that stops before every step it takes.

The driver follows `delivery.exactly_once.driver`: open, plan over files that belong to no lane, keep files in flight while an outcome is
not known, save to SQLite as steps of their own. The runners execute the very `LaneWriter`, the openings are the very `open_lanes`, and
names are asked for by the very `look_up`. An agent may begin as one of the version before ids, whose lanes have names, and be upgraded.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from copycat_agent.errors import BehindError, CopycatError, PositionsError, RetriableError
from copycat_agent.model import (
    OFFSETS_TOPIC,
    Head,
    LaneId,
    LaneOutcome,
    LanePlan,
    OffsetsPartition,
    Position,
    SourceOffset,
    SourcePartition,
    connector_id_of,
    is_connector_id,
)
from copycat_agent.transactions import entries, name_lookup, opening
from copycat_agent.transactions.lane_writer import LaneWriter
from copycat_agent.transactions.opening import LaneGroup, LaneSnapshot, OpeningPlan
from copycat_agent.transactions.protocol import Procedure, Step
from tests.unit.transactions.broker import Tell

UUID = "u"
PARTITIONS = 2
SECOND_LOOK = "second look"
"""Before this step an agent waits for as long as leaders are cut off."""


class Local(NamedTuple):
    """A point between two steps that have nothing to do with the broker."""

    name: str


Acts = Generator[Step | Local, Any, None]


@dataclass(slots=True)
class File:
    """One generation of a file: its lines are (key, number). `destroyed`: nobody plans it any more."""

    key: str
    lines: int = 0
    destroyed: bool = False

    @property
    def place(self) -> OffsetsPartition:
        """Where its lines go."""
        return OffsetsPartition("lines", sum(self.key.encode()) % PARTITIONS)


@dataclass(slots=True)
class Kept:
    """What SQLite has of one connector. `id` "": a version before ids has written it, or nobody has."""

    id: str = ""
    asks: bool = True
    registered: str = ""
    cluster: str = ""
    rows: dict[str, int] = field(default_factory=dict)
    unpublished: set[str] = field(default_factory=set)
    heads: dict[int, Head] = field(default_factory=dict)
    before: tuple[LaneGroup, ...] = ()
    adopt: str = ""
    published: bool = False

    @property
    def has_something(self) -> bool:
        """Whether there are positions or lanes for it, here or by what Kafka has answered: a rename takes them along."""
        return self.published or bool(self.before or self.rows or self.registered)

    def copy(self) -> Kept:
        """A copy that shares nothing that changes."""
        return replace(self, rows=dict(self.rows), unpublished=set(self.unpublished), heads=dict(self.heads))


@dataclass(slots=True)
class Disk:
    """A state directory: identity, SQLite, and every state that SQLite was ever saved in."""

    nonces: list[str] = field(default_factory=list)
    kept: dict[str, Kept] = field(default_factory=dict)
    history: list[dict[str, Kept]] = field(default_factory=list)

    def of(self, connector: str) -> Kept:
        """What SQLite has of a connector."""
        return self.kept.setdefault(connector, Kept())

    def migrate(self) -> None:
        """As `offsets.schema` does it."""
        for name, one in self.kept.items():
            if not one.id:
                is_used = one.published or bool(one.heads)
                one.id, one.asks = connector_id_of(name), not is_used
                one.before = (*one.before, LaneGroup(name, place_of(name), one.heads)) if is_used else one.before
                one.heads, one.published = {}, False

    def knows(self, name: str) -> bool:
        """Whether it is known what Kafka has of the name."""
        kept = self.kept.get(name)
        return kept is not None and (kept.published or bool(kept.before) or not kept.asks)

    def rename(self, old: str, new: str) -> None:
        """As `offsets.connector_names` does it: a label goes along with what is known."""
        there, one = self.kept.pop(new, None), self.kept.pop(old)
        one.asks = there.asks if there is not None else True
        self.kept[new] = one
        self.kept[old] = Kept(id=new_id(self), asks=False)

    def save(self) -> None:
        """The end of a SQLite transaction."""
        self.history.append({name: one.copy() for name, one in self.kept.items()})

    def copy(self) -> Disk:
        """The state directory on another host."""
        return Disk(list(self.nonces), {name: one.copy() for name, one in self.kept.items()}, list(self.history))


def place_of(key: str) -> OffsetsPartition:
    """The place of the entries of a key: different for different ones, as a hash may have it."""
    return OffsetsPartition(OFFSETS_TOPIC, entries.partition_of(UUID, key, 25))


def new_id(disk: Disk) -> str:
    """An id that nobody has."""
    return f"~{len(disk.history)}.{len(disk.nonces)}"


@dataclass(slots=True, eq=False)
class Order:
    """A batch on its way: `splits` are (file, from, to). `answer` None: there is none yet."""

    plan: LanePlan
    splits: tuple[tuple[File, int, int], ...]
    answer: LaneOutcome | None = None
    runner: Runner | None = None
    recovery: Acts | None = None
    truth: LaneSnapshot | None = None

    def touched(self) -> set[str]:
        """Every partition that may have a position in its transaction."""
        return {file.key for file, _, _ in self.splits} | {partition.key for partition, _ in self.plan.driver_rows}

    def positions(self) -> list[Position]:
        """What its transaction says."""
        name, lane, seq = self.plan.lane.key, self.plan.lane.number, self.plan.head.seq + 1
        told = [Position(SourcePartition(name, file.key), lane, seq, SourceOffset(end)) for file, _, end in self.splits]
        return told + [Position(partition, lane, seq, offset) for partition, offset in self.plan.driver_rows]


class Runner:
    """A process that executes batches of one lane. `acts` None: it waits for one. `dead`: it has ended; `lost`: nobody hears it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.writer = LaneWriter()
        self.acts: Acts | None = None
        self.dead = self.lost = False

    def take(self, order: Order) -> None:
        """Begin a batch."""
        self.acts = self.batch(order)

    def rest(self) -> None:
        """Free what is kept for the next batch."""
        self.acts = iter_steps(self.writer.rest())

    def batch(self, order: Order) -> Acts:
        """One batch, as `batch.lanes` does it. Never raises."""
        writer, plan = self.writer, order.plan
        try:
            handle = yield from writer.begin(plan)
        except CopycatError as error:
            order.answer = LaneOutcome("unknown", plan.head, str(error))
            return
        try:
            for file, since, end in order.splits:
                yield Step("send", (handle, file.place, [(file.key, n) for n in range(since, end)]))
        except CopycatError as error:
            order.answer = yield from writer.undo(plan, handle, str(error))
            return
        positions = order.positions()
        order.answer = (yield from writer.finish(plan, handle, positions)) if positions else writer.keep(plan, handle)

    def send_plainly(self, order: Order) -> Acts:
        """One batch with at_least_once."""
        try:
            for file, since, end in order.splits:
                yield Step("plain", (file.place, [(file.key, n) for n in range(since, end)]))
        except CopycatError as error:
            order.answer = LaneOutcome("undone", plan_head(order), str(error))
            return
        order.answer = LaneOutcome("committed", plan_head(order))


def plan_head(order: Order) -> Head:
    """Where its lane was when it was planned."""
    return order.plan.head


def iter_steps(lines: Generator[Step, Any, Any]) -> Acts:
    """A piece of the protocol whose result nobody wants."""
    yield from lines


class RestartError(Exception):
    """The connector begins anew, in the same process."""


class Agent:
    """One state directory and whatever runs on it. `files` may be shared with a clone."""

    def __init__(self, name: str, rng: random.Random, files: list[File], tell: Tell) -> None:
        self.name, self.rng, self.files, self.tell = name, rng, files, tell
        self.disk = Disk()
        self.disk.save()
        self.connector, self.tasks_max, self.exact = "a", 2, True
        self.has_ids = True
        """Whether it is of a version that has ids."""
        self.earlier: list[str] = []
        """What its definition says in `renamed_from`."""
        self.driver: Acts | None = None
        self.runners: list[Runner] = []
        self.zombies: list[Runner] = []
        self.flying: dict[int, Order] = {}
        self.refused: PositionsError | None = None
        self.trouble: CopycatError | None = None
        self.is_behind = False
        """Whether Kafka was found to lack what this host has seen, once."""
        self.starts = 0
        self.restart_wanted = False
        self.idle = False
        """Whether another turn of the driver's would change nothing, before something else happens."""

    # Processes.

    def start(self) -> None:
        """A new driver on this state directory."""
        self.starts += 1
        nonce = f"{self.name}{self.starts}"
        self.refused, self.trouble, self.restart_wanted = None, None, False
        self.is_behind = False
        self.flying = {}
        self.idle = False
        if self.has_ids:
            self._migrate()
        self.driver = self._drive(nonce)
        self.tell(
            f"{self.name}: starts, nonce {nonce}, {'exactly' if self.exact else 'at least'} once, {self.connector}, lanes {self.tasks_max}"
            f"{'' if self.has_ids else ', before ids'}"
        )

    def _migrate(self) -> None:
        """Another name, and the store of an older version, are seen to before anything begins."""
        self.disk.migrate()
        kept = self.disk.kept.get(self.connector)
        if kept is None or not kept.has_something:
            for name in self.earlier:
                if (old := self.disk.kept.get(name)) is not None and old.has_something:
                    self.disk.rename(name, self.connector)
        if not self.disk.of(self.connector).id:
            self.disk.of(self.connector).id = new_id(self.disk)
        self.disk.save()

    def kill(self) -> None:
        """The driver dies; its runners die with it, or stay behind."""
        self.driver = None
        for runner in self.runners:
            self.leave(runner)
        self.runners = []
        self.flying = {}

    def leave(self, runner: Runner) -> None:
        """Nobody hears this runner any more: it is dead, or frozen and may go on later."""
        runner.lost = True
        if runner.acts is not None and self.rng.random() < 0.6:
            self.zombies.append(runner)
        else:
            runner.dead = True

    def acting(self) -> list[tuple[Agent | Runner, Acts]]:
        """Everybody here who can take a step."""
        found: list[tuple[Agent | Runner, Acts]] = []
        if self.driver is not None:
            if not self.idle:
                found.append((self, self.driver))
            found += [(self, one.recovery) for one in self.flying.values() if one.recovery and not one.truth and not self.trouble]
        for runners in (self.runners, self.zombies):
            found += [(one, one.acts) for one in runners if one.acts is not None]
        return found

    # The driver.

    def open(self, asked: OpeningPlan) -> Procedure[LaneSnapshot]:
        """The opening itself."""
        return opening.open_lanes(asked)

    def _drive(self, nonce: str) -> Acts:
        self.disk.nonces.append(nonce)
        yield Local("start")
        while True:
            try:
                if self.exact:
                    yield from self._open_and_work(nonce)
                else:
                    yield from self._work_plainly()
            except (CopycatError, RestartError) as error:
                if isinstance(error, PositionsError) and not self.doubts(error):
                    self.refused = error
                    self.tell(f"{self.name}: refuses: {error.message}")
                    return
                self.tell(f"{self.name}: anew: {error}")
                for runner in self.runners:
                    if runner.acts is not None:
                        self.leave(runner)
                self.runners, self.flying = [one for one in self.runners if not one.lost], {}
                self.restart_wanted, self.trouble = False, None
                yield Local(SECOND_LOOK if self.is_behind else "back-off")

    def doubts(self, error: PositionsError) -> bool:
        """Whether Kafka is asked once more, as `delivery.exactly_once.guarantee` does."""
        self.is_behind, before = isinstance(error, BehindError), self.is_behind
        return self.is_behind and not before

    def asked(self, nonce: str, only: frozenset[int] = frozenset()) -> OpeningPlan:
        """What is asked of an opening."""
        kept = self.disk.of(self.connector)
        key = self.key
        lanes = LaneGroup(key, place_of(key), dict(kept.heads))
        rows: tuple[tuple[SourcePartition, SourceOffset], ...] = ()
        if kept.adopt == "local" or kept.before or not kept.published:
            rows = tuple((SourcePartition(self.connector, key), SourceOffset(at)) for key, at in kept.rows.items())
        tells = self.has_ids and not only
        is_new = bool(rows or kept.before or kept.adopt) or not kept.published
        return OpeningPlan(
            UUID, lanes, tuple(range(self.tasks_max)), nonce, frozenset(self.disk.nonces), kept.cluster,
            () if only else kept.before, kept.adopt, publish=rows, only=only, name=self.connector,  # type: ignore[arg-type]
            home=place_of(self.connector) if tells else None, registers=tells and (is_new or kept.registered != self.connector),
        )  # fmt: skip

    @property
    def key(self) -> str:
        """What its lanes are called after."""
        return self.disk.of(self.connector).id if self.has_ids else self.connector

    def _look_up(self, nonce: str) -> Acts:
        """Ask Kafka for names, where the store does not know: see `attempts.OpeningPlanner` and `offsets.connector_names`."""
        kept = self.disk.of(self.connector)
        if not kept.asks:
            return
        nothing = OpeningPlan(
            UUID, LaneGroup(kept.id, place_of(kept.id)), (), nonce, frozenset(self.disk.nonces), kept.cluster,
            adopt="topic" if kept.adopt else "", name=self.connector,
        )  # fmt: skip
        earlier = [one for one in self.earlier if not self.disk.knows(one)] if not kept.published else []
        found = yield from name_lookup.look_up(
            map(name_lookup.NameQuery, [self.connector, *earlier]), nothing, lambda _, key: place_of(key)
        )
        ids = [one.key for one in found if is_connector_id(one.key)]
        if ids and not kept.published:
            kept.id, kept.registered = ids[0], self.connector
            for name, other in self.disk.kept.items():
                if other.id == kept.id and name != self.connector:
                    self.disk.kept[name] = Kept(id=new_id(self.disk), asks=False)
        kept.before = (*kept.before, *(one for one in found if one.key != kept.id and one.key not in {b.key for b in kept.before}))
        kept.asks = not found
        self.disk.save()
        self.tell(f"{self.name}: names are looked up: {kept.id}, {[one.key for one in kept.before]}")
        yield Local("looked up")

    def _open_and_work(self, nonce: str) -> Acts:
        if self.has_ids:
            yield from self._look_up(nonce)
        truth = yield from self.open(self.asked(nonce))
        yield Local("claimed")
        self.is_behind = False
        kept = self.disk.of(self.connector)
        kept.published, kept.before, kept.adopt, kept.asks = True, (), "", False
        if self.has_ids:
            kept.registered = self.connector
        self._save_truth(kept, truth)
        while True:
            yield Local("turn")
            if self.trouble is not None:
                raise self.trouble
            if self.restart_wanted:
                raise RestartError("wanted")
            before = list(self.flying)
            yield from self._answers(kept, nonce)
            self._scan(kept)
            self._plan(kept)
            self.idle = before == list(self.flying) and (not kept.unpublished or len(before) == self.tasks_max)

    def _save_truth(self, kept: Kept, truth: LaneSnapshot) -> None:
        kept.cluster = truth.cluster
        for one in truth.positions:
            key = one.partition.key
            kept.unpublished.discard(key)
            if isinstance(one.offset, SourceOffset):
                kept.rows[key] = one.offset.position
        kept.heads.update(truth.heads)
        self.disk.save()
        self.tell(f"{self.name}: saved rows {kept.rows} heads { {n: h.seq for n, h in kept.heads.items()} }")

    def _answers(self, kept: Kept, nonce: str) -> Acts:
        for lane, order in list(self.flying.items()):
            answer = self._answer(lane, order)
            if order.recovery is not None:
                if order.truth is not None:
                    self._recovered(kept, order, order.truth)
                    del self.flying[lane]
            elif answer is not None and answer.state == "committed":
                yield Local("answered")
                self._save(kept, lane, order, answer.head)
                yield Local("saved")
                del self.flying[lane]
            elif answer is not None and answer.state == "unknown":
                order.recovery = self._recover(nonce, lane, order)
            elif answer is not None:
                del self.flying[lane]

    def _answer(self, lane: int, order: Order) -> LaneOutcome | None:
        assert order.runner is not None
        if order.answer is None and order.runner.lost:
            order.answer = LaneOutcome("unknown", order.plan.head, "no answer")
        if order.answer is not None and order.recovery is None:
            self.tell(f"{self.name}: lane {lane} {order.answer.state} {order.answer.why}")
        return order.answer

    def _save(self, kept: Kept, lane: int, order: Order, head: Head) -> None:
        for file, _, end in order.splits:
            kept.rows[file.key] = end
        kept.unpublished -= order.touched()
        kept.heads[lane] = head
        self.disk.save()

    def _recover(self, nonce: str, lane: int, order: Order) -> Acts:
        """Open one lane again, while the others work."""
        while True:
            try:
                order.truth = yield from self.open(self.asked(nonce, frozenset([lane])))
                return
            except BehindError as error:
                self.trouble = RetriableError(error.message)
                return
            except PositionsError as error:
                self.trouble = error
                return
            except CopycatError as error:
                self.tell(f"{self.name}: lane {lane} is not open: {error}")
                yield Local("back-off")

    def _recovered(self, kept: Kept, order: Order, truth: LaneSnapshot) -> None:
        there = {one.partition.key for one in truth.positions}
        if not there <= order.touched():
            raise RestartError("positions of others")
        self._save_truth(kept, truth)
        if there:
            kept.unpublished -= order.touched()
            self.disk.save()

    def _scan(self, kept: Kept) -> None:
        flying = self.in_flight()
        for file in self.files:
            if file.destroyed:
                if file.key in kept.rows and file.key not in flying:
                    del kept.rows[file.key]
                    kept.unpublished.add(file.key)
            elif file.key not in kept.rows:
                kept.rows[file.key] = 0
                kept.unpublished.add(file.key)

    def in_flight(self) -> set[str]:
        """Partitions whose truth is not known before an order is answered."""
        return {key for order in self.flying.values() for key in order.touched()}

    def _plan(self, kept: Kept) -> None:
        for lane in range(self.tasks_max):
            if lane not in self.flying and lane in kept.heads:
                self._plan_lane(kept, lane)

    def _plan_lane(self, kept: Kept, lane: int) -> None:
        rng, flying = self.rng, self.in_flight()
        ready = [f for f in self.files if not f.destroyed and f.key not in flying and kept.rows.get(f.key, f.lines) < f.lines]
        splits = []
        for file in rng.sample(ready, min(len(ready), rng.randint(1, 2))):
            at = kept.rows[file.key]
            splits.append((file, at, min(file.lines, at + rng.randint(1, 4))))
        chosen = {file.key for file, _, _ in splits}
        free = sorted(kept.unpublished - flying - chosen)[:2]
        if not splits and (not free or rng.random() < 0.8):
            return
        name = self.connector
        also = tuple((SourcePartition(name, key), SourceOffset(kept.rows[key]) if key in kept.rows else None) for key in free)
        plan = LanePlan(LaneId(UUID, self.key, lane), kept.heads.get(lane, Head()), place_of(self.key), also)
        order = Order(plan, tuple(splits))
        self._hand(lane, order)

    def _hand(self, lane: int, order: Order) -> None:
        runner = next((one for one in self.runners if one.name.endswith(f".{lane}")), None)
        if runner is None or runner.lost or runner.acts is not None:
            if runner is not None:
                self.runners.remove(runner)
                if not runner.lost:
                    self.leave(runner)
            runner = Runner(f"{self.name}{self.starts}.{lane}")
            self.runners.append(runner)
        order.runner = runner
        self.flying[lane] = order
        self.tell(f"{self.name}: lane {lane} is told {[(f.key, a, b) for f, a, b in order.splits]} at {order.plan.head.seq}")
        runner.acts = runner.batch(order) if self.exact else runner.send_plainly(order)

    def _work_plainly(self) -> Acts:
        kept = self.disk.of(self.connector)
        kept.adopt, kept.published = "local", False
        self.disk.save()
        while True:
            yield Local("turn")
            if self.restart_wanted:
                raise RestartError("wanted")
            self._scan(kept)
            for lane, order in list(self.flying.items()):
                if order.answer is not None and order.answer.state == "committed":
                    yield Local("answered")
                    for file, _, end in order.splits:
                        kept.rows[file.key] = end
                    self.disk.save()
                if order.answer is not None or (order.runner and order.runner.lost):
                    del self.flying[lane]
            for lane in range(self.tasks_max):
                if lane not in self.flying:
                    self._plan_lane(kept, lane)
