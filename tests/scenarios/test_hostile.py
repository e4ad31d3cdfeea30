"""Hostile directories on the real broker: names are swapped all the time, links lead elsewhere, nothing of it arrives."""

from __future__ import annotations

import os
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.log_files import append, settled, told, wait_read
from tests.unit.sources.test_regular_files import swapping

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig.kafka import Consumed
    from tests.rig.shipping import Shipping


def churn(shipping: Shipping, logs_dir: Path, tmp_path: Path, seconds: float = 0.0, pause_seconds: float = 0.0) -> None:
    """Swap files, directories and pipes with links to a secret, in front of a connector that reopens files all the time."""
    secret, spares = tmp_path / "secret", tmp_path / "spares"
    for directory in (secret / "b", spares, logs_dir / "a" / "b"):
        directory.mkdir(parents=True)
    for path in (secret / "x.log", secret / "b" / "x.log"):
        append(path, "SECRET")
    (spares / "file").symlink_to(secret / "x.log")
    (spares / "directory").symlink_to(secret)
    os.mkfifo(spares / "pipe")
    kept = [logs_dir / "steady.log", logs_dir / "file.log", logs_dir / "pipe.log", logs_dir / "a" / "b" / "x.log"]
    for path in kept:
        append(path, f"first {path.name}")
    shipping.start(source={"include": [f"{logs_dir}/**/*.log"], "scan_interval": "100ms"})
    until, turn = time.monotonic() + seconds, 0
    with (
        swapping(logs_dir / "file.log", spares / "file", pause_seconds),
        swapping(logs_dir / "a", spares / "directory", pause_seconds),
        swapping(logs_dir / "pipe.log", spares / "pipe", pause_seconds),
    ):
        while not turn or time.monotonic() < until:
            lines = {b"steady %d" % turn, b"new %d" % turn}
            append(logs_dir / "steady.log", f"steady {turn}")
            append(logs_dir / f"new{turn}.log", f"new {turn}")
            shipping.records(until=partial(_has, lines))
            turn += 1
    expected = Counter([f"first {path.name}" for path in kept] + [f"{what} {n}" for what in ("steady", "new") for n in range(turn)])
    assert Counter(settled(shipping, range(expected.total()))) == expected


def _has(lines: set[bytes], records: list[Consumed]) -> bool:
    return lines <= {record.value for record in records}


def test_swaps_ship_nothing_of_what_lies_elsewhere_and_hold_up_nobody(shipping: Shipping, logs_dir: Path, tmp_path: Path) -> None:
    churn(shipping, logs_dir, tmp_path, pause_seconds=0.001)  # tight loops are in the unit tests


@pytest.mark.long
def test_a_minute_of_swaps(shipping: Shipping, logs_dir: Path, tmp_path: Path) -> None:
    churn(shipping, logs_dir, tmp_path, seconds=60.0)


def test_links_are_followed_as_far_as_the_definition_says_as_in_kubernetes(
    shipping: Shipping, logs_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """/var/log/containers/*.log are links into /var/log/pods; a pod that makes a link to a secret gets one warning."""
    containers, pods = logs_dir / "containers", logs_dir / "pods"
    containers.mkdir()
    append(tmp_path / "secret", "SECRET")
    for number in range(3):
        (pods / f"ns_pod{number}").mkdir(parents=True)
        append(pods / f"ns_pod{number}" / "0.log", f"pod {number}")
        (containers / f"pod{number}.log").symlink_to(pods / f"ns_pod{number}" / "0.log")
    (pods / "ns_pod0" / "1.log").symlink_to(tmp_path / "secret")
    (containers / "evil.log").symlink_to(pods / "ns_pod0" / "1.log")
    (containers / "loop.log").symlink_to("loop.log")
    source = {"include": [f"{containers}/*.log"], "follow_symlinks": True, "scan_interval": "100ms"}
    shipping.start(source={**source, "symlink_roots": [str(pods)]})
    wait_read(shipping, 3)
    for number in range(3):  # the kubelet rotates: another file behind the same link
        (pods / f"ns_pod{number}" / "0.log").rename(pods / f"ns_pod{number}" / "0.log.20261122")
        append(pods / f"ns_pod{number}" / "0.log", f"later {number}")
    lines = settled(shipping, range(6))
    assert Counter(lines) == Counter([*(f"pod {number}" for number in range(3)), *(f"later {number}" for number in range(3))])
    why = f"leads to {tmp_path}/secret, beyond where the patterns begin; to read it, list a directory above it in symlink_roots"
    assert told(caplog, "path passed over", path=str(containers / "evil.log"), why=why) == 1
    assert told(caplog, "path passed over") == 2, "the other one is the loop"
