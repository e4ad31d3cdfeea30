"""What these tests work with: topics that are filled, and a connector that writes them into files below a directory of the test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml
from confluent_kafka import Producer

from copycat_agent.definitions import load_file
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.spark.session import forget_context
from tests.lake.written import Written, assert_each_once, written
from tests.rig.kafka import Consumed, consume
from tests.rig.shipping import Shipping, running_here
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.options import Definition

DAY_MS = 86_400_000
BEGIN_MS = 1_790_000_000_000
"""2026-09-21T14:13:20Z"""
ROLL = {"records": 1_000_000, "bytes": "256MiB", "age": "1h"}


class Sent(NamedTuple):
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = BEGIN_MS
    partition: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


def send(bootstrap: str, topic: str, records: Iterable[Sent], **settings: str) -> None:
    """Send records, and wait for all acknowledgements."""
    produce(Producer({"bootstrap.servers": bootstrap, "linger.ms": "20", "log_level": 0, **settings}), topic, records)


def produce(producer: Producer, topic: str, records: Iterable[Sent]) -> None:
    """As `send`, by a client that stays."""
    for number, one in enumerate(records):
        producer.produce(topic, one.value, one.key, one.partition, timestamp=one.timestamp_ms, headers=list(one.headers))
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def as_json(rows: Iterable[Mapping[str, Any]], partitions: int = 1) -> list[Sent]:
    """Records over three days and all partitions; each row has a number `n`."""
    found = []
    for row in rows:
        number = int(row["n"])
        value = json.dumps(row, ensure_ascii=False).encode()
        found.append(Sent(value, b"%d" % number, BEGIN_MS + number % 3 * DAY_MS + number, number % partitions))
    return found


def definition_of(name: str, topics: Iterable[str], root: Path | str, *, source: Any = None, sink: Any = None, **sections: Any) -> Any:
    """A connector's document: JSON into files of JSON lines, written at the end of a run only unless `sink.roll` says otherwise."""
    uri = root if isinstance(root, str) else f"file://{root}/"
    where = {"type": "kafka", "topics": list(topics), "poll_interval": "100ms", **(source or {})}
    into = {"type": "files", "uri": uri, "path": "{@topic}/dt={@timestamp:%Y-%m-%d}", "roll": ROLL, **(sink or {})}
    return {"name": name, "source": where, "converters": {"value": "json"}, "sink": into, **sections}


class Lake(Shipping):
    """A connector that writes topics into files below `root / "lake"`."""

    @property
    def root(self) -> Path:
        """Where files are written."""
        return self._root / "lake"

    def definition(self, *, source: Any = None, record: Any = None, sink: Any = None, **sections: Any) -> Definition:
        assert record is None
        document = definition_of(self.name, [self.topic], self.root, source=source, sink=sink, **sections)
        path = self._root / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
        loaded = load_file(path, AgentOptions(kafka=KafkaOptions(bootstrap_servers=(self.bootstrap,))))
        assert loaded.definition is not None, loaded.problems
        return loaded.definition

    def send(self, records: Iterable[Sent]) -> None:
        """Send records to the topic."""
        send(self.bootstrap, self.topic, records)

    def follow(self, **sections: Any) -> None:
        """Run it, and wait until it has looked at the topic: what comes now is newer."""
        self.start(**sections)
        wait_until(lambda: self.status.lag.known_files, 30, lambda: f"{self.status}")

    def run(self, **sections: Any) -> list[Written]:
        """Write all that there is, and end; what is there then."""
        self.start(until_idle=True, **sections)
        self.wait_idle()
        self.last = self.status
        self.stop()
        return self.written()

    def written(self) -> list[Written]:
        """What readers see."""
        return written(self.root)

    def wait_written(self, count: int, deadline: float = 60.0) -> list[Written]:
        """What readers see, once there are so many rows."""

        def enough() -> list[Written] | None:
            found = self.written()
            return found if sum(len(one.rows) for one in found) >= count else None

        return wait_until(enough, deadline, lambda: f"{sum(len(one.rows) for one in self.written())} rows; {self.status}") or []

    def sent(self) -> list[Consumed]:
        """What the topic holds, without nulls."""
        return [one for one in consume(self.bootstrap, self.topic, "read_committed") if one.value is not None]

    def assert_each_once(self, found: list[Written] | None = None, identity: Callable[[Any], Any] | None = None) -> None:
        """See `written.assert_each_once`; records are told apart by their number."""
        assert_each_once(self.written() if found is None else found, self.sent(), identity or number_of)


def number_of(value: Any) -> int:
    """The number of a record, of its JSON as well as of its row."""
    row = json.loads(value) if isinstance(value, bytes) else value
    return int(row["n"])


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark of one thread that reads."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - slow, and only some tests need it
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    directory = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.master": "local[1]", "spark.app.name": "lake", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(directory), "spark.local.dir": str(directory),
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }  # fmt: skip
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    gateway: Any = launch_gateway(conf)  # type: ignore[no-untyped-call]
    context = SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("ERROR")
    yield SparkSession(context)
    forget_context(context)  # other tests of this process would find it, though its JVM is gone
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


@pytest.fixture
def make_lake(tmp_path: Path, broker: DevBroker, make_topic: Callable[..., str]) -> Iterator[Callable[..., Lake]]:
    """`make_lake(partitions=1, config=None)` makes a topic and a connector of the real worker whose batches run in this process."""
    made = []

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> Lake:
        made.append(running_here(Lake, tmp_path, "lake", broker.bootstrap, make_topic(partitions, config)))
        return made[-1].__enter__()

    yield make
    for one in made:
        one.__exit__(None, None, None)


@pytest.fixture
def lake(make_lake: Callable[..., Lake]) -> Lake:
    """A connector over a topic of one partition."""
    return make_lake()
