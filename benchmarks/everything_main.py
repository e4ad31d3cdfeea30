"""`benchmarks/run everything`: every source at once in one agent, for half an hour. Is each record there once, and does anything grow?"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import soak_curves
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker
from tests.rig.agent import AgentProcess
from tests.rig.background import Background
from tests.rig.journals import JournalWriter, lines
from tests.rig.kafka import consume
from tests.rig.postgres import Database, Postgres

_READER = """
import sqlite3
from contextlib import closing
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

class Rows(DataSource):
    def schema(self):
        return "id BIGINT"
    def streamReader(self, schema):
        return RowsReader(self.options["database"])

class RowsReader(DataSourceStreamReader):
    def __init__(self, database):
        self.database = database
    def initialOffset(self):
        return {"id": 0}
    def latestOffset(self):
        return {"id": self.rows("SELECT coalesce(max(id), 0) FROM rows")[0][0]}
    def partitions(self, start, end):
        return [InputPartition((start["id"], end["id"]))]
    def read(self, partition):
        yield from self.rows("SELECT id FROM rows WHERE id > ? AND id <= ? ORDER BY id", *partition.value)
    def rows(self, query, *values):
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(query, values).fetchall()
"""
_SECONDS = 2.0
"""Between two turns, in each of which every source gets something."""
_DRAIN_SECONDS = 120.0


def main() -> None:
    """A table to standard output. Exits 1 when a record is missing or there twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--lines", type=int, default=200, help="records for each source and turn of two seconds")
    parser.add_argument("--log", type=Path, help="a file to keep the agent's log in")
    parser.add_argument("--json", type=Path, help="a file to write all figures to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copycat-everything-") as name, Postgres() as server, server.database() as database:
        work = Path(name)
        with DevBroker(work / "broker") as broker, AgentProcess(work / "agent", broker.bootstrap) as agent:
            result = _Everything(work, broker.bootstrap, agent, database, options.log).run(options.minutes, options.lines)
    result["caption"] = f"{time.strftime('%Y-%m-%d')}, {describe_machine()}"
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(0 if result["exact"] else 1)


