"""Files that leave their patterns, or vanish, around a stop and a start: read where they are still there, counted where they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.rig.kafka import create_topic, unique_topic
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.rig.shipping import Shipping


def write(path: Path, first: int, last: int) -> None:
    path.write_text("".join(f"{number}\n" for number in range(first, last)))


def test_an_unread_file_that_left_its_patterns_is_read_after_a_restart(make_shipping: Callable[..., Shipping], logs_dir: Path) -> None:
    shipping = make_shipping(topic=unique_topic())  # which does not exist yet
    source = {"include": [f"{logs_dir}/app.log"]}
    write(logs_dir / "app.log", 0, 1000)
    shipping.start(source=source)
    wait_until(lambda: shipping.status.state == "blocked", message=lambda: str(shipping.status))
    (logs_dir / "app.log").rename(logs_dir / "app.log.1")
    write(logs_dir / "app.log", 1000, 1001)
    wait_until(lambda: shipping.status.lag.known_files == 2, message=lambda: str(shipping.status))
    shipping.stop()
    create_topic(shipping.bootstrap, shipping.topic)
    shipping.start(source=source)
    assert shipping.lines(until=1001) == [str(number) for number in range(1001)]


def test_a_file_renamed_out_of_its_patterns_while_the_agent_was_down_is_read_to_its_end(shipping: Shipping, logs_dir: Path) -> None:
    source = {"include": [f"{logs_dir}/app.log"]}
    write(logs_dir / "app.log", 0, 10)
    shipping.start(source=source)
    shipping.lines(until=10)
    shipping.stop()
    append(logs_dir / "app.log", *map(str, range(10, 20)))
    (logs_dir / "app.log").rename(logs_dir / "old-name")
    write(logs_dir / "app.log", 20, 21)
    shipping.start(source=source)
    assert sorted(map(int, shipping.lines(until=21))) == list(range(21))
    shipping.wait_caught_up()
    shipping.stop()
    shipping.start(source=source)
    append(logs_dir / "app.log", "21")
    assert sorted(map(int, shipping.lines(until=22))) == list(range(22)), "and nothing of it again at the start after"


def test_generations_that_came_and_went_while_the_agent_was_down_are_read_in_order(shipping: Shipping, logs_dir: Path) -> None:
    source = {"include": [f"{logs_dir}/app.log"]}
    log, older, oldest = (logs_dir / name for name in ("app.log", "app.log.1", "app.log.2"))
    write(older, 9000, 9010)  # older than the agent, and never wanted
    write(log, 0, 10)
    shipping.start(source=source)
    shipping.lines(until=10)
    shipping.wait_caught_up()
    shipping.stop()
    for first in (10, 20):
        append(log, *map(str, range(first, first + 5)))
        if older.exists():
            older.rename(oldest)
        log.rename(older)
        write(log, first + 5, first + 10)
    shipping.start(source=source)
    assert shipping.lines(until=30) == [str(number) for number in range(30)]
    shipping.wait_caught_up()
    shipping.stop()
    shipping.start(source=source)
    append(log, "30")
    assert shipping.lines(until=31) == [str(number) for number in range(31)], "and nothing of them again at the start after"


def test_a_file_that_is_not_named_any_more_is_let_alone(shipping: Shipping, logs_dir: Path) -> None:
    write(logs_dir / "a.log", 0, 1)
    write(logs_dir / "b.log", 1, 2)
    shipping.start()
    shipping.lines(until=2)
    shipping.stop()
    append(logs_dir / "b.log", "unwanted")
    for number in (2, 3):  # at the first start with the new patterns, and at the next
        append(logs_dir / "a.log", f"{number}")
        shipping.start(source={"include": [f"{logs_dir}/a.log"]})
        assert "unwanted" not in shipping.lines(until=number + 1)
        shipping.wait_caught_up()
        shipping.stop()
    assert "unwanted" not in shipping.lines()


def test_unread_bytes_of_a_file_deleted_while_the_agent_was_down_are_counted_once(
    make_shipping: Callable[..., Shipping], logs_dir: Path
) -> None:
    shipping = make_shipping(topic=unique_topic())
    (logs_dir / "app.log").write_text("never read\n")
    shipping.start()
    wait_until(lambda: shipping.status.state == "blocked", message=lambda: str(shipping.status))
    shipping.stop()
    (logs_dir / "app.log").unlink()
    shipping.start()
    assert shipping.status.lag.lost_bytes == len("never read\n")
    shipping.stop()
    shipping.start()
    assert not shipping.status.lag.lost_bytes


def test_unread_bytes_of_a_file_deleted_before_a_stop_are_counted_at_the_next_start(
    make_shipping: Callable[..., Shipping], logs_dir: Path
) -> None:
    shipping = make_shipping(topic=unique_topic())
    (logs_dir / "app.log").write_text("never read\n")
    shipping.start()
    wait_until(lambda: shipping.status.state == "blocked", message=lambda: str(shipping.status))
    (logs_dir / "app.log").unlink()
    assert not shipping.stop().lag.lost_bytes, "an archive of it may be found"
    shipping.start()
    assert shipping.status.lag.lost_bytes == len("never read\n")
    shipping.stop()
    shipping.start()
    assert not shipping.status.lag.lost_bytes, "they were counted"
