"""Random histories of a connector that reads a spool directory, and what each of them must not show.

People drop files (whole, or slowly), pack, replace, rename, drop again and delete them, before and after they are read. The agent reads,
cleans up, stops, dies at any effect, and finds a full disk.
"""

from __future__ import annotations

import gzip
import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from unittest.mock import patch

from copycat_agent import failpoints
from copycat_agent.model import Split
from copycat_agent.sources.spool_dir import admission
from copycat_agent.sources.spool_dir.cleanup.cleaner import Cleaner, CleanupOutcome, FinishedFile
from copycat_agent.sources.spool_dir.spool_dir import SpoolDirSource
from copycat_agent.sources.spool_dir.spool_kind import SPOOL_DIR
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from tests.simulation.agent import Agent, Clock, Crash, TaskProcess, Watched
from tests.simulation.running import Tell, main, play

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.sources.files.reading.stream import Stream


RANGE_BYTES = 60
"""Files of twice as many bytes may be cut, where the order of lines does not matter."""
FILE_RULES = {
    "drop": 8, "drop_packed": 2, "begin_slowly": 2, "go_on_slowly": 4, "end_slowly": 3, "drop_again": 2, "replace": 2, "save_over": 2,
    "rename": 2, "delete": 2, "delete_done": 1,
}  # fmt: skip
"""What is done to files, and how often beside each other."""
AGENT_RULES = {
    "scan": 3, "work": 4, "scan_and_work": 8, "restart": 2, "stop_and_start": 2, "die_at_an_effect": 6, "pause": 1, "resume": 2,
    "fill_disk": 1, "make_room": 2, "catch_up": 2,
}  # fmt: skip
"""What becomes of the agent."""


class WatchedSpool(Watched, SpoolDirSource):
    """Spooled files."""


class SpoolTask(TaskProcess):
    """Reads spooled files."""

    kind = SPOOL_DIR

    def _open(self, split: Split) -> Stream:
        return SPOOL_DIR.open(split, SPOOL_DIR.framing(self._options, raw=False))


class SpoolAgent(Agent):
    """The agent of one spool directory."""

    task_process = SpoolTask

    def _source_options(self, directory: Path, pattern: str, **options: Any) -> SpoolDirOptions:
        return SpoolDirOptions.model_validate(
            {"type": "spool_dir", "dir": str(directory), "pattern": (pattern,), "watch": "poll", **options}
        )

    def _make(self, *args: Any) -> Any:
        self.source = source = WatchedSpool(*args)  # type: ignore[assignment] # another kind of source
        source.effects = self.effects
        return source


@dataclass(eq=False)
class Dropped:
    """A file that somebody dropped. `path` is where it has to be unless the agent took it away; None once somebody else did."""

    path: Path | None
    inode: int
    lines: list[bytes]
    writer: BinaryIO | None = None
    was_taken: bool = False
    is_packed: bool = False