class _Everything(Background):
    """One run. Each record holds its number, from 1, in its source."""

    def __init__(self, work: Path, bootstrap: str, agent: AgentProcess, database: Database, log: Path | None) -> None:
        super().__init__("writer")
        self._root = work
        self._log = log
        self._bootstrap = bootstrap
        self._agent = agent
        self._database = database
        self._journal = JournalWriter(self._directory("journal"))
        self._shop = work / "shop.db"
        self._turns = 0
        self._lines = 0
        self._writers: dict[str, Callable[[int, int], None]] = {
            "logs": self._write_log,
            "queried": self._write_queried,
            "spool": self._drop_file,
            "objects": self._put_object,
            "journal": self._write_journal,
            "tables": self._insert,
            "rows": self._add_rows,
        }

    def run(self, minutes: float, lines_each: int) -> dict[str, Any]:
        """Everything, and what came out."""
        self._lines = lines_each
        self._define()
        begin, looks = time.monotonic(), list[soak_curves.Look]()
        self._agent.start(env={"PYTHONPATH": str(self._root)})
        with self:
            while time.monotonic() - begin < minutes * 60:
                time.sleep(10)
                looks.append(soak_curves.look(self._agent.pid, begin))
                one = looks[-1]
                print(f"{one.at:5.0f} s  {one.pss_bytes / 2**20:.0f} MiB  {one.all_descriptors} descriptors", file=sys.stderr, flush=True)
        written = self._turns * self._lines
        end = time.monotonic() + _DRAIN_SECONDS
        outcomes = {name: self._outcome(name, written, end) for name in self._writers}
        if self._log:
            self._log.write_text(self._agent.log)
        self._agent.stop(120)
        exact = all(one["missing"] == one["repeated"] == 0 for one in outcomes.values())
        return {"records_each": written, "exact": exact, "sources": outcomes, "curves": soak_curves.curves(looks)}

    def _work(self) -> None:
        while not self._stop.wait(_SECONDS):
            first = self._turns * self._lines + 1
            for write in self._writers.values():
                write(first, first + self._lines - 1)
            self._turns += 1

    def _directory(self, name: str) -> Path:
        path = self._root / name
        path.mkdir()
        return path

    def _define(self) -> None:
        logs, spool, objects = self._directory("logs"), self._directory("spool"), self._directory("objects")
        self._directory("done")
        self._database.execute("CREATE TABLE numbers (id bigint PRIMARY KEY, at timestamptz DEFAULT now())")
        with closing(sqlite3.connect(self._shop)) as connection:
            connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY)")
            connection.commit()
        (self._root / "soak_rows.py").write_text(_READER)
        to_number = [{"json": {}}, {"keep_fields": ["id"]}]
        own = {"url": self._database.url, "user": self._database.user, "password": self._database.password}
        query = {"query": "SELECT id FROM records WHERE id > 0", "schema": "id bigint"}
        sources: dict[str, tuple[dict[str, Any], list[Any]]] = {
            "logs": ({"type": "log_file", "include": [f"{logs}/plain.log"]}, to_number),
            "queried": ({"type": "log_file", "include": [f"{logs}/queried.log"]}, [{"json": {}}, {"sql": query}]),
            "spool": (
                {"type": "spool_dir", "dir": str(spool), "pattern": "*.jsonl", "format": "jsonl", "cleanup": {"policy": "delete"}},
                [],
            ),
            "objects": (
                {"type": "objects", "uri": f"file://{objects}/", "format": "jsonl", "min_age": "0s", "cleanup": {"policy": "delete"}},
                [],
            ),
            "journal": (
                {"type": "journald", "directory": str(self._root / "journal")},
                [{"keep_fields": ["MESSAGE"]}, {"rename": {"MESSAGE": "id"}}],
            ),
            "tables": ({"type": "jdbc", **own, "tables": ["public.numbers"], "mode": "incrementing", "poll_interval": "1s"}, []),
            "rows": ({"type": "datasource", "class": "soak_rows:Rows", "options": {"database": str(self._shop)}}, []),
        }
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for answer in admin.create_topics([NewTopic(topic, 1, 1) for topic in sources]).values():
            answer.result(30)
        for name, (source, steps) in sources.items():
            delivery = {"guarantee": "exactly_once"}
            self._agent.define(name, {"source": source, "transforms": steps, "record": {"topic": name}, "delivery": delivery})

    def _write_log(self, first: int, last: int) -> None:
        path = self._root / "logs/plain.log"
        if self._turns % 15 == 14 and path.exists():
            path.rename(path.with_name(f"plain.log.{self._turns}"))
        with path.open("a") as file:
            file.writelines(f'{{"id": {number}, "text": "a line of a log"}}\n' for number in range(first, last + 1))

    def _write_queried(self, first: int, last: int) -> None:
        with (self._root / "logs/queried.log").open("a") as file:
            file.writelines(f'{{"id": {number}}}\n' for number in range(first, last + 1))

    def _drop_file(self, first: int, last: int) -> None:
        self._drop("spool", first, last)

    def _put_object(self, first: int, last: int) -> None:
        self._drop("objects", first, last)

    def _drop(self, directory: str, first: int, last: int) -> None:
        path = self._root / directory / f".{first:09}.tmp"
        path.write_text("".join(f'{{"id": {number}}}\n' for number in range(first, last + 1)))
        path.rename(path.with_name(f"{first:09}.jsonl"))

    def _write_journal(self, first: int, last: int) -> None:
        self._journal.begin(entry | {"MESSAGE": str(first + index)} for index, entry in enumerate(lines(first, last)))

    def _insert(self, first: int, last: int) -> None:
        self._database.execute("INSERT INTO numbers SELECT generate_series(%s::bigint, %s::bigint)", first, last)

    def _add_rows(self, first: int, last: int) -> None:
        with closing(sqlite3.connect(self._shop)) as connection:
            connection.executemany("INSERT INTO rows VALUES (?)", [(number,) for number in range(first, last + 1)])
            connection.commit()

    def _outcome(self, topic: str, written: int, end: float) -> dict[str, int]:
        """Waits until all has come, or the time is over."""
        found, is_first = Counter[int](), True
        while is_first or (len(found) < written and time.monotonic() < end):
            time.sleep(0 if is_first else 1)
            is_first = False
            found = Counter(int(json.loads(one.value or b"{}")["id"]) for one in consume(self._bootstrap, topic, "read_committed"))
        missing = written - len(found.keys() & set(range(1, written + 1)))
        return {"records": found.total(), "missing": missing, "repeated": sum(found.values()) - len(found)}


if __name__ == "__main__":
    main()
