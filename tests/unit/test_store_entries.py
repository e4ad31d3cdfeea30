"""The store as entries of a log: whatever is written is in the log, and another directory makes the same store of it."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copycat_agent.errors import CopycatError, DataError, FatalError, FencedError, RetriableError
from copycat_agent.model import Account, Counts, Loss, SourceOffset, SourcePartition, SourceState, state_partition
from copycat_agent.offsets import OffsetStore, agent_identity, schema
from copycat_agent.offsets.state_log import IDENTITY_KEY, Changes, Entries, everything
from tests.rig.examples import examples
from tests.rig.waiting import wait_until
from tests.unit.old_stores import old_store
from tests.unit.test_offsets import NAMES, OFFSETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class MemoryLog:
    """A log in this process. `fail`: what the next `publish` raises, after it wrote or before."""

    def __init__(self) -> None:
        self.there: dict[bytes, bytes] = {}
        self.published = 0
        self.is_doubtful = False
        self.fail: Exception | None = None
        self.writes_first = False

    def take(self) -> dict[bytes, bytes]:
        return dict(self.there)

    def publish(self, changes: Changes, everything: Callable[[], Entries]) -> None:
        if self.is_doubtful:
            wanted = everything()
            changes = {**dict.fromkeys(self.there.keys() - wanted.keys()), **wanted}
        failure, self.fail = self.fail, None
        if failure is None or self.writes_first:
            self.there = {key: value for key, value in {**self.there, **changes}.items() if value is not None}
            self.published += 1
        self.is_doubtful = failure is not None
        if failure is not None:
            raise failure

    def doubt(self) -> None:
        self.is_doubtful = True


def opened(path: Path, log: MemoryLog, agent_id: str = "a") -> OffsetStore:
    return OffsetStore.open_replicated(path, log, agent_id)


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, and the version."""
    with closing(sqlite3.connect(path / "offsets.db")) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        found = {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names}  # noqa: S608
        return {**found, "version": connection.execute("PRAGMA user_version").fetchall()}


def part(name: str = "c", key: str = "k") -> SourcePartition:
    return SourcePartition(name, key)


