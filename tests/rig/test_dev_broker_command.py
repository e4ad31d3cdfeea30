"""`copycat dev-broker` says its address on stdout and cleans up after itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from copycat_agent import dev_broker
from tests.rig.kafka import create_topic, unique_topic, values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker

pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""
_RUN = """
import typer
from copycat_agent import dev_broker
from copycat_agent.cli import demo
dev_broker._JVM_OPTIONS = {options}
typer.run(demo.dev_broker)
"""


@contextmanager
def _started(tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process, which is ended also when the test fails."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _RUN.format(options=dev_broker._JVM_OPTIONS), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.mark.parametrize("end", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_prints_its_address_when_ready_and_leaves_nothing_behind(tmp_path: Path, end: signal.Signals) -> None:
    with _started(tmp_path, "--port", "0") as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        topic = create_topic(address, unique_topic())
        assert values(address, topic) == []
        process.send_signal(end)
        rest, words = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert f"ready: use --bootstrap-servers {address}" in words
    assert list(tmp_path.iterdir()) == []


def test_a_data_directory_is_kept_and_continued(tmp_path: Path) -> None:
    topics = unique_topic()
    for is_new in (True, False):
        with _started(tmp_path, "--port", "0", "--data", str(tmp_path / "kept")) as process:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if is_new:
                create_topic(address, topics)
            assert values(address, topics) == []
            process.terminate()
            process.communicate(timeout=60)
        assert process.returncode == 0


def test_a_taken_port_is_an_error_with_a_way_out(tmp_path: Path, broker: DevBroker) -> None:
    with _started(tmp_path, "--port", str(broker.port)) as process:
        _, words = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "is taken by another process; choose another port" in " ".join(words.split())
