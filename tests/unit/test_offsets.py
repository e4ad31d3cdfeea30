"""Promises of the offset store: what was committed is there, what was not is not, and connectors do not touch each other."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore, lane_rows, saved_rows, schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OffsetStore]:
    with OffsetStore.open(tmp_path / "state") as opened:
        yield opened


def part(connector: str = "nginx", key: str = "1:2:3") -> SourcePartition:
    return SourcePartition(connector, key)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# names as the file system gives them: any bytes, as os.fsdecode shows them
PATHS = st.binary(max_size=30).map(lambda name: name.decode("utf-8", "surrogateescape"))
COUNTS = st.integers(0, 2**62)
OFFSETS = st.builds(
    SourceOffset,
    position=COUNTS,
    records=COUNTS,
    done=st.booleans(),
    skipping=st.booleans(),
    path=PATHS,
    fingerprint=st.builds(Fingerprint, COUNTS, NAMES, COUNTS, NAMES),
)


@given(st.dictionaries(st.builds(SourcePartition, NAMES, NAMES), OFFSETS, max_size=8))
def test_everything_committed_is_read_back_equal(offsets: dict[SourcePartition, SourceOffset]) -> None:
    with OffsetStore.in_memory() as store:
        store.commit(offsets)
        assert set(store.connectors()) == {partition.connector for partition in offsets}
        found = {key: value for name in store.connectors() for key, value in store.read(name).items()}
        assert found == offsets


def test_offsets_and_the_agents_identity_survive_a_restart(tmp_path: Path) -> None:
    offset = SourceOffset(10, 2, path="/logs/caf\udce9", fingerprint=Fingerprint(8, "aa", 4, "bb"))
    with OffsetStore.open(tmp_path) as store:
        identity = store.agent_uuid
        store.commit({part(): offset})
    with OffsetStore.open(tmp_path) as store:
        assert store.read("nginx") == {part(): offset}
        assert store.agent_uuid == identity


def test_a_commit_is_all_or_nothing(store: OffsetStore) -> None:
    store.commit({part(key="b"): SourceOffset(10)})
    with pytest.raises(FatalError, match="backwards"):
        store.commit({part(key="a"): SourceOffset(5), part(key="b"): SourceOffset(9), part(key="c"): SourceOffset(5)})
    assert store.read("nginx") == {part(key="b"): SourceOffset(10)}


def test_a_position_never_decreases_except_on_request(store: OffsetStore) -> None:
    store.commit({part(): SourceOffset(100)})
    store.commit({part(): SourceOffset(100)})
    with pytest.raises(FatalError, match="would move backwards from 100 to 99"):
        store.commit({part(): SourceOffset(99)})
    store.commit({part(): SourceOffset(101)})
    store.reset({part(): SourceOffset(0)})
    assert store.read("nginx")[part()].position == 0


def test_a_value_that_cannot_be_stored_costs_nobody_elses_offset(store: OffsetStore) -> None:
    with pytest.raises(FatalError, match="this cannot be saved"):
        store.commit({part(): SourceOffset(object())})  # type: ignore[arg-type]
    store.commit({part(): SourceOffset(1)})
    assert store.read("nginx") == {part(): SourceOffset(1)}


@pytest.mark.parametrize("year", [-3_000_000, 1, 1901, 2026, 2262, 2263, 2300, 9999, 10_000, 290_000_000_000])
def test_a_files_time_is_saved_exactly_whatever_year_it_names(tmp_path: Path, year: int) -> None:
    offset = SourceOffset(5, mtime_ns=(year - 1970) * 31_556_952 * 10**9 + 123_456_789)
    with OffsetStore.open(tmp_path) as store:
        store.commit({part(): offset})
    with OffsetStore.open(tmp_path) as store:
        assert store.read("nginx") == {part(): offset}


def test_numbers_that_sqlite_cannot_hold_are_saved_as_the_nearest_that_it_can(store: OffsetStore) -> None:
    huge = SourceOffset(5, records=2**80, size=2**64, gone_ms=-(2**70), fingerprint=Fingerprint(2**65, "a", 2**66, "b"))
    most = 2**63 - 1
    store.commit({part(): huge})
    assert store.read("nginx") == {
        part(): SourceOffset(5, most, size=most, gone_ms=-most - 1, fingerprint=Fingerprint(most, "a", most, "b"))
    }


def test_words_about_a_file_that_quote_no_text_are_saved_with_escapes(store: OffsetStore) -> None:
    store.commit({part(): SourceOffset(7, done=True, trouble="column '\udcff' is bad")})
    assert store.read("nginx")[part()].trouble == "column '\\udcff' is bad"


def test_nothing_to_commit_is_nothing_done(store: OffsetStore) -> None:
    store.commit({})
    assert store.connectors() == ()
    assert store.read("unknown") == {}


def test_pruning_one_connector_leaves_the_others_alone(store: OffsetStore) -> None:
    store.commit({part(name, key): SourceOffset(1) for name in ("a", "b") for key in ("1", "2")})
    store.forget([part("a", "1"), part("a", "never-seen")])
    assert set(store.read("a")) == {part("a", "2")}
    assert set(store.read("b")) == {part("b", "1"), part("b", "2")}


def test_a_renamed_connector_keeps_its_offsets(store: OffsetStore) -> None:
    store.commit({part("pay", "1"): SourceOffset(5), part("pay", "2"): SourceOffset(6), part("other", "1"): SourceOffset(7)})
    store.commit({part("payments", "2"): SourceOffset(60)})
    assert store.rename("pay", "payments") == 1
    assert store.read("payments") == {part("payments", "1"): SourceOffset(5), part("payments", "2"): SourceOffset(60)}
    assert store.read("pay") == {}
    assert store.read("other") == {part("other", "1"): SourceOffset(7)}
    assert store.rename("pay", "payments") == 0


def test_a_closed_store_says_so_and_closing_twice_is_fine(store: OffsetStore) -> None:
    store.close()
    store.close()
    with pytest.raises(FatalError, match="closed"):
        store.commit({part(): SourceOffset(1)})
    with pytest.raises(FatalError, match="closed"):
        store.read("nginx")


def test_ten_thousand_files_that_come_and_go_leave_no_trace(tmp_path: Path) -> None:
    def size() -> int:
        return sum(file.stat().st_size for file in tmp_path.iterdir())

    with OffsetStore.open(tmp_path) as store:
        store.commit({part("b", "stays"): SourceOffset(1)})
        for start in range(0, 10_000, 100):
            partitions = [part("a", f"{number}") for number in range(start, start + 100)]
            store.commit({partition: SourceOffset(1, path="/var/log/" + "x" * 100) for partition in partitions})
            assert set(store.read("a")) == set(partitions)
            store.forget(partitions)
            assert size() < 6 * 2**20
        assert set(store.read("b")) == {part("b", "stays")}
    assert size() < 2**17


def test_space_of_many_forgotten_files_goes_back_to_the_file_system(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        partitions = [part("a", f"{number}") for number in range(10_000)]
        store.commit({partition: SourceOffset(1, path="/var/log/" + "x" * 100) for partition in partitions})
        store.forget(partitions)
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2**20


def test_the_write_ahead_log_stays_bounded(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        for number in range(1500):
            store.commit({part("a", "1"): SourceOffset(number)})
            assert (tmp_path / "offsets.db-wal").stat().st_size < 5 * 2**20
        assert store.read("a")[part("a", "1")].position == 1499


def test_connectors_commit_side_by_side_and_none_loses_an_offset(store: OffsetStore) -> None:
    failures = []

    def run(name: str) -> None:
        try:
            for number in range(1, 101):
                store.commit({part(name, "1"): SourceOffset(number)})
                if store.read(name)[part(name, "1")].position != number:
                    failures.append(name)
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            failures.append(repr(error))

    threads = [threading.Thread(target=run, args=(f"c{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [store.read(name)[part(name, "1")].position for name in store.connectors()] == [100] * 6


def test_in_a_shared_transaction_one_refused_commit_does_not_hurt_the_others(store: OffsetStore) -> None:
    store.commit({part("bad"): SourceOffset(10)})
    outcome: dict[str, str] = {}

    def commit(name: str) -> None:
        try:
            store.commit({part(name): SourceOffset(5)})
            outcome[name] = "ok"
        except FatalError:
            outcome[name] = "refused"

    threads = [threading.Thread(target=commit, args=(name,)) for name in ("good-1", "bad", "good-2")]
    with store.using():  # all three wait, so that the first to go writes for all
        for thread in threads:
            thread.start()
        while store.waiting < len(threads):
            pass
    for thread in threads:
        thread.join()
    assert outcome == {"good-1": "ok", "bad": "refused", "good-2": "ok"}
    assert store.read("good-1") == {part("good-1"): SourceOffset(5)}
    assert store.read("bad") == {part("bad"): SourceOffset(10)}


def no_number(partition: SourcePartition, offset: SourceOffset) -> saved_rows.Row:
    """A row that SQLite refuses, as one with a number of more than 64 bits was."""
    row = list(_encode(partition, offset))
    if partition.connector == "bad":
        row[saved_rows.COLUMNS.index("size")] = BEYOND[offset.size]
    return tuple(row)


_encode = saved_rows.encode
BEYOND: list[object] = [2**64, None, object(), "\udc80"]
"""Values that make sqlite3 raise OverflowError, IntegrityError, ProgrammingError and UnicodeEncodeError."""


@pytest.mark.parametrize("which", range(len(BEYOND)))
def test_whatever_a_commit_makes_the_store_raise_is_told_to_who_asked_for_it_and_to_nobody_else(
    store: OffsetStore, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    monkeypatch.setattr(saved_rows, "encode", no_number)
    outcome: dict[str, str] = {}

    def commit(name: str) -> None:
        try:
            store.commit({part(name, "1"): SourceOffset(5, size=which), part(name, "2"): SourceOffset(5, size=which)})
            outcome[name] = "ok"
        except FatalError as error:
            outcome[name] = str(error)

    threads = [threading.Thread(target=commit, args=(name,)) for name in ("good-1", "bad", "good-2")]
    with store.using():  # all three wait, so that the first to go writes for all
        for thread in threads:
            thread.start()
        while store.waiting < len(threads):
            pass
    for thread in threads:
        thread.join()
    assert outcome["good-1"] == outcome["good-2"] == "ok"
    assert "cannot be saved: unexpected" in outcome["bad"]
    assert store.connectors() == ("good-1", "good-2")
    assert store.refusal == ""


def test_a_commit_for_which_there_is_no_memory_may_be_repeated(store: OffsetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(lane_rows, "changed", mock.Mock(side_effect=MemoryError))
        with pytest.raises(RetriableError, match="no memory"):
            store.commit({part(): SourceOffset(5)})
    store.commit({part(): SourceOffset(5)})
    assert store.read("nginx") == {part(): SourceOffset(5)}


def test_a_store_removed_under_the_agent_is_noticed_at_the_next_commit(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        store.commit({part(): SourceOffset(1)})
        (tmp_path / "offsets.db").unlink()
        with pytest.raises(FatalError, match="removed or replaced"):
            store.commit({part(): SourceOffset(2)})


def test_an_older_schema_is_migrated_in_steps_that_are_whole() -> None:
    def first(c: sqlite3.Connection) -> None:
        c.execute("CREATE TABLE t (a)")

    def second(c: sqlite3.Connection) -> None:
        c.execute("ALTER TABLE t ADD COLUMN b DEFAULT 1")

    def breaks(c: sqlite3.Connection) -> None:
        c.execute("DELETE FROM t")
        raise InterruptedError

    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(connection, {0: first})
    connection.execute("INSERT INTO t VALUES (7)")
    steps = {0: first, 1: second, 2: breaks}
    with pytest.raises(InterruptedError):
        schema.migrate(connection, steps)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    assert connection.execute("SELECT * FROM t").fetchall() == [(7, 1)]
    connection.close()
