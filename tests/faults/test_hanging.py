"""A mount that hangs: its connector stands still, and nothing else does."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.worker.poll_loop import THREADS
from tests.faults.scene import Scene, Topics
from tests.rig.agent import AgentProcess
from tests.rig.hanging import HangingMount, why_not
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not()), pytest.mark.timeout(300)]

WATCHDOG_SECONDS = 4.0
STARVED_SECONDS = 30.0
"""One that hangs starves the watchdog for ever; one to which a busy machine does not come for a while does not."""


class ServiceManager:
    """systemd's end of the notification socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self.environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))}

    def hears_of_the_watchdog(self, times: int) -> None:
        """It is fed so often from now on. AssertionError otherwise."""
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while self._socket.recv(65536):
                pass
        self._socket.settimeout(STARVED_SECONDS)
        while times:
            try:
                times -= b"WATCHDOG=1" in self._socket.recv(65536)
            except TimeoutError:
                pytest.fail("the watchdog starves: systemd would restart the agent")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceManager]:
    manager = ServiceManager(tmp_path_factory.mktemp("manager") / "notify")
    yield manager
    manager.close()


@pytest.fixture(scope="module")
def shared_agent(broker: DevBroker, manager: ServiceManager, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """One that runs, for all mounts, one after the other. It has to end well, too."""
    with AgentProcess(tmp_path_factory.mktemp("hanging"), broker.bootstrap) as agent:
        yield agent.start(env=manager.environment)
        agent.stop()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[HangingMount]:
    with HangingMount(tmp_path / "remote") as mount:
        yield mount


@pytest.fixture
def scene(shared_agent: AgentProcess, broker: DevBroker, mount: HangingMount, tmp_path: Path) -> Iterator[Scene]:
    """A connector over a directory that is well; whatever else is defined ends with it, when the mount has gone on."""
    with Scene(tmp_path / "scene", broker.bootstrap, agent=shared_agent, name=tmp_path.name.replace("_", "-")) as scene:
        yield scene
        mount.go_on()
        for path in shared_agent.connectors_dir.glob("*.yaml"):
            if path.stem != scene.name:
                path.unlink()
    wait_until(lambda: scene.ask("/v1/connectors")["connectors"] == [], 60, lambda: f"they stay: {scene.ask('/v1/connectors')}")


def define_remote(scene: Scene, mount: HangingMount) -> None:
    """`remote`, over all of the mount, into the scene's topic."""
    (mount.behind / "remote.log").write_text("")
    source = {"type": "log_file", "include": [f"{mount.path}/*.log"], "scan_interval": "500ms"}
    scene.agent.define("remote", {"source": source, "record": {"topic": scene.topic}})


def threads(scene: Scene) -> int:
    """Threads of the agent's process."""
    return len(list(Path(f"/proc/{scene.agent.pid}/task").iterdir()))


def copycat(scene: Scene, *arguments: str) -> str:
    """What a command says that is to come back within seconds, whatever it exits with."""
    command = [sys.executable, "-m", "copycat_agent", *arguments, "--socket", str(scene.agent.state_dir / "agent.sock")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def test_one_hung_mount_costs_the_others_nothing_and_the_watchdog_is_fed(
    scene: Scene, mount: HangingMount, manager: ServiceManager, tmp_path: Path
) -> None:
    define_remote(scene, mount)
    writer = scene.writer()
    writer.write(10)
    scene.wait_arrived()
    wait_until(lambda: "remote" in {one["name"] for one in scene.ask("/v1/connectors")["connectors"]}, 60, "it runs")
    mount.hang()
    manager.hears_of_the_watchdog(4)
    writer.write(10)
    scene.wait_arrived()
    assert '"name":"remote"' in copycat(scene, "status", "--format", "json").replace(" ", "")
    other = scene.ledger.writer(tmp_path / "later.log", "later.log")
    other.write(10)
    source = {"type": "log_file", "include": [str(tmp_path / "later.log")]}
    scene.agent.define("later", {"source": source, "record": {"topic": scene.topic}})
    scene.wait_arrived()
    manager.hears_of_the_watchdog(2)
    with (mount.behind / "remote.log").open("a") as file:
        file.write("a line\n")
    mount.go_on()
    with Topics(scene.bootstrap, scene.topic) as topic:
        wait_until(lambda: topic.size() > scene.ledger.written, 60, "the line from the mount is there, too")


def test_a_hung_mount_under_a_files_sink_is_named_and_costs_the_others_nothing(scene: Scene, mount: HangingMount) -> None:
    """Its batch waits in the mount, as one that reads there: no process is killed for it."""
    writer = scene.writer()
    writer.write(10)
    scene.wait_arrived()
    mount.hang()
    sink = {"type": "files", "uri": f"file://{mount.path}/lake/", "roll": {"age": "300ms"}}
    scene.agent.define("lake", {"source": {"type": "kafka", "topics": [scene.topic]}, "sink": sink})

    def reason() -> str:
        return next((one["reason"] for one in scene.ask("/v1/connectors")["connectors"] if one["name"] == "lake"), "")

    wait_until(lambda: f"the file system at {mount.path} does not answer" in reason(), 60, lambda: scene.agent.log[-3000:])
    writer.write(10)
    scene.wait_arrived()
    mount.go_on()
    wait_until(lambda: reason() and "does not answer" not in reason(), 60, "it may not be written to, as it says now")


def test_many_connectors_of_a_hung_mount_take_a_few_threads_and_deliver_everything_when_it_is_back(
    scene: Scene, mount: HangingMount, manager: ServiceManager
) -> None:
    """Also those that were changed meanwhile, and begin when the one before has come to its end."""
    names = [f"remote-{number}" for number in range(40)]
    source = {"type": "log_file", "scan_interval": "500ms"}
    remote = {name: scene.ledger.writer(mount.behind / f"{name}.log", f"{name}.log") for name in names}
    for name, writer in remote.items():
        writer.write(5)
        scene.agent.define(name, {"source": {**source, "include": [f"{mount.path}/{name}.log*"]}, "record": {"topic": scene.topic}})
    local = scene.writer()
    local.write(5)
    scene.wait_arrived()
    before = threads(scene)
    mount.hang()

    def blocked() -> list[str]:
        assert threads(scene) <= before + 2 * THREADS + 3, "8 that hang, 8 that take their place, and who asks the mount"
        statuses = scene.ask("/v1/connectors")["connectors"]
        return [one["name"] for one in statuses if one["state"] == "blocked" and str(mount.path) in one["reason"]]

    wait_until(lambda: set(blocked()) >= set(names), 60, lambda: scene.agent.log[-3000:])
    manager.hears_of_the_watchdog(3)
    for writer in remote.values():
        writer.write(5)
    arrived = 5 * (len(names) + 1)
    local.write(10)
    with Topics(scene.bootstrap, scene.topic) as topic:
        wait_until(lambda: topic.size() == arrived + 10, 60, "what lies beside it arrives")
    changed = {**source, "include": [f"{mount.path}/{names[0]}.log"]}
    scene.agent.define(names[0], {"source": changed, "record": {"topic": scene.topic}})
    scene.agent.undefine(names[1])
    wait_until(
        lambda: names[1] not in {one["name"] for one in scene.ask("/v1/connectors")["connectors"]},
        60,
        "a connector of the hung mount is gone",
    )
    manager.hears_of_the_watchdog(2)
    assert len(blocked()) >= len(names) - 2
    mount.go_on()
    scene.agent.define(names[1], {"source": {**source, "include": [f"{mount.path}/{names[1]}.log*"]}, "record": {"topic": scene.topic}})
    verdict = scene.verdict()
    assert verdict.lost == 0, verdict
    wait_until(lambda: not blocked(), 60, "none is blocked any longer")

    def told() -> list[str]:
        return [event["event"] for event in scene.events() if event.get("mount") == str(mount.path)]

    wait_until(lambda: len(told()) > 1, 60, lambda: f"{told()}")  # the answer is told once it is no more waited for
    assert told() == ["mount does not answer", "mount answers again"]


@pytest.mark.parametrize("guarantee", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.long)])
def test_batches_whose_read_hangs_hold_up_nobody_and_go_on_with_the_mount(scene: Scene, mount: HangingMount, guarantee: str) -> None:
    """Nothing is sent again for it: they are the same batches, in the same processes."""
    files = {f"{number}.log": mount.behind / f"{number}.log" for number in range(6)}
    sections = {"record": {"topic": scene.topic}, "delivery": {"guarantee": guarantee}}
    definitions = {}
    for name, path in files.items():
        scene.ledger.writer(path, name).write_block(20_000)
        source = {"type": "log_file", "include": [f"{mount.path}/{name}"], "scan_interval": "500ms"}
        definitions[f"read-{name[:-4]}"] = {"source": source, **sections}
    local = scene.writer()
    mount.hang_while_read()
    for name, definition in definitions.items():
        scene.agent.define(name, definition)
    wait_until(lambda: mount.hangs, 120, lambda: scene.agent.log[-3000:])
    workers = {process.pid for process in scene.agent.python_processes()}
    wait_until(lambda: sum(one["state"] == "blocked" for one in scene.ask("/v1/connectors")["connectors"]) == len(files), 60)
    local.write(10)
    wait_until(lambda: scene.status["counts"]["acknowledged"] == local.written, 60, lambda: scene.agent.log[-3000:])
    mount.go_on()
    verdict = scene.verdict(120)
    assert verdict, verdict
    assert {process.pid for process in scene.agent.python_processes()} == workers, "no process was killed for it"


@pytest.mark.long
def test_a_mount_that_hangs_from_the_beginning_holds_up_no_start_and_no_stop_and_is_told_once(
    make_scene: Callable[..., Scene], mount: HangingMount, manager: ServiceManager
) -> None:
    scene = make_scene()
    define_remote(scene, mount)
    mount.hang()
    writer = scene.writer()
    for _ in range(2):
        writer.write(10)
        scene.start(env=manager.environment)
        scene.agent.stop(40)  # 18 s for the one that hangs
    scene.start(env=manager.environment)
    scene.name = "remote"
    wait_until(lambda: scene.state == "blocked", 60, lambda: scene.agent.log)
    assert f"the file system at {mount.path} does not answer" in scene.status["reason"]
    assert "remote" in copycat(scene, "status")
    manager.hears_of_the_watchdog(4)

    def told() -> list[str]:
        return [event["connector"] for event in scene.events("warning") if event["event"] == "connector hangs"]

    wait_until(told, 180, lambda: scene.agent.log)
    mount.go_on()
    wait_until(lambda: scene.state == "running", 60, lambda: scene.agent.log)
    assert told() == ["remote"]
    scene.agent.stop()
