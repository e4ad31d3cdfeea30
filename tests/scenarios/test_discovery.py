"""A. Which files are found, and where reading them begins."""

from __future__ import annotations

import logging
import os
import shutil
import socket
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.rig.shipping import origin
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, descriptors, settled, told, wait_read
from tests.unit.sources.test_regular_files import exchange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.rig.shipping import Shipping


def test_interleaved_files_arrive_whole_each_under_its_own_path(shipping: Shipping, logs_dir: Path) -> None:
    shipping.start()
    with (logs_dir / "f1").open("w", buffering=1) as one, (logs_dir / "f2").open("w", buffering=1) as two:
        for number in range(5):
            one.write(f"one {number}\n")
            two.write(f"two {number}\n")
    records = shipping.records(until=10)
    for name, word in (("f1", b"one"), ("f2", b"two")):
        mine = [record.value for record in records if origin(record)[0] == name]
        assert mine == [b"%s %d" % (word, number) for number in range(5)]


def test_exclude_wins_over_include(shipping: Shipping, logs_dir: Path) -> None:
    for name in ("a.txt", "b.txt", "a.log", "a.ignore.txt"):
        (logs_dir / name).write_text(f"{name}\n")
    source = {"include": [f"{logs_dir}/*.txt", f"{logs_dir}/a.*"], "exclude": [f"{logs_dir}/a.*.txt"]}
    shipping.start(source=source)
    shipping.records(until=3)
    shipping.stop()
    assert Counter(shipping.lines()) == Counter(["a.txt", "b.txt", "a.log"])


def test_double_slashes_do_not_switch_an_exclude_off(shipping: Shipping, logs_dir: Path) -> None:
    directory = logs_dir / "a" / "b"
    directory.mkdir(parents=True)
    append(directory / "app.log.1", "wanted")
    append(directory / "test.log.1", "excluded")
    shipping.start(source={"include": [f"{logs_dir}/a//b/*.log.*"], "exclude": [f"{logs_dir}/a//b/test.log.*"]})
    assert settled(shipping, ["wanted"]) == ["wanted"]


