"""I10, K8, K10 and fault 59: files in their thousands. Minutes, so only when asked for."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from copycat_agent.api import AgentClient
from copycat_agent.errors import CopycatError
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, descriptors, wait_read
from tests.scenarios.test_framing import peak_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess
    from tests.rig.shipping import Shipping

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

MIB = 2**20
MEASURED_SECONDS = 60


def make(directory: Path, count: int, size: int = 0) -> list[Path]:
    """So many files in directories of a thousand, each with a line of its own of at least `size` bytes."""
    paths = [directory / f"dir{number // 1000}" / f"{number}.log" for number in range(count)]
    for path in paths:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(path.stem.ljust(size) + "\n")
    return paths


def test_a_hundred_thousand_files_at_once_and_half_of_them_renamed_arrive_once(shipping: Shipping, logs_dir: Path) -> None:
    """Fault 59; and K10: a new line is not held up by what is known."""
    source, record = {"include": [f"{logs_dir}/*/*"], "scan_interval": "5s"}, {"origin_headers": False}
    shipping.start(source=source, record=record)
    before, began = peak_bytes(), time.monotonic()
    paths = make(logs_dir, 100_000)
    wait_read(shipping, 100_000, 600)
    print(f"\n100,000 files in {time.monotonic() - began:.0f} s, {(peak_bytes() - before) // MIB} MiB more")
    assert len(descriptors(logs_dir)) <= 512 + 1
    renamed = [path.rename(path.with_name(f"{path.name}.1")) for path in paths[:50_000]]
    for path in renamed[::500]:
        append(path, f"more of {path.name}")
    wait_read(shipping, 100_100, 300)
    shipping.stop()
    append(renamed[1], "while it was down")
    began = time.monotonic()
    shipping.start(source=source, record=record, deadline=120)
    append(renamed[3], "new")
    wait_read(shipping, 2, 120)
    print(f"the first new lines {time.monotonic() - began:.1f} s after a start with 100,000 known files")
    shipping.stop()
    expected = [*(str(number) for number in range(100_000)), *(f"more of {path.name}" for path in renamed[::500])]
    assert Counter(shipping.lines()) == Counter([*expected, "while it was down", "new"])
    assert peak_bytes() - before < 600 * MIB


def test_ten_thousand_files_that_come_and_go_leave_nothing_behind(shipping: Shipping, logs_dir: Path) -> None:
    """I10."""
    append(logs_dir / "stays", "here")
    shipping.start(source={"forget_after": "2s", "rotate_wait": "0s"})
    most = 0
    for turn in range(50):
        paths = [logs_dir / f"{turn}-{number}" for number in range(200)]
        for path in paths:
            append(path, path.name)
        wait_read(shipping, 1 + 200 * (turn + 1))
        most = max(most, len(shipping.offsets))
        for path in paths:
            path.unlink()
    wait_until(lambda: len(shipping.offsets) == 1, message=lambda: f"{len(shipping.offsets)} rows")
    print(f"at most {most} rows")
    assert [name.rpartition("/")[2] for name in descriptors(logs_dir)] in (["stays"], [])
    shipping.stop()
    assert Counter(shipping.lines()) == Counter(["here", *(f"{turn}-{number}" for turn in range(50) for number in range(200))])
    assert sum(path.stat().st_size for path in shipping.state_dir.iterdir()) < 12 * MIB


def test_idle_files_cost_next_to_nothing_and_ten_times_as_many_not_ten_times_as_much(
    make_agent: Callable[..., AgentProcess], make_topic: Callable[..., str], broker: DevBroker, tmp_path: Path
) -> None:
    """K8."""
    shares = {}
    for count in (1, 1000, 10_000):
        agent = make_agent(broker.bootstrap, name=f"agent{count}")
        logs = tmp_path / f"logs{count}"
        agent.define("app", {"source": {"type": "log_file", "include": [f"{logs}/*/*.log"]}, "record": {"topic": make_topic()}})
        make(logs, count, 1023)
        agent.start()
        wait_until(lambda: _settled_files(agent) == count, 120, lambda: agent.log[-2000:])  # noqa: B023 - called at once
        time.sleep(10)  # idle from here on: files written to lately are looked at more often
        used = _seconds(agent)
        time.sleep(MEASURED_SECONDS)
        shares[count] = (_seconds(agent) - used) / MEASURED_SECONDS
        agent.stop()
    print({count: f"{share:.2%} of a core" for count, share in shares.items()})
    assert shares[1000] < 0.1
    assert shares[10_000] < 0.2
    assert shares[10_000] < 5 * shares[1000]


def _settled_files(agent: AgentProcess) -> int:
    """Files that are read to their end; 0 while the agent does not answer."""
    with suppress(CopycatError):
        counts = AgentClient(agent.state_dir / "agent.sock").get("/v1/connectors/app")["counts"]
        return int(counts["acknowledged"])
    return 0


def _seconds(agent: AgentProcess) -> float:
    """Processor time of the agent and all that it started."""
    times = [process.cpu_times() for process in (psutil.Process(agent.pid), *agent.descendants())]
    return sum(one.user + one.system for one in times)
