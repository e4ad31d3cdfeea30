"""H, B and C. Compressed files: read as what they hold, once, whoever writes them and whoever is killed."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sources.log_file.file_planner import SHARED_BYTES
from tests.kill.load import Topic
from tests.rig.agent import AgentProcess
from tests.rig.kafka import values
from tests.rig.shipping import origin
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import numbers, settled, told
from tests.scenarios.test_losses import entered
from tests.spark.conftest import workers

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.shipping import Shipping


def pack(command: list[str], data: str) -> bytes:
    return subprocess.run([*command, "-c"], input=data.encode(), stdout=subprocess.PIPE, check=True).stdout


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


OTHERS = [pytest.param(command, marks=pytest.mark.long) for command in (["zstd", "-q"], ["bzip2"], ["xz"])]


@pytest.mark.parametrize("command", [["gzip"], *OTHERS], ids=lambda command: command[0])
def test_members_appended_to_an_archive_arrive(shipping: Shipping, logs_dir: Path, command: list[str]) -> None:
    path = logs_dir / "app.packed"
    path.write_bytes(pack(command, "1\n2\n"))
    shipping.start()
    assert [(record.value, origin(record)[1]) for record in shipping.records(until=2)] == [(b"1", 0), (b"2", 2)]
    with path.open("ab") as file:
        file.write(pack(command, "3\n"))
        file.write(pack(command, "4\n"))
    shipping.records(until=4)
    shipping.wait_caught_up()
    shipping.stop()
    shipping.start()
    assert settled(shipping, range(4)) == ["1", "2", "3", "4"]


def test_an_archive_that_is_written_slowly_in_place_is_read_as_it_grows(
    shipping: Shipping, logs_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f"{number} {os.urandom(30).hex()}" for number in range(3000)]
    data, pause = pack(["gzip"], text(lines)), threading.Event()
    shipping.start()
    with (logs_dir / "app.gz").open("wb", buffering=0) as file:
        for place in range(0, len(data), len(data) // 25):
            file.write(data[place : place + len(data) // 25])
            pause.wait(0.1)  # a writer that takes its time
    assert settled(shipping, lines) == lines
    assert not [record for record in caplog.records if record.levelname in {"ERROR", "WARNING"}]


def test_a_damaged_archive_is_told_counted_and_left_alone(shipping: Shipping, logs_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = numbers(0, 2000)
    data = bytearray(pack(["gzip"], text(lines)))
    data[-5] ^= 1
    path = logs_dir / "bad.gz"
    path.write_bytes(data)
    (logs_dir / "good.gz").write_bytes(pack(["gzip"], "good\n"))
    shipping.start()
    assert sorted(settled(shipping, range(2001))) == sorted([*lines, "good"])
    shipping.start()
    shipping.wait_caught_up()
    (loss,) = [loss for loss in entered(shipping) if loss.reason == "damaged"]
    assert (loss.path, loss.start) == (str(path), len(text(lines)))
    assert told(caplog, "packed file is damaged, what comes before is sent", path=str(path)) == 1
    shipping.stop()
    assert path.read_bytes() == data


def test_a_run_to_the_end_reads_archives_to_theirs(shipping: Shipping, logs_dir: Path) -> None:
    (logs_dir / "a.gz").write_bytes(pack(["gzip"], "1\n2"))
    (logs_dir / "b.zst").write_bytes(pack(["zstd", "-q"], "3\n"))
    (logs_dir / "c.xz").write_bytes(pack(["xz"], "4\n" * 1000)[:-10])
    shipping.start(until_idle=True)
    shipping.wait_idle()
    assert sorted(set(settled(shipping, range(3)))) == ["1", "2", "3", "4"]
    shipping.start(until_idle=True)
    shipping.wait_idle()
    assert sorted(shipping.lines())[:3] == ["1", "2", "3"], "nothing is sent again"


def large_archive(path: Path, size_mb: int) -> list[str]:
    """The lines in it, 100 bytes each."""
    block = os.urandom(2**20).hex()
    lines = [f"{number:09d} {block[number % 10_000 : number % 10_000 + 89]}" for number in range(size_mb * 10_000)]
    path.write_bytes(pack(["gzip", "-1"], text(lines)))
    return lines


def test_workers_killed_midway_through_an_archive_repeat_little(shipping: Shipping, logs_dir: Path) -> None:
    """H3, with everything that was unpacked so far lost twice: not from line 1."""
    lines = large_archive(logs_dir / "app.gz", 30)
    sections: dict[str, Any] = {"delivery": {"max_batch_bytes": "1MiB"}, "record": {"origin_headers": False}}
    shipping.start(**sections, limits={"bytes_per_second": "1MiB"})  # half a minute for all of it
    for part in (1, 2):
        wait_until(lambda: shipping.status.counts.acknowledged >= part * 50_000, 60, lambda: f"{shipping.status}")  # noqa: B023
        assert shipping.status.counts.acknowledged < len(lines), "killed midway"
        for worker in [one for one in workers() if not one.children()]:
            worker.kill()
    shipping.stop()
    shipping.start(**sections)
    wait_until(lambda: any(offset.done for offset in shipping.offsets.values()), 60, lambda: f"{shipping.status}")
    shipping.stop()
    arrived = shipping.lines()
    assert sorted(set(arrived)) == lines
    assert len(arrived) - len(lines) <= 2 * SHARED_BYTES / 100, "repeats stay within what was not committed"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kill_midway_through_a_large_archive_repeats_little(tmp_path: Path, broker: DevBroker, topic: str) -> None:
    """H3. Not from line 1: what was committed is unpacked again, and not sent."""
    lines, kills, ends = large_archive(tmp_path / "app.gz", 200), 3, Topic(broker.bootstrap, topic, 1)
    with AgentProcess(tmp_path / "agent", broker.bootstrap) as agent:
        agent.define(
            "app",
            {
                "source": {"type": "log_file", "include": [str(tmp_path / "app.gz")]},
                "record": {"topic": topic},
                "delivery": {"max_batch_bytes": "1MiB"},
                "limits": {"bytes_per_second": "66MiB"},
            },
        )
        for kill in range(kills):
            agent.start()
            wanted = len(lines) * (kill + 1) // (kills + 2)
            wait_until(lambda: ends.size() >= wanted, 60, lambda: agent.log)  # noqa: B023 - called at once
            agent.kill()
            assert ends.size() < len(lines), "killed midway"
        agent.start("--until-idle")
        assert agent.wait(300) == 0, agent.log
    ends.close()
    arrived = [(value or b"").decode() for value in values(broker.bootstrap, topic, deadline=300)]
    assert sorted(set(arrived)) == lines
    assert len(arrived) - len(lines) <= kills * 2 * SHARED_BYTES / 100, "repeats stay within what was not committed"
