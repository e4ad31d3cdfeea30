"""What the driver's half of `log_file` promises, without Spark and Kafka."""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.model import SplitResult
from copycat_agent.sources.log_file.file_planner import FOLLOWED_FILES, JOINING_BYTES
from tests.unit.sources.rig import Agent, agent_for

if TYPE_CHECKING:
    from collections.abc import Iterator


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_an_event_for_a_name_that_no_pattern_finds_asks_for_no_scan(tmp_path: Path) -> None:
    append(tmp_path / "app.log", "1")
    agent = agent_for(tmp_path, "*.log")
    agent.drain()
    assert agent.source.wake({str(tmp_path / "other.txt")})
    assert not agent.source.wake({str(tmp_path / "new.log")})


def test_an_event_for_a_known_file_is_enough_to_read_it(tmp_path: Path) -> None:
    append(tmp_path / "app.log", "1")
    agent = agent_for(tmp_path)
    agent.drain()
    append(tmp_path / "app.log", "2")
    assert agent.source.wake({str(tmp_path / "app.log")})
    agent.work()
    assert agent.lines == [b"1", b"2"]


@pytest.mark.parametrize(
    ("files", "most_open", "stays"),
    [(1, 1, True), (20, 20, True), (21, 20, False), (FOLLOWED_FILES, 2000, True), (FOLLOWED_FILES + 1, 2000, False)],
)
def test_no_batch_stays_where_more_files_are_active_than_it_can_follow(tmp_path: Path, files: int, most_open: int, stays: bool) -> None:
    """Each line of another file would wait for its end."""
    logs = [tmp_path / f"{number}.log" for number in range(files)]
    for log in logs:
        append(log, "1")
    agent = agent_for(tmp_path, "*.log", max_open_files=most_open)
    agent.drain()
    append(logs[0], "2")
    assert agent.source.wake({str(logs[0])})
    assert (agent.source.plan(1).follow_seconds > 0) == stays


def test_what_can_be_followed_and_has_little_to_read_joins_a_batch_that_stays(tmp_path: Path) -> None:
    names = ["first.log", "little.log", "much.log", "rotated.log.1", "quiet.log"]
    for name in names:
        append(tmp_path / name, name)
    agent = agent_for(tmp_path, "*.log*")
    agent.drain()
    append(tmp_path / "first.log", "2")
    assert agent.source.wake({str(tmp_path / "first.log")})
    assert agent.source.plan(1).follow_seconds > 0
    append(tmp_path / "little.log", "2")
    append(tmp_path / "much.log", "x" * JOINING_BYTES)
    append(tmp_path / "rotated.log.1", "2")
    assert agent.source.wake({str(tmp_path / name) for name in names})
    assert [split.path for split in agent.source.joining(1)] == [str(tmp_path / "little.log")]
    assert agent.source.joining(2) == ()
    assert agent.source.is_held_up(for_good=True), "by the others, which need a batch of their own"


def test_as_many_join_as_a_batch_can_follow(tmp_path: Path) -> None:
    logs = [tmp_path / f"{number}.log" for number in range(12)]
    for log in logs:
        append(log, "1")
    agent = agent_for(tmp_path, "*.log", max_open_files=12)
    agent.drain()
    for log in logs:
        append(log, "2")
        agent.source.wake({str(log)})
    assert len(agent.source.joining(FOLLOWED_FILES - 5)) == 5
    assert agent.source.joining(FOLLOWED_FILES) == ()
    assert len(agent.source.joining(0)) == 7


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
def test_the_first_lines_of_a_log_that_was_made_empty_ask_for_a_scan(tmp_path: Path, pattern: str) -> None:
    """As logrotate makes it with `create`: else they would wait for the next scan."""
    log = tmp_path / "app.log"
    append(log, "1")
    agent = agent_for(tmp_path, pattern)
    agent.drain()
    log.rename(tmp_path / "app.log.1")
    log.touch()
    agent.drain()
    append(log, "2")
    assert not agent.source.wake({str(log)})
    assert agent.source.needs_scan
    agent.scan()
    agent.work()
    assert agent.lines == [b"1", b"2"]


