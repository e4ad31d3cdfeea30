"""Fluent Bit's database of input tail, in the form of its own statements, read beside whoever has it open."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from copycat_agent.errors import CopycatError
from copycat_agent.offsets.other_database import rows_of
from copycat_agent.workbench.takeover import fluent_bit_database
from copycat_agent.workbench.takeover.xxh3 import xxh3
from tests.unit.workbench.takeover.peers import LINES, assert_never_crashes, judged, read_on, refused, successor, taken_over

CREATE = (
    "CREATE TABLE IF NOT EXISTS in_tail_files (  id      INTEGER PRIMARY KEY,  name    TEXT NOT NULL,  offset  INTEGER,"
    "  inode   INTEGER,  created INTEGER,  rotated INTEGER DEFAULT 0);"
)
"""As plugins/in_tail/tail_sql.h has it; version 4 adds two columns behind."""
INSERT = "INSERT INTO in_tail_files (name, offset, inode, created) VALUES (?, ?, ?, unixepoch())"


def connected(path: Path, journal: str = "WAL") -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode={journal}")
    connection.execute(CREATE)
    return connection


def with_marker(path: Path, log: Path, offset: int, marker: int) -> None:
    """A database as version 5 has it, with the hash of all that is before the offset."""
    with closing(connected(path)) as database:
        for column in ("offset_marker", "offset_marker_size"):
            database.execute(f"ALTER TABLE in_tail_files ADD COLUMN {column} INTEGER DEFAULT 0")
        database.execute(INSERT, (str(log), offset, log.stat().st_ino))
        database.execute("UPDATE in_tail_files SET offset_marker = ?, offset_marker_size = ?", (marker, offset))


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
@pytest.mark.parametrize("place", ["db/tail.db", "db"])
def test_the_agent_goes_on_where_tail_was_while_the_database_is_open(tmp_path: Path, log: Path, journal: str, place: str) -> None:
    (tmp_path / "db").mkdir()
    with closing(connected(tmp_path / "db" / "tail.db", journal)) as database:
        database.execute(INSERT, (str(log), 4, log.stat().st_ino))
        takeover = taken_over(successor(log), state=fluent_bit_database.read(tmp_path / place))
        assert {path.name for path in (tmp_path / "db").iterdir()} >= {"tail.db"}
    told = judged(takeover)["app.log"]
    assert told.why == "same inode, a line ends before byte 4, 10 bytes more since"
    assert read_on(log, takeover.rows["app"]) == [b"two", b"three"]


def test_a_log_that_tail_saw_rotated_has_its_new_name_and_is_read_to_its_end(tmp_path: Path, log: Path) -> None:
    rotated = log.with_name("app.log.1")
    log.rename(rotated)
    with closing(connected(tmp_path / "tail.db")) as database:
        database.execute(INSERT, (str(rotated), 4, rotated.stat().st_ino))
    log.write_bytes(b"new\n")
    takeover = taken_over(successor(log), state=fluent_bit_database.read(tmp_path / "tail.db"))
    assert judged(takeover)["app.log.1"].taken
    assert sorted(read_on(log, takeover.rows["app"])) == [b"new", b"three", b"two"]


def test_of_several_rows_with_an_inode_the_newest_counts(tmp_path: Path, log: Path) -> None:
    with closing(connected(tmp_path / "tail.db")) as database:
        for name, offset in (("/gone.log", 14), (str(log), 8)):
            database.execute(INSERT, (name, offset, log.stat().st_ino))
    assert [(one.path, one.position) for one in fluent_bit_database.read(tmp_path / "tail.db").positions] == [(str(log), 8)]


def test_a_name_that_is_not_utf8_is_the_files_own(tmp_path: Path, log: Path) -> None:
    odd = log.with_name("caf\udce9.log")
    odd.write_bytes(LINES)
    with closing(connected(tmp_path / "tail.db")) as database:
        name = str(odd).encode("utf-8", "surrogateescape")
        database.execute(INSERT.replace("?", "CAST(? AS TEXT)", 1), (name, 4, odd.stat().st_ino))
    takeover = taken_over(successor(log.with_name("c*.log")), state=fluent_bit_database.read(tmp_path / "tail.db"))
    assert judged(takeover)[odd.name].taken


def test_a_file_that_was_cut_since_is_named(tmp_path: Path, log: Path) -> None:
    with closing(connected(tmp_path / "tail.db")) as database:
        database.execute(INSERT, (str(log), 14, log.stat().st_ino))
    log.write_bytes(b"new\n")
    told = judged(taken_over(successor(log), state=fluent_bit_database.read(tmp_path / "tail.db")))["app.log"]
    assert "it was cut, or written anew" in told.why
    assert "from the beginning" in told.then


@pytest.mark.parametrize(
    ("size", "value"),
    [
        (1, 14144645293874801883), (3, 6864218090047839419), (4, 6979084321315492338), (8, 4187271766389786872),
        (9, 16816763818684955100), (16, 9463720498221773019), (17, 11453570474087510824), (32, 3829001002278603781),
    ],
)  # fmt: skip
def test_the_hash_is_that_of_the_reference_implementation(size: int, value: int) -> None:
    assert xxh3(bytes(range(size))) == value


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_bytes_before_an_offset_are_compared_where_version_5_has_kept_a_hash_of_them(tmp_path: Path, log: Path, is_whole: bool) -> None:
    """One of a log that was cut and has grown again, which nothing else tells."""
    marker = xxh3(LINES[:4])
    with_marker(tmp_path / "tail.db", log, 4, marker - 2**64 if marker >= 2**63 else marker)
    if not is_whole:
        log.write_bytes(b"new\nnewer\n")
    takeover = taken_over(successor(log), state=fluent_bit_database.read(tmp_path / "tail.db"))
    told = judged(takeover)["app.log"]
    assert told.taken == is_whole
    assert ("same 4 bytes before" if is_whole else "4 bytes before 4 are other ones than the peer read") in told.why
    assert read_on(log, takeover.rows["app"]) == ([b"two", b"three"] if is_whole else [b"new", b"newer"])


def test_a_row_that_a_real_fluent_bit_has_written_is_taken(tmp_path: Path, log: Path) -> None:
    """Fluent Bit 5.1.1, killed in a log that ends in an unfinished line; only name, inode and time are others here."""
    log.write_bytes(LINES + b"part")
    with_marker(tmp_path / "tail.db", log, 14, -8383773184970868889)
    takeover = taken_over(successor(log), state=fluent_bit_database.read(tmp_path / "tail.db"))
    assert "same 14 bytes before" in judged(takeover)["app.log"].why
    with log.open("ab") as file:
        file.write(b" and ended\n")
    assert read_on(log, takeover.rows["app"]) == [b"part and ended"]


def test_hostile_databases_are_refused_with_words(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "tail.db"
    assert "No such file" in refused("fluent-bit", path)
    path.write_bytes(b"hello")
    assert "no database of Fluent Bit" in refused("fluent-bit", path)
    path.unlink()
    with closing(connected(path, "DELETE")) as database:
        database.execute(INSERT, (str(log), 4, 5))
    whole = path.read_bytes()
    for content in (whole[:100], whole[:4096], whole[:5000], whole[:2000] + b"\xff" * 3000, whole[:16] + b"\xff" * 8000):
        path.write_bytes(content)
        with suppress(CopycatError):
            assert fluent_bit_database.read(path).positions == ()
    assert_never_crashes("fluent-bit", path, whole[:120], path)
    for wrong in (-1, None, "x", 1.5, b"4"):
        path.unlink()
        with closing(connected(path, "DELETE")) as database:
            database.execute(INSERT, (str(log), wrong, 5))
        assert "no whole number" in refused("fluent-bit", path)
    assert "are more than 10" in _too_large(path)


def _too_large(path: Path) -> str:
    with pytest.raises(CopycatError, match="more than") as caught:
        rows_of(path, "in_tail_files", ("name",), bytes_max=10)
    return str(caught.value)


def test_a_table_that_is_a_view_without_an_end_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "tail.db"
    with closing(sqlite3.connect(path)) as database:
        endless = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT 'a' AS name, n AS offset, n AS inode FROM x"
        database.execute(f"CREATE VIEW in_tail_files AS {endless}")
    assert fluent_bit_database.read(path).positions == ()
