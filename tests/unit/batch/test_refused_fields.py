"""A broker that takes all but one record in the middle of a format's run: the run is read again, and that one becomes a dead letter."""

from __future__ import annotations

import io
import json
import os
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from copycat_agent.executor import run_batch
from copycat_agent.model import Batch, Split, SplitResult, TaskId
from copycat_agent.options import Definition
from tests.rig.kafka import consume
from tests.unit.sources.spool.rig import Spool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.producer import ProducerPool

COUNT, REFUSED = 500, 321
ROWS: list[dict[str, Any]] = [{"id": number, "text": os.urandom(600 if number == REFUSED else 10).hex()} for number in range(COUNT)]


def _parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), out, row_group_size=200)
    return out.getvalue()


FILES = {
    "csv": "".join(["id,text\n", *(f"{row['id']},{row['text']}\n" for row in ROWS)]).encode(),
    "json": json.dumps(ROWS).encode(),
    "parquet": _parquet(),
}


class Sending(Spool):
    """A spool directory whose batches go to a real broker."""

    def to(self, bootstrap: str, topic: str, dlq: str, producers: ProducerPool) -> Sending:
        document = {"name": "drops", "source": self.options, "record": {"topic": topic}, "kafka": {"bootstrap_servers": (bootstrap,)}}
        self._pickled = pickle.dumps(Definition.model_validate(document | {"errors": {"tolerance": "all", "dlq": {"topic": dlq}}}))
        self._real = producers
        return self

    def read(self, splits: tuple[Split, ...], number: int = 0) -> tuple[SplitResult, ...]:
        batch = Batch(TaskId("drops", number), self._pickled, splits, self.max_bytes, 60.0)
        results = run_batch(batch, self._real, lambda: False) if splits else ()
        assert [result.error for result in results if result.error] == []
        return results


@pytest.mark.parametrize("name", FILES)
def test_one_record_that_the_topic_refuses_is_found_in_its_run(
    name: str, producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, dlq = make_topic(config={"max.message.bytes": "1000"}), make_topic()
    spool = Sending(tmp_path, format=name).to(broker.bootstrap, topic, dlq, producers)
    spool.drop("f", FILES[name])
    spool.drain()
    assert spool.states() == {"f": "done"}
    arrived = [int(json.loads(record.value or b"")["id"]) for record in consume(broker.bootstrap, topic)]
    last = list(dict.fromkeys(reversed(arrived)))  # of the run's first sending, some whole batches were refused and others taken
    assert last[::-1] == [number for number in range(COUNT) if number != REFUSED]
    (letter,) = consume(broker.bootstrap, dlq)
    headers = dict(letter.headers)
    assert (headers["copycat.stage"], headers["copycat.record"]) == (b"send", str(REFUSED + 1).encode())
