"""Promises of the agent's identity: it outlives the store, is never guessed, and two agents are never one."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from copycat_agent.errors import CopiedError, FatalError, RetriableError
from copycat_agent.model import OFFSETS_TOPIC, Head, OffsetsPartition, SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore, agent_identity
from copycat_agent.transactions.opening import LaneSnapshot

ROOT = Path(__file__).parents[2]
PART = SourcePartition("app", "k")

START_FOREVER = """
import sys
from copycat_agent.offsets import agent_identity
from copycat_agent.offsets.state_dir import StateDir
directory = StateDir.acquire(__import__("pathlib").Path(sys.argv[1]))
while True:
    kept, identity = agent_identity.started(agent_identity.load(directory.path), ())
    agent_identity.save(directory, kept)
    print(identity.nonce, flush=True)
"""


def began(state: Path) -> agent_identity.AgentIdentity:
    with OffsetStore.open(state) as store:
        return store.identity


def file(state: Path) -> Path:
    return state / "identity.json"


def lanes_at(store: OffsetStore, nonce: str) -> None:
    store.commit({PART: SourceOffset(5)})
    store.lanes_opened("app", "c", OffsetsPartition(OFFSETS_TOPIC, 1), LaneSnapshot("c", {0: Head(3, nonce, 9)}, ()))


def test_each_start_has_a_nonce_that_is_on_disk_before_it_is_known(tmp_path: Path) -> None:
    first = began(tmp_path)
    with OffsetStore.open(tmp_path) as store:
        second = store.identity
        told = json.loads(file(tmp_path).read_text())
        assert told["nonces"] == [first.nonce, second.nonce]
        assert store.identity is second  # one start, one nonce
    assert second == (first.uuid, second.nonce, frozenset({first.nonce, second.nonce}))
    assert stat.S_IMODE(file(tmp_path).stat().st_mode) == 0o600


def test_an_agent_without_exactly_once_writes_none(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        store.commit({PART: SourceOffset(5)})
    assert not file(tmp_path).exists()


def test_a_lost_store_is_begun_anew_by_the_same_agent(tmp_path: Path) -> None:
    first = began(tmp_path)
    (tmp_path / "offsets.db").unlink()
    second = began(tmp_path)
    assert second == (first.uuid, second.nonce, frozenset({first.nonce, second.nonce}))


def test_a_lost_identity_goes_by_the_store_and_what_its_lanes_name(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        uuid, nonce, _ = store.identity
        lanes_at(store, nonce)
    file(tmp_path).unlink()
    again = began(tmp_path)
    assert (again.uuid, nonce in again.nonces) == (uuid, True)


def test_the_newest_nonces_are_kept_and_those_that_lanes_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_identity, "KEPT", 4)
    with OffsetStore.open(tmp_path) as store:
        first = store.identity.nonce
        lanes_at(store, first)
    later = [began(tmp_path).nonce for _ in range(6)]
    assert json.loads(file(tmp_path).read_text())["nonces"] == [first, *later[-4:]]


def test_the_store_of_another_agent_is_refused_with_the_way_out(tmp_path: Path) -> None:
    ours, theirs = began(tmp_path / "ours"), began(tmp_path / "theirs")
    shutil.copy(tmp_path / "theirs" / "offsets.db", tmp_path / "ours" / "offsets.db")
    for opens in (OffsetStore.open, OffsetStore.open_existing):
        with pytest.raises(FatalError, match=f"is agent {theirs.uuid}'s, and identity.json says that this is agent {ours.uuid}") as caught:
            opens(tmp_path / "ours")
    assert f"mv {file(tmp_path / 'ours')}" in caught.value.hint
    file(tmp_path / "ours").rename(tmp_path / "ours" / "identity.json.old")
    assert began(tmp_path / "ours").uuid == theirs.uuid


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"version": 1}', b'{"version": "x"}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_identity_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    began(tmp_path)
    file(tmp_path).write_bytes(content)
    with pytest.raises(FatalError, match="is damaged: it does not say who this agent is") as caught:
        OffsetStore.open(tmp_path, rebuild=True)
    assert "move it away" in caught.value.hint
    assert file(tmp_path).read_bytes() == content


def test_a_changed_byte_is_found_or_harmless(tmp_path: Path) -> None:
    before = began(tmp_path)
    content = file(tmp_path).read_bytes()
    for place in range(len(content)):
        file(tmp_path).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            kept = agent_identity.load(tmp_path)
        except FatalError:
            continue
        assert kept is not None
        assert kept.identity[::2] == before[::2]


def test_an_identity_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    began(tmp_path)
    file(tmp_path).write_text(json.dumps({**json.loads(file(tmp_path).read_text()), "version": 2}))
    with pytest.raises(FatalError, match="newer copycat-agent"):
        OffsetStore.open(tmp_path)


def test_what_is_no_file_is_no_identity(tmp_path: Path) -> None:
    began(tmp_path)
    file(tmp_path).unlink()
    os.mkfifo(file(tmp_path))
    with pytest.raises(FatalError, match="not a regular file"):
        OffsetStore.open(tmp_path)
    file(tmp_path).unlink()
    file(tmp_path).symlink_to("/etc/hostname")
    with pytest.raises(FatalError, match="cannot be read"):
        OffsetStore.open(tmp_path)


def test_a_nonce_that_cannot_be_written_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = began(tmp_path)

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with OffsetStore.open(tmp_path) as store:
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", fail)
            with pytest.raises(RetriableError, match=r"identity\.json cannot be written: No space left"):
                _ = store.identity
        assert json.loads(file(tmp_path).read_text())["nonces"] == [first.nonce]
        assert store.identity.nonce in json.loads(file(tmp_path).read_text())["nonces"]


def test_killed_at_any_moment_the_identity_is_old_or_new(tmp_path: Path) -> None:
    state, told, rolls = tmp_path / "state", [began(tmp_path / "state").nonce], random.Random(8)
    uuid = began(state).uuid
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", START_FOREVER, state], cwd=ROOT, stdout=subprocess.PIPE, text=True) as agent:
            assert agent.stdout
            told.append(agent.stdout.readline().strip())
            time.sleep(rolls.random() / 20)
            agent.kill()
            told += [line.strip() for line in agent.stdout if line.endswith("\n")]
        kept = agent_identity.load(state)
        assert kept is not None
        assert kept.uuid == uuid
        assert set(told) <= set(kept.nonces)


def test_a_copys_new_identity_is_finished_by_the_next_start(tmp_path: Path) -> None:
    """Killed between the file and the store: the store is the agent's that it was, and follows."""
    with OffsetStore.open(tmp_path) as store:
        old = store.identity
        lanes_at(store, old.nonce)
        store.lanes_refused("app", CopiedError("a copy"))
        shutil.copytree(tmp_path, tmp_path.with_name("killed"))
        new = store.adopt("app", "local")
    shutil.copy(file(tmp_path), file(tmp_path.with_name("killed")))
    with OffsetStore.open(tmp_path.with_name("killed")) as store:
        assert (store.agent_uuid, store.identity.uuid) == (new, new)
        assert store.lanes("app").heads == {}
        assert store.read("app") == {PART: SourceOffset(5)}
    assert new != old.uuid


def test_a_connectors_place_is_found_again_where_partitions_were_added(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        assert (store.partitions("c1", 25), store.partitions("c2", 3)) == (25, 3)
        nonce = store.identity.nonce
    (tmp_path / "offsets.db").unlink()
    with OffsetStore.open(tmp_path) as store:
        assert (store.partitions("c1", 50), store.partitions("c2", 3)) == (25, 3)
        assert store.partitions("c1", 10) == 10  # the topic was made anew
        assert store.partitions("c1", 50) == 10
        assert nonce in store.identity.nonces
    with OffsetStore.in_memory() as store:
        assert (store.partitions("c1", 5), store.partitions("c1", 6)) == (5, 5)


def test_a_command_adds_no_nonce(tmp_path: Path) -> None:
    began(tmp_path)
    before = file(tmp_path).read_bytes()
    with OffsetStore.open_existing(tmp_path) as store:
        store.adopt("app", "local")
    assert file(tmp_path).read_bytes() == before
