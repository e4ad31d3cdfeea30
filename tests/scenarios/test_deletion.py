"""E. Deleted files: what was complete is read to the end, then the file is let go and its space is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    append(log, *numbers(1, 10_000))
    wait_until(lambda: shipping.status.lag.bytes > 0, message="the backlog is seen")
    log.unlink()
    proxy.forward()
    wait_read(shipping, 10_000)
    wait_until(lambda: not descriptors(logs_dir), message="it is closed")
    assert settled(shipping, range(10_000)) == numbers(0, 10_000)


def test_a_deleted_file_that_nobody_writes_is_closed_soon(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    append(log, *numbers(0, 100))
    shipping.start()
    wait_read(shipping, 100)
    log.unlink()
    wait_until(lambda: not descriptors(logs_dir), 20, lambda: f"{descriptors(logs_dir)}")


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
        shipping.start(source={"rotate_wait": "2s"})
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
