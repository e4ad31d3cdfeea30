"""The ledger sees every way in which lines can go wrong."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.rig.kafka import Consumed, create_topic, unique_topic
from tests.rig.ledger import Ledger, Verdict, parse_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.dev_broker import DevBroker

LINES = 20


def _verdict(ledger: Ledger, lines: list[bytes]) -> Verdict:
    return ledger.verify(Consumed(0, number, None, line, (), None) for number, line in enumerate(lines))


@pytest.fixture
def lines(ledger: Ledger, tmp_path: Path) -> list[bytes]:
    """What was written, read back."""
    ledger.writer(tmp_path / "a.log").write(LINES)
    return (tmp_path / "a.log").read_bytes().splitlines()


def test_all_lines_once_is_a_good_verdict(ledger: Ledger, lines: list[bytes]) -> None:
    assert _verdict(ledger, lines) == Verdict(LINES, LINES, 0, 0, 0, 0, 0)
    assert _verdict(ledger, lines)


@pytest.mark.parametrize(
    ("harm", "field"),
    [
        (lambda lines: lines[:5] + lines[6:], "lost"),
        (lambda lines: [*lines, lines[3]], "duplicated"),
        (lambda lines: [*lines[1:], lines[0]], "reordered"),
        (lambda lines: [*lines, lines[0][:-1]], "corrupt"),
        (lambda lines: [*lines, lines[0].swapcase()], "corrupt"),
        (lambda lines: [*lines, b""], "corrupt"),
    ],
)
def test_each_harm_is_counted_as_itself_alone(
    ledger: Ledger, lines: list[bytes], harm: Callable[[list[bytes]], list[bytes]], field: str
) -> None:
    verdict = _verdict(ledger, harm(lines))
    assert not verdict
    assert {name: getattr(verdict, name) for name in ("lost", "duplicated", "reordered", "corrupt", "phantom")} == {
        "lost": 0, "duplicated": 0, "reordered": 0, "corrupt": 0, "phantom": 0, field: 1,
    }  # fmt: skip
    assert verdict.is_complete == (field == "duplicated")


def test_a_line_of_another_run_is_a_phantom(ledger: Ledger, lines: list[bytes], tmp_path: Path) -> None:
    Ledger().writer(tmp_path / "b.log").write()
    assert _verdict(ledger, [*lines, *(tmp_path / "b.log").read_bytes().splitlines()]).phantom == 1


def test_a_replay_from_an_earlier_line_is_duplication_and_not_disorder(ledger: Ledger, lines: list[bytes]) -> None:
    verdict = _verdict(ledger, [*lines[:10], *lines[5:]])
    assert (verdict.duplicated, verdict.reordered, verdict.is_complete) == (5, 0, True)


def test_numbers_go_on_after_a_rotation(ledger: Ledger, tmp_path: Path) -> None:
    writer = ledger.writer(tmp_path / "a.log")
    writer.write(3)
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    writer.reopen()
    writer.write_block(2)
    lines = [(tmp_path / name).read_bytes().splitlines() for name in ("a.log.1", "a.log")]
    assert [[line[2] for line in map(parse_line, part) if line] for part in lines] == [[0, 1, 2], [3, 4]]
    assert ledger.written == 5


def test_what_was_not_written_is_not_counted(ledger: Ledger) -> None:
    writer = ledger.writer(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left"):
        writer.write()
    assert ledger.written == 0


def test_a_topic_is_waited_for_until_all_lines_are_there(ledger: Ledger, broker: DevBroker, tmp_path: Path) -> None:
    ledger.writer(tmp_path / "a.log").write(LINES)
    topic = unique_topic()

    def deliver() -> None:
        create_topic(broker.bootstrap, topic)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for line in (tmp_path / "a.log").read_bytes().splitlines():
            producer.produce(topic, line)
            producer.flush(60)

    with ThreadPoolExecutor(1) as later:
        delivered = later.submit(deliver)
        assert ledger.verify_topic(broker.bootstrap, topic)
        delivered.result()


def test_what_never_arrives_is_in_the_verdict_of_a_topic(ledger: Ledger, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    ledger.writer(tmp_path / "a.log").write(2)
    assert ledger.verify_topic(broker.bootstrap, topic, deadline=0.5) == Verdict(2, 0, 2, 0, 0, 0, 0, ("a.log|0", "a.log|1"))
