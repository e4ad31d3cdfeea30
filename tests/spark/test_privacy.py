"""The session is this user's and this host's alone, and secrets stay in memory."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from copycat_agent.spark.jvm import child_environment
from copycat_agent.spark.session import PRIVATE, configuration
from tests.rig.waiting import wait_until
from tests.spark.batches import batch
from tests.spark.conftest import CANARY, CANARY_VARIABLE, environment_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.spark.host import SparkHost
    from copycat_agent.spark.jobs import JobExecutor
    from copycat_agent.spark.runners import RunnerExecutor

SECONDS = 60
SECRET = "canary-of-a-definition-8d1f"
MEBIBYTE = 2**20


def _family() -> list[psutil.Process]:
    family = psutil.Process().children(recursive=True)
    assert any(b"GatewayServer" in _command_of(process.pid) for process in family)
    return family


def _command_of(pid: int) -> bytes:
    """Nothing of one that has just ended."""
    return _content_of(Path(f"/proc/{pid}/cmdline"))


def _content_of(path: Path) -> bytes:
    """Nothing of one that is gone meanwhile."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _targets(pid: int) -> Iterator[str]:
    """What its descriptors are; those that are closed meanwhile are left out, and so is all of one that has just ended."""
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(link.readlink())


def _files(directory: Path) -> list[Path]:
    """Those that are there; what goes away meanwhile is left out."""
    return [path for where, _, names in os.walk(directory) for name in names if (path := Path(where, name)).is_file()]


@pytest.mark.parametrize("padding", [0, 3 * MEBIBYTE])  # the second is more than Spark puts in one message: it goes by broadcast
@pytest.mark.parametrize("executor", ["runners", "jobs"])
def test_a_secret_in_a_definition_is_nowhere_but_in_memory(
    executor: str, padding: int, host: SparkHost, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    carrier: RunnerExecutor | JobExecutor = request.getfixturevalue(executor)
    flag = tmp_path / "began"
    work = batch("until-told", str(flag), secret=SECRET + "x" * padding)
    future = carrier.submit(work)
    wait_until(flag.exists, SECONDS, "the batch runs")
    secret = SECRET.encode()
    for process in _family():
        assert secret not in _command_of(process.pid)
        assert secret not in environment_of(process.pid)
    for path in _files(host.run_dir):
        assert secret not in _content_of(path), path
    carrier.settle(work.task)
    assert future.result(SECONDS)[0].error is None
    for path in _files(host.run_dir):
        assert secret not in _content_of(path), path


def test_children_do_not_inherit_the_agents_environment(runners: RunnerExecutor) -> None:
    runners.submit(batch("answer")).result(SECONDS)
    assert os.environ[CANARY_VARIABLE] == CANARY
    for process in _family():
        assert CANARY.encode() not in environment_of(process.pid)


def test_no_token_of_py4j_or_spark_is_in_an_environment(runners: RunnerExecutor) -> None:
    runners.submit(batch("answer")).result(SECONDS)
    assert not [name for name in os.environ if "SECRET" in name and "SPARK" in name]
    for process in _family():
        assert b"SECRET" not in environment_of(process.pid)


def test_only_what_is_listed_reaches_a_child() -> None:
    passed = child_environment({"PATH": "/bin", "DATABASE_PASSWORD": "x", "LD_PRELOAD": "y"}, TMPDIR="/t")
    assert passed["PATH"] == "/bin"
    assert passed["TMPDIR"] == "/t"
    assert not {"DATABASE_PASSWORD", "LD_PRELOAD"} & set(passed)


def test_nothing_listens_beyond_loopback(runners: RunnerExecutor, jobs: JobExecutor) -> None:
    runners.submit(batch("answer")).result(SECONDS)
    jobs.submit(batch("answer")).result(SECONDS)
    inodes = {
        target.removeprefix("socket:[").removesuffix("]")
        for process in [psutil.Process(), *_family()]
        for target in _targets(process.pid)
        if target.startswith("socket:")
    }
    listening = [address for address, inode in _listeners() if inode in inodes]
    assert listening  # Spark's own, and py4j's
    assert all(address in {"127.0.0.1", "::1", "::ffff:127.0.0.1"} for address in listening), listening


def _listeners() -> list[tuple[str, str]]:
    """Address and inode of every listening TCP socket, from /proc/net."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                words = [int(fields[1].split(":")[0][at : at + 8], 16) for at in range(0, len(fields[1].split(":")[0]), 8)]
                packed = struct.pack(f"={len(words)}I", *words)
                found.append((socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed), fields[9]))
    return found


def test_private_directories_are_private(host: SparkHost, runners: RunnerExecutor) -> None:
    runners.submit(batch("answer")).result(SECONDS)
    assert host.run_dir.stat().st_mode & 0o777 == 0o700
    assert host.socket_dir.stat().st_mode & 0o777 == 0o700
    keys = list(host.socket_dir.glob("*.key"))
    assert keys
    assert all(key.stat().st_mode & 0o777 == 0o600 for key in keys)


def test_the_operators_settings_cannot_open_the_session() -> None:
    conf = configuration({"spark.driver.bindAddress": "0.0.0.0", "spark.locality.wait": "1s"}, 2, Path("/l"), Path("/s"))
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.locality.wait"] == "1s"
    assert {name: conf[name] for name in PRIVATE} == PRIVATE


def test_who_is_not_a_descendant_is_not_let_in(runners: RunnerExecutor, host: SparkHost, tmp_path: Path) -> None:
    """A process of the same user that has read the key still cannot make the agent kill a process of its choice."""
    code = (
        "import os, sys\nfrom multiprocessing.connection import Client\n"
        "parent = os.getpid()\n"
        "if os.fork(): os._exit(0)\n"
        "while os.getppid() == parent: pass\n"
        "try: Client(sys.argv[1], 'AF_UNIX', authkey=open(sys.argv[1] + '.key', 'rb').read()); said = 'in'\n"
        "except (EOFError, OSError): said = 'refused'\n"
        "open(sys.argv[2], 'w').write(said)\n"
    )
    runners.submit(batch("answer")).result(SECONDS)
    said = tmp_path / "said"
    subprocess.run([sys.executable, "-c", code, str(host.socket_dir / "runners"), str(said)], check=True, timeout=SECONDS)
    assert wait_until(lambda: said.exists() and said.read_text(), SECONDS, "its word") == "refused"