def test_directories_that_come_and_go_are_found_each_time(shipping: Shipping, logs_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(logs_dir / "dir0", "a plain file where a directory is expected")
    shipping.start(source={"include": [f"{logs_dir}/dir*/*/x.log"]})
    expected: list[str] = []
    for turn in range(5):
        for number in range(1, 11):
            directory = logs_dir / f"dir{number}" / "sub"
            directory.mkdir(parents=True)
            expected.append(f"{turn} {number}")
            append(directory / "tmp", expected[-1])
            (directory / "tmp").rename(directory / "x.log")
        shipping.records(until=len(expected))
        wait_read(shipping, len(expected))
        for number in range(1, 11):
            shutil.rmtree(logs_dir / f"dir{number}")
    assert Counter(settled(shipping, expected)) == Counter(expected)
    assert told(caplog, "path passed over", path=str(logs_dir / "dir0")) == 1


def test_a_named_file_that_is_not_there_yet_is_told_once_and_read_when_it_comes(
    shipping: Shipping, logs_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "copycat_agent")
    log, other = logs_dir / "app.log", logs_dir / "other.log"
    shipping.start(source={"include": [str(log), str(other)], "scan_interval": "100ms"})
    append(other, "scanned again")
    shipping.records(until=1)
    append(log, "1", "2", "3")
    wait_read(shipping, 4)
    log.unlink()
    append(other, "and again")
    assert len(settled(shipping, range(5))) == 5
    assert told(caplog, "no file matches yet", pattern=str(log)) == 1


def test_start_at_end_delivers_only_what_comes_later(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app.log", "old 1", "old 2")
    shipping.start(source={"start_at": "end"})
    append(logs_dir / "app.log", "new")
    (record,) = shipping.records(until=1)
    assert record.value == b"new"
    assert origin(record)[1] == len("old 1\nold 2\n")


def test_start_at_end_does_not_cut_a_line_that_is_being_written(shipping: Shipping, logs_dir: Path) -> None:
    (logs_dir / "app.log").write_text("old\nbeing wri")
    shipping.start(source={"start_at": "end"})
    append(logs_dir / "app.log", "tten")
    assert settled(shipping, range(1)) == ["being written"]


def test_start_at_end_holds_for_more_files_than_may_be_open(shipping: Shipping, logs_dir: Path) -> None:
    for number in range(10):
        append(logs_dir / f"old{number}", "old")
    shipping.start(source={"start_at": "end", "max_open_files": 2})
    expected = [f"old{number} new" for number in range(10)] + [f"new{number} new" for number in range(10)]
    for line in expected:
        append(logs_dir / line.split()[0], line)
    assert Counter(settled(shipping, expected)) == Counter(expected)


def test_start_at_a_time_begins_files_that_were_quiet_since_at_their_end(shipping: Shipping, logs_dir: Path) -> None:
    since = datetime(2026, 11, 1, 12, tzinfo=UTC)
    for name, seconds in (("before", -1), ("after", 1)):
        append(logs_dir / name, f"{name} old")
        os.utime(logs_dir / name, (since.timestamp() + seconds,) * 2)
    shipping.start(source={"start_at": since.isoformat()})
    wait_read(shipping, 1)
    append(logs_dir / "before", "before new")
    assert settled(shipping, range(2)) == ["after old", "before new"]


def test_start_at_end_holds_across_a_restart_before_anything_was_read(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app.log", "old")
    shipping.start(source={"start_at": "end"})
    shipping.stop()
    append(logs_dir / "app.log", "new")
    append(logs_dir / "made.log", "made while down")
    shipping.start(source={"start_at": "end"})
    assert Counter(settled(shipping, range(2))) == Counter(["new", "made while down"])


def test_one_open_file_at_a_time_is_enough_for_several_busy_files(shipping: Shipping, logs_dir: Path) -> None:
    shipping.start(source={"max_open_files": 1})
    expected = []
    for turn in range(10):
        for name in ("one", "two", "three"):
            expected.append(f"{name} {turn}")
            append(logs_dir / name, expected[-1])
    assert Counter(settled(shipping, expected)) == Counter(expected)


def test_files_that_vanish_while_they_are_looked_for_disturb_nobody(shipping: Shipping, logs_dir: Path) -> None:
    shipping.start()
    expected = [f"steady {number}" for number in range(300)]
    for number, line in enumerate(expected):
        append(logs_dir / "steady.log", line)
        (logs_dir / f"brief{number}").touch()
        (logs_dir / f"brief{number}").unlink()
    assert settled(shipping, expected) == expected


def test_a_link_and_its_target_that_both_match_arrive_once(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "target.log", "1")
    (logs_dir / "link.log").symlink_to(logs_dir / "target.log")
    shipping.start(source={"follow_symlinks": True})
    shipping.records(until=1)
    append(logs_dir / "target.log", "2")
    assert settled(shipping, range(2)) == ["1", "2"]


def test_links_are_passed_over_with_one_warning_unless_asked_for(
    shipping: Shipping, logs_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(tmp_path / "target", "behind a link")
    (tmp_path / "directory").mkdir()
    append(tmp_path / "directory" / "x.log", "behind a linked directory")
    (logs_dir / "link").symlink_to(tmp_path / "target")
    (logs_dir / "sub").symlink_to(tmp_path / "directory")
    include = {"include": [f"{logs_dir}/*", f"{logs_dir}/*/x.log"]}
    append(logs_dir / "plain", "plain")
    shipping.start(source=include)
    shipping.records(until=1)
    append(logs_dir / "plain", "later")
    assert settled(shipping, range(2)) == ["plain", "later"]
    assert told(caplog, "path passed over", path=str(logs_dir / "link")) == 1
    shipping.start(source={**include, "follow_symlinks": True, "symlink_roots": [str(tmp_path)]})
    assert Counter(settled(shipping, range(4))[2:]) == Counter(["behind a link", "behind a linked directory"])


def test_two_connectors_on_one_file_each_deliver_every_line(make_shipping: Callable[..., Shipping], logs_dir: Path) -> None:
    one, two = make_shipping("one").start(), make_shipping("two").start()
    expected = [str(number) for number in range(10)]
    append(logs_dir / "app.log", *expected)
    assert settled(one, expected) == expected
    assert settled(two, expected) == expected


def test_hard_links_and_overlapping_globs_deliver_a_line_once(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "a.log", "1")
    (logs_dir / "b.log").hardlink_to(logs_dir / "a.log")
    shipping.start(source={"include": [f"{logs_dir}/*", f"{logs_dir}/*.log", f"{logs_dir}/**"]})
    shipping.records(until=1)
    append(logs_dir / "b.log", "2")
    assert settled(shipping, range(2)) == ["1", "2"]


def test_what_is_no_regular_file_is_passed_over_with_one_warning_and_never_waited_for(
    shipping: Shipping, logs_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(logs_dir / "fifo")
    (logs_dir / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(logs_dir / "socket"))
        append(logs_dir / "app.log", "1")
        shipping.start(source={"scan_interval": "100ms"})
        for number in range(2, 5):
            shipping.records(until=number - 1)
            append(logs_dir / f"app{number}.log", str(number))  # each is found by a scan of its own
        assert settled(shipping, range(4)) == ["1", "2", "3", "4"]
    assert told(caplog, "path passed over", path=str(logs_dir / "fifo")) == 1
    assert told(caplog, "path passed over", path=str(logs_dir / "socket")) == 1
    assert told(caplog, "path passed over", path=str(logs_dir / "directory")) == 0


def test_names_may_hold_newlines_and_bytes_that_are_no_text(shipping: Shipping, logs_dir: Path) -> None:
    names = [b"new\nline.log", b"latin-\xe9.log", "ünï.log".encode()]
    for name in names:
        with open(os.fsencode(logs_dir) + b"/" + name, "wb") as file:  # noqa: PTH123 - a name of bytes
            file.write(name.replace(b"\n", b" ") + b"\n")
    shipping.start()
    wait_read(shipping, 3)
    shipping.stop()
    shipping.start()
    for name in names:
        with open(os.fsencode(logs_dir) + b"/" + name, "ab") as file:  # noqa: PTH123 - a name of bytes
            file.write(b"more\n")
    wait_read(shipping, 3)
    shipping.stop()
    values = Counter(record.value for record in shipping.records())
    assert values == Counter([b"new line.log", b"latin-\xe9.log", "ünï.log".encode(), b"more", b"more", b"more"])


def test_a_directory_that_cannot_be_listed_for_a_while_costs_nothing(
    shipping: Shipping, logs_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory, away = logs_dir / "sub", tmp_path / "away"
    directory.mkdir()
    for number in range(4):
        append(directory / f"{number}.log", f"{number} before")
    append(logs_dir / "other.log", "other")
    shipping.start(source={"include": [f"{directory}/*", f"{logs_dir}/other.log"], "max_open_files": 2, "rotate_wait": "0s"})
    wait_read(shipping, 5)
    away.touch()
    exchange(directory, away)  # listing it now fails with another error than "not found", which no look may meet in between
    wait_until(lambda: told(caplog, "path passed over", path=str(directory)) == 1, message="it is told")
    append(logs_dir / "other.log", "other again")
    wait_read(shipping, 6)
    assert shipping.status.lag.known_files == 5
    for number in range(4):
        append(away / f"{number}.log", f"{number} after")
    exchange(directory, away)
    lines = settled(shipping, range(10))
    assert Counter(lines) == Counter([*(f"{n} {when}" for n in range(4) for when in ("before", "after")), "other", "other again"])


@pytest.mark.parametrize(("files", "limit"), [(1500, 128), pytest.param(10_000, 512, marks=pytest.mark.long)])
def test_thousands_of_files_arrive_once_with_a_bounded_number_open(shipping: Shipping, logs_dir: Path, files: int, limit: int) -> None:
    expected = []
    for number in range(files):
        directory = logs_dir / f"dir{number % 10}"
        directory.mkdir(exist_ok=True)
        expected.append(f"line of {number}")
        (directory / f"{number}.log").write_text(expected[-1] + "\n")
    shipping.start(source={"include": [f"{logs_dir}/*/*.log"], "max_open_files": limit})
    most = 0

    def all_read() -> bool:
        nonlocal most
        most = max(most, len(descriptors(logs_dir)))
        return shipping.status.counts.acknowledged >= files

    wait_until(all_read, 90, lambda: f"{shipping.status}")
    assert 0 < most <= limit + 2  # one more while a file is looked at for the first time, and the handle that it is opened through
    shipping.stop()
    assert Counter(shipping.lines()) == Counter(expected)
