"""Large files in blocks of lines: the records and counts of the usual way, whatever stands in between."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.batch import run
from copycat_agent.executor import run_batch
from copycat_agent.model import Counts
from copycat_agent.producer import Producers, TaskProducer
from tests.rig.kafka import consume, create_topic, unique_topic, values
from tests.rig.proxy import PRODUCE
from tests.unit.batch.rig import InBlocks, append, batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.conftest import ProxiedBroker


@pytest.fixture
def in_blocks() -> Iterator[Producers]:
    producers, before = Producers(make_producer=InBlocks), InBlocks.blocks
    yield producers
    producers.close()
    assert InBlocks.blocks > before, "it went that way"


def random_lines(count: int, size: int) -> list[bytes]:
    chance = random.Random(1)
    return [chance.randbytes(size // 2).hex().encode() for _ in range(count)]


class _Watched(TaskProducer):
    """The producer as it is, and whether it was asked to take a block."""

    taken: tuple[int, ...] = ()

    def send_block(self, *arguments: Any) -> int:
        sent = super().send_block(*arguments)
        _Watched.taken = (*_Watched.taken, sent)
        return sent


def test_a_large_file_goes_in_blocks_by_itself_and_a_small_one_does_not(broker: DevBroker, topic: str, tmp_path: Path) -> None:
    lines = random_lines(9_000, 4000)
    large, small = write(tmp_path / "large", *lines), write(tmp_path / "small", b"1", b"2")
    producers = Producers(make_producer=_Watched)
    connector = definition(broker.bootstrap, topic)
    (result,) = run_batch(batch_of(connector, split_of(small)), producers, never)
    assert not _Watched.taken
    (result,) = run_batch(batch_of(connector, split_of(large), max_seconds=60.0), producers, never)
    producers.close()
    assert (result.error, result.at_end, result.offset.position) == (None, True, large.stat().st_size)
    assert result.counts == Counts(read=9_000, read_bytes=large.stat().st_size, acknowledged=9_000)
    assert sum(_Watched.taken) > 8_000
    assert values(broker.bootstrap, topic) == [b"1", b"2", *lines]


def test_a_line_that_the_broker_refuses_in_the_middle_of_a_block_becomes_a_dead_letter(
    in_blocks: Producers, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, dlq = make_topic(config={"max.message.bytes": "2000"}), make_topic()
    good = random_lines(2_000, 100)
    path = write(tmp_path / "f", *good[:1000], b"x" * 5000, *good[1000:])
    errors = {"tolerance": "all", "dlq": {"topic": dlq}}
    client = {"compression.type": "none", "batch.size": "1500"}
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic, errors=errors, client=client), split_of(path)), in_blocks, never)
    assert (result.error, result.at_end, result.offset.position) == (None, True, path.stat().st_size)
    assert result.counts == Counts(read=2001, read_bytes=path.stat().st_size, acknowledged=2000, dead_lettered=1)
    (letter,) = consume(broker.bootstrap, dlq)
    assert letter.value == b"x" * 5000
    found = values(broker.bootstrap, topic)
    assert set(found) == set(good)
    last = {value: index for index, value in enumerate(found)}
    assert sorted(good, key=last.__getitem__) == good, "in their order once they are sent again"


def test_lines_that_have_to_be_looked_at_keep_their_place(in_blocks: Producers, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    """A line with CR, one over the limit, NULs that nobody wrote, and an unfinished one, each behind a block of plain lines."""
    plain = random_lines(12_000, 400)
    path = write(tmp_path / "f", *plain[:3000])
    append(path, b"with cr\r\n")
    append(path, b"".join(line + b"\n" for line in plain[3000:6000]) + b"y" * (2**20 + 5) + b"\n")
    append(path, b"".join(line + b"\n" for line in plain[6000:9000]) + bytes(70_000))
    append(path, b"".join(line + b"\n" for line in plain[9000:]) + b"unfinished")
    connector = definition(broker.bootstrap, topic, line={"on_too_long": "truncate"})
    (result,) = run_batch(batch_of(connector, split_of(path, final=True), max_seconds=60.0), in_blocks, never)
    assert (result.error, result.at_end) == (None, True)
    wanted = [*plain[:3000], b"with cr", *plain[3000:6000], b"y" * 2**20, *plain[6000:], b"unfinished"]
    assert values(broker.bootstrap, topic) == wanted
    assert result.counts.acknowledged == len(wanted)


def test_a_lost_answer_is_ridden_out_without_repeats(in_blocks: Producers, proxied_broker: ProxiedBroker, tmp_path: Path) -> None:
    topic = create_topic(proxied_broker.bootstrap, unique_topic())
    lines = random_lines(30_000, 100)
    path = write(tmp_path / "f", *lines)
    proxied_broker.proxy.drop_response(PRODUCE)
    (result,) = run_batch(batch_of(definition(proxied_broker.bootstrap, topic), split_of(path), max_seconds=60.0), in_blocks, never)
    assert (result.error, result.counts.acknowledged) == (None, len(lines))
    assert values(proxied_broker.bootstrap, topic) == lines


@pytest.mark.parametrize("record", [{"key": "k"}, {"partition": 1}, {"key": "{@connector}"}, {"partition": "file"}])
def test_key_and_partition_are_those_of_the_usual_way(
    in_blocks: Producers, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, record: dict[str, Any]
) -> None:
    path = write(tmp_path / "f", *random_lines(2_000, 100))
    usual, found = Producers(), []
    for producers in (usual, in_blocks):
        topic = make_topic(partitions=3)
        (result,) = run_batch(batch_of(definition(broker.bootstrap, topic, record=record), split_of(path)), producers, never)
        assert result.error is None
        found.append([(one.partition, one.offset, one.key, one.value) for one in consume(broker.bootstrap, topic)])
    usual.close()
    assert sorted(found[0]) == sorted(found[1]) or record == {"partition": "file"}  # which rotates from run to run
    assert len(found[1]) == 2_000


def test_what_tap_shows_of_a_large_file_is_its_beginning(
    in_blocks: Producers, broker: DevBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RUN_BYTES", 2**20)
    lines = random_lines(30_000, 100)
    path = write(tmp_path / "f", *lines)
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic), split_of(path), samples=3), in_blocks, never)
    assert [one.value for one in result.samples] == lines[:3]
    assert values(broker.bootstrap, topic) == lines


def test_a_file_cut_while_it_goes_in_blocks_is_read_again(
    in_blocks: Producers, broker: DevBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RUN_BYTES", 2**20)
    path = write(tmp_path / "f", *random_lines(60_000, 100))
    asked = iter(range(10**9))

    def cut() -> bool:
        if next(asked) == 3:
            os.truncate(path, 10)
        return False

    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic), split_of(path)), in_blocks, cut)
    assert result.changed
    assert result.counts.acknowledged == result.offset.records
