"""Random histories of several writers of one partition, from a seed, and what none of them may show.

The code that runs in production runs here, each writer in a thread of its own, of which one at a time goes on by some operations of the
store. So each can be stopped, for a while or for ever, between any two operations; an operation may fail, before or after it is done, be
done once its writer has given it up, or be done twice. A file that becomes visible is looked at at once: no offset may be in two. Whenever
a writer is told where the chain ends, all offsets up to there are visible.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import stat_result
from pathlib import Path
from typing import Any, TypeVar

from copycat_agent.errors import RetriableError
from copycat_agent.sinks.chain_objects import CHECKPOINT
from copycat_agent.sinks.claims import Claims, LocalFile, Range

T = TypeVar("T")
Tell = Callable[[str], None]

TOPIC = "t"
STEPS = 250
"""Operations of a history, before the last writer comes, whom nothing befalls."""
FATES = {"done": 88, "refused": 2, "lost": 3, "late": 3, "twice": 3, "crash": 1}
"""What becomes of an operation, and how often beside each other.

refused: it is not done, and fails. lost: it is done, and fails. late: it fails, and is done later. twice: it is done, and again later, or
at once, and the second answer is what the writer gets.
"""
_FATES, _WEIGHTS = list(FATES), list(itertools.accumulate(FATES.values()))


CONFLICTS = 0.03
"""Of puts are refused though nothing is there, and five times as many of checkpoints, which are rare.

At S3 it is for another request that is under way, which may be the same one, sent before.
"""


class Crash(BaseException):
    """The process of a writer ends."""


class Made:
    """A local file, by its offsets."""

    def __init__(self, offsets: Iterable[int]) -> None:
        self.data = json.dumps(list(offsets)).encode()

    def stat(self) -> stat_result:
        return stat_result((0, 0, 0, 0, 0, 0, len(self.data), 0, 0, 0))


class World:
    """A store, the records of a partition, and what everybody may see."""

    def __init__(self, rng: random.Random, tell: Tell) -> None:
        self.rng = rng
        self.tell = tell
        self.objects: dict[str, bytes] = {}
        self.late: list[tuple[str, Callable[[], object]]] = []
        self.end = rng.randint(0, 40)
        self.gaps = frozenset(one for one in range(2000) if rng.random() < 0.15)
        """Offsets without a record: of transactions' ends, or compacted."""
        self.shown: dict[int, str] = {}
        """Offset -> the file in which it is visible."""
        self.faults = True
        self.ends: list[int] = []
        """All ends of the chain that somebody was told."""
        self._complete = 0
        """Offsets from the start up to here are visible."""

    @property
    def start(self) -> int:
        """Where the chain begins."""
        return int(json.loads(self.objects[f"_copycat/c/starts/{TOPIC}/0"])["start"])

    def put(self, key: str, data: bytes) -> None:
        """Write an object. What becomes visible is looked at."""
        if not key.startswith("_copycat/"):
            before = self.objects.get(key)
            assert before in (None, data), f"{key} is changed"
            if before is None:
                for offset in json.loads(data):
                    assert offset not in self.shown, f"offset {offset} of {key} is in {self.shown[offset]}, too"
                    self.shown[offset] = key
        self.objects[key] = data

    def told(self, end: int) -> None:
        """A writer is told that the chain ends there."""
        self.ends.append(end)
        missing = [one for one in range(max(self._complete, self.start), end) if one not in self.gaps and one not in self.shown]
        assert not missing, f"the chain ends at {end}, and offsets {missing[:5]} are not visible"
        self._complete = max(self._complete, end)

    def goes_on(self) -> None:
        """Records come, and one of the operations is done that their writers have given up."""
        if self.rng.random() < 0.1:
            self.end += self.rng.randint(0, 6)
        if self.late and self.rng.random() < 0.2:
            what, do = self.late.pop(self.rng.randrange(len(self.late)))
            self.tell(f"late: {what}")
            do()


