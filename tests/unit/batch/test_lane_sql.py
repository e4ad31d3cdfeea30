"""A batch with a query in a lane: what Kafka refuses is looked for without asking Spark again, and a record's messages go together."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.batch.sql_run import SqlRun
from copycat_agent.errors import DataError
from copycat_agent.executor import run_batch
from copycat_agent.model import Counts
from tests.unit.batch.fake_lane import FakeBroker, FakeLane
from tests.unit.batch.rig import after, batch_of, definition, never, split_of, write
from tests.unit.batch.test_sql_ways import QUERY, Query

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.producer import Message

ERRORS = {"tolerance": "all", "dlq": {"topic": "dlq"}}
NUMBERS = [1, 2, 3, 5, 7, 4, 8, 9, 3, 6, 7, 1]
"""See `Query`: 3 is dropped, 5 is a bad one, 7 and 8 become two."""


class Counted(Query):
    """Counts how often it is asked."""

    asked = 0

    def results(self):  # type: ignore[no-untyped-def]  # noqa: ANN201
        type(self).asked += 1
        return super().results()


def through(broker: FakeBroker, *paths: Path) -> Counts:
    """Batches of the files until they are read; what became of their records."""
    lane, producers = FakeLane(broker), broker.producers()
    connector = definition("x:1", "t", steps=[{"json": {}}, QUERY], errors=ERRORS)
    splits, counts = [split_of(path) for path in paths], Counts()
    while any(split.offset.position < split.end for split in splits):
        before = Counted.asked
        batch = replace(batch_of(connector, *splits), delivery=lane.plan())
        results = run_batch(batch, producers, never, make_run=functools.partial(SqlRun, query=Counted()))
        assert lane.heard(results).state == "committed"
        assert {result.error for result in results} == {None}
        assert Counted.asked == before + 1
        for result in results:
            counts += result.counts
        splits = [after(split, result.offset) for split, result in zip(splits, results, strict=True)]
    return counts


def lines(numbers: list[int]) -> list[bytes]:
    return [json.dumps({"n": number, "word": f"w{index}"}).encode() for index, number in enumerate(numbers)]


def made(broker: FakeBroker, topic: str) -> Counter[str]:
    """How often each record is there, by its word."""
    return Counter(json.loads(message[1])["word"] for message in broker.committed if message[0] == topic)


@pytest.mark.parametrize("bad", [0, 4, 6, 11])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_refused_message_makes_its_record_a_dead_letter_and_no_message_of_it_stays(tmp_path: Path, bad: int, at_once: bool) -> None:
    """Of a record that becomes two messages, the second one is refused."""
    seen: Counter[bytes] = Counter()

    def refuses(message: Message) -> DataError | None:
        if message[0] != "t" or json.loads(message[1])["word"] != f"w{bad}":
            return None
        seen[message[1]] += 1
        is_second = NUMBERS[bad] not in (7, 8) or seen[message[1]] % 2 == 0
        return DataError("refused") if is_second else None

    broker = FakeBroker(refuses_at_once=refuses) if at_once else FakeBroker(refuses=refuses)
    counts = through(broker, write(tmp_path / "f", *lines(NUMBERS)))
    expected = {f"w{index}": 2 if number in (7, 8) else 1 for index, number in enumerate(NUMBERS) if number not in (3, 5) and index != bad}
    assert made(broker, "t") == Counter(expected)
    assert made(broker, "dlq") == Counter([f"w{bad}", "w3"])
    assert (counts.read, counts.dead_lettered, counts.dropped) == (12, 2, 2)


def test_files_after_a_refused_record_come_through_too(tmp_path: Path) -> None:
    broker = FakeBroker(refuses=lambda message: DataError("refused") if message[0] == "t" and b'"w2"' in message[1] else None)
    paths = [write(tmp_path / str(index), *lines([1] * 40)) for index in range(3)]
    counts = through(broker, *paths)
    assert made(broker, "t") == Counter({f"w{index}": 3 for index in range(40) if index != 2})
    assert made(broker, "dlq") == Counter(w2=3)
    assert (counts.read, counts.acknowledged, counts.dead_lettered) == (120, 117, 3)
