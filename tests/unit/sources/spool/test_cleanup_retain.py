"""Only what cleanup put there, and nobody has touched since, is deleted after `retain`."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from copycat_agent.sources.spool_dir.cleanup import cleaner, target_notes
from tests.unit.sources.spool.cleaning import Spool, finished

DAY = 86_400


@pytest.fixture(autouse=True)
def _at_any_time() -> object:
    with mock.patch.object(cleaner, "EXPIRE_SECONDS", 0.0):
        yield


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, policy="move_by_date", to=str(tmp_path / "fin"), failed_to=str(tmp_path / "bad"), retain="14d")


def test_what_was_put_there_is_deleted_when_it_is_old_enough_and_not_before(spool: Spool) -> None:
    spool.clean(finished(spool.drop("a/x.csv")), finished(spool.drop("y.csv"), trouble="broken"))
    spool.now += 13 * DAY
    spool.clean(finished(spool.drop("z.csv")))
    spool.cleaner.expire()
    assert sorted(spool.tree()) == ["bad/y.csv", "bad/y.csv.error.json", "fin/2024-01-02/a/x.csv", "fin/2024-01-02/z.csv"]
    spool.now += DAY
    spool.cleaner.expire()
    assert sorted(spool.tree()) == ["fin/2024-01-02/z.csv"], "by when it was put there, whatever its own date"
    assert not (spool.root / "fin/2024-01-02/a").exists()
    spool.now += 14 * DAY
    spool.cleaner.expire()
    assert [one.name for one in spool.root.rglob("*")] == ["fin", "bad", "in"] or not list((spool.root / "fin").iterdir())
    assert spool.tree(hidden=True) == {}, "the list of what was put there goes when it is empty"


def test_nothing_that_others_put_there_is_deleted(spool: Spool) -> None:
    spool.clean(finished(spool.drop("x.csv")), finished(spool.drop("y.csv")), finished(spool.drop("z.csv")))
    there = spool.root / "fin/2024-01-02"
    (there / "theirs.csv").write_text("theirs")
    (there / "x.csv").write_text("changed since")
    (there / "y.csv").unlink()
    (there / "y.csv").write_text("1\n")
    (spool.root / "fin/2023-01-01").mkdir()
    os.utime(there / "theirs.csv", (0, 0))
    spool.now += 100 * DAY
    spool.cleaner.expire()
    left = {"fin/2024-01-02/theirs.csv": "theirs", "fin/2024-01-02/x.csv": "changed since", "fin/2024-01-02/y.csv": "1\n"}
    assert spool.tree(hidden=True) == left
    assert (spool.root / "fin/2023-01-01").is_dir(), "an empty directory of somebody else"


def test_a_restart_forgets_nothing(spool: Spool) -> None:
    spool.clean(finished(spool.drop("x.csv")))
    spool.now += 15 * DAY
    spool.restarted().expire()
    assert spool.tree() == {}


def test_a_file_that_was_put_there_while_the_clock_was_ahead_holds_up_no_other_one(spool: Spool) -> None:
    spool.now += 3650 * DAY
    spool.clean(finished(spool.drop("ahead.csv")))
    spool.now -= 3650 * DAY
    spool.clean(finished(spool.drop("x.csv")))
    spool.now += 13 * DAY
    spool.cleaner.expire()
    assert sorted(spool.tree()) == ["fin/2024-01-02/ahead.csv", "fin/2024-01-02/x.csv"]
    spool.now += DAY
    spool.cleaner.expire()
    assert sorted(spool.tree()) == ["fin/2024-01-02/ahead.csv"]
    spool.now += 14 * DAY
    spool.cleaner.expire()
    assert spool.tree(hidden=True) == {}


def test_without_retain_nothing_is_deleted_or_listed(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
    spool.clean(finished(spool.drop("x.csv")))
    spool.now += 10_000 * DAY
    spool.cleaner.expire()
    assert sorted(spool.tree(hidden=True)) == ["fin/x.csv"]


@pytest.mark.parametrize(
    "line",
    [
        b'[0, "../victim", 1, 1, 1]', b'[0, "/etc/hostname", 1, 1, 1]', b"[]", b"{}", b"\xff\x00", b'[0, "link/victim", %d, %d, %d]',
        b'[0, "", 1, 1, 1]', b'["0", "x", 1, 1, 1]', b"[" * 100_000, b'[0, "x.csv", 1',
    ],
)  # fmt: skip
def test_a_list_that_somebody_wrote_into_deletes_nothing_outside(spool: Spool, line: bytes) -> None:
    spool.clean(finished(spool.drop("x.csv")))
    victim = spool.root / "victim"
    victim.write_text("precious")
    info = victim.stat()
    (spool.root / "fin/link").symlink_to(spool.root)
    if b"%d" in line:
        line %= (info.st_ino, info.st_size, info.st_mtime_ns)
    journal = spool.root / "fin/.copycat-orders.retain"
    journal.write_bytes(line + b"\n" + journal.read_bytes())
    spool.now += 15 * DAY
    spool.cleaner.expire()
    assert spool.tree() == {"victim": "precious"}


def test_a_pass_is_bounded_and_the_next_one_goes_on(spool: Spool) -> None:
    files = [finished(spool.drop(f"{number}.csv")) for number in range(20)]
    spool.clean(*files)
    spool.now += 15 * DAY
    with mock.patch.object(target_notes, "PASS_FILES", 10), mock.patch.object(target_notes, "_REWRITE_BYTES", 0):
        left = []
        for _ in range(6):
            spool.cleaner.expire()
            left.append(len(spool.tree()))
            spool.restarted() if len(left) % 2 else None
    assert left[0] < 20
    assert left == sorted(left, reverse=True)
    assert left[0] >= 10
    assert spool.tree(hidden=True) == {}


def test_what_cannot_be_deleted_now_is_tried_again(spool: Spool) -> None:
    spool.clean(finished(spool.drop("x.csv")))
    spool.now += 15 * DAY
    with mock.patch.object(os, "unlink", side_effect=PermissionError(13, "Permission denied")):
        spool.cleaner.expire()
    assert "fin/2024-01-02/x.csv" in spool.tree()
    spool.now += 15 * DAY
    spool.cleaner.expire()
    spool.cleaner.expire()
    assert spool.tree(hidden=True) == {}


def test_two_connectors_in_one_directory_keep_to_their_own(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    both = [Spool(tmp_path / name, policy="move", to=str(tmp_path / "fin"), retain=age) for name, age in (("one", "1d"), ("other", "9d"))]
    both[1].cleaner = cleaner.Cleaner("other", str(both[1].input), both[1].options, both[1].cleaner._log, clock=lambda: both[1].now)
    for number, spool in enumerate(both):
        spool.clean(finished(spool.drop("x.csv", str(number))))
    for spool in both:
        spool.now += 2 * DAY
        spool.cleaner.expire()
    assert [path.read_text() for path in (tmp_path / "fin").glob("[!.]*")] == ["1"]
