"""Processes that are killed and stopped at any moment, on real stores."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time

import pytest

from copycat_agent.sinks.sink_stores import SinkStore
from tests.rig.waiting import wait_until

END = {"file": 300, "s3": 60, "hdfs": 60}
"""Offsets that are written."""
NEVER = 10**9
SECONDS, LONG = 2.0, 40.0
"""For so long they are killed and stopped; then they come to the end."""


def visible(store: SinkStore) -> list[int]:
    return sorted(one for key in store.list("") if not key.startswith("_copycat/") for one in json.loads(store.get(key) or b""))


@pytest.mark.timeout(400)
def test_each_offset_is_visible_once_whoever_is_killed_and_stopped(store: SinkStore, uri: str) -> None:
    kill_and_stop(store, uri, 1, SECONDS, END[uri.partition(":")[0]])


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 7))
def test_each_offset_is_visible_once_whoever_is_killed_and_stopped_for_long(store: SinkStore, uri: str, seed: int) -> None:
    kill_and_stop(store, uri, seed, LONG, 30 * END[uri.partition(":")[0]])


def kill_and_stop(store: SinkStore, uri: str, seed: int, seconds: float, end: int) -> None:
    """Three processes write; each is killed, stopped and woken by the dice, and begun anew.

    Those that write at first do so for ever, and are killed at the end at the latest; `end` is where the others come to their end.
    """
    rng, started = random.Random(seed), 0

    def start(last: int) -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        return subprocess.Popen([sys.executable, "-m", "tests.unit.sinks.writing_process", uri, str(last), str(seed * 1000 + started)])

    first = [start(NEVER) for _ in range(3)]
    writers, stopped = list(first), set[int]()
    try:
        wait_until(lambda: visible(store), 120, lambda: f"{[one.poll() for one in writers]}")
        until = time.monotonic() + seconds
        while time.monotonic() < until and not any(one.poll() == 0 for one in writers):
            time.sleep(rng.uniform(0.02, 0.3))
            at = rng.randrange(len(writers))
            if rng.random() < 0.3:
                writers[at].kill()
                writers[at].wait()
                stopped.discard(at)
                writers[at] = start(end)
            elif at in stopped:
                writers[at].send_signal(signal.SIGCONT)
                stopped.discard(at)
            else:
                writers[at].send_signal(signal.SIGSTOP)
                stopped.add(at)
        for at, one in enumerate(writers):
            if one in first:
                one.kill()
                one.wait()
                writers[at] = start(end)
            one.send_signal(signal.SIGCONT)
        assert [one.wait(300) for one in writers] == [0] * len(writers)
    finally:
        for one in writers:
            one.kill()
            one.wait()
    found = visible(store)
    assert found == list(range(len(found)))
    assert len(found) >= end
