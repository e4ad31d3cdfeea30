"""Random histories of a table of PostgreSQL, and a source that reads it meanwhile: what it delivered, and what was committed."""

# ruff: noqa: S608 - the statements are the tests' own

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from psycopg.types.string import TextLoader

from copycat_agent.extending import Found, Gone
from copycat_agent.sources.contract_stream import one_by_one
from copycat_agent.sources.jdbc import database as jdbc_database
from copycat_agent.sources.jdbc import snapshot_reader
from copycat_agent.sources.jdbc.database import ColumnInfo, TableInfo
from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions
from copycat_agent.sources.jdbc.jdbc_source import JdbcSource
from copycat_agent.sources.jdbc.statements import PACKED

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import pytest

    from copycat_agent.extending import Stretch

    Connection = psycopg.Connection[tuple[Any, ...]]

_TYPES = {"bigint": "int8", "text": "text", "timestamp with time zone": "timestamptz", "numeric": "numeric", "uuid": "uuid"}
_COLUMNS = """SELECT column_name, data_type FROM information_schema.columns
    WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
_KEY = """SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
    WHERE indisprimary AND indrelid = %s::regclass ORDER BY array_position(indkey, attnum)"""


class OverPsycopg(jdbc_database.Database):
    """Without Spark."""

    def __init__(self, options: JdbcOptions, connection: Connection, *tables: str) -> None:
        super().__init__(options)
        self._session = connection
        connection.adapters.register_loader("timestamptz", TextLoader)  # which may be infinite
        self._names = [("public", one) for one in tables]

    def rows(self, query: str) -> list[list[str | None]]:
        return [[None if value is None else str(value).lower() for value in row] for row in self._session.execute(query.encode())]

    def tables(self) -> list[tuple[str, ...]]:
        return list(self._names)

    def table(self, name: tuple[str, ...]) -> TableInfo | None:
        columns = self._session.execute(_COLUMNS, name).fetchall()
        key = self._session.execute(_KEY, [f"{name[0]}.{name[1]}"]).fetchall()
        found = tuple(ColumnInfo(column, _TYPES[kind], 0, 0, nullable=True) for column, kind in columns)
        return TableInfo(name, found, tuple(column for (column,) in key))

    def frame(self, stretch: Stretch) -> pa.RecordBatch:
        """What Spark would read."""
        cursor = self._session.execute(stretch.work)
        names = [column.name for column in cursor.description or ()]
        rows = cursor.fetchall()
        if "packed" in stretch.end:
            texts = pa.array([text for (text,) in rows], pa.string())
            return pa.RecordBatch.from_arrays([texts], names=[PACKED + json.dumps(stretch.end["packed"])])
        return pa.RecordBatch.from_pydict({name: [row[index] for row in rows] for index, name in enumerate(names)})

    def close(self) -> None:
        """The test has the connection."""


class Reader:
    """A source and what is saved of it. What it `delivered` is the values of column `v`, in order."""

    def __init__(self, connection: Connection, options: dict[str, Any], *tables: str) -> None:
        self.options = JdbcOptions(url="jdbc:postgresql://127.0.0.1/x", tables=("*",), **options)
        self._database = OverPsycopg(self.options, connection, *tables)
        self.saved: dict[str, Any] = {}
        self.delivered: list[int] = []
        self.troubles: list[str] = []
        self.restart()

    def restart(self) -> None:
        """As after a crash: only what is saved is known."""
        self._source = JdbcSource(self.options, self._database)
        self._found: list[Found] = []

    def look(self) -> bool:
        """Returns whether something is to be read."""
        self.troubles, self._found = [], []
        for one in self._source.look(dict(self.saved), to_the_end=False):
            if isinstance(one, Gone):
                del self.saved[one.key]
            elif isinstance(one, Found):
                self._found += [one] * (one.key in self.saved)
                self.saved.setdefault(one.key, one.start)
                self.troubles += [one.trouble] * bool(one.trouble)
        return bool(self.readable())

    def readable(self) -> list[str]:
        """Keys of the partitions in which the last look found something."""
        return sorted(one.key for one in self._found if self._source.plan(one, self.saved[one.key]))

    def read(self, rng: random.Random, crashes: float = 0.2) -> None:
        """A batch of each partition in which there is something, or a part of it, of which all is saved or nothing."""
        for found in rng.sample(self._found, len(self._found)):
            stretch = self._source.plan(found, self.saved[found.key])
            if stretch is None:
                continue
            pairs = list(one_by_one(self._source.read(stretch, [self._database.frame(stretch)])))
            count = rng.choice([len(pairs), len(pairs), rng.randint(0, len(pairs))])
            position = pairs[count - 1][1] if count else None
            if rng.random() >= crashes:
                self.saved[found.key] = self._source.apply(stretch, position, finished=count == len(pairs))
                self.delivered += [fields["v"] for fields, _ in pairs[:count] if isinstance(fields, dict)]
            else:
                self.restart()

    def read_beside_a_look(self, meanwhile: Callable[[], object], rng: random.Random) -> None:
        """Read what is there, of one table, with a look from before the first batch that ends behind it, as the agent goes on."""
        assert self.look()
        (first,) = self._found
        stretch = self._source.plan(first, self.saved[first.key])
        assert stretch is not None
        meanwhile()
        (second,) = [one for one in self._source.look(dict(self.saved), to_the_end=False) if isinstance(one, Found)]
        pairs = list(one_by_one(self._source.read(stretch, [self._database.frame(stretch)])))
        self.saved[first.key] = self._source.apply(stretch, pairs[-1][1], finished=True)
        self.delivered += [fields["v"] for fields, _ in pairs if isinstance(fields, dict)]
        self._found = [second]
        while self._source.plan(second, self.saved[second.key]):
            self.read(rng, crashes=0)

    def next_query(self) -> bytes:
        """What the next batch asks for."""
        self.look()
        stretches = (self._source.plan(one, self.saved[one.key]) for one in self._found)
        return next(one.work for one in stretches if one is not None)

    def read_quickly(self, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        """Read what is there above the floor."""
        monkeypatch.setattr(snapshot_reader, "FULL_SHARE", 10**9)
        self.restart()
        self.look()  # a full one
        while self.look():
            self.read(rng, crashes=0)

    def drain(self, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        """Read all there is."""
        monkeypatch.setattr(snapshot_reader, "FULL_SHARE", 0)
        self.restart()
        idle = 0
        while idle < 3:
            idle = 0 if self.look() else idle + 1
            self.read(rng)


class Writer:
    """A session, and which versions of rows it has written in each of its open subtransactions."""

    def __init__(self, connection: Connection, table: str, numbers: itertools.count[int]) -> None:
        self._connection = connection
        self.table = table
        self._numbers = numbers
        self._open: list[list[int]] = []
        self._prepared: dict[str, list[int]] = {}
        self.committed: list[int] = []

    def step(self, rng: random.Random) -> None:
        """Something that the session may do now."""
        if not self._open:
            if self._prepared and rng.random() < 0.5:
                self._end_prepared(rng)
                return
            self._do("BEGIN")
            self._open = [[]]
        choices = [self._insert, self._insert, self._change, self._change, self._delete, self._savepoint, self._caught]
        choices += [self._commit, self._commit, self._roll_back, self._prepare]
        if len(self._open) > 1:
            choices += [self._release, self._roll_back_to] * 2
        rng.choice(choices)(rng)

    def end(self, rng: random.Random) -> None:
        """Nothing stays open."""
        if self._open:
            rng.choice([self._commit, self._roll_back])(rng)
        while self._prepared:
            self._end_prepared(rng)

    def _do(self, statement: str, *params: Any) -> int:
        return self._connection.execute(statement.replace("$t", self.table).encode(), params or None).rowcount

    def _insert(self, rng: random.Random) -> None:
        for _ in range(rng.randint(1, 3)):
            number = next(self._numbers)
            self._do(f"INSERT INTO $t (v, ts) VALUES (%s, {_moment(rng)})", number)
            self._open[-1].append(number)

    def _change(self, rng: random.Random) -> None:
        number = next(self._numbers)
        if self._do(f"UPDATE $t SET v = %s, ts = {_moment(rng)} WHERE {_one_row(rng)}", number):
            self._open[-1].append(number)

    def _delete(self, rng: random.Random) -> None:
        self._do(f"DELETE FROM $t WHERE {_one_row(rng)}")

    def _savepoint(self, rng: random.Random) -> None:
        del rng
        self._do(f"SAVEPOINT s{len(self._open)}")
        self._open.append([])

    def _caught(self, rng: random.Random) -> None:
        """A block of plpgsql whose first part is rolled back, and the second is not."""
        lost, kept = next(self._numbers), next(self._numbers)
        block = f"BEGIN INSERT INTO $t (v, ts) VALUES ({lost}, {_moment(rng)}); RAISE EXCEPTION 'x'; EXCEPTION WHEN OTHERS THEN NULL; END"
        self._do(f"DO $$ BEGIN {block}; BEGIN INSERT INTO $t (v) VALUES ({kept}); EXCEPTION WHEN OTHERS THEN NULL; END; END $$")
        self._open[-1].append(kept)

    def _release(self, rng: random.Random) -> None:
        del rng
        written = self._open.pop()
        self._do(f"RELEASE s{len(self._open)}")
        self._open[-1] += written

    def _roll_back_to(self, rng: random.Random) -> None:
        depth = rng.randint(1, len(self._open) - 1)
        self._do(f"ROLLBACK TO s{depth}")
        self._open[depth:] = [[]]

    def _commit(self, rng: random.Random) -> None:
        del rng
        self._do("COMMIT")
        self.committed += itertools.chain(*self._open)
        self._open = []

    def _roll_back(self, rng: random.Random) -> None:
        del rng
        self._do("ROLLBACK")
        self._open = []

    def _prepare(self, rng: random.Random) -> None:
        del rng
        name = f"{self.table}_{next(self._numbers)}"
        self._do(f"PREPARE TRANSACTION '{name}'")
        self._prepared[name] = list(itertools.chain(*self._open))
        self._open = []

    def _end_prepared(self, rng: random.Random) -> None:
        name = rng.choice(list(self._prepared))
        written, word = self._prepared.pop(name), rng.choice(["COMMIT", "ROLLBACK"])
        self._do(f"{word} PREPARED '{name}'")
        self.committed += written if word == "COMMIT" else []


def _one_row(rng: random.Random) -> str:
    """Condition: one that no other session has locked."""
    found = f"SELECT tableoid, ctid FROM $t WHERE id = {rng.randint(1, 12)} LIMIT 1 FOR UPDATE SKIP LOCKED"
    return f"(tableoid, ctid) IN ({found})"


def _moment(rng: random.Random) -> str:
    return rng.choice(["clock_timestamp()"] * 4 + ["now()", "now() - interval '1 day'", "now() + interval '1 hour'", "NULL", "'infinity'"])


_SHAPES = {
    "key": "CREATE TABLE {t} (id bigserial PRIMARY KEY, v bigint, ts timestamptz)",
    "two keys": "CREATE TABLE {t} (id bigserial, v bigint DEFAULT 0, ts timestamptz, part text DEFAULT 'x', PRIMARY KEY (part, id))",
    "no key": "CREATE TABLE {t} (id bigserial, v bigint, ts timestamptz)",
    "partitioned": "CREATE TABLE {t} (id bigserial PRIMARY KEY, v bigint, ts timestamptz) PARTITION BY HASH (id); {parts}",
    "partitioned, no key": "CREATE TABLE {t} (id bigserial, v bigint, ts timestamptz) PARTITION BY HASH (id); {parts}",
    "inherited": "CREATE TABLE {t} (id bigserial PRIMARY KEY, v bigint, ts timestamptz); "
    "CREATE TABLE {t}_child (PRIMARY KEY (id)) INHERITS ({t}); INSERT INTO {t} (id, v) VALUES (1, -1), (2, -2); "
    "INSERT INTO {t}_child (id, v) VALUES (1, -3), (2, -4); SELECT setval('{t}_id_seq', 2)",
}


def play(writers: list[Writer], reading: Connection, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """One history, and its table dropped. AssertionError where a row that stays did not come once, or one came that was not committed."""
    table, shape = writers[0].table, rng.choice(list(_SHAPES))
    parts = "; ".join(f"CREATE TABLE {table}_{n} PARTITION OF {table} FOR VALUES WITH (MODULUS 2, REMAINDER {n})" for n in range(2))
    reading.execute(_SHAPES[shape].format(t=table, parts=parts).encode())
    options: dict[str, Any] = {"mode": rng.choice(["incrementing", "timestamp", "timestamp_and_incrementing"])}
    options |= {"columns": {"incrementing": "id", "timestamp": "ts"}, "batch_rows": rng.randint(1, 5), "partitions": rng.randint(1, 3)}
    reader = Reader(reading, options, table)
    for _ in range(rng.randint(10, 40)):
        if rng.random() < 0.6:
            rng.choice(writers).step(rng)
            continue
        monkeypatch.setattr(snapshot_reader, "FULL_SHARE", rng.choice([0, 10**9]))
        rng.choice([reader.look, reader.look, lambda: reader.read(rng), lambda: reader.read(rng), reader.restart])()
        if rng.random() < 0.05:
            with contextlib.suppress(psycopg.errors.LockNotAvailable):
                reading.execute("SET lock_timeout = 1")  # a transaction that stays open has the table locked
                reading.execute(f"VACUUM (FREEZE) {table}".encode())
            reading.execute("RESET lock_timeout")
    for one in writers:
        one.end(rng)
    reader.drain(rng, monkeypatch)
    stays = {v for (v,) in reading.execute(f"SELECT v FROM {table}".encode())}
    counts = Counter(reader.delivered)
    told = f"{shape}, {options}: "
    assert not stays - counts.keys(), f"{told}missing {stays - counts.keys()}"
    assert not (twice := [v for v, count in counts.items() if count > 1]), f"{told}repeated {twice}"
    committed = {v for one in writers for v in one.committed} | {-1, -2, -3, -4}
    assert counts.keys() <= committed, f"{told}never committed: {counts.keys() - committed}"
    reading.execute(f"DROP TABLE {table} CASCADE".encode())
    return reader
