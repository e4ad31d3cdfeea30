"""The agent under the unit's restrictions, without systemd: as a user without rights, on a read-only file system, it ships lines."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.packaging.confined import PLACES
from tests.rig.agent import is_alive
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker

PROJECT = Path(__file__).parents[2]
UNIT = PROJECT / "packaging/systemd/copycat.service"
USER = "nobody"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "systemd-analyze"))) or not ctypes.util.find_library("seccomp"),
    reason="needs root, to give up its rights; unshare, systemd-analyze and libseccomp",
)


class Listener:
    """systemd's end of $NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(path))
        path.chmod(0o666)
        self.messages: list[str] = []

    def heard(self, wanted: str) -> bool:
        try:
            while True:
                self.messages.append(self._socket.recv(65536).decode())
        except BlockingIOError:
            return any(wanted in message.split("\n") for message in self.messages)

    def close(self) -> None:
        self._socket.close()


class Confined:
    """The agent as the service would run it. Directories are below `root`; the agent sees them below `PLACES`."""

    def __init__(self, root: Path, bootstrap: str) -> None:
        self.root = root
        for name in ("state", "cache", "run", "notify", "logs", "connectors.d"):
            (root / name).mkdir()
        for name in ("state", "cache", "run"):
            (root / name).chmod(0o700)
            shutil.chown(root / name, USER)
        self.listener = Listener(root / "notify/socket")
        self._bootstrap = bootstrap
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: set[psutil.Process] = set()

    def start(self) -> None:
        command = [sys.executable, "-m", "copycat_agent", "run", f"{PLACES}/connectors.d", "--bootstrap-servers", self._bootstrap]
        names = {
            "STATE_DIRECTORY": "state",
            "CACHE_DIRECTORY": "cache",
            "RUNTIME_DIRECTORY": "run",
            "HOME": "state",
            "NOTIFY_SOCKET": "notify/socket",
        }
        given = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
        plan = {
            "unit": UNIT.read_text("utf-8"), "user": USER, "command": command,
            "shown": [str(PROJECT), sys.prefix, sys.base_prefix, *([given["JAVA_HOME"]] if "JAVA_HOME" in given else [])],
            "places": {path.name: str(path) for path in self.root.iterdir() if path.is_dir()}, "writable": ["state", "cache", "run"],
            "env": {**given, "PYTHONPATH": str(PROJECT), **{name: f"{PLACES}/{value}" for name, value in names.items()}},
        }  # fmt: skip
        (self.root / "plan.json").write_text(json.dumps(plan), "utf-8")
        with (self.root / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "--ipc", "--propagation", "private", sys.executable, str(Path(__file__).parent / "confined.py"),
                 str(self.root / "plan.json")], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return (self.root / "agent.log").read_text("utf-8", "replace")

    def processes(self) -> list[psutil.Process]:
        """The agent and all it has started, those included that it left behind."""
        assert self._process is not None
        if self._process.poll() is None:
            process = psutil.Process(self._process.pid)
            self._seen |= {process, *process.children(recursive=True)}
        return [process for process in self._seen if is_alive(process)]

    def stop(self) -> int:
        assert self._process is not None
        self.processes()
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(240)  # a JVM may record an archive of loaded classes first

    def close(self) -> None:
        self.listener.close()
        if self._process is not None:
            for process in self.processes():
                process.kill()
            self._process.wait()


@pytest.fixture
def confined(tmp_path: Path, broker: DevBroker) -> Iterator[Confined]:
    confined = Confined(tmp_path, broker.bootstrap)
    yield confined
    confined.close()


def _rights(process: psutil.Process) -> dict[str, str]:
    lines = Path(f"/proc/{process.pid}/status").read_text("utf-8").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.timeout(900)
def test_under_the_units_restrictions_lines_are_shipped(confined: Confined, broker: DevBroker, make_topic: Callable[..., str]) -> None:
    """READY is said while Spark still starts; every process is without rights; state is private; a stop settles and leaves nothing."""
    topic = make_topic()
    source = {"type": "log_file", "include": [f"{PLACES}/logs/*.log"], "scan_interval": "200ms"}
    (confined.root / "connectors.d/app.yaml").write_text(json.dumps({"name": "app", "source": source, "record": {"topic": topic}}), "utf-8")
    log = confined.root / "logs/app.log"
    log.write_text("".join(f"line {number}\n" for number in range(500)), "utf-8")
    confined.start()
    wait_until(lambda: confined.listener.heard("READY=1"), 180, lambda: confined.log)
    consume(broker.bootstrap, topic, until=500, deadline=180)

    processes = confined.processes()
    names = {process.name() for process in processes}
    assert "java" in names
    assert len(processes) >= 4  # driver, JVM, Spark's daemon, a worker
    for process in processes:
        rights = _rights(process)
        assert (rights["NoNewPrivs"], rights["Seccomp"], int(rights["CapBnd"], 16), int(rights["CapEff"], 16)) == ("1", "2", 0, 0)
        assert process.username() == USER
        assert process.ppid() == os.getpid() or "NOTIFY_SOCKET" not in process.environ()
    state = confined.root / "state"
    assert state.stat().st_mode & 0o777 == 0o700
    assert all(not path.lstat().st_mode & 0o077 for path in state.iterdir()), "UMask=0077"

    with log.open("a", encoding="utf-8") as more:
        more.writelines(f"line {number}\n" for number in range(500, 600))
    consume(broker.bootstrap, topic, until=600, deadline=120)
    assert confined.stop() == 0, confined.log
    assert confined.listener.heard("STOPPING=1")
    wait_until(lambda: not confined.processes(), 60, "everything has ended")
    assert [record.value for record in consume(broker.bootstrap, topic)] == [b"line %d" % number for number in range(600)]
    assert "Permission denied" not in confined.log
    assert "Operation not permitted" not in confined.log