PARTITIONS = st.builds(SourcePartition, st.sampled_from(["a", "b", "c-d"]), st.one_of(st.sampled_from(["1", "2"]), NAMES))
STATES = st.builds(SourceState, st.dictionaries(NAMES, st.integers(), max_size=3))
LOSSES = st.builds(
    lambda partition, start: Loss(partition, "/log", start, start + 5, 5, 1, "destroyed", "gone", 7), PARTITIONS, st.integers(0, 2**40)
)
WRITES = st.one_of(
    st.tuples(st.just("commit"), st.dictionaries(PARTITIONS, OFFSETS, max_size=4), st.lists(LOSSES, max_size=2)),
    st.tuples(st.just("state"), st.sampled_from(["a", "b"]), STATES),
    st.tuples(st.just("forget"), st.lists(PARTITIONS, max_size=3)),
    st.tuples(st.just("target"), st.sampled_from(["a", "b"]), st.sampled_from(["running", "paused", "stopped"])),
    st.tuples(st.just("rename"), st.sampled_from(["a", "b"]), st.sampled_from(["a", "c-d"])),
    st.tuples(st.just("anew"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("identified"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("leave"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("account"), PARTITIONS),
    st.tuples(st.just("open"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("begin"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("identity")),
    st.tuples(st.just("partitions"), st.integers(1, 50)),
)


def write(store: OffsetStore, what: str, *values: object) -> None:
    calls: dict[str, Callable[..., object]] = {
        "commit": lambda offsets, losses: store.commit(offsets, losses=losses) if losses else store.reset(offsets),
        "state": lambda name, state: store.commit({state_partition(name): state}),
        "forget": store.forget,
        "target": store.set_target,
        "rename": store.rename,
        "anew": store.begin_anew,
        "identified": store.identified,
        "leave": store.leave_lanes,
        "account": lambda partition: store.commit({}, accounts={partition: Account(Counts(read=1), path="/x")}),
        "open": store.open_accounts,
        "begin": store.begin_accounts,
        "identity": lambda: store.identity,
        "partitions": lambda now: store.partitions("cluster", now),
    }
    calls[what](*values)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60), deadline=None)
@given(writes=st.lists(WRITES, max_size=12), failing=st.sets(st.integers(0, 11), max_size=3), writes_first=st.booleans())
def test_another_directory_makes_the_same_store_of_what_is_in_the_log(
    tmp_path_factory: pytest.TempPathFactory, *, writes: list[tuple[str, ...]], failing: set[int], writes_first: bool
) -> None:
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    log = MemoryLog()
    log.writes_first = writes_first
    with opened(first, log) as store:
        for number, (what, *values) in enumerate(writes):
            log.fail = RetriableError("no answer") if number in failing else None
            try:
                write(store, what, *values)
            except RetriableError:
                write(store, what, *values)
            log.fail = None
        log.fail = None
        store.set_target("last", "paused")  # whatever failed is compared now
        kept = store.agent_uuid
    with opened(second, log) as store:
        assert store.agent_uuid == kept
    assert rows(second) == rows(first)
    assert (second / "identity.json").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR REPLACE INTO unpublished (connector, key, wish, checksum) VALUES ('c', 'k', 1, 2)",  # takes a row away
        "UPDATE targets SET target = 'stopped', connector = 'b'",
        "DELETE FROM targets",
        "INSERT INTO targets VALUES ('a', 'stopped', 1) ON CONFLICT DO UPDATE SET target = 'stopped'",
        "UPDATE agent SET created_ms = 7",
    ],
)
def test_rows_are_told_however_they_change(tmp_path: Path, statement: str) -> None:
    log = MemoryLog()
    with opened(tmp_path / "one", log) as store:
        with store.writing() as connection:
            connection.execute("INSERT INTO unpublished (connector, key, wish, checksum) VALUES ('c', 'k', 0, 1)")
            connection.execute("INSERT INTO targets VALUES ('a', 'paused', 1)")
        with store.writing() as connection:
            connection.execute(statement)
        with store.using() as connection:
            assert log.there == everything(connection, agent_identity.StoredIdentity(store.agent_uuid))


def test_what_the_directory_has_goes_there_where_nothing_is(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "one") as store:
        store.commit({part(): SourceOffset(7)})
    log = MemoryLog()
    with opened(tmp_path / "one", log):
        pass
    with opened(tmp_path / "two", log) as store:
        assert store.read("c") == {part(): SourceOffset(7)}


def test_what_is_there_counts_and_not_the_copy_that_the_directory_has(tmp_path: Path) -> None:
    log = MemoryLog()
    with opened(tmp_path / "one", log) as store:
        store.commit({part(): SourceOffset(7), part(key="gone"): SourceOffset(1)})
    with opened(tmp_path / "two", log) as store:
        store.commit({part(): SourceOffset(9)}, forget=[part(key="gone")])
    with opened(tmp_path / "one", log) as store:
        assert store.read("c") == {part(): SourceOffset(9)}


def test_what_an_earlier_version_has_written_is_brought_up_to_date_on_both_sides(tmp_path: Path) -> None:
    old = old_store(8, tmp_path / "old")
    kept = agent_identity.load(old)
    assert kept is not None
    log = MemoryLog()
    with closing(sqlite3.connect(old / "offsets.db")) as connection:
        log.there = everything(connection, kept)
    for name in ("new", "newer"):
        with opened(tmp_path / name, log) as store:
            assert store.agent_uuid == kept.uuid
    with OffsetStore.open(old) as store, OffsetStore.open_replicated(tmp_path / "new", log, "a") as new:
        assert store.connectors()
        for name in store.connectors():
            assert (store.saved(name), store.lanes(name)) == (new.saved(name), new.lanes(name))
    assert rows(tmp_path / "newer") == rows(tmp_path / "new")


def test_a_log_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    log = MemoryLog()
    with opened(tmp_path / "one", log):
        pass
    log.there[b'["schema"]'] = b"%d" % (schema.VERSION + 1)
    with pytest.raises(FatalError, match="newer copycat-agent"):
        opened(tmp_path / "two", log)


def test_a_log_that_cannot_be_read_is_refused_and_nothing_is_begun_anew(tmp_path: Path) -> None:
    log = MemoryLog()
    with opened(tmp_path / "one", log):
        pass
    log.there[b'["identity"]'] = b"nonsense"
    with pytest.raises(FatalError, match="cannot be read"):
        opened(tmp_path / "two", log)


def test_nothing_is_saved_once_another_process_has_taken_over(tmp_path: Path) -> None:
    log = MemoryLog()
    with opened(tmp_path / "one", log) as store:
        store.commit({part(): SourceOffset(7)})
        log.fail = FencedError("somebody else")
        with pytest.raises(FatalError, match="taken over"):
            store.commit({part(): SourceOffset(8)})
        with pytest.raises(FatalError, match="taken over"):
            store.read("c")
        assert store.failure is not None
    with opened(tmp_path / "two", log) as store:
        assert store.read("c") == {part(): SourceOffset(7)}


def test_what_is_not_in_the_log_is_not_saved_here_either(tmp_path: Path) -> None:
    log = MemoryLog()
    with opened(tmp_path / "one", log) as store:
        log.fail = RetriableError("no answer")
        with pytest.raises(RetriableError):
            store.commit({part(): SourceOffset(8)})
        assert store.read("c") == {}


def test_directories_of_others_are_not_touched(tmp_path: Path) -> None:
    log = MemoryLog()
    with opened(tmp_path / "one", log):
        pass
    with OffsetStore.open(tmp_path / "own") as store:
        store.commit({part(): SourceOffset(7)})
        own = store.agent_uuid
    with pytest.raises(FatalError, match="another agent_id"):
        opened(tmp_path / "own", log)
    with pytest.raises(FatalError, match="state directory of agent a"):
        opened(tmp_path / "one", MemoryLog(), "b")
    with OffsetStore.open(tmp_path / "own") as store:
        assert (store.agent_uuid, store.read("c")) == (own, {part(): SourceOffset(7)})


def test_state_that_never_got_into_the_log_is_not_replaced_by_that_of_another_process(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "one") as store:
        store.commit({part(): SourceOffset(7)})
        own = store.agent_uuid
    log = MemoryLog()
    log.fail = RetriableError("no answer")
    with pytest.raises(RetriableError):
        opened(tmp_path / "one", log)
    log.is_doubtful = False  # another process has no doubts
    with opened(tmp_path / "two", log) as store:
        store.set_target("c", "paused")
    for _ in range(2):
        with pytest.raises(FatalError, match="state that is not in Kafka"):
            opened(tmp_path / "one", log)
    log.there.clear()
    with opened(tmp_path / "one", log) as store:
        assert (store.agent_uuid, store.read("c")) == (own, {part(): SourceOffset(7)})


def test_a_directory_in_which_nothing_was_saved_holds_nobody_up(tmp_path: Path) -> None:
    log = MemoryLog()
    log.fail = RetriableError("no answer")
    with pytest.raises(RetriableError):
        opened(tmp_path / "one", log)
    log.is_doubtful = False
    with opened(tmp_path / "two", log) as store:
        store.commit({part(): SourceOffset(7)})
    with opened(tmp_path / "one", log) as store:
        assert store.read("c") == {part(): SourceOffset(7)}


def test_a_damaged_copy_is_made_anew(tmp_path: Path) -> None:
    log = MemoryLog()
    with opened(tmp_path, log) as store:
        store.commit({part(): SourceOffset(7)})
    for damage in (b"", b"nonsense" * 1000):
        (tmp_path / "offsets.db").write_bytes(damage)
        with opened(tmp_path, log) as store:
            assert store.read("c") == {part(): SourceOffset(7)}


def test_a_copy_from_before_the_agent_got_a_new_identity_is_replaced(tmp_path: Path) -> None:
    log = MemoryLog()
    with opened(tmp_path, log) as store:
        store.commit({part(): SourceOffset(7)})
        kept = agent_identity.another(agent_identity.StoredIdentity(store.agent_uuid))
    log.there[IDENTITY_KEY] = agent_identity.text_of(kept).encode()
    with opened(tmp_path, log) as store:
        assert (store.agent_uuid, store.read("c")) == (kept.uuid, {part(): SourceOffset(7)})


def test_a_copy_is_not_changed_without_the_log(tmp_path: Path) -> None:
    with opened(tmp_path / "one", MemoryLog()):
        pass
    for opening in (OffsetStore.open, OffsetStore.open_existing):
        with pytest.raises(FatalError, match="agent a keeps its own in Kafka"):
            opening(tmp_path / "one")
    (tmp_path / "one" / "agent_id").unlink()
    with OffsetStore.open(tmp_path / "one"):
        pass


def test_a_copy_that_cannot_be_made_is_told_in_words_and_leaves_the_directory_free(tmp_path: Path) -> None:
    log = MemoryLog()
    with opened(tmp_path / "one", log):
        pass
    whole, in_the_way = log.there, tmp_path / "two" / "offsets.db.new"
    in_the_way.mkdir(parents=True)
    with pytest.raises(FatalError, match=r"the offset store in .* cannot be opened"):
        opened(tmp_path / "two", log)
    in_the_way.rmdir()
    log.there = {**whole, b'["targets","c"]': b"[]"}  # which SQLite refuses
    with pytest.raises(FatalError, match="the offset store is damaged"):
        opened(tmp_path / "two", log)
    log.there = whole
    with opened(tmp_path / "two", log):
        pass


def test_the_mark_of_a_copy_is_replaced_and_not_emptied_first(tmp_path: Path) -> None:
    log, mark, before = MemoryLog(), tmp_path / "one" / "agent_id", tmp_path / "before"
    with opened(tmp_path / "one", log):
        before.hardlink_to(mark)
    with opened(tmp_path / "one", log):
        assert not mark.samefile(before), "a power cut in between would leave it empty"
        assert mark.read_text() == before.read_text() == "a\n"


def test_commits_of_one_transaction_do_not_share_the_refusal_of_an_entry(tmp_path: Path) -> None:
    """A thread holds the store's lock while two others queue their commits."""
    log = RefusingLog(b"too large")
    with opened(tmp_path, log) as store:
        saved = {name: {SourcePartition(name, "k"): SourceOffset(7, cursor=json.dumps(name))} for name in ("small", "too large", "other")}
        errors: dict[str, CopycatError | None] = {}

        def commit(name: str) -> None:
            try:
                store.commit(saved[name])
                errors[name] = None
            except CopycatError as error:
                errors[name] = error

        threads = [threading.Thread(target=commit, args=(name,)) for name in saved]
        with store.using():
            for thread in threads:
                thread.start()
            wait_until(lambda: store.waiting == len(saved))
        for thread in threads:
            thread.join(60)
        assert {name: type(error) for name, error in errors.items()} == {"small": type(None), "too large": DataError, "other": type(None)}
        assert store.connectors() == ("other", "small")
        assert len([key for key in log.there if b'"offsets"' in key]) == 2


class RefusingLog(MemoryLog):
    """Refuses all of what has a certain entry."""

    def __init__(self, refused: bytes) -> None:
        super().__init__()
        self._refused = refused

    def publish(self, changes: Changes, everything: Callable[[], Entries]) -> None:
        if any(self._refused in value for value in changes.values() if value is not None):
            self.fail = DataError("too large")
        super().publish(changes, everything)
