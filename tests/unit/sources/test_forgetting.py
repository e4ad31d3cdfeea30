"""What is saved of files that are gone does not heap up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from tests.unit.sources.rig import agent_for

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.sources.base import Changes
    from tests.unit.sources.rig import Agent

OTHER = {SourcePartition("other", "1:2:3:0"): SourceOffset(5)}


def kept_in(agent: Agent, store: OffsetStore) -> None:
    """What the agent saves goes to `store` as well."""
    save = agent._store

    def both(changes: Changes) -> None:
        save(changes)
        store.commit(changes.offsets, changes.forget, changes.losses)

    agent._store = both  # type: ignore[method-assign]


def cycles(directory: Path, agent: Agent, count: int, *, files: int = 1, first: int = 0) -> None:
    """So many times some files are made, read and deleted."""
    for number in range(first, first + count * files, files):
        paths = [directory / f"{one}.log" for one in range(number, number + files)]
        for path in paths:
            path.write_bytes(b"line %s\n" % path.name.encode())
        agent.scan()
        agent.work()
        for path in paths:
            path.unlink()
        agent.scan()


def later(agent: Agent, seconds: float) -> None:
    """Scan as if so much time had passed."""
    with (
        mock.patch("copycat_agent.sources.succession.absent.time.monotonic", side_effect=lambda: time.monotonic_ns() / 1e9 + seconds),
        mock.patch("copycat_agent.sources.succession.absent.time.time", side_effect=lambda: time.time_ns() / 1e9 + seconds),
    ):
        agent.scan()


def test_files_that_come_and_go_are_forgotten_after_forget_after_and_nobody_elses(tmp_path: Path) -> None:
    agent = agent_for(tmp_path, forget_after=1000.0)
    with OffsetStore.in_memory() as store:
        store.commit(OTHER)
        kept_in(agent, store)
        cycles(tmp_path, agent, 100)
        later(agent, 500)
        assert len(store.read("app")) == 101
        later(agent, 1500)
        assert {partition.key for partition in store.read("app")} == {"started"}
        assert store.read("other") == OTHER
    assert len(agent.lines) == len(set(agent.lines)) == 100
    assert agent.losses == []


@pytest.mark.long
def test_ten_thousand_files_leave_a_small_store(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    agent = agent_for(logs, forget_after=1.0)
    with OffsetStore.open(tmp_path / "state") as store:
        store.commit(OTHER)
        kept_in(agent, store)
        largest = 0
        for turn in range(200):
            cycles(logs, agent, 1, files=50, first=50 * turn)
            largest = max(largest, sum(path.stat().st_size for path in (tmp_path / "state").iterdir()))
        later(agent, 60)
        assert {partition.key for partition in store.read("app")} == {"started"}
        assert store.read("other") == OTHER
    assert len(set(agent.lines)) == len(agent.lines) == 10_000
    assert largest < 12 * 2**20
