"""The driver's half of `spool_dir`: read once, whatever happens to the file or the agent."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import FatalError
from tests.unit.sources.spool.rig import Spool, lines, touch_later

if TYPE_CHECKING:
    from pathlib import Path


def test_a_dropped_file_is_read_once_over_scans_and_restarts(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("a.txt", lines("one", "two"))
    spool.drain()
    for _ in range(10):
        spool.drain()
    spool.restart()
    spool.drain()
    spool.stop()
    spool.drain()
    assert spool.arrived == [b"one", b"two"]
    assert spool.rows()["a.txt"].done
    assert spool.rows()["a.txt"].records == 2
    assert spool.states() == {"a.txt": "done"}
    assert spool.source.lag().files == 0


def test_a_last_line_without_its_end_is_a_record(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("a.txt", b"one\ntwo")
    spool.drain()
    assert spool.arrived == [b"one", b"two"]


def test_a_restart_goes_on_at_the_first_record_that_is_not_settled(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    content = [f"{number:06}" for number in range(20_000)]
    spool.drop("a.txt", lines(*content))
    spool.max_bytes = 65536
    spool.scan()
    spool.work()
    before = len(spool.arrived)
    assert 0 < before < 20_000
    spool.restart()
    spool.drain()
    assert spool.arrived == [text.encode() for text in content]
    assert spool.rows()["a.txt"].records == 20_000


def test_nothing_moves_while_the_broker_is_down(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("a.txt", lines("one"))
    spool.keeper.down = True
    spool.scan()
    spool.work()
    assert not spool.store
    assert (tmp_path / "a.txt").exists()
    spool.keeper.down = False
    spool.drain()
    assert spool.arrived == [b"one"]


def test_a_rename_while_it_waits_or_is_read_does_not_read_it_twice(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    content = [f"{number:06}" for number in range(20_000)]
    path = spool.drop("a.txt", lines(*content))
    spool.scan()
    path.rename(tmp_path / "b.txt")
    spool.max_bytes = 65536
    spool.scan()
    splits = spool.source.plan(1).splits
    (tmp_path / "b.txt").rename(tmp_path / "c.txt")
    spool.bring(spool.read(splits))
    spool.scan()
    spool.restart()
    (tmp_path / "c.txt").rename(tmp_path / "d.txt")
    spool.drain()
    (tmp_path / "d.txt").rename(tmp_path / "e.txt")
    spool.drain()
    assert spool.arrived == [text.encode() for text in content]
    assert spool.states() == {"e.txt": "done"}


def test_empty_files_are_done_without_a_record(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("empty", b"")
    spool.drop("full", lines("one"))
    spool.drain()
    assert spool.arrived == [b"one"]
    assert spool.states() == {"empty": "done", "full": "done"}
    assert spool.rows()["empty"].done


@pytest.mark.parametrize(
    "name",
    [".hidden", "a.tmp", "a.part", "a.partial", "a.filepart", "a.crdownload", ".a.swp", "a.swp", "a~", "a.csv.PROCESSING", ".a.csv.Xy12"],
)
def test_unfinished_names_are_never_read(tmp_path: Path, name: str) -> None:
    spool = Spool(tmp_path, pattern=("*", ".*"))
    (tmp_path / name).write_bytes(b"no\n")
    spool.drop("good", lines("yes"))
    spool.drain()
    assert spool.arrived == [b"yes"]


def test_exclude_wins_over_pattern(tmp_path: Path) -> None:
    spool = Spool(tmp_path, pattern=("a*", "b*"), exclude=("*2",))
    for name in ("a1", "a2", "b1", "c1"):
        spool.drop(name, lines(name))
    spool.drain()
    assert sorted(spool.arrived) == [b"a1", b"b1"]


def test_recursive_looks_below_but_not_into_hidden_directories(tmp_path: Path) -> None:
    for name in ("top", "x/y/deep", ".git/secret"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(lines(name))
    flat = Spool(tmp_path)
    flat.drain()
    assert flat.arrived == [b"top"]
    deep = Spool(tmp_path, recursive=True)
    deep.drain()
    assert sorted(deep.arrived) == [b"top", b"x/y/deep"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret\n")
    root = tmp_path / "in"
    root.mkdir()
    (root / "link").symlink_to(outside)
    spool = Spool(root)
    spool.drain()
    assert spool.arrived == []
    assert "symbolic link" in spool.source.passed_over()[str(root / "link")]


def test_the_same_content_under_the_same_name_is_a_repeat(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("a", lines("one"))
    spool.drain()
    spool.drop("a", lines("one"))  # a new inode
    spool.drain()
    touch_later(tmp_path / "a")  # the same inode, touched
    spool.drain()
    spool.restart()
    (tmp_path / "a").unlink()
    spool.drain()
    spool.drop("a", lines("one"))
    spool.drain()
    assert spool.arrived == [b"one"]


def test_other_content_under_the_same_name_is_another_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("a", lines("one"))
    spool.drain()
    spool.drop("a", lines("two"))  # as long
    spool.drain()
    (tmp_path / "a").write_bytes(lines("333"))  # in place, as long
    touch_later(tmp_path / "a")
    spool.drain()
    (tmp_path / "a").write_bytes(lines("three", "four"))
    spool.drain()
    spool.restart()
    spool.drain()
    assert spool.arrived == [b"one", b"two", b"333", b"three", b"four"]


def test_the_same_content_under_another_name_is_another_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("a", lines("one"))
    spool.drain()
    spool.drop("b", lines("one"))
    spool.drain()
    assert spool.arrived == [b"one", b"one"]


def test_a_packed_file_is_read_as_what_it_holds(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    content = [f"{number:06}" for number in range(50_000)]
    spool.drop("a.gz", gzip.compress(lines(*content)))
    spool.max_bytes = 100_000
    spool.scan()
    spool.work()
    spool.restart()
    spool.drain(500)
    assert spool.arrived == [text.encode() for text in content]
    assert spool.rows()["a.gz"].done
    spool.restart()
    spool.drain()
    assert len(spool.arrived) == 50_000


@pytest.mark.parametrize("count", [5, 5_000], ids=["short", "long"])
def test_a_packed_file_of_which_all_is_settled_but_not_that_it_is_done_is_not_sent_again(tmp_path: Path, count: int) -> None:
    """Kafka keeps how far a lane got, not that the file ends there: after a lost answer it is read on at its end."""
    spool = Spool(tmp_path)
    content = [f"{number:06}" for number in range(count)]
    spool.drop("a.gz", gzip.compress(lines(*content)))
    spool.scan()
    spool.work()
    spool.store = {partition: replace(offset, done=False) for partition, offset in spool.store.items()}
    spool.restart()
    spool.drain()
    assert spool.arrived == [text.encode() for text in content]
    assert spool.rows()["a.gz"].done


def test_compression_none_takes_the_bytes_as_they_are(tmp_path: Path) -> None:
    spool = Spool(tmp_path, compression="none")
    content = gzip.compress(b"x")
    spool.drop("a.gz", content)
    spool.drain()
    assert b"\n".join(spool.arrived) == content.rstrip(b"\n")


@pytest.mark.parametrize("policy", ["quarantine", "stop"])
def test_a_file_that_is_not_packed_as_named_is_a_bad_file(tmp_path: Path, policy: str) -> None:
    spool = Spool(tmp_path, compression="gzip", on_bad_file=policy)
    path = spool.drop("a.gz", b"not packed at all\n")
    if policy == "stop":
        with pytest.raises(FatalError, match=r"a\.gz"):
            spool.drain()
        assert not any(row.done for row in spool.store.values())
    else:
        spool.drain()
        assert spool.rows()["a.gz"].trouble
        assert spool.states() == {"a.gz": "failing"}
    assert spool.arrived == []
    assert path.exists()


def test_what_comes_before_the_damage_arrives_and_the_rest_is_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    content = [f"{os.urandom(20).hex()}" for _ in range(50_000)]
    packed = gzip.compress(lines(*content))
    spool.drop("a.gz", packed[: len(packed) // 2])
    spool.drop("b", lines("next"))
    spool.drain()
    good = [line for line in spool.arrived if line != b"next"]
    assert 1000 < len(good) < 50_000
    assert good[:-1] == [text.encode() for text in content[: len(good) - 1]]
    assert b"next" in spool.arrived
    row = spool.rows()["a.gz"]
    assert row.done
    assert row.trouble
    assert {loss.reason for loss in spool.losses} <= {"damaged"}
    spool.restart()
    before = len(spool.arrived)
    spool.drain()
    assert len(spool.arrived) == before


def test_stop_keeps_the_offset_before_the_damage(tmp_path: Path) -> None:
    spool = Spool(tmp_path, on_bad_file="stop")
    packed = gzip.compress(lines(*(os.urandom(20).hex() for _ in range(50_000))))
    spool.drop("a.gz", packed[: len(packed) // 2])
    with pytest.raises(FatalError, match=r"a\.gz.*byte \d+"):
        spool.drain()
    row = spool.rows()["a.gz"]
    assert row.position > 0
    assert not row.done
    assert not row.trouble
    assert spool.losses == []


def test_a_directory_that_is_not_there_is_told_once_until_it_comes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "drops"
    spool = Spool(root)
    spool.scan()
    spool.source.wake([str(root)])
    spool.scan()
    assert spool.source.passed_over() == {str(root): "is not there; it is looked for every scan_interval"}
    assert sum("passed over" in record.getMessage() for record in caplog.records) == 1
    assert spool.source.drained()
    root.mkdir()
    spool.drop("a", lines("one"))
    spool.drain()
    assert (spool.arrived, spool.source.passed_over()) == ([b"one"], {})