class View:
    """The store as a writer has it: `SinkStore`, where each operation is a step."""

    def __init__(self, world: World, writer: Writer) -> None:
        self._world = world
        self._writer = writer

    def _do(self, what: str, do: Callable[[], T]) -> T:
        self._writer.wait()
        world = self._world
        if world.faults:
            world.goes_on()
        fate = world.rng.choices(_FATES, cum_weights=_WEIGHTS)[0] if world.faults else "done"
        world.tell(f"{self._writer.name}: {what}" + (f" ({fate})" if fate != "done" else ""))
        if fate == "crash":
            raise Crash
        if fate == "refused":
            raise RetriableError(what)
        if fate == "late":
            world.late.append((what, do))
            raise RetriableError(what)
        answer = do()
        if fate == "lost":
            raise RetriableError(what)
        if fate == "twice":
            if world.rng.random() < 0.5:
                return do()
            world.late.append((what, do))
        return answer

    def put_if_absent(self, key: str, data: bytes) -> bool:
        world = self._world

        def do() -> bool:
            if key in world.objects:
                return False
            world.put(key, data)
            return True

        if world.faults and world.rng.random() < (5 * CONFLICTS if CHECKPOINT in key else CONFLICTS):
            if world.rng.random() < 0.5:
                world.late.append((f"put {key}", do))
            return self._do(f"put {key} (conflict)", lambda: False)
        return self._do(f"put {key}", do)

    def get(self, key: str) -> bytes | None:
        return self._do(f"get {key}", lambda: self._world.objects.get(key))

    def upload(self, files: Mapping[str, Path]) -> None:
        for key, path in files.items():
            data = path.data  # type: ignore[attr-defined]
            self._do(f"upload {key}", lambda key=key, data=data: self._world.put(key, data))  # type: ignore[misc]

    def publish(self, moves: Mapping[str, str]) -> None:
        """By copies, which is more than renames may show: one may be long under way, with what it has read, when others have gone on."""
        copied = []
        for temporary, final in self._shuffled(moves.items()):
            data = self._do(f"read {temporary}", lambda key=temporary: self._world.objects.get(key))  # type: ignore[misc]
            if data is not None:
                self._do(f"copy to {final}", lambda key=final, data=data: self._world.put(key, data))  # type: ignore[misc]
                copied.append(temporary)
        self.delete(copied)

    def _shuffled(self, what: Iterable[T]) -> Sequence[T]:
        found = list(what)
        self._world.rng.shuffle(found)
        return found

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        """What comes or goes while a directory is read may be in the list or not, but for checkpoints: `claims` says why."""

        def names() -> set[str]:
            return {one for one in self._world.objects if one.startswith(f"{directory}/") and one > after}

        before = self._do(f"list {directory} after {after}", names)
        now = before
        if self._world.rng.random() < 0.2:
            self._writer.rest()  # others go on meanwhile
            now = self._do(f"list {directory} on", names)
        sure = (before & now) | {one for one in before if CHECKPOINT in one}
        yield from sorted(sure | {one for one in sorted(now ^ before) if self._world.rng.random() < 0.5})

    def delete(self, keys: Iterable[str]) -> None:
        for key in self._shuffled(keys):
            self._do(f"delete {key}", lambda key=key: self._world.objects.pop(key, None))  # type: ignore[misc]

    def shown(self, key: str = "") -> str:
        return key


