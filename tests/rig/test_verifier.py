"""The verifier sees every harm, and tells committed from aborted records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.rig.ledger import Ledger, make_line, parse_line
from tests.rig.verifier import Verifier, ends, is_complete, is_exact
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.kafka import Isolation

RUN = "0a1b2c3d"
LINES = [make_line(RUN, "a.log", number, b"payload %d" % number)[:-1] for number in range(6)]
WRITTEN = {"a.log": len(LINES)}
ISOLATIONS: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
FIELDS = ("lost", "duplicated", "phantom", "corrupt", "reordered")


class _Sender:
    """Sends values in transactions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": topic, "transaction.timeout.ms": 600_000, "log_level": 0}
        )
        self._producer.init_transactions(60)

    def begin(self, *values: bytes) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._topic, value)
        assert self._producer.flush(60) == 0

    def commit(self, *values: bytes) -> None:
        self.begin(*values)
        self._producer.commit_transaction(60)

    def abort(self) -> None:
        self._producer.abort_transaction(60)


@pytest.fixture
def sender(broker: DevBroker, topic: str) -> _Sender:
    return _Sender(broker.bootstrap, topic)


@pytest.mark.parametrize(
    ("harm", "field"),
    [
        (lambda lines: lines[:2] + lines[3:], "lost"),
        (lambda lines: [*lines, lines[1]], "duplicated"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "reordered"),
        (lambda lines: [*lines, lines[0][:-1]], "corrupt"),
        (lambda lines: [*lines, make_line("11111111", "a.log", 0, b"")[:-1]], "phantom"),
        (lambda lines: [*lines, make_line(RUN, "a.log", len(lines), b"")[:-1]], "phantom"),
        (lambda lines: [*lines, make_line(RUN, "b.log", 0, b"")[:-1]], "phantom"),
        (list, ""),
    ],
)
def test_each_harm_is_counted_as_itself_alone(
    sender: _Sender, broker: DevBroker, topic: str, harm: Callable[[list[bytes]], list[bytes]], field: str
) -> None:
    sender.commit(*harm(LINES))
    with Verifier(broker.bootstrap, [topic], RUN) as verifier:
        verdict = verifier.finish(WRITTEN)
    assert {name: verdict[name] for name in FIELDS} == {**dict.fromkeys(FIELDS, 0), **({field: 1} if field else {})}
    assert (is_complete(verdict), is_exact(verdict)) == (field in ("", "duplicated"), field == "")
    assert json.loads(json.dumps(verdict)) == verdict


def test_what_is_aborted_is_seen_by_readers_of_everything_only(sender: _Sender, broker: DevBroker, topic: str) -> None:
    sender.begin(*LINES[:3])
    sender.abort()
    sender.commit(*LINES)
    with Verifier(broker.bootstrap, [topic], RUN) as verifier:
        verdict = verifier.finish(WRITTEN)
    assert is_exact(verdict), verdict
    assert (verdict["delivered"], verdict["aborted"], verdict["bytes"]) == (6, 3, sum(len(line) + 1 for line in LINES))


def test_there_is_no_verdict_while_a_transaction_is_open(sender: _Sender, broker: DevBroker, topic: str) -> None:
    sender.commit(*LINES[:3])
    sender.begin(*LINES[3:])
    with Verifier(broker.bootstrap, [topic], RUN) as verifier:
        with pytest.raises(AssertionError, match="a transaction stays open"):
            verifier.finish(WRITTEN, deadline=0.5)
        assert not verifier.wait_all(WRITTEN, deadline=0.5)
        stable, high = (ends(broker.bootstrap, [topic], isolation)[topic, 0] for isolation in ISOLATIONS)
        assert stable < high
        sender.abort()
        assert verifier.finish(WRITTEN)["lost"] == 3


def test_all_are_waited_for_and_a_line_that_is_written_later_is_noticed(sender: _Sender, broker: DevBroker, topic: str) -> None:
    with Verifier(broker.bootstrap, [topic], RUN) as verifier:
        sender.commit(*LINES[:3])
        assert verifier.wait_all({"a.log": 3})
        later = verifier.committed.await_after({"a.log": 4})
        sender.commit(LINES[3])
        assert verifier.wait_all({"a.log": 4})
        assert later.seconds is None
        sender.commit(*LINES[4:])
        wait_until(lambda: later.seconds is not None, 60, "the later line was not noticed")


def test_a_writer_goes_on_where_an_earlier_one_ended(ledger: Ledger, tmp_path: Path) -> None:
    ledger.writer(tmp_path / "a.log").write(2)
    with Ledger(run=ledger.run).writer(tmp_path / "a.log", written=2) as writer:
        writer.write(1)
    numbers = [parse_line(line) for line in (tmp_path / "a.log").read_bytes().splitlines()]
    assert numbers == [(ledger.run, "a.log", number) for number in range(3)]
    assert ledger.counts() == {"a.log": 2}