def test_a_new_log_that_waits_for_a_batch_of_the_old_one_is_looked_at_when_that_is_over(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "1")
    agent = agent_for(tmp_path, "app.log")
    agent.scan()
    (split,) = agent.source.plan(1).splits
    log.rename(tmp_path / "app.log.1")
    append(log, "2")
    agent.scan()
    assert not agent.source.plan(1).splits
    nothing = (SplitResult(split, split.offset),)
    agent.source.finish(nothing, agent.source.changes_of(nothing))
    assert agent.source.needs_scan
    agent.drain()
    assert agent.lines == [b"1", b"2"]


def test_an_event_for_the_new_name_of_a_renamed_file_is_enough_to_read_it(tmp_path: Path) -> None:
    log, away = tmp_path / "app.log", tmp_path / "away"
    append(log, "1")
    agent = agent_for(tmp_path, "*.log", rotate_wait=300.0)
    agent.drain()
    log.rename(away)
    agent.scan()
    append(away, "2")
    assert agent.source.wake({str(away)})
    agent.work()
    assert agent.lines == [b"1", b"2"]


def test_a_log_that_is_cut_while_it_is_read_and_grows_to_its_old_size_is_read_on(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "1", "2", "3")
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: "stop")
    (split,) = agent.source.plan(1).splits
    os.truncate(log, split.offset.position)
    assert agent.source.wake({str(log)})
    nothing = (SplitResult(split, split.offset, at_end=True),)
    agent.source.finish(nothing, agent.source.changes_of(nothing))
    agent.source.wake({str(log)})
    append(log, "4", "5")
    agent.drain()
    assert agent.lines == [b"1", b"4", b"5"]


def test_a_hard_link_wakes_its_file_without_a_scan(tmp_path: Path) -> None:
    append(tmp_path / "a", "1")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    agent = agent_for(tmp_path)
    agent.drain()
    append(tmp_path / "a", "2")
    assert agent.source.wake({str(tmp_path / "a"), str(tmp_path / "b")})


def test_a_file_in_flight_never_asks_for_a_scan_until_it_is_back(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "1")
    agent = agent_for(tmp_path)
    agent.drain()
    append(log, "2")
    agent.source.wake({str(log)})
    agent.source.plan(1)
    os.truncate(log, 0)
    agent.source.scan()
    assert agent.source.wake({str(log)})
    assert not agent.source.needs_scan


def test_the_new_generation_waits_for_what_the_old_one_had(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, *[f"old {number}" for number in range(3)])
    agent = agent_for(tmp_path)
    agent.scan()
    log.rename(tmp_path / "app.log.1")
    append(log, "new")
    agent.scan()
    for _ in range(10):
        agent.work(lambda: "stop")
    assert agent.lines == [b"old 0", b"old 1", b"old 2", b"new"]


def test_the_new_generation_waits_for_an_old_one_that_had_to_be_closed(tmp_path: Path) -> None:
    for age, name in enumerate(("app.log.2", "app.log.1", "app.log")):
        append(tmp_path / name, f"{name} 1", f"{name} 2")
        os.utime(tmp_path / name, (1_000_000 + age, 1_000_000 + age))
    agent = agent_for(tmp_path, max_open_files=1)
    agent.scan()
    for _ in range(20):
        agent.work(lambda: "stop")
    assert agent.lines == [f"{name} {n}".encode() for name in ("app.log.2", "app.log.1", "app.log") for n in (1, 2)]


def test_a_long_chain_of_generations_takes_few_batches(tmp_path: Path) -> None:
    expected = []
    for age in range(100):
        expected.append(b"%d" % age)
        append(tmp_path / f"app.log.{200 - age}", str(age))
        os.utime(tmp_path / f"app.log.{200 - age}", (1_000_000 + age, 1_000_000 + age))
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work()
    agent.work()
    assert agent.lines == expected


def test_a_file_that_cannot_be_read_does_not_hold_up_its_successor(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "old")
    agent = agent_for(tmp_path)
    agent.scan()
    (file,) = agent.source._catalog.followed.files.values()
    log.rename(tmp_path / "app.log.1")
    append(log, "new")
    agent.scan()
    file.back_off()
    file.backoff = replace(file.backoff, retry_at=file.backoff.retry_at + 600)  # half a second may be over at once
    agent.work()
    assert agent.lines == [b"new"]


