"""`benchmarks/run jdbc`: all rows of a PostgreSQL table through the agent into Kafka, beside `psql -c "COPY ..." | kcat -P`, in turn.

With `--connect JARS` also through Aiven's JDBC source on Kafka Connect standalone. How to build its jars: docs/jdbc.md, "Rate and cost".
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import rate
from benchmarks.measuring import Arrivals, Meter
from benchmarks.report import table
from benchmarks.tools import Process, connect, describe_machine, end, start
from copycat_agent.dev_broker import DevBroker
from tests.rig.postgres import Postgres

_ROWS = """
CREATE TABLE orders (
    id BIGINT PRIMARY KEY, customer INTEGER NOT NULL, placed TIMESTAMPTZ NOT NULL, state TEXT NOT NULL,
    total NUMERIC(12, 2) NOT NULL, paid BOOLEAN NOT NULL, weight DOUBLE PRECISION, note TEXT);
INSERT INTO orders SELECT n, n % 50000, now() - n * interval '1 second', (ARRAY['new', 'packed', 'sent'])[n % 3 + 1], n / 100.0,
    n % 2 = 0, CASE WHEN n % 10 > 0 THEN sqrt(n) END, 'note of order ' || n FROM generate_series(1, {rows}) AS n;
"""
_COPY = "COPY (SELECT row_to_json(t) FROM orders t) TO STDOUT"
_PIPE = "psql to kcat"
_LIMIT_SECONDS = 300.0
_CONNECT_BATCHES = (100, 10_000)  # batch.max.rows: its default, and as it is often raised
_JSON = "org.apache.kafka.connect.json.JsonConverter"

Start = Callable[[Path, str, str, Postgres], list[Process]]
"""From a directory for its own files, the brokers, a topic that ends in the table's name, and the server."""


