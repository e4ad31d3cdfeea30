"""Run by `test_hostile` in a process of its own, with `sick_files.c` loaded: a connector's source and files that ail."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import time
from pathlib import Path

from tests.unit.sources.rig import Agent, agent_for

SHIM = ctypes.CDLL(None)
FILES = 3


def main(directory: Path) -> None:
    """All that is asserted here fails the test."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    logging.getLogger().addHandler(Told())
    agent = agent_for(directory)
    write(directory, "begin")
    agent.drain()
    assert lines(agent, "begin") == FILES
    a_read_error_holds_up_one_file(agent, directory)
    a_forgotten_descriptor_is_opened_anew(agent, directory)
    a_forgotten_descriptor_of_a_file_that_is_gone_is_a_loss(agent, directory)
    agent.source.close()
    a_file_that_is_closed_to_us_is_told_once_and_read_on_later(directory)


def a_read_error_holds_up_one_file(agent: Agent, directory: Path) -> None:
    path = directory / "1.log"
    SHIM.make_bad(os.fsencode(path))
    os.utime(path, (1, 1))  # is it still what was read? That stays an open question
    for _ in range(2):
        agent.scan()
        assert agent.source.lag().troubled_files == 1
    write(directory, "eio")
    drain(agent)
    assert lines(agent, "eio") == FILES - 1
    lag = agent.source.lag()
    assert (lag.troubled_files, lag.files, lag.lost_bytes) == (1, 1, 0), lag
    write(directory, "more")
    drain(agent)
    assert lines(agent, "more") == FILES - 1
    SHIM.make_bad(b"")
    until(agent, "eio", "more")
    assert agent.source.lag().troubled_files == 0


def a_forgotten_descriptor_is_opened_anew(agent: Agent, directory: Path) -> None:
    stale = descriptor(directory / "1.log")
    write(directory, "stale")
    SHIM.make_stale(stale)
    until(agent, "stale")
    os.fstat(descriptor(directory / "1.log"))
    assert not agent.losses
    path = directory / "2.log"
    SHIM.make_stale(descriptor(path))
    os.utime(path, (1, 1))  # nothing is unread, and a look shows whether it still is what was read
    for troubled in (1, 0):
        agent.scan()
        assert agent.source.lag().troubled_files == troubled
    agent.stop()
    write(directory, "later")
    until(agent, "later")


def a_forgotten_descriptor_of_a_file_that_is_gone_is_a_loss(agent: Agent, directory: Path) -> None:
    path = directory / "1.log"
    with path.open("a") as file:
        file.write("never read\n")
    agent.scan()
    SHIM.make_stale(descriptor(path))
    path.unlink()
    deadline = time.monotonic() + 60
    while not agent.losses and time.monotonic() < deadline:
        agent.scan()
        agent.work()
    assert [(loss.path, loss.size_bytes) for loss in agent.losses] == [(str(path), len("never read\n"))], agent.losses
    write(directory, "end", files=(0, 2))
    agent.drain()
    assert lines(agent, "end") == FILES - 1


def a_file_that_is_closed_to_us_is_told_once_and_read_on_later(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    agent = agent_for(directory, max_open_files=1)
    write(directory, "before")
    agent.drain()
    SHIM.make_closed(os.fsencode(directory / "1.log"))
    TOLD.clear()
    write(directory, "closed")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and max(file.backoff.errors for file in agent.source._catalog.followed.files.values()) < 2:
        agent.scan()
        agent.work()
    assert lines(agent, "closed") == FILES - 1
    assert agent.source.lag().troubled_files == 1
    assert len(TOLD) == 1, TOLD
    assert TOLD[0] == (str(directory / "1.log"), "cannot be opened: Permission denied")
    SHIM.make_closed(b"")
    until(agent, "before", "closed")
    assert agent.source.lag().troubled_files == 0
    agent.source.close()


class Told(logging.Handler):
    """Notes what was passed over, and why."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "path passed over":
            fields = record.__dict__["fields"]
            TOLD.append((fields["path"], fields["why"]))


TOLD: list[tuple[str, str]] = []


def write(directory: Path, line: str, files: tuple[int, ...] = tuple(range(FILES))) -> None:
    """One line to each."""
    for number in files:
        with (directory / f"{number}.log").open("a") as file:
            file.write(f"{line}\n")


def lines(agent: Agent, line: str) -> int:
    """How often it was read."""
    return agent.lines.count(line.encode())


def drain(agent: Agent) -> None:
    """Work for a while: a file that ails is never done."""
    for _ in range(5):
        agent.scan()
        agent.work()


def until(agent: Agent, *expected: str) -> None:
    """Work until each was read from every file, and check that none was read twice."""
    deadline = time.monotonic() + 60
    while any(lines(agent, line) < FILES for line in expected) and time.monotonic() < deadline:
        agent.scan()
        agent.work()
    assert {line: lines(agent, line) for line in expected} == dict.fromkeys(expected, FILES), agent.lines


def descriptor(path: Path) -> int:
    """The number under which this process has the file open."""
    return next(int(link.name) for link in Path("/proc/self/fd").iterdir() if os.path.realpath(link) == str(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
