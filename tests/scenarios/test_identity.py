"""C and D. Files that are cut, replaced or take over an inode: what is new is read from its beginning, the rest not again."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.rig.kafka import create_topic, unique_topic
from tests.rig.proxy import PRODUCE
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, descriptors, numbers, settled, try_inode, wait_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import ProxiedBroker
    from tests.rig.shipping import Shipping


def test_a_truncated_file_is_read_from_its_beginning(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    append(log, *numbers(0, 5))
    shipping.start()
    wait_read(shipping, 5)
    os.truncate(log, 0)
    append(log, *numbers(5, 10))
    assert settled(shipping, range(10)) == numbers(0, 10)


def test_fifty_rewrites_in_place_yield_every_line_once(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    log.touch()
    inode = log.stat().st_ino
    shipping.start()
    written = 0
    for turn in range(50):
        lines = [f"line {number:05}" for number in range(written, written + turn + 1)]
        written += len(lines)
        log.write_text("".join(f"{line}\n" for line in lines))
        wait_read(shipping, written)
    assert log.stat().st_ino == inode
    assert settled(shipping, range(written)) == [f"line {number:05}" for number in range(written)]


def test_a_file_cut_and_grown_beyond_its_old_size_while_the_agent_is_down_is_read_anew(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    append(log, "old")
    shipping.start()
    wait_read(shipping, 1)
    shipping.stop()
    log.write_text("another 1\nanother 2\n")
    shipping.start()
    assert settled(shipping, range(3)) == ["old", "another 1", "another 2"]


def test_a_file_rewritten_with_as_many_other_bytes_is_read_anew(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    append(log, "aaa")
    shipping.start()
    wait_read(shipping, 1)
    log.write_text("bbb\n")
    assert settled(shipping, range(2)) == ["aaa", "bbb"]


def test_a_truncation_under_lines_in_flight_loses_neither_them_nor_what_follows(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, logs_dir: Path
) -> None:
    bootstrap, proxy, log = proxied_broker.bootstrap, proxied_broker.proxy, logs_dir / "app.log"
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    append(log, "0")
    shipping.start()
    wait_read(shipping, 1)
    seen = proxy.requests[PRODUCE]
    proxy.delay(1.0)
    append(log, "1", "2")
    wait_until(lambda: proxy.requests[PRODUCE] > seen, message="the lines are on their way")
    os.truncate(log, 0)
    append(log, "x")
    proxy.forward()
    every = {b"0", b"1", b"2", b"x"}
    assert {record.value for record in shipping.records(lambda found: every <= {record.value for record in found})} == every
    wait_until(lambda: _followed(shipping) == [len("x\n")], message=lambda: f"{shipping.offsets}")


def _followed(shipping: Shipping) -> list[int]:
    """Positions of files, without those that the file had before it was cut, which are kept until a copy shows up."""
    return [offset.position for offset in shipping.offsets.values() if not offset.done]


def test_bytes_cut_away_unread_are_counted(make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, logs_dir: Path) -> None:
    bootstrap, proxy, log = proxied_broker.bootstrap, proxied_broker.proxy, logs_dir / "app.log"
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    proxy.pause()
    append(log, "never read")
    shipping.start()
    os.truncate(log, 0)
    wait_until(lambda: shipping.status.lag.bytes == 0, message="the cut is seen")
    proxy.forward()
    wait_until(lambda: shipping.status.lag.lost_bytes == len("never read\n"), 60, lambda: f"{shipping.status}")
    append(log, "x")
    assert settled(shipping, range(1)) == ["x"]


def test_a_file_made_anew_while_the_agent_is_down_is_read_though_it_has_the_old_inode(shipping: Shipping, logs_dir: Path) -> None:
    for attempt in range(5):  # somebody else on this file system may be faster
        log = logs_dir / f"app{attempt}.log"
        append(log, f"old {attempt}")
        inode = log.stat().st_ino
        shipping.start()
        wait_until(partial(_has, shipping, f"old {attempt}"), message="the old file is read")
        shipping.stop()
        log.unlink()
        if try_inode(log, inode, lambda path: append(path, "again")):
            shipping.start()
            assert settled(shipping, range(attempt + 2))[attempt + 1 :] == ["again"]
            return
    pytest.fail("this file system does not use inodes again")


def _has(shipping: Shipping, line: str) -> bool:
    return line in shipping.lines()


def _is_closed(deleted: Path) -> bool:
    return f"{deleted} (deleted)" not in descriptors(deleted.parent)


def _are_open(directory: Path, *paths: Path) -> bool:
    return descriptors(directory) == [str(path) for path in paths]


def test_the_new_log_may_take_the_inode_of_the_generation_that_rotation_deleted(shipping: Shipping, logs_dir: Path) -> None:
    shipping.start()
    for attempt in range(5):  # somebody else on this file system may be faster
        log, one, two = (logs_dir / f"app{attempt}.log{suffix}" for suffix in ("", ".1", ".2"))
        for path in (two, one, log):
            append(path, f"line of {path.name}")
        wait_until(partial(_has, shipping, f"line of {log.name}"), message="the three are read")
        inode = two.stat().st_ino
        two.unlink()
        wait_until(partial(_is_closed, two), message="the deleted file is closed")
        one.rename(two)
        log.rename(one)
        if try_inode(log, inode, _write_own_inode):
            wait_until(partial(_has, shipping, f"a file with inode {inode}"), message=lambda: f"{shipping.status}")
            lines = shipping.lines()
            assert len(lines) == len(set(lines)), "of the files that had the name for a moment each is sent once, too"
            assert {f"line of {path.name}" for path in (log, one, two)} <= set(lines)
            return
    pytest.fail("this file system does not use inodes again")


def test_a_closed_file_replaced_by_one_with_its_inode_between_two_scans_is_read(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    append(log, "current")
    shipping.start(source={"max_open_files": 1, "watch": "poll", "scan_interval": "1s"})
    for attempt in range(5):  # somebody else on this file system may be faster
        rotated = logs_dir / f"rotated{attempt}"
        append(rotated, f"old {attempt}")
        inode = rotated.stat().st_ino
        wait_until(partial(_has, shipping, f"old {attempt}"), message="it is read")
        append(log, f"more {attempt}")
        wait_until(partial(_has, shipping, f"more {attempt}"), message="the other file is read, which closes it")
        wait_until(partial(_are_open, logs_dir, log), message="it is the only one that is open")
        rotated.unlink()
        if try_inode(logs_dir / f"new{attempt}", inode, _write_own_inode):
            wait_until(partial(_has, shipping, f"a file with inode {inode}"), message=lambda: f"{shipping.status}")
            return
    pytest.fail("this file system does not use inodes again")


def _write_own_inode(path: Path) -> None:
    path.touch()
    append(path, f"a file with inode {path.stat().st_ino}")


def test_restarts_of_a_growing_file_keep_one_row_and_repeat_nothing(shipping: Shipping, logs_dir: Path) -> None:
    log, total = logs_dir / "app.log", 0
    for more in (1, 1, 998, 1000):
        append(log, *numbers(total, total + more))
        total += more
        shipping.start()
        wait_read(shipping, more)
        assert len(shipping.offsets) == 1
        shipping.stop()
    assert shipping.lines() == numbers(0, 2000)


def test_a_single_short_line_in_a_new_file_is_enough(shipping: Shipping, logs_dir: Path) -> None:
    shipping.start(source={"watch": "poll"})
    line = "x" * 41
    append(logs_dir / "app.log", line)
    assert settled(shipping, range(1)) == [line]


def test_a_directory_moved_away_and_back_is_not_read_again(shipping: Shipping, logs_dir: Path, tmp_path: Path) -> None:
    log, away = logs_dir / "sub" / "app.log", tmp_path / "away"
    log.parent.mkdir()
    append(log, "1")
    shipping.start(source={"include": [f"{logs_dir}/sub/*", f"{logs_dir}/other/*"], "rotate_wait": "0s"})
    wait_read(shipping, 1)
    log.parent.rename(away)
    wait_until(lambda: shipping.status.lag.known_files == 0, message="it is let go")
    append(away / "app.log", "2")
    away.rename(log.parent)
    assert settled(shipping, range(2)) == ["1", "2"]


def test_a_file_swapped_by_rename_while_it_is_read_arrives_and_so_does_the_new_one(shipping: Shipping, logs_dir: Path) -> None:
    log, fresh = logs_dir / "app.log", logs_dir / ".fresh"
    append(log, *numbers(0, 50_000))
    shipping.start(delivery={"max_batch_bytes": "64KiB", "linger": "0s"})
    append(fresh, "new")
    fresh.replace(log)
    lines = settled(shipping, range(50_001))
    assert [line for line in lines if line != "new"] == numbers(0, 50_000)
    assert lines.count("new") == 1
