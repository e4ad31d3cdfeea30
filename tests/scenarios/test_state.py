"""I. The offset file in trouble: it pauses, says so, and goes on where it was; or stops, and says what a person can do."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from copycat_agent.offsets import OffsetStore
from tests.rig.disk import mounted
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until
from tests.unit.test_offsets_damage import FAILING_DISK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess
    from tests.rig.ledger import Ledger
    from tests.rig.shipping import Shipping


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """1 MiB that can be full."""
    with mounted(tmp_path, "1m") as disk:
        yield disk


def fill(path: Path) -> None:
    with pytest.raises(OSError), path.open("wb", buffering=0) as stream:  # noqa: PT011, PT012 - ENOSPC, at some write
        while True:
            stream.write(b"x" * 4096)


def test_a_full_disk_pauses_and_says_so_and_when_it_is_freed_nothing_is_lost(
    shipping: Shipping, small_disk: Path, ledger: Ledger, logs_dir: Path
) -> None:
    shipping.state_dir = small_disk / "state"
    writer = ledger.writer(logs_dir / "app")
    writer.write(100)
    shipping.start(errors={"retry_max_delay": "500ms"})
    shipping.records(until=100)
    shipping.wait_caught_up()
    fill(small_disk / "ballast")
    for name in range(200):  # rows enough for pages that are not there yet
        ledger.writer(logs_dir / f"more-{name}").write(1)
    wait_until(lambda: (now := shipping.status).state == "retrying" and "no space" in now.reason, message=lambda: f"{shipping.status}")
    assert shipping._worker is not None
    assert shipping._worker.offsets_unsaved.endswith(f"make room on the file system of {shipping.state_dir / 'offsets.db'}")
    before = len(shipping.records())
    writer.write(100)
    (small_disk / "ballast").unlink()
    wait_until(lambda: shipping.status.state == "running", message=lambda: f"{shipping.status}")
    shipping.records(until=ledger.all_arrived())
    shipping.wait_caught_up()
    assert shipping._worker.offsets_unsaved == ""
    verdict = ledger.verify(shipping.records())
    assert verdict.lost == 0
    assert before <= 300, "nothing was read while nothing could be saved"
    shipping.stop()
    with OffsetStore.open(shipping.state_dir) as store:
        sizes = sum(offset.size for offset in store.read("app").values() if offset.path)
        assert sizes == sum(file.stat().st_size for file in logs_dir.iterdir())


def test_garbage_for_a_store_ends_run_with_1_and_the_way_out_and_removing_the_marker_is_one(
    agent: AgentProcess, topic: str, broker: DevBroker, logs_dir: Path
) -> None:
    (logs_dir / "app").write_bytes(b"1\n2\n")
    agent.define("app", {"source": {"type": "log_file", "include": [f"{logs_dir}/*"]}, "record": {"topic": topic}})
    agent.state_dir.mkdir(mode=0o700)
    (agent.state_dir / "offsets.db").write_bytes(b'{"curr_offs":')
    for _ in range(2):
        agent.start("--until-idle")
        assert agent.wait() == 1
    assert "the offset store is damaged" in agent.log
    assert "remove only" in agent.log
    assert "Traceback" not in agent.log
    assert [file.read_bytes() for file in agent.state_dir.glob("*.damaged-*")] == [b'{"curr_offs":']
    (agent.state_dir / "offsets.db.quarantined").unlink()
    agent.start("--until-idle")
    assert agent.wait() == 0
    assert [record.value for record in consume(broker.bootstrap, topic, until=2)] == [b"1", b"2"]


def test_a_second_agent_by_another_path_is_1_with_the_first_ones_pid(
    agent: AgentProcess, topic: str, logs_dir: Path, tmp_path: Path
) -> None:
    agent.define("app", {"source": {"type": "log_file", "include": [f"{logs_dir}/*"]}, "record": {"topic": topic}})
    (tmp_path / "link").symlink_to(agent.root)
    with OffsetStore.open(agent.state_dir):
        agent.state_dir = tmp_path / "link" / "state"
        agent.start()
        assert agent.wait() == 1
    assert f"another agent (pid {os.getpid()})" in agent.log


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_failed_fsync_ends_the_agent_with_75_and_a_new_one_loses_nothing(
    agent: AgentProcess, topic: str, broker: DevBroker, logs_dir: Path, tmp_path: Path, ledger: Ledger
) -> None:
    """The agent does not sync again: the pages may be gone. Whatever it did, a new one reads on from what is in the file."""
    (tmp_path / "eio.c").write_text(FAILING_DISK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "eio.so", tmp_path / "eio.c", "-ldl"], check=True)
    agent.define("app", {"source": {"type": "log_file", "include": [f"{logs_dir}/*"]}, "record": {"topic": topic}})
    writer = ledger.writer(logs_dir / "app")
    writer.write(100)
    agent.start(env={"LD_PRELOAD": str(tmp_path / "eio.so"), "FAIL_FILE": "offsets.db-wal", "FAIL_AT": "4"})
    sent = 100

    def failed() -> bool:
        nonlocal sent
        if not agent.is_running or "the offset store failed" in agent.log:
            return True
        writer.write(10)
        sent += 10
        return False

    wait_until(failed, 90.0, lambda: agent.log[-2000:])
    assert agent.wait() == 75, "the service manager starts it again"
    writer.write(10)
    agent.start("--until-idle")
    assert agent.wait(120.0) == 0
    verdict = ledger.verify(consume(broker.bootstrap, topic))
    assert verdict.lost == 0