class SpoolHistory:
    """One directory, one agent, and a dice. Lines are unique; those in `destroyed` need not arrive, those in `repeatable` may repeat."""

    def __init__(self, seed: int, guarantee: str, tell: Callable[[str], None]) -> None:
        self.rng = random.Random(f"{seed} {guarantee} spool")
        self.guarantee = guarantee
        self.tell = tell
        self.root = Path(tempfile.mkdtemp(prefix="spool-"))
        self.directory, self.target = self.root / "in", self.root / "out"
        self.directory.mkdir()
        self.files: list[Dropped] = []
        self.destroyed: set[bytes] = set()
        self.repeatable: set[bytes] = set()
        self._numbers = itertools.count()

    def start(self) -> None:
        """The world before anything happens."""
        rng = self.rng
        self.policy = rng.choice(["none", "delete", "move"])
        self.ordering = rng.choice(["file", "file", "none"])
        self.how = rng.choices(["read", "stop", "fail", "lost", "later"], weights=[8, 3, 1, 1, 2], k=rng.randint(1, 8))
        delivery = {"guarantee": self.guarantee, "tasks_max": rng.choice([1, 1, 2]), "ordering": self.ordering}
        options: dict[str, Any] = {
            "ready": {"min_age": rng.choice([0.0, 5.0])},
            "order_by": rng.choice(["mtime", "name", "none"]),
            "on_changed_file": rng.choice(["stop", "continue"]),
            "cleanup": {"policy": self.policy, **({"to": str(self.target)} if self.policy == "move" else {})},
        }
        self.tell(f"{options} {delivery}")
        self.changes_stop = options["on_changed_file"] == "stop"
        self.agent = SpoolAgent(self.directory, "*", delivery, self.tell, **options)

    def step(self) -> None:
        """One thing happens."""
        rules = {**FILE_RULES, **AGENT_RULES}
        name = self.rng.choices(list(rules), weights=list(rules.values()))[0]
        self.tell(name)
        getattr(self, name)()
        self._check()

    # What people do

    def _lines(self, most: int = 6) -> list[bytes]:
        return [b"%06d" % next(self._numbers) for _ in range(self.rng.randint(1, most))]

    def _free(self) -> Path | None:
        """A name that no file has."""
        free = [path for path in (self.directory / f"f{number}" for number in range(5)) if not path.exists()]
        return self.rng.choice(free) if free else None

    def _there(self) -> list[Dropped]:
        """Files that are where they were dropped, as far as people can see."""
        return [one for one in self.files if one.path is not None and not one.was_taken and _inode(one.path) == one.inode]

    def _put(self, path: Path, content: bytes, lines: list[bytes]) -> Dropped:
        partial = self.directory / ".partial"
        partial.write_bytes(content)
        partial.rename(path)
        self.files.append(Dropped(path, _inode(path), lines))
        self.tell(f"  {path.name}: {[line.decode() for line in lines]}")
        return self.files[-1]

    def drop(self) -> None:
        lines = [] if self.rng.random() < 0.1 else self._lines(40 if self.rng.random() < 0.3 else 6)
        if path := self._free():
            self._put(path, _text(lines), lines)

    def drop_packed(self) -> None:
        if path := self._free():
            lines = self._lines()
            self._put(path, gzip.compress(_text(lines)), lines).is_packed = True

    def begin_slowly(self) -> None:
        if (path := self._free()) and not any(one.writer for one in self.files):
            writer = path.open("wb", buffering=0)
            self.files.append(Dropped(path, _inode(path), [], writer))

    def go_on_slowly(self) -> None:
        for file in self.files:
            if file.writer:
                lines = self._lines()
                if self.changes_stop:
                    self.repeatable.update(file.lines)  # when all of it was sent by now, what it is then is another file
                file.writer.write(_text(lines))
                file.lines += lines
                self.tell(f"  {file.path}: {[line.decode() for line in lines]}")
                if file.path is None or self.changes_stop:
                    self.destroyed.update(file.lines)  # nobody finds it, or it is set aside with an error

    def end_slowly(self) -> None:
        for file in self.files:
            if file.writer:
                file.writer.close()
                file.writer = None

    def drop_again(self) -> None:
        """The same content under the same name, when the first one is away: a repeat, as far as its row is known."""
        away = [one for one in self.files if one.was_taken and one.path is not None and not one.path.exists()]
        if away:
            before = self.rng.choice(away)
            assert before.path is not None
            self.repeatable.update(before.lines)
            self._put(before.path, _text(before.lines), before.lines)

    def _lose(self, file: Dropped) -> None:
        """It is taken away by somebody: what of it was not sent need not arrive."""
        file.path = None
        self.destroyed.update(file.lines)

    def replace(self) -> None:
        if there := self._there():
            before = self.rng.choice(there)
            path = before.path
            assert path is not None
            self._lose(before)
            lines = self._lines()
            self._put(path, _text(lines), lines)

    def save_over(self) -> None:
        """Other content in the same file; with `on_changed_file: stop` it is set aside when a part of it was sent."""
        there = [one for one in self._there() if not (one.writer or one.is_packed)]  # text in an archive is a bad file
        if there:
            file = self.rng.choice(there)
            assert file.path is not None
            self.destroyed.update(file.lines)
            file.lines = self._lines(20)
            self.destroyed.update(file.lines if self.changes_stop else [])
            changed_ns = file.path.stat().st_mtime_ns + 10**9  # times of a file are coarse: two changes at once may look like one
            file.path.write_bytes(_text(file.lines))
            os.utime(file.path, ns=(changed_ns, changed_ns))
            self.tell(f"  {file.path.name}: {[line.decode() for line in file.lines]}")

    def rename(self) -> None:
        if (there := self._there()) and (path := self._free()):
            file = self.rng.choice(there)
            assert file.path is not None
            file.path.rename(path)
            file.path = path

    def delete(self) -> None:
        if there := self._there():
            file = self.rng.choice(there)
            assert file.path is not None
            file.path.unlink()
            self._lose(file)

    def delete_done(self) -> None:
        """One that is read, where cleanup leaves it."""
        for file in self._there():
            if not file.writer and set(file.lines) <= set(self.agent.lines):
                assert file.path is not None
                file.path.unlink()
                self._lose(file)
                return

    # What becomes of the agent

    def scan(self) -> None:
        self.agent.scan()

    def work(self) -> None:
        self.agent.work(self._how)

    def scan_and_work(self) -> None:
        self.scan()
        self.work()

    def _how(self) -> str:
        self.how.append(self.how.pop(0))
        return self.how[0]

    def restart(self) -> None:
        self.agent.restart()

    def stop_and_start(self) -> None:
        self.agent.stop()

    def die_at_an_effect(self) -> None:
        """The agent works on, and dies after so many effects: within a look, a save, a clean-up, a start, or between two of them."""
        self.agent.effects.left = int(self.rng.expovariate(0.1))
        try:
            self.scan_and_work()
            self.scan_and_work()
            self.stop_and_start()
        except Crash:
            self.restart()
        else:
            self.agent.effects.left = None

    def pause(self) -> None:
        self.agent.pause()

    def resume(self) -> None:
        self.agent.resume()

    def fill_disk(self) -> None:
        self.agent.disk_full = True

    def make_room(self) -> None:
        self.agent.disk_full = False

    def catch_up(self) -> None:
        """All is well for a while: what is there has to arrive."""
        self.end_slowly()
        self.agent.disk_full = False
        self.agent.resume()
        self.agent.drain()
        self.agent.drain()  # empty files have no bytes that it would wait for
        self._check()
        missing = {line for file in self.files for line in file.lines} - self.destroyed - set(self.agent.lines)
        assert not missing, f"never arrived: {sorted(missing)}"
        if self.policy != "none":
            left = [one.path for one in self._there() if not self.destroyed.issuperset(one.lines or [b""])]
            assert not left, f"not cleaned up: {left}"

    # What must not be

    def _check(self) -> None:
        self.repeatable |= self.agent.repeats
        lines = self.agent.lines
        repeated = {line for line in lines if lines.count(line) > 1} - self.repeatable if len(set(lines)) < len(lines) else set()
        assert not repeated, f"sent twice: {sorted(repeated)}"
        arrived = {line: index for index, line in reversed(list(enumerate(lines)))}
        for file in self.files:
            if self.ordering == "file":
                places = [arrived[line] for line in file.lines if line in arrived and line not in self.repeatable]
                assert places == sorted(places), f"out of order: {file.lines}"
            if file.path is not None and not file.was_taken and _inode(file.path) != file.inode:
                file.was_taken = True
                self._check_taken(file)

    def _check_taken(self, file: Dropped) -> None:
        """The agent has taken it away: every line is in Kafka, and the saved row says that it is read."""
        assert self.policy != "none", f"{file.path} is taken away, and nobody has asked for it"
        assert set(file.lines) <= set(self.agent.lines), f"{file.path} is cleaned up and was not sent"
        rows = [offset for partition, offset in self.agent.store.items() if f"{file.inode:x}" in partition.key.split(":")]
        assert any(row.done for row in rows), f"{file.path} is cleaned up and that it is read was not saved"
        if self.policy == "move":
            assert file.inode in map(_inode, self.target.iterdir()), f"{file.path} is not in its target"

    def teardown(self) -> None:
        """Whatever happened before, everything arrives."""
        self.catch_up()

    def discard(self) -> None:
        """Free what it holds, whatever became of it."""
        self.end_slowly()
        if hasattr(self, "agent"):
            self.agent.close()
        shutil.rmtree(self.root, ignore_errors=True)


