"""B. Logs that are rotated by renaming, by hand and by logrotate: every line once, in order within a chain."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.rig.kafka import create_topic, unique_topic
from tests.rig.shipping import origin
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, descriptors, numbers, settled, wait_read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import ProxiedBroker
    from tests.rig.shipping import Shipping

LOGROTATE = "/usr/sbin/logrotate"


@pytest.mark.parametrize("watch", ["auto", "poll"])
def test_late_lines_to_a_renamed_file_arrive(shipping: Shipping, logs_dir: Path, watch: str) -> None:
    log = logs_dir / "app.log"
    shipping.start(source={"include": [str(log)], "watch": watch})
    with log.open("w", buffering=1) as old:
        old.write("before\n")
        shipping.records(until=1)
        log.rename(logs_dir / "app.log.1")
        append(log, "new")
        old.write("late\n")
        assert sorted(settled(shipping, ["before", "late", "new"])) == ["before", "late", "new"]


def test_late_lines_to_two_renamed_generations_arrive(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    shipping.start(source={"include": [str(log)]})
    first = log.open("w", buffering=1)
    first.write("1\n")
    shipping.records(until=1)
    log.rename(logs_dir / "app.log.1")
    second = log.open("w", buffering=1)
    second.write("2\n")
    shipping.records(until=2)
    (logs_dir / "app.log.1").rename(logs_dir / "app.log.2")
    log.rename(logs_dir / "app.log.1")
    append(log, "3")
    with first, second:
        first.write("late 1\n")
        second.write("late 2\n")
        assert sorted(settled(shipping, range(5))) == ["1", "2", "3", "late 1", "late 2"]


def test_a_rotated_name_that_matches_too_is_not_read_again(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    append(log, "old 1", "old 2")
    shipping.start(source={"include": [f"{log}*"]})
    shipping.records(until=2)
    with log.open("a", buffering=1) as old:
        log.rename(logs_dir / "app.log.1")
        append(log, "new")
        old.write("late\n")
        assert sorted(settled(shipping, range(4))) == ["late", "new", "old 1", "old 2"]


def test_a_cascade_whose_names_all_match_arrives_in_order(shipping: Shipping, logs_dir: Path) -> None:
    log, one, two = (logs_dir / name for name in ("app.log", "app.log.1", "app.log.2"))
    shipping.start(source={"include": [f"{log}*"]})
    append(log, "a")
    shipping.records(until=1)
    log.rename(one)
    append(log, "b")
    shipping.records(until=2)
    one.rename(two)
    log.rename(one)
    append(log, "c")
    assert settled(shipping, range(3)) == ["a", "b", "c"]


def test_the_second_rotation_may_overwrite_the_first(shipping: Shipping, logs_dir: Path) -> None:
    log, one = logs_dir / "app.log", logs_dir / "app.log.1"
    shipping.start(source={"include": [f"{log}*"]})
    for count, line in enumerate("abc", 1):
        append(log, line)
        shipping.records(until=count)
        log.replace(one)
    assert settled(shipping, range(3)) == ["a", "b", "c"]


def test_generations_found_at_the_start_are_read_oldest_first(shipping: Shipping, logs_dir: Path) -> None:
    expected = []
    for age, name in enumerate(("app.log.2", "app.log.1", "app.log")):
        path = logs_dir / name
        expected += [f"{name} {number}" for number in range(50)]
        append(path, *expected[-50:])
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    shipping.start(delivery={"tasks_max": 4})
    assert settled(shipping, expected) == expected


def test_equal_lines_are_never_taken_for_repeats(shipping: Shipping, logs_dir: Path) -> None:
    log, line = logs_dir / "app.log", "x" * 4000
    append(log, *[line] * 65)
    shipping.start(source={"include": [f"{log}*"]}, delivery={"max_batch_bytes": "64KiB", "linger": "0s"})
    log.rename(logs_dir / "app.log.1")
    append(log, line)
    assert settled(shipping, range(66)) == [line] * 66


def test_a_rotated_file_is_read_to_its_end_however_long_that_takes(shipping: Shipping, logs_dir: Path) -> None:
    log, expected = logs_dir / "app.log", numbers(0, 60_000)
    append(log, *expected)
    source = {"include": [str(log)], "rotate_wait": "0s"}
    shipping.start(source=source, delivery={"max_batch_bytes": "64KiB", "linger": "0s"})
    log.rename(logs_dir / "away")
    (logs_dir / "away").unlink()
    assert settled(shipping, expected) == expected


def test_several_logs_rotated_at_once_lose_nothing(shipping: Shipping, logs_dir: Path) -> None:
    logs = [logs_dir / f"{name}.log" for name in "abc"]
    shipping.start(source={"include": [f"{logs_dir}/*.log"]})
    writers = [log.open("w", buffering=1) for log in logs]
    for writer in writers:
        writer.write("before\n")
    shipping.records(until=3)
    for log in logs:
        log.rename(log.with_suffix(".log.1"))
    for log, writer in zip(logs, writers, strict=True):
        append(log, "new")
        writer.write("late\n")
        writer.close()
    assert sorted(settled(shipping, range(9))) == sorted(["before", "late", "new"] * 3)


def _rotate(config: Path) -> None:
    subprocess.run([LOGROTATE, "-f", "-s", str(config.with_suffix(".state")), str(config)], check=True, timeout=60)


def _logrotate_config(tmp_path: Path, log: Path, *options: str) -> Path:
    config = tmp_path / "logrotate.conf"
    config.write_text("\n".join([f"{log} {{", "rotate 20", "create 0644", *options, "}", ""]))
    config.chmod(0o644)
    return config


def test_logrotate_with_delayed_compression_loses_and_repeats_nothing(shipping: Shipping, logs_dir: Path, tmp_path: Path) -> None:
    log = logs_dir / "app.log"
    log.touch()
    config = _logrotate_config(tmp_path, log, "compress", "delaycompress")
    shipping.start(source={"include": [f"{log}*"], "exclude": ["*.gz"]})
    for cycle in range(10):
        append(log, *numbers(cycle * 2_000, (cycle + 1) * 2_000))
        wait_read(shipping, cycle * 2_000)  # so that what is compressed now was at least opened: one generation of delay
        _rotate(config)
    assert settled(shipping, range(20_000)) == numbers(0, 20_000)
    assert len(list(logs_dir.glob("*.gz"))) == 9


def test_logrotate_that_compresses_at_once_loses_nothing_that_was_read(shipping: Shipping, logs_dir: Path, tmp_path: Path) -> None:
    log = logs_dir / "app.log"
    config = _logrotate_config(tmp_path, log, "compress")
    append(log, *numbers(0, 10_000))
    shipping.start(source={"include": [f"{log}*"], "exclude": ["*.gz"]})
    wait_read(shipping, 10_000)
    _rotate(config)
    append(log, *numbers(10_000, 20_000))
    assert settled(shipping, range(20_000)) == numbers(0, 20_000)


def test_a_file_renamed_while_the_agent_was_down_goes_on_where_it_was(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app.log", *numbers(0, 10_000))
    shipping.start()
    wait_read(shipping, 10_000)
    shipping.stop()
    (logs_dir / "app.log").rename(logs_dir / "other.log")
    append(logs_dir / "other.log", *numbers(10_000, 20_000))
    shipping.start()
    assert settled(shipping, range(20_000)) == numbers(0, 20_000)


def test_a_rotation_while_the_agent_was_down_yields_only_the_new_lines(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "file", "first")
    shipping.start()
    shipping.records(until=1)
    shipping.stop()
    (logs_dir / "file").rename(logs_dir / "file.old")
    append(logs_dir / "file", "second")
    shipping.start()
    assert settled(shipping, range(2)) == ["first", "second"]


def test_what_is_written_after_rotate_wait_is_counted_as_lost(shipping: Shipping, logs_dir: Path) -> None:
    log, away = logs_dir / "app.log", logs_dir / "away"
    append(log, "before")
    shipping.start(source={"include": [str(log)], "rotate_wait": "10s"})
    shipping.records(until=1)
    log.rename(away)
    append(away, "in time")
    shipping.records(until=2)
    wait_until(lambda: not descriptors(logs_dir), message="the renamed file is let go")
    append(away, "too late")
    wait_until(lambda: shipping.status.lag.lost_bytes == len("too late\n"), message=lambda: f"{shipping.status.lag}")
    append(log, "new")
    assert settled(shipping, range(3)) == ["before", "in time", "new"]


def test_a_file_renamed_before_it_was_ever_opened_arrives_under_its_new_name(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, logs_dir: Path
) -> None:
    bootstrap, proxy = proxied_broker.bootstrap, proxied_broker.proxy
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    first, second = logs_dir / "first", logs_dir / "second"
    append(first, "1")
    append(second, "2")
    os.utime(first, (1_000_000, 1_000_000))
    proxy.pause()
    shipping.start(source={"max_open_files": 1})
    wait_until(lambda: descriptors(logs_dir) == [str(first)], message="only the first is open")
    second.rename(logs_dir / "final")
    proxy.forward()
    records = shipping.records(until=2)
    assert sorted((origin(record)[0], record.value) for record in records) == [("final", b"2"), ("first", b"1")]
    assert sorted(settled(shipping, range(2))) == ["1", "2"]


def test_a_link_that_is_pointed_elsewhere_leaves_no_line_behind(shipping: Shipping, tmp_path: Path, logs_dir: Path) -> None:
    one, two, link, fresh = tmp_path / "t1", tmp_path / "t2", logs_dir / "current", tmp_path / "link"
    append(one, "1")
    link.symlink_to(one)
    shipping.start(source={"include": [str(link)], "follow_symlinks": True, "symlink_roots": [str(tmp_path)]})
    shipping.records(until=1)
    append(two, "2")
    fresh.symlink_to(two)
    fresh.replace(link)
    append(one, "late 1")
    append(two, "late 2")
    assert sorted(settled(shipping, range(4))) == ["1", "2", "late 1", "late 2"]


def _has_found(shipping: Shipping, files: int) -> bool:
    return shipping.status.lag.known_files >= files


def test_a_link_that_moves_over_thirty_files_yields_every_line(shipping: Shipping, tmp_path: Path, logs_dir: Path) -> None:
    link, fresh = logs_dir / "current", tmp_path / "link"
    shipping.start(source={"include": [str(link)], "follow_symlinks": True, "symlink_roots": [str(tmp_path)]})
    for turn in range(30):
        target = tmp_path / f"t{turn}"
        append(target, *numbers(turn * 100, (turn + 1) * 100))
        fresh.symlink_to(target)
        fresh.replace(link)
        wait_until(partial(_has_found, shipping, turn + 1), message="the new target is found")
    assert sorted(settled(shipping, range(3000)), key=int) == numbers(0, 3000)
