"""E. Deleted files: what was complete is read to the end, then the file is let go and its space is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rig.kafka import create_topic, unique_topic
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, descriptors, numbers, settled, wait_read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import ProxiedBroker
    from tests.rig.shipping import Shipping


def test_a_file_deleted_with_a_backlog_is_read_to_its_end_and_closed(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, logs_dir: Path
) -> None:
    bootstrap, proxy, log = proxied_broker.bootstrap, proxied_broker.proxy, logs_dir / "app.log"
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    append(log, "0")
    shipping.start()
    wait_read(shipping, 1)
    proxy.pause()
    append(log, *numbers(1, 3_000))
    wait_until(lambda: shipping.status.lag.bytes > 0, message="the backlog is seen")
    log.unlink()
    proxy.forward()
    wait_read(shipping, 3_000)
    wait_until(lambda: not descriptors(logs_dir), message="it is closed")
    assert settled(shipping, range(3_000)) == numbers(0, 3_000)


def test_a_deleted_file_that_nobody_writes_is_closed_soon(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    append(log, *numbers(0, 100))
    shipping.start()
    wait_read(shipping, 100)
    log.unlink()
    wait_until(lambda: not descriptors(logs_dir), 60, lambda: f"{descriptors(logs_dir)}")


def test_an_unfinished_last_line_of_a_deleted_file_arrives_once_and_is_marked(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    log.write_text("whole\nabc")
    shipping.start()
    wait_read(shipping, 1)
    log.unlink()
    wait_read(shipping, 2)
    shipping.stop()
    whole, partial = shipping.records()
    assert (whole.value, partial.value) == (b"whole", b"abc")
    assert ("copycat.partial", b"true") in partial.headers
    assert ("copycat.partial", b"true") not in whole.headers


def test_a_deleted_file_is_held_for_its_writer_until_it_was_quiet_for_rotate_wait(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    with log.open("w", buffering=1) as writer:
        writer.write("1\n")
        shipping.start(source={"rotate_wait": "10s"})
        wait_read(shipping, 1)
        log.unlink()
        wait_until(lambda: any(name.endswith("(deleted)") for name in descriptors(logs_dir)), message="deleted")
        writer.write("2\n")
        wait_read(shipping, 2)
        inode = f"{log} (deleted)"
        wait_until(lambda: descriptors(logs_dir).count(inode) == 1, message="only the writer's own descriptor is left")
    assert settled(shipping, range(2)) == ["1", "2"]


def test_offsets_of_deleted_files_are_forgotten(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "gone.log", "1")
    append(logs_dir / "stays.log", "2")
    shipping.start(source={"forget_after": "1s"})
    wait_read(shipping, 2)
    assert len(shipping.offsets) == 2
    (logs_dir / "gone.log").unlink()
    wait_until(lambda: [offset.path for offset in shipping.offsets.values()] == [str(logs_dir / "stays.log")])


CLEANUP = {"policy": "delete", "after": "1s"}


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_cleanup_deletes_what_is_read_and_saved_and_nothing_else(shipping: Shipping, logs_dir: Path, guarantee: str) -> None:
    source, delivery = {"cleanup": CLEANUP}, {"guarantee": guarantee}
    append(logs_dir / "old.log", *numbers(0, 500))
    (logs_dir / "unfinished.log").write_text("500\n501")
    with (logs_dir / "busy.log").open("w", buffering=1) as writer:
        writer.write("502\n")
        shipping.start(source=source, delivery=delivery)
        wait_read(shipping, 502)
        wait_until(lambda: not (logs_dir / "old.log").exists(), 60, "it is read, and quiet")
        shipping.stop()
        shipping.start(source=source, delivery=delivery)
        append(logs_dir / "unfinished.log", "")
        wait_until(lambda: not (logs_dir / "unfinished.log").exists(), 60, "now it is read")
        wait_until(lambda: [path.name for path in logs_dir.iterdir()] == ["busy.log"], 60, "what was renamed aside goes at once")
        writer.write("503\n")
    lines = settled(shipping, range(504))
    assert sorted(lines, key=int) == numbers(0, 504), "each once"


def test_cleanup_leaves_a_file_alone_whose_last_record_may_go_on(shipping: Shipping, logs_dir: Path) -> None:
    (logs_dir / "group.log").write_text("1\n2\n more\n")
    (logs_dir / "read.log").write_text("3\n")
    shipping.start(source={"cleanup": CLEANUP, "multiline": {"ends": "^[0-9]", "timeout": "1h"}})
    wait_until(lambda: not (logs_dir / "read.log").exists(), 60, "it is read, and quiet")
    assert (logs_dir / "group.log").exists()
    assert sorted(settled(shipping, range(3))) == ["1", "2", "3"]