def _inode(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except OSError:
        return -1


def _text(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


@contextmanager
def _small_ranges_and_watched_cleanup(history: SpoolHistory) -> Iterator[None]:
    """Clean-ups are effects too, and the agent may die at each of the product's failpoints."""
    clean = Cleaner.clean

    def hit(name: str) -> None:
        if hasattr(history, "agent"):  # else its first start
            history.agent.effects.pass_by(f"failpoint {name}")

    def watched(self: Cleaner, files: Sequence[FinishedFile]) -> list[CleanupOutcome]:
        effects = history.agent.effects
        effects.pass_by(f"clean up {[Path(one.path).name for one in files]}")
        outcomes = clean(self, files)
        effects.pass_by(f"cleaned up: {[one.state for one in outcomes]}")
        return outcomes

    with ExitStack() as held:
        held.enter_context(patch.object(admission, "LEAST_BYTES", RANGE_BYTES))
        held.enter_context(patch.object(Cleaner, "clean", watched))
        held.enter_context(patch.object(failpoints, "hit", hit))
        yield


def run(seed: int, guarantee: str, tell: Tell = lambda _: None) -> None:
    """One history. Raises AssertionError where a promise is broken."""
    history = SpoolHistory(seed, guarantee, tell)
    with Clock().installed(), _small_ranges_and_watched_cleanup(history):
        play(history)


if __name__ == "__main__":
    main(run)
