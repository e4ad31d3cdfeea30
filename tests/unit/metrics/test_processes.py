"""Memory, CPU, descriptors and threads of every process of the agent, by a name that stays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from copycat_agent.metrics.processes import Process, Processes
from tests.rig.waiting import wait_until

FAMILY = """
import os, subprocess, sys, time
depth, python, files = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if depth:
    for number in range(2 if depth == 1 else 1):
        subprocess.Popen([python, __file__, str(depth - 1), python, str(20 + 20 * number)])
files = [open('/dev/null') for _ in range(files)]
open(f'{__file__}.{os.getpid()}', 'w').close()  # all are open
time.sleep(120)
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[int]:
    """A process with a child that has two children, as the JVM has a daemon with workers; its pid. All are Pythons."""
    (tmp_path / "family.py").write_text(FAMILY)
    (tmp_path / "python-of-a-test").symlink_to(Path(sys.executable).resolve())
    environment = {**os.environ, "PYTHONHOME": sys.base_prefix}
    python = str(tmp_path / "python-of-a-test")
    command = [python, str(tmp_path / "family.py"), "2", python, "20"]
    process = subprocess.Popen(command, start_new_session=True, env=environment)
    yield process.pid
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def named(found: tuple[Process, ...]) -> dict[str, Process]:
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


def test_each_process_is_told_under_its_own_name(family: int) -> None:
    processes = Processes()
    wait_until(lambda: named(processes.look(family)).keys() >= {"worker-1", "worker-2"})
    assert list(named(processes.look(family))) == ["driver", "jvm", "daemon", "worker-1", "worker-2"]
    wait_until(lambda: all((one.open_fds or 0) >= 20 for one in processes.look(family)[1:]))
    for one in processes.look(family):
        assert one.resident_bytes > 2**20
        assert one.proportional_bytes is None or 0 < one.proportional_bytes <= one.resident_bytes * 2
        assert one.threads >= 1
        assert (one.max_fds or 0) > (one.open_fds or 0)
        assert one.cpu_seconds >= 0


def test_a_worker_keeps_its_name_when_another_dies(family: int, tmp_path: Path) -> None:
    """Else its counter of CPU seconds would jump."""
    processes = Processes()
    wait_until(lambda: len(list(tmp_path.glob("family.py.*"))) == 4, message="all processes have opened all of their files")

    def files() -> dict[str, int]:
        return {name: one.open_fds or 0 for name, one in named(processes.look(family)).items() if name.startswith("worker")}

    before = files()
    assert before.keys() == {"worker-1", "worker-2"}
    assert min(before.values()) >= 20
    assert max(before.values()) >= 40
    os.kill(named(processes.look(family))["worker-1"].pid, signal.SIGKILL)
    wait_until(lambda: "worker-1" not in files())
    assert files() == {"worker-2": before["worker-2"]}


def test_without_spark_the_driver_alone_is_told() -> None:
    assert [one.name for one in Processes().look(None)] == ["driver"]
    assert [one.name for one in Processes().look(2**22 + 1)] == ["driver"], "a JVM that has just died"
