"""Deleted files that are not read yet, and kill -9: under a service manager that keeps them, nothing of them is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.rig.agent import AgentProcess
from tests.rig.kafka import consume, create_topic, unique_topic
from tests.rig.service_manager import ServiceManager
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import ProxiedBroker
    from tests.rig.kafka import Consumed

pytestmark = pytest.mark.timeout(600)
"""Two starts of an agent, which take long on a machine that does much else."""
OLD = [f"old {number}".encode() for number in range(2000)]
YOUNG = [f"young {number}".encode() for number in range(2000)]


class Service:
    """An agent as a service, on a log in a broker's outage. Everything of it is gone after the test."""

    def __init__(self, root: Path, network: ProxiedBroker, guarantee: str) -> None:
        self.manager = ServiceManager()
        self._guarantee = guarantee
        self.log = root / "logs/app.log"
        self.log.parent.mkdir()
        self.bootstrap, self._proxy = network.bootstrap, network.proxy
        self.topic = create_topic(self.bootstrap, unique_topic())
        run = [sys.executable, "-m", "copycat_agent", "run", str(root / "agent/connectors.d")]
        self.agent = AgentProcess(root / "agent", self.bootstrap, self.manager.command(*run))
        definition = {
            "source": {"type": "log_file", "include": [str(self.log)], "scan_interval": "500ms", "rotate_wait": "1s"},
            "record": {"topic": self.topic},
            "delivery": {"guarantee": guarantee},
        }
        self.agent.define("app", definition)

    def start(self) -> None:
        self.agent.start(env=self.manager.environment)

    def leave_deleted_files_unread(self) -> None:
        """Two generations that were seen and then deleted, the first under another name, while nothing could be delivered."""
        self.log.write_bytes(b"first\n")
        self.start()
        assert self.arrived(1) == [b"first"]
        self._proxy.cut()
        self._append(OLD)
        self.log.rename(self.log.with_name("app.log.1"))
        self._append(YOUNG)
        wait_until(lambda: len(self.manager.names) == 2, 60, lambda: f"{self.manager.links()} {self.agent.log[-2000:]}")
        self.log.with_name("app.log.1").unlink()
        self.log.unlink()

    def arrived(self, count: int) -> list[bytes | None]:
        """The topic's lines, once there are so many. At least once may have said some of it twice, when its offset was not saved yet."""

        def all_there(seen: list[Consumed]) -> bool:
            return len({record.value for record in seen}) >= count

        found = [record.value for record in consume(self.bootstrap, self.topic, "read_committed", until=all_there, deadline=180)]
        return list(dict.fromkeys(found)) if self._guarantee == "at_least_once" else found

    def end_outage(self) -> None:
        self._proxy.forward()

    def close(self) -> None:
        self.agent.close()
        self.manager.close()

    def _append(self, lines: list[bytes]) -> None:
        with self.log.open("ab") as log:
            log.write(b"".join(line + b"\n" for line in lines))


@pytest.fixture(params=[pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def service(request: pytest.FixtureRequest, tmp_path: Path, proxied_broker: ProxiedBroker) -> Iterator[Service]:
    service = Service(tmp_path, proxied_broker, request.param)
    yield service
    service.close()


def inherited(agent: AgentProcess) -> list[str]:
    """Deleted files that processes of the agent hold, but for the driver."""
    found = []
    for process in agent.descendants():
        with contextlib.suppress(OSError, psutil.Error):
            links = [os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir()]  # noqa: PTH115 - for its text
            found += [link for link in links if "app.log" in link]
    return found


def losses(service: Service) -> str:
    """What the ledger has."""
    return "".join(line for line in service.agent.log.splitlines() if "bytes lost" in line or "destroyed" in line)


def test_deleted_files_survive_kill_9_between_deletion_and_reading(service: Service) -> None:
    service.leave_deleted_files_unread()
    service.agent.kill()
    assert len(service.manager.names) == 2, service.manager.links()
    service.start()
    wait_until(lambda: service.agent.jvm() is not None, 60, "Spark is coming up")
    service.end_outage()
    assert service.arrived(4001) == [b"first", *OLD, *YOUNG]
    wait_until(lambda: inherited(service.agent) == [], 60, lambda: f"{inherited(service.agent)} are the driver's alone")
    wait_until(lambda: service.manager.names == [], 60, lambda: f"{service.manager.links()} are settled")
    service.agent.stop()
    assert losses(service) == ""


@pytest.mark.long
def test_deleted_files_survive_a_restart_in_order_and_not_a_stop(service: Service) -> None:
    service.leave_deleted_files_unread()
    service.agent.stop()
    assert len(service.manager.names) == 2, service.manager.links()
    service.start()
    wait_until(lambda: "still followed" in service.agent.log or "followed to its end" in service.agent.log, 60)
    service.agent.signal(signal.SIGTERM)
    service.agent.wait()
    service.manager.stop()
    service.end_outage()
    service.start()
    wait_until(lambda: "went away while the agent did not run" in service.agent.log, 60, "the ledger has them")
    service.agent.stop()
    assert service.arrived(1) == [b"first"]
