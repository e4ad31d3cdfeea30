"""The .deb installed for real, on a booted systemd, with the unit as it is: only that shows all of what the unit says.

systemd-nspawn boots this machine's own system, with every change in memory and gone afterwards. It shares the network, so the tests'
broker is there too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.rig.kafka import values
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("systemd-nspawn", "nsenter", "dpkg"))),
        reason="needs root, systemd-nspawn (Debian: systemd-container) and a Debian to install the .deb in",
    ),
]

BOOT = """
set -e
mount --bind / "$1"
exec systemd-nspawn --directory="$1" --machine="$2" --bind-ro="$3":/mnt --volatile=overlay --register=no --keep-unit \\
    --boot -- --unit=basic.target
"""
"""Not to multi-user.target: the services of this machine are not for starting twice."""
SERVICE = "copycat.service"
INSIDE = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}


class Machine:
    """A booted system of its own."""

    def __init__(self, directory: Path, shown: Path) -> None:
        root = directory / "root"
        root.mkdir()
        self._log = directory / "boot.log"
        arguments = ["unshare", "--mount", "--propagation", "private", "sh", "-c", BOOT, "sh", str(root), f"t{os.getpid()}", str(shown)]
        with self._log.open("wb") as log:
            self._nspawn = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._pid = 0

    def boot(self) -> None:
        """Return when it is up."""
        self._pid = wait_until(self._leader, 30, self._said)
        wait_until(lambda: self.call("systemctl", "is-system-running").stdout.strip() in {"running", "degraded"}, 60, self._said)

    def call(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in it, to its end."""
        enter = ["nsenter", "--target", str(self._pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]
        return subprocess.run([*enter, *command], env=INSIDE, input=stdin, capture_output=True, text=True, timeout=200, check=False)

    def sh(self, script: str) -> str:
        """Run a script in it; AssertionError unless it ends well."""
        done = self.call("sh", "-ec", script)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def show(self, *names: str) -> dict[str, str]:
        """Properties of the service."""
        said = self.call("systemctl", "show", SERVICE, *(f"--property={name}" for name in names)).stdout
        return dict(line.split("=", 1) for line in said.splitlines())

    def journal(self) -> str:
        """All the service and systemd have said about it."""
        return self.call("journalctl", "--unit", SERVICE, "--no-pager", "--output", "cat").stdout

    def close(self) -> None:
        """End it, and with it everything in it."""
        (psutil.Process(self._pid) if self._pid else self._nspawn).kill()
        self._nspawn.wait(30)

    def _leader(self) -> int:
        assert self._nspawn.poll() is None, self._said()
        with contextlib.suppress(psutil.NoSuchProcess):  # a child that ends meanwhile
            return next((child.pid for child in psutil.Process(self._nspawn.pid).children() if child.name() == "systemd"), 0)
        return 0

    def _said(self) -> str:
        return self._log.read_text("utf-8", "replace")[-3000:]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, deb: Path) -> Iterator[Machine]:
    """With the package installed, nothing defined yet."""
    machine = Machine(tmp_path_factory.mktemp("machine"), deb.parent)
    try:
        machine.boot()
        machine.sh(f"dpkg --install /mnt/{deb.name}")
        yield machine
    finally:
        machine.close()


@pytest.fixture
def defined(machine: Machine, broker: DevBroker, make_topic: Callable[..., str]) -> Iterator[str]:
    """One connector, on a log that group adm may read, and its topic; the service is not started. Nothing of it is left afterwards."""
    topic = make_topic()
    source = {"type": "log_file", "include": ["/var/log/app/*.log"], "rotate_wait": "2s"}
    definition = {"name": "app", "source": source, "record": {"topic": topic}}
    agent = {"kafka": {"bootstrap_servers": [broker.bootstrap]}}
    machine.sh(f"""
        install -d -m 0750 -g adm /var/log/app
        printf '%s\\n' one two three >/var/log/app/app.log; chgrp adm /var/log/app/app.log; chmod 0640 /var/log/app/app.log
        printf %s '{json.dumps(agent)}' >/etc/copycat/agent.yaml
        printf %s '{json.dumps(definition)}' >/etc/copycat/connectors.d/app.yaml
    """)
    yield topic
    machine.sh(f"""
        systemctl stop {SERVICE}
        rm -rf /var/log/app /var/lib/copycat/* /etc/copycat/connectors.d/* /etc/systemd/system/{SERVICE}.d; systemctl daemon-reload
    """)


