"""Random histories of a whole connector from a seed, and what each of them must not show."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from copycat_agent.sources.files.fingerprint import HEAD_BYTES
from copycat_agent.sources.files.identity import Identity
from tests.simulation.agent import Agent, Clock, Crash
from tests.simulation.running import Tell, main, play
from tests.unit.sources.test_model import File, History

FILE_RULES = {
    "append": 8, "append_unfinished": 2, "rotate_by_rename": 4, "rename_back": 1, "link": 1, "truncate": 1, "shrink": 1, "copy": 1,
    "copytruncate": 2, "save_over": 1, "begin_to_compress": 2, "end_compressing": 2, "rotate_packed": 1, "delete_packed": 1, "delete": 1,
    "delete_rotated": 1,
}  # fmt: skip
"""What is done to files, and how often beside each other."""
AGENT_RULES = {
    "scan": 3, "work": 4, "scan_and_work": 6, "restart": 2, "stop_and_start": 2, "kill_before_it_is_saved": 1, "die_at_an_effect": 5,
    "pause": 1, "resume": 2, "fill_disk": 1, "make_room": 2, "catch_up": 2,
}  # fmt: skip
"""What becomes of the agent."""
BANNERS = (b"", b"", b"the same in each log", b"the same in each log, and longer than what a file is recognised by: " + b"=" * 1024)
"""What a log begins with, so that the files of different logs, and of one that is begun anew, begin alike; b"" for nothing."""


FLUSH_SECONDS = 4.0
"""A line that was begun so long ago, by the clock of the simulation, may be over: `line.flush_partial_after` is 5 s."""


class Whole(History):
    """`History` with a whole connector for its agent: batches stay under way, effects are cut off, and the disk may be full for a while."""

    def __init__(self, seed: int, guarantee: str, tell: Callable[[str], None]) -> None:
        super().__init__()
        self.rng = random.Random(f"{seed} {guarantee}")
        self.guarantee = guarantee
        self.tell = tell
        self._begun_at: dict[bytes, float] = {}
        self.packed: set[bytes] = set()
        """What was packed: an archive that ends early may end in the middle of a line."""
        self.logs: dict[str, list[list[bytes]]] = {"app.log": [[]], "web.log": [[]]}
        """Lines of each log that arrive in the order in which they were written, whatever files they went to. A line may be in several."""
        self.of_two_logs: set[bytes] = set()
        """Lines of files that have a name of another log too: nobody can tell among whose files they are read."""

    def start(self) -> None:
        """The world before anything happens."""
        rng = self.rng
        self.banner = rng.choice(BANNERS)
        self.tasks_max = rng.choice([1, 1, 2])
        how = rng.choices(["read", "stop", "fail", "lost", "later", "stay"], weights=[8, 3, 1, 1, 2, 6], k=rng.randint(1, 8))
        self.begin(keep_open=rng.choice([1, 2, 512, 512]), matches_rotated=rng.random() < 0.5, scans_partly=rng.random() < 0.5, how=how)
        self.repeatable.add(self.banner)
        self.excused.add(self.banner)

    def _make_agent(self, directory: Path, pattern: str, keep_open: int) -> Any:
        delivery = {"guarantee": self.guarantee, "tasks_max": self.tasks_max}
        return Agent(directory, pattern, delivery, self.tell, max_open_files=keep_open)

    def step(self) -> None:
        """One thing happens."""
        rules = {**FILE_RULES, **AGENT_RULES}
        name = self.rng.choices(list(rules), weights=list(rules.values()))[0]
        if name == "catch_up" and self.keep_open != 512:
            return
        arguments = self._arguments(name)
        self.tell(f"{name}{arguments or ''}")
        getattr(self, name)(**arguments)
        self.descriptors_are_bounded()

    def _arguments(self, name: str) -> dict[str, Any]:
        rng = self.rng
        arguments: dict[str, Any] = {"name": rng.choice(["app.log", "web.log"])} if name in FILE_RULES else {}
        if name in {"append", "save_over"}:
            arguments["count"] = rng.randint(1, 5)
        elif name == "shrink":
            arguments["kept"] = rng.randint(1, 5)
        elif name == "begin_to_compress":
            arguments |= {"members": rng.randint(1, 3), "written": rng.random()}
        elif name == "end_compressing":
            arguments["is_removed"] = rng.random() < 0.7
        elif name == "delete_packed":
            arguments["generation"] = rng.randint(1, 2)
        elif name == "kill_before_it_is_saved":
            arguments["scans"] = rng.random() < 0.5
        elif name == "die_at_an_effect":
            arguments["effects"] = int(rng.expovariate(0.12))
        return arguments

    def die_at_an_effect(self, effects: int) -> None:
        """The agent works on, and dies after so many effects: within a look, a save, a start, or between two of them."""
        self.agent.effects.left = effects
        try:
            self.scan_and_work()
            self.stop_and_start()
        except Crash:
            self._has_died()
        else:
            self.agent.effects.left = None

    def _has_died(self) -> None:
        self._doubt_copies()
        self.restart()

    def _doubt_copies(self) -> None:
        """When the agent looked last is not saved: a copy may be a generation that it missed."""
        if self.pattern != "*":
            for copy, _ in self.copies:
                self.repeatable.update([*copy.lines, copy.unfinished])

    def restart(self) -> None:
        if self.agent.disk_full:
            self._doubt_copies()
        super().restart()

    def stop_and_start(self) -> None:
        if self.agent.disk_full:
            self._doubt_copies()
        super().stop_and_start()

    def _check(self) -> None:
        self._doubt_old_beginnings()
        self.repeatable |= self.agent.repeats
        for line in self.agent.lines:
            self.excused.update([line] if any(text.startswith(line) or text.endswith(line) for text in self.packed) else ())
        super()._check()
        arrived = {line: index for index, line in reversed(list(enumerate(self.agent.lines)))}
        for file in self.names.values():
            self._check_order(file.lines, arrived)
        for lines in chain.from_iterable(self.logs.values()):
            self._check_order([line for line in lines if line not in self.of_two_logs], arrived)

    def _check_order(self, lines: Sequence[bytes], arrived: Mapping[bytes, int]) -> None:
        """They come in this order, whoever reads them: those of a file, and those of a log's older files before those of its newer ones."""
        excepted = self.repeatable | self.excused
        places = [(arrived[line], line) for line in lines if line in arrived and line not in excepted]
        assert places == sorted(places), f"out of order: {next(pair for pair in pairwise(places) if pair[0] > pair[1])}"

    def append(self, name: str, count: int) -> None:
        self._begin_with_banner(name)
        self._doubt_old_beginnings()
        super().append(name, count)
        file = self.names[self.directory / name]
        self.logs[name][-1] += file.lines[-count:]
        self._doubt_log(file)

    def append_unfinished(self, name: str) -> None:
        self._begin_with_banner(name)
        super().append_unfinished(name)
        self._begun_at.setdefault(self._there(self.directory / name).unfinished, time.monotonic())

    def _doubt_old_beginnings(self) -> None:
        """A line that was begun so long ago may have been sent as it is, in any file."""
        now = time.monotonic()
        self.excused.update(text for text, at in self._begun_at.items() if now - at > FLUSH_SECONDS)

    def _begin_with_banner(self, name: str) -> None:
        path = self.directory / name
        file = self._there(path)
        if self.banner and not (file.lines or file.unfinished):
            self._add(path, self.banner + b"\n")
            file.lines.append(self.banner)

    def link(self, name: str) -> None:
        super().link(name)
        self._doubt_log(self.names.get(self.directory / name))

    def _doubt_log(self, file: File | None) -> None:
        if file is not None and len(file.names) > 1:
            self.of_two_logs.update(file.lines)

    def _copy(self, name: str) -> None:
        """Of an earlier generation nothing may be read but the banner, which a copy has as well: it goes on behind that, and repeats.

        Likewise a copy that is written over another one, of which nothing was read: it looks like that one.
        """
        original, there = self.names.get(self.directory / name), self.names.get(self.directory / f"{name}.1")
        if original is not None and there is not None and len(self.banner) >= HEAD_BYTES and self._is_unread(there):
            self.repeatable.update([*original.lines, original.unfinished])
        is_read_so_far = any(offset.position == len(self.banner) + 1 for offset in self.agent.store.values())
        if self.banner and original is not None and is_read_so_far:
            self.repeatable.update([*original.lines, original.unfinished])
        super()._copy(name)

    def _is_unread(self, file: File) -> bool:
        """Whether the agent has met it, and read nothing of it."""
        return any(Identity.parse(one.key)[0][:2] == file.key and not offset.position for one, offset in self.agent.store.items())

    def rotate_by_rename(self, name: str) -> None:
        """Nobody goes on with a line that is begun in an older generation: after a while it is sent as it is."""
        super().rotate_by_rename(name)
        file = self.names.get(self.directory / f"{name}.1")
        self.excused.add(file.unfinished if file else b"")

    def copytruncate(self, name: str) -> None:
        path, copy = self.directory / name, self.directory / f"{name}.1"
        original, there = self.names.get(path), self.names.get(copy)
        if original is not None and there is not None and original.lines[: len(there.lines)] == there.lines:
            self.repeatable.update(original.lines)  # a copy, or an empty file, is there already: it looks as if that one grew
        if original is not None and any(one is not None and len(one.names) > 1 for one in (original, there)):
            self.repeatable.update(original.lines)  # known by the other name, which is not the copy's
        self._copy(name)
        self.truncate(name)

    def begin_to_compress(self, name: str, members: int, written: float) -> None:
        """Time passes here: an archive that stands still while it is too short to prove anything is taken for a file of its own."""
        rotated = self.names.get(self.directory / f"{name}.1")
        super().begin_to_compress(name, members, written)
        if rotated is not None:
            texts = {*rotated.lines, rotated.unfinished}
            self.repeatable |= texts
            self.packed |= texts
            self.split |= texts
            self.excused.add(b"\x1f")  # of an archive that stands still with one byte
            self.destroyed = True

    def pause(self) -> None:
        self.agent.pause()

    def resume(self) -> None:
        self.agent.resume()

    def fill_disk(self) -> None:
        self.agent.disk_full = True

    def make_room(self) -> None:
        self.agent.disk_full = False

    def catch_up(self) -> None:
        self._all_is_well()
        super().catch_up()

    def _all_is_well(self) -> None:
        self.agent.disk_full = False
        self.agent.resume()

    def teardown(self) -> None:
        self._all_is_well()
        super().teardown()

    def discard(self) -> None:
        """Free what it holds, whatever became of it."""
        if hasattr(self, "agent"):
            self.agent.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def run(seed: int, guarantee: str, tell: Tell = lambda _: None) -> None:
    """One history. Raises AssertionError where a promise is broken."""
    with Clock().installed():
        play(Whole(seed, guarantee, tell))


if __name__ == "__main__":
    main(run)
