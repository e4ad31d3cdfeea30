"""The latest lines of the log in memory, for a report."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from copycat_agent import logs
from copycat_agent.logs.handler import BYTES_MAX, LINES_MAX, RecentLines


@pytest.fixture
def log() -> Iterator[logs.Log]:
    logs.setup("info", "json", io.StringIO())
    yield logs.get("worker")
    logs.setup()


def test_the_latest_lines_are_there_as_text_oldest_first(log: logs.Log) -> None:
    log.info("one", path="/var/log/a\nb.log")
    log.debug("not written")
    log.warning("two")
    first, second = logs.recent()
    assert first.endswith('INFO    worker: one path="/var/log/a\\nb.log"')
    assert second.endswith("WARNING worker: two")


def test_lines_that_could_not_be_written_are_there_too() -> None:
    stream = io.StringIO()
    logs.setup("info", "text", stream)
    stream.close()
    logs.get("worker").info("into nothing")
    assert [line.endswith("into nothing") for line in logs.recent()] == [True]
    logs.setup()


def test_memory_is_bounded_by_lines(log: logs.Log) -> None:
    for number in range(LINES_MAX + 10):
        log.info("counted", always=True, number=number)
    assert len(logs.recent()) == LINES_MAX
    assert logs.recent()[-1].endswith(f"number={LINES_MAX + 9}")


def test_memory_is_bounded_by_the_length_of_lines() -> None:
    recent = RecentLines()
    for number in range(20):
        recent.add(f"{number} " + "x" * (BYTES_MAX // 10))
    assert [line.partition(" ")[0] for line in recent.lines()] == [str(number) for number in range(11, 20)]
    recent.add("x" * (BYTES_MAX + 1))
    assert recent.lines() == ()