class Writer(threading.Thread):
    """A process that writes what comes, until it is ended. It goes on by so many operations for each `step`."""

    def __init__(self, world: World, name: str, kept: int) -> None:
        super().__init__(name=name, daemon=True)
        self._world = world
        self._kept = kept
        self._go, self._come = threading.Lock(), threading.Lock()
        self._left = 0
        self._is_killed = False
        self.is_going = True
        self.error: BaseException | None = None
        self._go.acquire()
        self._come.acquire()
        self.start()
        self._come.acquire()

    def step(self, count: int) -> None:
        """It goes on, and comes back before the operation after these. Raises what it found."""
        self._left = count
        self._go.release()
        self._come.acquire()
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        """It ends where it is."""
        self._is_killed = True
        self._go.release()
        self.join()

    def rest(self) -> None:
        """Stand still before the next operation."""
        self._left = 0

    def wait(self) -> None:
        """Stand still before an operation, unless there are some left."""
        if not self._left:
            self._come.release()
            self._go.acquire()
        if self._is_killed:
            raise Crash
        self._left -= 1

    def run(self) -> None:
        """All its life."""
        try:
            self._write()
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001 - `step` raises it
            self.error = error
        finally:
            self.is_going = False
            self._come.release()

    def _write(self) -> None:
        world, rng = self._world, self._world.rng
        number = iter(range(1000))
        view: Any = View(world, self)
        claims = Claims(view, "c", kept=self._kept, token=lambda: f"{self.name}.{next(number)}")
        start, first, known = rng.choice([0, 0, 3, 7]), None, 0
        while True:
            try:
                if first is None:
                    first = claims.resume(TOPIC, 0, start, known)
                    world.told(first)
                if first >= world.end:
                    self.wait()
                else:
                    first = self._commit(claims, first)
                    world.told(first)
                known = max(known, first)
                if rng.random() < 0.5:  # a process that has a number from somewhere, not its own and not the last
                    first = None if rng.random() < 0.7 else rng.choice(world.ends)
            except RetriableError:
                first = None

    def _commit(self, claims: Claims, first: int) -> int:
        world, rng = self._world, self._world.rng
        last = min(world.end - 1, first + int(rng.expovariate(0.2)))
        count = rng.choice([1, 1, 2, 3])
        kept = [one for one in range(first, last + 1) if one not in world.gaps]
        parts = [kept[one::count] for one in range(count)]
        files: Any = [LocalFile(Made(part), f"d{n}", len(part)) for n, part in enumerate(parts) if part]  # type: ignore[arg-type]
        return claims.commit(Range(TOPIC, 0, first, last), files, "x").end


def run(seed: int, tell: Tell = lambda _: None) -> None:
    """One history. Raises AssertionError where a promise is broken."""
    rng = random.Random(seed)
    world, kept = World(rng, tell), rng.choice([1, 1, 2, 3])
    count = rng.randint(2, 4)
    writers: list[Writer] = []
    made = done = 0
    try:
        while done < STEPS:
            while len(writers) < count:
                made += 1
                writers.append(Writer(world, f"w{made}", kept))
            going, steps = rng.choice(writers), rng.choice([1, 2, 5, 5, 20, 60])
            going.step(steps)
            done += steps
            if not going.is_going or rng.random() < 0.02:
                writers.remove(going)
                going.kill()
        _to_the_end(world, kept, writers)
    finally:
        for one in writers:
            one.kill()


def _to_the_end(world: World, kept: int, writers: list[Writer]) -> None:
    """A last writer works alone, then all that slept wake and go on beside him."""
    world.tell("the end begins")
    world.faults = False
    last = Writer(world, "last", kept)
    writers.append(last)
    for _ in range(300):
        if world.ends and max(world.ends) >= world.end:
            break
        last.step(10)
    else:
        raise AssertionError("the last writer does not come to the end")
    for _ in range(20):
        world.rng.choice(writers).step(world.rng.choice([1, 3, 20]))
    while world.late:
        world.late.pop()[1]()
    world.told(world.end)
    claims = sum(1 for one in world.objects if "/claims/" in one and CHECKPOINT not in one)
    assert claims <= 2 * kept + 20, f"{claims} claims are there"
    assert all(world.start <= one < world.end for one in world.shown), "an offset outside the chain is visible"


def main() -> None:
    """Replay one history with everything that happens in it, or run many and print those that break a promise."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the history, or the first of them")
    parser.add_argument("--count", type=int, default=1, help="how many; of more than one, only the broken ones are told")
    options = parser.parse_args()
    if options.count == 1:
        run(options.seed, print)
        return
    broken = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            run(seed)
        except AssertionError as error:
            broken += 1
            print(f"history {seed}: {error}", flush=True)
    print(f"{options.count:,} histories from {options.seed}, {broken} broken")


if __name__ == "__main__":
    main()
