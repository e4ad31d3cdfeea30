"""What only time ends: open groups of lines and unfinished last lines, by the driver's half and a task in this process."""

from __future__ import annotations

import gzip
import math
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import Chunk, LineOptions, MultilineOptions
from copycat_agent.model import Split, SplitResult
from copycat_agent.sources.files import clock
from copycat_agent.sources.log_file.log_kind import LOG_FILE
from tests.rig.examples import examples
from tests.rig.waiting import wait_until
from tests.unit.sources.rig import Agent

if TYPE_CHECKING:
    from copycat_agent.sources.files.reading.stream import Stream

HOUR = 3600.0


class GroupingAgent(Agent):
    """An agent whose task groups lines: one that begins with a letter begins a record."""

    def __init__(self, directory: Path, timeout: float = HOUR, *, partial: float | None = None, **options: Any) -> None:
        multiline = MultilineOptions(start="^[A-Z]", timeout=timeout)
        line = LineOptions() if partial is None else LineOptions(flush_partial_after=partial)
        super().__init__((f"{directory}/*",), multiline=multiline, line=line, **options)

    def end_timed_out(self) -> float:
        """As a connector does between two plans."""
        return self.source.end_timed_out(at_once=False)

    def _frames(self, split: Split, stream: Stream, *, stop: bool) -> SplitResult:
        offset = stream.offset
        frames = LOG_FILE.framing(self.options, raw=False)
        for frame in stream.frames(frames, offset.position, split.end, final=split.final, flush=split.flush):
            assert isinstance(frame, Chunk)
            rows = list(frame.rows())[: 1 if stop else None]
            end = rows[-1].end
            self.lines += [row.bytes for row in rows]
            tail = stream.read(max(0, end - 256), min(256, end))
            stream.settled(end)
            offset = replace(offset, position=end, path=split.path, fingerprint=stream.fingerprint(end, tail))
            if stop:
                return stream.complete(SplitResult(split, offset))
        return stream.complete(SplitResult(split, offset, at_end=True))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_file_without_anything_open_has_no_timer(tmp_path: Path) -> None:
    agent = GroupingAgent(tmp_path)
    append(tmp_path / "app", b"")
    agent.drain()
    assert agent.end_timed_out() == math.inf
    append(tmp_path / "app", b"A\n")
    agent.drain()
    assert time.monotonic() < agent.end_timed_out() <= time.monotonic() + HOUR


def test_a_group_ends_in_time_once_and_not_again_for_an_unfinished_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = GroupingAgent(tmp_path, 0.02)
    append(tmp_path / "app", b"A\n a\n unfin")
    agent.drain()
    assert not agent.lines
    wait_until(lambda: agent.end_timed_out() == math.inf)
    agent.work()
    assert agent.lines == [b"A\n a"]
    assert agent.end_timed_out() == math.inf
    assert agent.work() == 0
    append(tmp_path / "app", b"ished\n")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    agent.drain()
    assert agent.end_timed_out() < math.inf, "what is behind it is a group of its own, with its own time"


@pytest.mark.parametrize("bounded", [False, True])
def test_a_new_log_waits_for_the_group_at_the_end_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounded: bool) -> None:
    """A run to the end does not wait for time."""
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(b"A\n a\nB\n b\n"))
    age(tmp_path / "app.log.1.gz", HOUR)
    append(tmp_path / "app.log", b"C\n c\nD\n")
    agent, now = GroupingAgent(tmp_path), time.monotonic
    agent.drain()
    assert agent.lines == [b"A\n a"]
    if bounded:
        agent.source.end_timed_out(at_once=True)
    else:
        monkeypatch.setattr(time, "monotonic", lambda: now() + HOUR)
    agent.drain()
    assert agent.lines == [b"A\n a", b"B\n b", b"C\n c"]


def test_a_group_that_has_grown_unseen_is_not_ended(tmp_path: Path) -> None:
    agent = GroupingAgent(tmp_path, 0.02, scan_interval=HOUR)
    append(tmp_path / "app", b"A\n a\n")
    agent.drain()
    append(tmp_path / "app", b" b\nB\n")
    wait_until(lambda: agent.end_timed_out() == math.inf)
    agent.work()
    assert agent.lines == [b"A\n a\n b"]


def test_a_group_that_has_grown_unseen_in_a_closed_file_is_not_ended(tmp_path: Path) -> None:
    agent = GroupingAgent(tmp_path, 0.02, scan_interval=HOUR, max_open_files=1)
    for name in ("a", "b", "c"):
        append(tmp_path / name, b"A\n a\n")
    agent.drain()
    for name in ("a", "b", "c"):
        append(tmp_path / name, b" b\nB\n")
    wait_until(lambda: agent.end_timed_out() == math.inf)
    for _ in range(6):
        agent.work()
    assert agent.lines == [b"A\n a\n b"] * 3