def main_pid(machine: Machine) -> int:
    return int(machine.show("MainPID")["MainPID"])


def test_a_fresh_installation_is_enabled_and_idle_until_something_is_defined(machine: Machine) -> None:
    assert machine.call("systemctl", "is-enabled", SERVICE).stdout.strip() == "enabled"
    machine.sh(f"systemctl start {SERVICE}")
    assert machine.show("ActiveState", "ConditionResult") == {"ActiveState": "inactive", "ConditionResult": "no"}
    assert machine.sh("stat -c '%U:%G %a' /etc/copycat /etc/copycat/agent.yaml").split("\n")[:2] == ["root:copycat 750", "root:copycat 640"]


def test_the_service_ships_reloads_and_stops(machine: Machine, broker: DevBroker, defined: str) -> None:
    machine.sh(f"systemctl start {SERVICE}")  # returns with READY=1
    assert values(broker.bootstrap, defined, 3, 60) == [b"one", b"two", b"three"]
    wait_until(lambda: machine.show("StatusText")["StatusText"] == "1 connector: 1 running", 30, machine.journal)
    pid = main_pid(machine)
    machine.sh('cd /etc/copycat/connectors.d; sed \'s/"app"/"second"/; s/[*]/nothing/\' app.yaml >.b; mv .b b.yaml')
    machine.sh(f"systemctl reload {SERVICE}")
    wait_until(lambda: "2 connectors" in machine.show("StatusText")["StatusText"], 30, machine.journal)
    wait_until(lambda: machine.show("ActiveState")["ActiveState"] == "active", 30, machine.journal)
    assert main_pid(machine) == pid
    machine.sh(f"systemctl stop {SERVICE}")
    assert machine.show("Result", "ExecMainStatus") == {"Result": "success", "ExecMainStatus": "0"}
    assert machine.call("pgrep", "-u", "copycat").stdout == ""
    assert machine.sh("stat -c '%U %a' /var/lib/copycat").strip() == "copycat 700"
    assert machine.sh("ls /var/cache/copycat").strip().endswith(".jsa"), "Spark's classes are recorded within TimeoutStopSec"
    machine.sh(f"echo four >>/var/log/app/app.log; systemctl start {SERVICE}")
    assert values(broker.bootstrap, defined, 4, 60) == [b"one", b"two", b"three", b"four"]


def test_a_broker_that_is_down_holds_up_no_start(machine: Machine, defined: str) -> None:
    machine.sh('printf %s \'{"kafka": {"bootstrap_servers": ["127.0.0.1:1"]}}\' >/etc/copycat/agent.yaml')
    machine.sh(f"systemctl start {SERVICE}")
    assert machine.show("ActiveState")["ActiveState"] == "active"


def test_a_pipeline_that_hangs_is_killed_told_and_started_again(machine: Machine, broker: DevBroker, defined: str) -> None:
    """SIGSTOP stands for a hang; SIGABRT takes effect at SIGCONT, which systemd sends along when it kills."""
    machine.sh(f"""
        mkdir -p /etc/systemd/system/{SERVICE}.d
        printf '[Service]\\nWatchdogSec=6s\\nRestartSec=1s\\n' >/etc/systemd/system/{SERVICE}.d/test.conf
        systemctl daemon-reload; systemctl start {SERVICE}
    """)
    assert len(values(broker.bootstrap, defined, 3, 60)) == 3
    pid, begin = main_pid(machine), time.monotonic()
    wait_until(lambda: time.monotonic() - begin > 15, 20, "two watchdog periods and more")
    assert main_pid(machine) == pid, machine.journal()  # an idle pipeline feeds it
    machine.sh(f"kill -STOP {pid}")
    wait_until(lambda: main_pid(machine) not in {0, pid}, 60, machine.journal)
    assert "Watchdog timeout" in machine.journal()
    machine.sh("echo four >>/var/log/app/app.log")
    assert set(values(broker.bootstrap, defined, 4, 60)) == {b"one", b"two", b"three", b"four"}