def main() -> None:
    """Measure; Markdown to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(prog="benchmarks/run jdbc", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of 8 columns")
    parser.add_argument("--rounds", type=int, default=3, help="how often, in turn, after a round that does not count; medians are told")
    parser.add_argument("--guarantee", choices=["at_least_once", "exactly_once"], default="at_least_once")
    parser.add_argument("--partitions", type=int, nargs="*", default=[1, 2], help="into so many ranges the agent cuts the table")
    parser.add_argument("--batch-rows", type=int, default=100_000, help="rows of one query of the agent")
    parser.add_argument("--connect", type=Path, metavar="JARS", help="directory with the jars of Aiven's JDBC connector and of the driver")
    options = parser.parse_args()
    if lacking := [one for one in ("psql", "kcat") if not shutil.which(one)]:
        sys.exit(f"not installed: {', '.join(lacking)}")
    starts: dict[str, Start] = {_PIPE: _psql}
    for count in options.partitions:
        starts[f"copycat, {options.guarantee}, partitions {count}"] = partial(_agent, options=options, partitions=count)
    for count in _CONNECT_BATCHES if options.connect else ():
        starts[f"Kafka Connect, JDBC source, batch.max.rows {count:,}"] = partial(_connect, jars=options.connect, batch_rows=count)
    found: dict[str, list[rate.Rate]] = {what: [] for what in starts}
    loads: list[float] = []
    with tempfile.TemporaryDirectory(prefix="copycat-jdbc-") as name, DevBroker(Path(name) / "broker") as broker, Postgres() as server:
        _say(f"writing {options.rows:,} rows")
        server.execute(_ROWS.format(rows=options.rows))
        server.execute("ANALYZE orders")
        for number in range(options.rounds + 1):
            for what, begin in starts.items():
                loads.append(os.getloadavg()[0])
                found[what].append(_round(begin, Path(name), broker.bootstrap, server, options.rows))
                _say(f"round {number}: {what}: {found[what][-1].lines_per_second:,.0f} rows/s, load {loads[-1]:.1f}")
    medians = {what: rate.median(rates[1:]) for what, rates in found.items()}
    rows = [
        [
            what,
            f"{one.lines_per_second:,.0f}",
            f"{one.lines_per_second / medians[_PIPE].lines_per_second:.2f}",
            f"{one.cpu_seconds_per_million:.1f}",
            f"{one.first_record_seconds:.1f} s",
            f"{one.peak_bytes / 2**20:.0f} MiB",
        ]
        for what, one in medians.items()
    ]
    caption = f"{time.strftime('%Y-%m-%d')}, {describe_machine()}, broker and server beside it, {options.rows:,} rows of 8 columns"
    caption += f", median of {options.rounds}, load {min(loads):.1f} to {max(loads):.1f}; the server's processor time is not counted"
    print(f"{caption}\n\n{table(('what', 'rows/s', 'of psql', 'CPU s per million', 'first record after', 'peak memory'), rows)}")


def _round(begin: Start, work: Path, bootstrap: str, server: Postgres, rows: int) -> rate.Rate:
    topic = f"rows-{uuid.uuid4().hex[:8]}-orders"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    time.sleep(2)  # the partition has no leader at once
    place = work / topic
    try:
        if begin is _psql:
            return _alone(begin(place, bootstrap, topic, server), bootstrap, topic, rows)
        return rate.measured(lambda: begin(place, bootstrap, topic, server), bootstrap, [topic], rows)
    except TimeoutError as error:
        error.add_note((place / "output.log").read_text()[-3000:])
        raise
    finally:
        admin.delete_topics([topic])[topic].result(30)


def _alone(processes: list[Process], bootstrap: str, topic: str, rows: int) -> rate.Rate:
    """From its start, which takes no time to speak of: the first records come in thousands, and would not count."""
    began, arrivals = time.monotonic(), Arrivals(bootstrap, [topic])
    try:
        with Meter([process.pid for process in processes]) as meter:
            seconds = arrivals.wait_for(rows, _LIMIT_SECONDS) - began
            usage = meter.usage()
        return rate.Rate(rows / seconds, usage.cpu_seconds / rows * 1e6, 0.0, 0.0, usage.peak_bytes)
    finally:
        end(processes)
        arrivals.close()


def _psql(place: Path, bootstrap: str, topic: str, server: Postgres) -> list[Process]:
    ask = ["psql", "-h", "127.0.0.1", "-p", str(server.port), "-U", server.user, "-d", server.name, "-c", _COPY]
    send = ["kcat", "-P", "-b", bootstrap, "-z", "lz4", "-X", "acks=all", "-t", topic]
    command = ["sh", "-c", f"{shlex.join(ask)} | {shlex.join(send)}"]
    return [start(place, command, None, {**os.environ, "PGPASSWORD": server.password})]


def _agent(place: Path, bootstrap: str, topic: str, server: Postgres, *, options: argparse.Namespace, partitions: int) -> list[Process]:
    definition = {
        "name": "orders",
        "source": {
            "type": "jdbc", "url": server.url, "user": server.user, "password": server.password, "tables": ["public.orders"],
            "mode": "bulk", "poll_interval": "1h", "partitions": partitions, "batch_rows": options.batch_rows,
        },
        "record": {"topic": topic},
        "kafka": {"bootstrap_servers": [bootstrap]},
        "delivery": {"guarantee": options.guarantee, "tasks_max": partitions},
    }  # fmt: skip
    (place / "connectors.d").mkdir(parents=True)
    (place / "connectors.d/orders.yaml").write_text(json.dumps(definition))
    command = [sys.executable, "-m", "copycat_agent", "run", str(place / "connectors.d"), "--state-dir", str(place / "state")]
    return [start(place, command, None, dict(os.environ))]


def _connect(place: Path, bootstrap: str, topic: str, server: Postgres, *, jars: Path, batch_rows: int) -> list[Process]:
    """Decimals exact, as the agent's; with a fetch size, without which the driver reads the whole table before the first record counts."""
    (place / "plugins").mkdir(parents=True)
    (place / "plugins/jdbc").symlink_to(jars.resolve(strict=True))
    settings = {
        "connector.class": "io.aiven.connect.jdbc.JdbcSourceConnector", "mode": "bulk", "table.whitelist": "orders",
        "connection.url": f"{server.url}?defaultRowFetchSize={max(_CONNECT_BATCHES)}", "connection.user": server.user,
        "connection.password": server.password, "topic.prefix": topic.removesuffix("orders"), "poll.interval.ms": "3600000",
        "batch.max.rows": str(batch_rows), "value.converter": _JSON, "value.converter.schemas.enable": "false",
        "value.converter.decimal.format": "NUMERIC",
    }  # fmt: skip
    return connect(place, bootstrap, {"orders": settings}, str(place / "plugins"))


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