def test_an_unfinished_line_ends_in_its_own_time(tmp_path: Path) -> None:
    agent = GroupingAgent(tmp_path, 0.02, partial=HOUR)
    append(tmp_path / "app", b"A\n a\n unfin")
    agent.drain()
    wait_until(lambda: agent.end_timed_out() > time.monotonic() + 60)
    agent.work()
    assert agent.lines == [b"A\n a"]
    both = GroupingAgent(tmp_path, HOUR, partial=0.02)
    both.drain()
    wait_until(lambda: both.end_timed_out() == math.inf)
    both.work()
    assert both.lines == [b"A\n a\n unfin"]


def test_a_line_that_is_finished_after_its_time_was_over_and_before_a_task_reads_it_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    append(path, b"begun")
    agent = Agent((str(path),), line=LineOptions(flush_partial_after=0))
    agent.scan()
    agent.work()
    agent.source.end_timed_out(at_once=False)
    (split,) = agent.source.plan(1).splits
    assert split.final
    append(path, b" and finished\nnext")
    agent.come_back((agent.read(split),))
    agent.drain()
    agent.source.end_timed_out(at_once=False)
    agent.drain()
    assert agent.lines == [b"begun and finished", b"next"]


def test_a_file_that_was_last_changed_long_ago_waits_for_nothing(tmp_path: Path) -> None:
    append(tmp_path / "app", b"A\n a\n")
    age(tmp_path / "app", HOUR + 120)
    agent = GroupingAgent(tmp_path, HOUR)
    agent.drain()
    assert agent.end_timed_out() == math.inf
    agent.work()
    assert agent.lines == [b"A\n a"]


@pytest.mark.parametrize(("seconds", "waits"), [(HOUR, True), (50 * HOUR, False)])
def test_a_time_that_a_server_gave_a_file_says_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, waits: bool) -> None:
    """Its clock may be behind this host's by hours: then a group, or a line, that is being written would be cut."""
    monkeypatch.setattr(clock, "is_local", lambda _: False)
    append(tmp_path / "app", b"A\n a\n unfin")
    age(tmp_path / "app", seconds)
    agent = GroupingAgent(tmp_path, 600.0, partial=600.0)
    agent.drain()
    assert (agent.end_timed_out() < math.inf) is waits


def test_the_next_generation_waits_for_the_open_group_of_the_one_before_it_and_no_longer(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    agent = GroupingAgent(tmp_path, 0.02, rotate_wait=HOUR)
    append(log, b"A\n a\n")
    agent.drain()
    log.rename(tmp_path / "app.log.1")
    append(log, b"B\nC\n")
    agent.drain()
    assert not agent.lines
    wait_until(lambda: agent.end_timed_out() == math.inf)
    agent.drain()
    assert agent.lines == [b"A\n a", b"B"]


def test_a_run_to_the_end_ends_everything_at_once(tmp_path: Path) -> None:
    append(tmp_path / "app", b"A\n a\nunfinished")
    agent = GroupingAgent(tmp_path)
    agent.drain()
    assert agent.source.end_timed_out(at_once=True) == math.inf
    agent.work()
    assert agent.lines == [b"A\n a\nunfinished"]


PIECES = st.lists(
    st.tuples(st.sampled_from(["write", "write", "crash", "stop", "rotate", "time"]), st.sampled_from([b"A", b" a", b""])), max_size=25
)


@settings(max_examples=examples(60), deadline=None)
@given(PIECES)
def test_no_line_is_lost_and_groups_end_at_their_lines_or_by_time(pieces: list[tuple[str, bytes]]) -> None:
    """Rotation, crashes and stops within groups change nothing; only time and a new file end a group early."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        agent, expected, group, rotated = GroupingAgent(directory, HOUR), list[bytes](), list[bytes](), 0
        for number, (what, begin) in enumerate(pieces):
            line = b"%s %d" % (begin, number)
            if what == "write":
                append(directory / "app.log", line + b"\n")
                if group and line.startswith(b"A"):
                    expected.append(b"\n".join(group))
                    group = []
                group.append(line)
            elif what == "rotate" and (directory / "app.log").exists():
                rotated += 1
                (directory / "app.log").rename(directory / f"app.log.{500 - rotated}")
                expected += [b"\n".join(group)] if group else []
                group = []
            elif what == "crash":
                agent.restart()
            elif what == "stop":
                agent.stop()
            agent.drain()
            if what == "time":
                for _ in range(rotated + 1):  # one generation after the other
                    agent.source.end_timed_out(at_once=True)
                    agent.drain()
                expected += [b"\n".join(group)] if group else []
                group = []
        for _ in range(rotated + 1):
            agent.source.end_timed_out(at_once=True)
            agent.drain()
        expected += [b"\n".join(group)] if group else []
        assert agent.lines == expected
        agent.source.close()
