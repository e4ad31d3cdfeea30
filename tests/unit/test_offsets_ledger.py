"""Promises of the loss ledger and the targets: saved with their offsets or not at all, and no offset depends on them."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.model import Fingerprint, Loss, LossReason, LossTotal, SourceOffset, SourcePartition, SourceState, state_partition
from copycat_agent.offsets import OffsetStore, ledger, schema

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PART = SourcePartition("nginx", "1:2:3:0")
VERSION_1 = Path(__file__).with_name("offsets_version_1.sql").read_text("ascii")
"""A store that version 0.1 wrote, as SQL: two connectors, a name that is not UTF-8, a file that is gone."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OffsetStore]:
    with OffsetStore.open(tmp_path / "state") as opened:
        yield opened


def lost(number: int, *, connector: str = "nginx", reason: LossReason = "destroyed", path: str = "/logs/a") -> Loss:
    return Loss(SourcePartition(connector, "1:2:3:0"), path, number, number + 10, 10, 0, reason, "cut", 1_000 + number)


def test_losses_come_back_equal_and_the_newest_first(store: OffsetStore) -> None:
    first = Loss(PART, "/logs/caf\udce9", 1, 2**40, 5, 7, "rejected", "why \x1b[31m \udc80", 123)
    store.commit({}, losses=[first, lost(2)])
    store.commit({PART: SourceOffset(3)}, losses=[lost(3, connector="other")])
    escaped = first._replace(detail="why \x1b[31m \\udc80")
    assert store.losses(None, 10) == (lost(3, connector="other"), lost(2), escaped)
    assert store.losses("nginx", 1) == (lost(2),)
    assert store.losses("unknown", 10) == ()
    assert store.loss_totals() == {
        ("nginx", "destroyed"): LossTotal(10, 0, 1),
        ("nginx", "rejected"): LossTotal(5, 7, 1),
        ("other", "destroyed"): LossTotal(10, 0, 1),
    }


def test_totals_end_at_the_largest_number_that_can_be_stored(store: OffsetStore) -> None:
    most = 2**63 - 1
    sparse = lost(0)._replace(end=most, size_bytes=most)
    store.commit({PART: SourceOffset(1)}, losses=[sparse])
    store.commit({PART: SourceOffset(2)}, losses=[sparse, lost(1)._replace(end=2**70, size_bytes=2**70, at_ms=2**64)])
    store.commit({PART: SourceOffset(3)}, losses=[lost(2)])
    assert store.loss_totals() == {("nginx", "destroyed"): LossTotal(most, 0, 4)}
    assert [one.size_bytes for one in store.losses("nginx", 10)] == [10, most, most, most]
    store.rename("nginx", "web")
    assert store.loss_totals() == {("web", "destroyed"): LossTotal(most, 0, 4)}


def test_totals_of_huge_losses_are_counted_again_when_their_row_is_broken(store: OffsetStore) -> None:
    most = 2**63 - 1
    store.commit({}, losses=[lost(0)._replace(end=most, size_bytes=most), lost(1)])
    with store.writing() as connection:
        connection.execute("UPDATE loss_totals SET checksum = 0")
        assert ledger.repair(connection) == {"loss_totals": 1}
    assert store.loss_totals() == {("nginx", "destroyed"): LossTotal(most, 0, 2)}


def test_a_refused_commit_leaves_neither_offset_nor_loss_nor_hole(store: OffsetStore) -> None:
    gone = SourcePartition("nginx", "gone")
    store.commit({PART: SourceOffset(10), gone: SourceOffset(1)})
    with pytest.raises(FatalError, match="backwards"):
        store.commit({PART: SourceOffset(9)}, forget=[gone], losses=[lost(1)])
    assert store.losses(None, 10) == ()
    assert store.loss_totals() == {}
    assert gone in store.read("nginx")