def test_deleted_files_survive_kill_9_and_an_upgrade_and_not_a_stop(machine: Machine, broker: DevBroker, defined: str, deb: Path) -> None:
    """What systemd keeps of them for the agent is passed to its next process; the journal tells."""
    machine.sh(f"systemctl start {SERVICE}")
    assert len(values(broker.bootstrap, defined, 3, 60)) == 3
    _leave_deleted_unread(machine, "four")
    assert int(machine.show("NFileDescriptorStore")["NFileDescriptorStore"]) == 1
    machine.sh(f"systemctl kill --kill-whom=all --signal=KILL {SERVICE}")
    wait_until(lambda: machine.show("NRestarts", "SubState") == {"NRestarts": "1", "SubState": "running"}, 60, machine.journal)
    machine.sh(f"dpkg --install /mnt/{deb.name}; copycat ctl resume app")
    assert values(broker.bootstrap, defined, 4, 60) == [b"one", b"two", b"three", b"four"]
    wait_until(lambda: machine.show("NFileDescriptorStore")["NFileDescriptorStore"] == "0", 30, machine.journal)
    assert "lost" not in machine.sh("copycat losses --format json").replace("lost_bytes", "")
    _leave_deleted_unread(machine, "five")
    machine.sh(f"systemctl stop {SERVICE}; systemctl start {SERVICE}; copycat ctl resume app")
    wait_until(lambda: "went away while the agent did not run" in machine.journal(), 30, machine.journal)
    assert len(values(broker.bootstrap, defined)) == 4


def _leave_deleted_unread(machine: Machine, line: str) -> None:
    machine.sh(f"""
        copycat ctl pause app
        test -e /var/log/app/app.log || {{ touch /var/log/app/app.log; chgrp adm /var/log/app/app.log; chmod 0640 /var/log/app/app.log; }}
        echo {line} >>/var/log/app/app.log
    """)
    wait_until(lambda: machine.show("NFileDescriptorStore")["NFileDescriptorStore"] == "1", 30, machine.journal)
    machine.sh("rm /var/log/app/app.log")


def test_an_upgrade_replaces_and_restarts(machine: Machine, broker: DevBroker, defined: str, deb: Path) -> None:
    machine.sh(f"systemctl start {SERVICE}")
    assert len(values(broker.bootstrap, defined, 3, 60)) == 3
    pid = main_pid(machine)
    machine.sh(f"echo '# mine' >>/etc/copycat/connectors.d/app.yaml; dpkg --install /mnt/{deb.name}; echo four >>/var/log/app/app.log")
    assert main_pid(machine) not in {0, pid}
    assert "mine" in machine.sh("cat /etc/copycat/connectors.d/app.yaml")
    assert values(broker.bootstrap, defined, 4, 60) == [b"one", b"two", b"three", b"four"]


def test_the_last_resort_reads_what_is_for_root_only(machine: Machine, broker: DevBroker, defined: str) -> None:
    machine.sh(f"""
        chgrp root /var/log/app /var/log/app/app.log; chmod 0700 /var/log/app; chmod 0600 /var/log/app/app.log
        mkdir -p /etc/systemd/system/{SERVICE}.d
        cp /usr/share/doc/copycat-agent/drop-ins/read-everything.conf /etc/systemd/system/{SERVICE}.d/
        systemctl daemon-reload; systemctl start {SERVICE}
    """)
    assert len(values(broker.bootstrap, defined, 3, 60)) == 3


def test_purge_removes_state_and_leaves_definitions(machine: Machine, defined: str, deb: Path) -> None:
    machine.sh(f"systemctl start {SERVICE}; dpkg --remove copycat-agent; test -e /var/lib/copycat/offsets.db")
    assert machine.call("pgrep", "-u", "copycat").stdout == ""
    machine.sh("dpkg --purge copycat-agent; test ! -e /var/lib/copycat; test -e /etc/copycat/connectors.d/app.yaml; test ! -e /opt/copycat")
    machine.sh(f"dpkg --install /mnt/{deb.name}")
