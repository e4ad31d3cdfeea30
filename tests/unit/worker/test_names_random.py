"""Names change hands at random, and everything that can happen meanwhile does: each connector has its own positions, and no others.

A seed that fails fails again: every choice is its own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from copycat_agent.errors import RetriableError
from copycat_agent.model import Head, LaneId, Position, SourceOffset, SourcePartition
from copycat_agent.offsets import LaneCommit
from copycat_agent.transactions.entries import head_entry, position_entry
from copycat_agent.transactions.protocol import Entry
from tests.rig.waiting import wait_until
from tests.unit.worker.test_names import DEADLINE, Host

NAMES, KEYS = "ABCD", "ghi"
STEPS = 30
COMPACTED = Entry(b"[]", None)

Rows = dict[str, int]


@dataclass
class History:
    """What was done to a host, and what has to be so: `owned` is how far each connector is, by name and file."""

    seed: int
    host: Host = field(default_factory=Host)
    owned: dict[str, Rows] = field(default_factory=dict)
    loose: dict[tuple[str, str], set[int | None]] = field(default_factory=dict)
    """Files of which two merged connectors were at different places, one of which the host did not know of: any of these will do."""
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    told: list[str] = field(default_factory=list)
    stale: int = 0
    """Names without a holder, under which something was left in Kafka."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def run(self) -> None:
        """One step after the other, and then all connectors come to rest."""
        steps = [
            *[self.ship] * 8, *[self.kill_after_commit] * 2, *[self.open] * 4, *[self.rename] * 4, self.swap, self.reset, self.set_back,
            self.forget, self.at_least_once, self.adopt, *[self.kill_while_opening] * 3, self.kill_before_save, *[self.open_two] * 2,
            self.lose_store, self.compact,
        ]  # fmt: skip
        try:
            for _ in range(STEPS):
                self.random.choice(steps)()
            self.settle()
        except BaseException as error:
            error.add_note("\n".join((f"seed {self.seed}:", *self.told)))
            raise

    # What happens.

    def open(self) -> None:
        self._open(self.random.choice(NAMES))

    def _open(self, name: str) -> None:
        self.tell(f"open {name}")
        self.owned.setdefault(name, {})
        self.host.open(name, self.earlier_of(name))
        self.opened(name)

    def opened(self, name: str) -> None:
        self.running.add(name)
        rows = self.host.positions(name)
        for (whose, key), allowed in list(self.loose.items()):
            if whose == name:
                assert rows.get(key) in allowed, f"{name}: {key} is at {rows.get(key)}, not {allowed}"
                self.owned[name].pop(key, None)
                self.owned[name] |= {key: rows[key]} if key in rows else {}
                del self.loose[whose, key]
        assert rows == self.owned[name], f"{name} is at {rows}, not at {self.owned[name]}"

    def ship(self, *, saved: bool = True) -> None:
        if not self.running:
            self.open()
        name, key = self.random.choice(sorted(self.running)), self.random.choice(KEYS)
        position = self.owned[name].get(key, 0) + self.random.randint(1, 100)
        self.tell(f"ship {name} {key}@{position}{'' if saved else ', not saved'}")
        self.owned[name][key] = position
        self._ship(name, {key: position}, saved=saved)

    def _ship(self, name: str, read: Rows, *, saved: bool = True) -> None:
        """A batch, and what goes along with it."""
        store, uuid, nonce = self.host.store, self.host.store.identity.uuid, self.host.store.identity.nonce
        rows = {SourcePartition(name, key): SourceOffset(position, path=key) for key, position in read.items()}
        also = {one: offset for one, offset in store.unpublished(name, 99).items() if one not in rows}
        head = store.lanes(name).heads[0]
        now = Head(head.seq + 1, nonce, head.offset)
        told = [Position(one, 0, now.seq, offset, nonce=nonce) for one, offset in {**rows, **also}.items()]
        key = store.lanes(name).id
        self.host.kafka.append([*(position_entry(uuid, key, one) for one in told), head_entry(LaneId(uuid, key, 0), now)])
        if saved:
            store.commit(rows, moved=LaneCommit(name, {0: now}, set(rows), also))

    def kill_after_commit(self) -> None:
        self.ship(saved=False)
        self.restart()

    def restart(self) -> None:
        self.tell("restart")
        self.host.store._identity = None
        self.running.clear()

    def rename(self) -> None:
        known = [name for name in NAMES if name in self.owned]
        if known:
            old = self.random.choice(known)
            new = self.random.choice(NAMES.replace(old, ""))
            is_lost = not self.host.store.knows(old)
            if is_lost and (new in self.owned or any(old in olds for olds in self.earlier.values())):
                self._open(old)
            if new in self.owned and not self.host.store.knows(new):
                self._open(new)
            self._rename(old, new)
            if is_lost:
                self._open(new)

    def _rename(self, old: str, new: str) -> None:
        self.tell(f"rename {old} {new}")
        theirs, ours, mine, yours = self.owned.pop(old), self.owned.get(new, {}), self.host.positions(new), self.host.positions(old)
        local = "local" in (self.host.store.lanes(old).adopt, self.host.store.lanes(new).adopt)
        for key in KEYS:
            values = {one.get(key) for one in (theirs, ours)}
            known = ours.get(key) == mine.get(key) and theirs.get(key) == yours.get(key)
            wished = any(SourcePartition(name, key) in self.host.store.unpublished(name, 9) for name in (old, new))
            before = self.loose.pop((old, key), set()) | self.loose.pop((new, key), set())
            if before or (new in self.owned and not known and (local or wished or None not in values)):
                self.loose[new, key] = values | before | {mine.get(key), yours.get(key)}
                self.tell(f"    loose {new} {key}: {self.loose[new, key]}")
        self.owned[new] = {**theirs, **ours}
        self.earlier[new] = tuple(dict.fromkeys((*self.earlier.get(new, ()), old, *self.earlier.pop(old, ()))))
        self.host.store.rename(old, new)
        self.running -= {old, new}

    def swap(self) -> None:
        first, second, between = self.random.sample(NAMES, 3)
        if {first, second} <= self.owned.keys() and between not in self.owned:
            for name in (first, second):
                if not self.host.store.knows(name):
                    self._open(name)
            for old, new in ((first, between), (second, first), (between, second)):
                self._rename(old, new)

    def reset(self) -> None:
        name = self.any()
        self.tell(f"reset {name}")
        is_lost = not self.host.store.knows(name)
        self.host.store.begin_anew(name)
        self.now(name, {})
        if is_lost:
            self._open(name)

    def set_back(self) -> None:
        name, key = self.any(), self.random.choice(KEYS)
        if key in self.owned[name] and (name, key) not in self.loose:
            position = self.random.randint(0, self.owned[name][key])
            self.tell(f"set {name} {key}@{position}")
            self.host.store.reset({SourcePartition(name, key): SourceOffset(position, path=key)})
            self.owned[name][key] = position

    def forget(self) -> None:
        name, key = self.any(), self.random.choice(KEYS)
        if key in self.host.positions(name) and (name, key) not in self.loose:
            self.tell(f"forget {name} {key}")
            self.host.store.forget([SourcePartition(name, key)])
            self.owned[name].pop(key, None)

    def at_least_once(self) -> None:
        """It goes on from what the host knows, which is documented."""
        name, key = self.any(opened=True), self.random.choice(KEYS)
        self.host.store.leave_lanes(name)
        rows = self.host.positions(name)
        rows[key] = rows.get(key, 0) + self.random.randint(1, 100)
        self.tell(f"without lanes: {name} {key}@{rows[key]}")
        self.host.store.commit({SourcePartition(name, key): SourceOffset(rows[key], path=key)})
        self.now(name, rows)

    def adopt(self) -> None:
        name = self.any(opened=True)
        self.tell(f"adopt {name}")
        self.host.store.adopt(name, "local")
        self.now(name, self.host.positions(name))

    def kill_while_opening(self) -> None:
        name, left, after = self.any(), self.random.randrange(4), self.random.random() < 0.5
        self.tell(f"kill {'after' if after else 'before'} commit {left} of opening {name}")

        def killed(step: str) -> None:
            nonlocal left
            left -= step == "commit"
            if left < 0:
                self.host.kafka.at_step = lambda _: None
                self.host.kafka.fail_commit(after=after)

        self.host.kafka.at_step = killed
        try:
            self._open(name)
        except RetriableError:
            self.restart()
        self.host.kafka.at_step = lambda _: None

    def kill_before_save(self) -> None:
        name = self.any()
        self.tell(f"kill before the opening of {name} is saved")
        attempt = self.host.begin(name, self.earlier_of(name))
        attempt._future.result(DEADLINE)
        self.restart()

    def open_two(self) -> None:
        """At the same time; the first to be there is saved first."""
        names = self.random.sample(NAMES, 2)
        self.tell(f"open {' and '.join(names)} at once")
        for name in names:
            self.owned.setdefault(name, {})
        attempts = {name: self.host.begin(name, self.earlier_of(name)) for name in names}
        todo = list(names)
        while todo:
            wait_until(lambda: any(attempts[one].is_over for one in todo), DEADLINE)
            name = next(one for one in todo if attempts[one].is_over)
            self.host.end(name, attempts[name])
            todo.remove(name)
            self.opened(name)

    def lose_store(self) -> None:
        """Once everything is told, which takes a moment."""
        self.settle()
        self.tell("lose the store")
        self.host.lose_store()
        self.restart()

    def compact(self) -> None:
        self.tell("compact")
        last = {entry.key: index for index, entry in enumerate(self.host.kafka.log)}
        self.host.kafka.log = [
            entry if last[entry.key] == index and entry.value is not None else COMPACTED for index, entry in enumerate(self.host.kafka.log)
        ]

    def settle(self) -> None:
        """All are opened and tell what is marked: every position stands in Kafka under one name."""
        self.tell("settle")
        for name in self.random.sample(sorted(self.owned), len(self.owned)):
            self._open(name)
        for name in list(self.owned):
            self._ship(name, {})
            assert not self.host.store.unpublished(name, 9)
        for name in NAMES:
            if name not in self.owned and self.host.in_kafka(name):
                self._leave(name)
            assert self.host.in_kafka(name) == self.owned.get(name, {}), f"{name} in Kafka"

    def _leave(self, name: str) -> None:
        """Nobody has it: it is known here as nobody's, and cleared when somebody gets it. A store that is lost would not know."""
        assert self.host.store.lanes(name).adopt in {"moved", "local"}, f"{name} in Kafka"
        self._open(name)
        self.stale += 1

    # What there is.

    def any(self, *, opened: bool = False) -> str:
        """A connector, which has stopped. `opened`: a store that was lost knows it again."""
        name = self.random.choice(sorted(self.owned) or NAMES)
        self.owned.setdefault(name, {})
        if opened and not self.host.store.knows(name):
            self._open(name)
        self.running.discard(name)
        return name

    def now(self, name: str, rows: Rows) -> None:
        """A person wants it so."""
        self.owned[name] = rows
        for key in KEYS:
            self.loose.pop((name, key), None)

    def earlier_of(self, name: str) -> tuple[str, ...]:
        """What `agent.renames` makes of a definition that names all that it was called."""
        claimed = [old for olds in self.earlier.values() for old in olds]
        return tuple(old for old in self.earlier.get(name, ()) if old not in self.owned and claimed.count(old) == 1)

    def tell(self, words: str) -> None:
        self.told.append(words)