def test_a_scan_holds_no_more_files_open_than_allowed(tmp_path: Path) -> None:
    for number in range(50):
        append(tmp_path / f"{number}.log", str(number))
    agent = agent_for(tmp_path, max_open_files=5)
    agent.scan()
    assert agent.source.lag().open_files == 5
    agent.drain()
    assert sorted(agent.lines, key=int) == [str(number).encode() for number in range(50)]
    assert agent.source.lag().open_files <= 5
    agent.source.close()
    assert agent.source.lag().open_files == 0


@pytest.mark.parametrize("how", ["deleted", "renamed"])
def test_a_file_that_lost_its_name_since_the_last_scan_is_not_closed_for_room(tmp_path: Path, how: str) -> None:
    old = tmp_path / "old.log"
    append(old, "1")
    agent = agent_for(tmp_path, "*.log", max_open_files=1)
    agent.drain()
    append(old, "2")
    if how == "deleted":
        old.unlink()
    else:
        old.rename(tmp_path / "away")
    append(tmp_path / "new.log", "3")
    agent.drain()
    assert sorted(agent.lines) == [b"1", b"2", b"3"]
    assert agent.source.lag().lost_bytes == 0


def test_bytes_unread_in_a_file_that_was_rewritten_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "1")
    agent = agent_for(tmp_path)
    agent.drain()
    append(log, "2", "unread")
    agent.scan()
    agent.work(lambda: "stop")
    log.write_text("other and longer than all before\n")
    agent.drain()
    assert agent.lines == [b"1", b"2", b"other and longer than all before"]
    assert agent.source.lag().lost_bytes == len("unread\n")


def test_bytes_unread_in_a_closed_file_that_went_away_are_counted(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "a")
    append(tmp_path / "b.log", "unread")
    os.utime(tmp_path / "a.log", (1_000_000, 1_000_000))
    agent = agent_for(tmp_path, max_open_files=1)
    agent.scan()
    (tmp_path / "b.log").unlink()
    agent.drain()
    assert agent.lines == [b"a"]
    assert agent.source.lag().lost_bytes == len("unread\n")


def test_a_file_that_left_its_patterns_and_came_back_is_not_called_lost(tmp_path: Path) -> None:
    log, away = tmp_path / "app.log", tmp_path / "away"
    append(log, "1")
    agent = agent_for(tmp_path, "*.log")
    agent.drain()
    log.rename(away)
    agent.drain()
    away.rename(log)
    append(log, "2")
    agent.drain()
    assert agent.lines == [b"1", b"2"]
    assert agent.source.lag().lost_bytes == 0


def test_what_a_task_finds_under_a_reused_descriptor_is_not_sent(tmp_path: Path) -> None:
    append(tmp_path / "app.log", "mine")
    append(tmp_path / "other", "secret of another connector")
    agent = agent_for(tmp_path, "*.log")
    agent.scan()
    (file,) = agent.source._catalog.followed.files.values()
    splits = agent.source.plan(1).splits
    stranger = os.open(tmp_path / "other", os.O_RDONLY)
    os.dup2(stranger, file.fd)
    os.close(stranger)
    result = agent.read(splits[0], "read")
    assert result.error is not None
    assert agent.lines == []


@contextmanager
def without_privileges() -> Iterator[None]:
    """As a user for whom permissions count, also where the tests run as root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_permission_taken_and_given_back_costs_nothing(what: str, caplog: pytest.LogCaptureFixture) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        log = root / "sub" / "app.log"
        log.parent.mkdir()
        append(log, "1")
        barred = log if what == "file" else log.parent
        allowed = barred.stat().st_mode
        with without_privileges():
            agent: Agent = agent_for(log.parent)
            agent.drain()
            agent.restart()
        append(log, "2")
        barred.chmod(0)
        with without_privileges():
            for _ in range(3):
                agent.scan()
                agent.work()
            assert (str(barred), "failing") in [(file.path, file.state) for file in agent.source.files()], "it shows which"
            assert agent.source.lag().troubled_files == 1
        barred.chmod(allowed)
        with without_privileges():
            agent.drain()
            agent.source.close()
    assert agent.lines == [b"1", b"2"]
    assert agent.source.lag().lost_bytes == 0
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in warnings] == ["path passed over"]