def test_offsets_forgotten_ones_and_losses_are_one_transaction(store: OffsetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the last of the three: the first two have not happened, and the same commit works later."""
    old = SourcePartition("nginx", "old")
    store.commit({old: SourceOffset(1)})

    def full(*_: object) -> bool:
        error = sqlite3.OperationalError("no")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(ledger.Ledger, "enter", full)
        with pytest.raises(RetriableError):
            store.commit({PART: SourceOffset(1)}, forget=[old], losses=[lost(1)])
    assert store.read("nginx") == {old: SourceOffset(1)}
    store.commit({PART: SourceOffset(1)}, forget=[old], losses=[lost(1)])
    assert store.read("nginx") == {PART: SourceOffset(1)}
    assert store.losses(None, 10) == (lost(1),)


def test_old_entries_go_and_the_totals_stay(store: OffsetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "KEPT", 100)
    store.commit({}, losses=[lost(0, connector="other")])
    for start in range(0, 3000, 50):
        store.commit({}, losses=[lost(number) for number in range(start, start + 50)])
        assert len(store.losses("nginx", 10_000)) <= 100 + 500
    assert store.losses("nginx", 100) == tuple(lost(number) for number in range(2999, 2899, -1))
    assert store.loss_totals()["nginx", "destroyed"] == LossTotal(30_000, 0, 3000)
    assert store.losses("other", 10) == (lost(0, connector="other"),)


def test_a_renamed_connector_takes_its_losses_and_target_along(store: OffsetStore) -> None:
    store.commit({SourcePartition("pay", "1"): SourceOffset(5)}, losses=[lost(1, connector="pay"), lost(2, connector="payments")])
    store.set_target("pay", "paused")
    assert store.rename("pay", "payments") == 1
    assert store.losses("payments", 10) == (lost(2, connector="payments"), lost(1, connector="payments"))
    assert store.loss_totals() == {("payments", "destroyed"): LossTotal(20, 0, 2)}
    assert store.targets() == {"payments": "paused"}
    assert store.losses("pay", 10) == ()


def test_a_target_of_its_own_survives_a_takeover(store: OffsetStore) -> None:
    store.set_target("pay", "paused")
    store.set_target("payments", "running")
    store.rename("pay", "payments")
    assert store.targets() == {"payments": "running"}


def test_renaming_a_connector_to_itself_loses_nothing(store: OffsetStore) -> None:
    store.commit({PART: SourceOffset(5)}, losses=[lost(1)])
    assert store.rename("nginx", "nginx") == 0
    assert store.read("nginx") == {PART: SourceOffset(5)}
    assert store.losses("nginx", 10) == (lost(1),)


def test_targets_survive_a_restart(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        store.set_target("a", "paused")
        store.set_target("a", "stopped")
    with OffsetStore.open(tmp_path) as store:
        assert store.targets() == {"a": "stopped"}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE losses SET size_bytes = 11 WHERE number = 1",
        "UPDATE losses SET detail = CAST(x'ff' AS TEXT)",
        "UPDATE loss_totals SET size_bytes = 1",
        "UPDATE loss_totals SET connector = 'x'",
        "UPDATE targets SET target = 'stopped'",
    ],
)
def test_damaged_rows_beside_the_offsets_are_dropped_with_an_error(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    with OffsetStore.open(tmp_path) as store:
        store.commit({PART: SourceOffset(42)}, losses=[lost(1), lost(2)])
        store.set_target("nginx", "paused")
    with closing(sqlite3.connect(tmp_path / "offsets.db")) as connection:
        connection.execute(damage)
        connection.commit()
    with OffsetStore.open(tmp_path) as store:
        assert store.read("nginx") == {PART: SourceOffset(42)}
        table = damage.split()[1]
        assert store.losses(None, 10) == {"losses": (lost(2),) if "number" in damage else ()}.get(table, (lost(2), lost(1)))
        assert store.loss_totals() == {("nginx", "destroyed"): LossTotal(20, 0, 2)}
        assert store.targets() == ({} if table == "targets" else {"nginx": "paused"})
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    caplog.clear()
    OffsetStore.open(tmp_path).close()
    assert caplog.records == [], "it is told once"


def version_1(state: Path) -> None:
    """Make the state directory of an agent of version 0.1."""
    state.mkdir(mode=0o700)
    with closing(sqlite3.connect(state / "offsets.db")) as connection:
        connection.executescript(VERSION_1)
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("PRAGMA journal_mode = WAL")


EXPECTED = {
    state_partition("nginx"): SourceState({"first_ms": 1790000000000, "seen_ms": 0, "rotations": 0, "ahead_ns": 0, "boot": ""}),
    SourcePartition("nginx", "fe01:1f:18b0:0"): SourceOffset(
        4096, 17, path="/logs/caf\udce9.log", size=5000, fingerprint=Fingerprint(1024, "aa11", 256, "bb22")
    ),
    SourcePartition("nginx", "fe01:20:18b1:2"): SourceOffset(
        9, 1, done=True, skipping=True, path="/logs/app.log.1", size=9, gone_ms=1790000000001
    ),
}


def test_a_store_of_version_1_keeps_everything_and_gets_a_ledger(tmp_path: Path) -> None:
    version_1(tmp_path / "state")
    for _ in range(2):
        with OffsetStore.open(tmp_path / "state") as store:
            assert store.agent_uuid == "9696774b-02a7-4c03-8d39-3b06caae5cc1"
            assert store.saved("nginx") == EXPECTED
            assert store.connectors() == ("nginx", "pay")
            store.commit({PART: SourceOffset(1)}, losses=[lost(1)])
            assert store.losses(None, 1) == (lost(1),)
            store.forget([PART])


def test_a_damaged_store_of_version_1_is_found_before_it_is_migrated(tmp_path: Path) -> None:
    version_1(tmp_path / "state")
    with closing(sqlite3.connect(tmp_path / "state" / "offsets.db")) as connection:
        connection.execute("UPDATE offsets SET position = '8' WHERE connector = 'pay'")
        connection.commit()
    with pytest.raises(FatalError, match="checksum"):
        OffsetStore.open(tmp_path / "state")


OPEN = "import sys; from copycat_agent.offsets import OffsetStore; print('go', flush=True); OffsetStore.open(sys.argv[1]).close()"


def test_killed_in_the_middle_of_a_migration_the_store_is_old_or_new(tmp_path: Path) -> None:
    chance = random.Random(20261122)
    whole = tmp_path / "whole"
    version_1(whole)
    seen = set()
    for number in range(6):
        state = tmp_path / f"state-{number}"
        shutil.copytree(whole, state)
        with subprocess.Popen([sys.executable, "-c", OPEN, str(state)], stdout=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0, 0.012))
            process.kill()
        with closing(sqlite3.connect(state / "offsets.db")) as connection:
            seen.add(connection.execute("PRAGMA user_version").fetchone()[0])
        with OffsetStore.open(state) as store:
            assert store.saved("nginx") == EXPECTED
            assert store.losses(None, 1) == ()
    assert seen <= set(range(1, schema.VERSION + 1))


@pytest.mark.parametrize("version", range(1, schema.VERSION))
def test_a_migration_that_ends_anywhere_has_not_happened(version: int) -> None:
    """Every statement in turn is the last one before the end."""

    class EndError(BaseException):
        pass

    for last in range(1, 20):
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.executescript(VERSION_1)
        connection.execute("PRAGMA user_version = 1")
        schema.migrate(connection, dict(list(schema.MIGRATIONS.items())[:version]))
        steps = dict(list(schema.MIGRATIONS.items())[: version + 1])
        before = list(connection.iterdump())
        count = 0

        def trace(_: str, connection: sqlite3.Connection = connection, last: int = last) -> None:
            nonlocal count
            count += 1
            if count == last:
                connection.interrupt()

        connection.set_trace_callback(trace)
        try:
            schema.migrate(connection, steps)
        except sqlite3.OperationalError:
            connection.set_trace_callback(None)
            assert list(connection.iterdump()) == before
            assert connection.execute("PRAGMA user_version").fetchone() == (version,)
        connection.set_trace_callback(None)
        reached = connection.execute("PRAGMA user_version").fetchone()[0]
        assert (reached == version + 1) == (list(connection.iterdump()) != before)
        connection.close()


def test_a_command_makes_no_store_and_moves_none_aside(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="no state directory"):
        OffsetStore.open_existing(tmp_path / "typo")
    (tmp_path / "empty").mkdir(mode=0o700)
    with pytest.raises(FatalError, match="no offset store"):
        OffsetStore.open_existing(tmp_path / "empty")
    assert not (tmp_path / "typo").exists()
    state = tmp_path / "state"
    OffsetStore.open(state).close()
    (state / "offsets.db").write_bytes(b"junk")
    with pytest.raises(FatalError, match="damaged"):
        OffsetStore.open_existing(state)
    assert (state / "offsets.db").read_bytes() == b"junk"
    assert not (state / "offsets.db.quarantined").exists()


def test_a_command_and_an_agent_never_have_the_store_at_once(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path), pytest.raises(FatalError, match="another agent"):
        OffsetStore.open_existing(tmp_path)
    with OffsetStore.open_existing(tmp_path), pytest.raises(FatalError, match="another agent"):
        OffsetStore.open(tmp_path)