def test_every_connector_keeps_its_own_positions() -> None:
    for seed in range(25):
        History(seed).run()


class PutBack(History):
    """A store is backed up, names change hands and everything goes on, and the copy is put back.

    Each name has a holder when it is backed up: a store that knows a name as given away does not ask Kafka who has got it since.
    """

    def run(self) -> None:
        """What Kafka has been told counts, whoever is opened first."""
        try:
            for _ in range(STEPS // 2):
                self.random.choice([self.ship, self.ship, self.open, self.rename, self.swap])()
            for name in NAMES:
                self._open(name)
            self.settle()
            copy = self.host.back_up()
            self.tell("back up")
            for _ in range(STEPS // 2):
                self.random.choice([self.ship, self.ship, self.open, self.rename, self.rename, self.swap, self.kill_after_commit])()
            self.settle()
            self.host.put_back(copy)
            self.tell("put back")
            for name in self.random.sample(sorted(self.owned), len(self.owned)):
                self.tell(f"start {name}")
                self.host.start(name)
                self.opened(name)
            self.settle()
        except BaseException as error:
            error.add_note("\n".join((f"seed {self.seed}:", *self.told)))
            raise


def test_every_connector_has_its_own_positions_when_an_older_store_is_put_back() -> None:
    for seed in range(40):
        PutBack(seed).run()


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_every_connector_keeps_its_own_positions_often(part: int) -> None:
    for seed in range(100 * part + 1000, 100 * part + 1100):
        History(seed).run()
