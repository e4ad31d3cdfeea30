"""The listener that runners come in by stays open, whatever goes wrong with one who knocks."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from copycat_agent.spark.runner_connections import RunnerConnection, RunnerListener
from tests.rig.descriptors import no_descriptors_left
from tests.rig.waiting import wait_until

KNOCK = """
import socket, sys
sys.stdin.readline()
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
print("there", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("spare", [0, 1])
def test_a_runner_that_comes_while_no_descriptor_is_left_is_let_in_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spare: int
) -> None:
    """Otherwise no runner would ever come in again, and a worker that dies later would be the last.

    With one to spare it is the connection itself that takes it, and who connected cannot be looked up.
    """
    listener = RunnerListener(str(tmp_path / "listener"))
    links: list[RunnerConnection | None] = []
    thread = threading.Thread(target=lambda: links.append(listener.accept()))
    command = [sys.executable, "-c", KNOCK, str(tmp_path / "listener")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as runner:
        assert runner.stdin is not None
        assert runner.stdout is not None
        with no_descriptors_left(spare):
            runner.stdin.write("knock\n")
            assert runner.stdout.readline() == "there\n"
            thread.start()
            wait_until(lambda: "Too many open files" in caplog.text or links)
            assert not links, "it is still at the listener"
        wait_until(lambda: links)
        (link,) = links
        assert link is not None
        assert link.pid == runner.pid
        link.release()
        runner.stdin.write("go\n")
    thread.join(20)
    listener.close()
    assert listener.accept() is None
