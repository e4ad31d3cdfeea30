"""The filelog receiver of the OpenTelemetry Collector itself, built from Go's module proxy: stopped, and killed in a rotating log."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from copycat_agent.workbench.takeover import otel_storage
from tests.rig.waiting import wait_until
from tests.unit.workbench.takeover.peers import heir, read_on, taken_over
from tests.unit.workbench.takeover.rotating import RotatingLog, assert_nothing_lost

pytestmark = [
    pytest.mark.long,  # it is built first: minutes, and 200 MB of modules
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The receiver with its storage, and a consumer that appends the lines to a file."""
    directory = tmp_path_factory.mktemp("otel") / "peer"
    shutil.copytree(Path(__file__).with_name("otel_peer"), directory)
    subprocess.run(["go", "build", "-o", "peer", "."], cwd=directory, check=True, timeout=900)
    return directory / "peer"


class Collector:
    """A receiver that follows a log; `lines` are those that it has handed on."""

    def __init__(self, program: Path, work: Path, log: Path) -> None:
        self.storage, self._out = work / "storage", work / "out"
        self.storage.mkdir(parents=True)
        self._process = subprocess.Popen([program, log, self.storage, self._out])

    @property
    def lines(self) -> list[bytes]:
        return self._out.read_bytes().splitlines() if self._out.exists() else []

    def await_lines(self, count: int) -> None:
        wait_until(lambda: len(self.lines) >= count, 120.0, "the collector has handed the lines on")

    def end(self, number: int = signal.SIGKILL) -> None:
        self._process.send_signal(number)
        self._process.wait(60)


@pytest.fixture
def following(program: Path, tmp_path: Path) -> Iterator[Callable[[Path], Collector]]:
    """`following(log)` starts a receiver, which ends with the test."""
    started: list[Collector] = []

    def start(log: Path) -> Collector:
        started.append(Collector(program, tmp_path / "otel", log))
        return started[-1]

    yield start
    for one in started:
        one.end()


def test_the_agent_goes_on_behind_the_last_line_that_the_collector_handed_on(following: Callable[[Path], Collector], log: Path) -> None:
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(200)))
    peer = following(log)
    peer.await_lines(200)
    time.sleep(1.0)
    peer.end(signal.SIGTERM)
    with log.open("ab") as file:
        file.write(b"new\n")
    takeover = taken_over(heir(log), state=otel_storage.read(peer.storage))
    assert read_on(log, takeover.rows["app"]) == [b"new"]


def test_the_collector_is_killed_in_the_middle_of_a_rotating_log_and_nothing_is_lost(
    following: Callable[[Path], Collector], log: Path
) -> None:
    rotating = RotatingLog(log)
    rotating.write(1)
    peer = following(log)
    peer.await_lines(1)
    rotating.rotate()
    rotating.kill_in_the_middle(peer.await_lines, peer.end)
    state = otel_storage.read(peer.storage)
    read = read_on(log, taken_over(heir(log), state=state).rows["app"])
    repeated = assert_nothing_lost(rotating, peer.lines, read)
    heads = {one.head.value: one.position for one in state.positions if one.head is not None}
    for _, part in rotating.files:
        content = b"".join(line + b"\n" for line in part)
        saved = next((at for head, at in heads.items() if isinstance(head, bytes) and content.startswith(head)), 0)
        assert set(repeated) & set(part) <= set(content[saved:].splitlines())
