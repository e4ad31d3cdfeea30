"""The load of a kill loop of source `jdbc`: transactions of sixteen sessions in a PostgreSQL that is crashed now and then.

Rows of `inserts` are only added: by transactions that commit late, so that numbers become visible out of order, that roll back, or roll
back a part. Rows of `updates` are changed again and again, whether or not the version before was read. Each row holds a numbered line.
A line that is rolled back on purpose is called `undone`: it was never written. Which transaction was committed when a session or the
server ended in it, the table tells.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import psycopg

from tests.rig.ledger import make_line
from tests.rig.postgres import Postgres
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig.verifier import Verifier

CONNECTORS = ("inserts", "updates")
_SESSIONS = 16
_MOST_ROWS = 40
_CHANGED_ROWS = 20
"""Of each session in `updates`."""
_UPDATE_SHARE = 0.2
"""Of transactions, those that change rows besides."""
_SAVEPOINT_SHARE = 0.3
_UNDO_SHARE = 0.4
"""Of savepoints that are rolled back."""
_ROLLBACK_SHARE = 0.1
_LATE_SHARE = 0.15
_LATE_SECONDS = 5.0
_TROUBLE_SECONDS = (20.0, 60.0)
"""Between two times that sessions are ended, or the server crashes."""
_RESTART_SHARE = 0.4
_PAUSE_SECONDS = 120.0
_TICK_SECONDS = 0.05
logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of each session that was ended
_PAYLOAD = b"abcdefghijklmnopqrstuvwxyz =.,:"
_TABLES = """
CREATE TABLE IF NOT EXISTS inserts (id BIGSERIAL PRIMARY KEY, file TEXT NOT NULL, number BIGINT NOT NULL, line TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS updates (
    file TEXT PRIMARY KEY, number BIGINT NOT NULL, line TEXT NOT NULL, changed TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp())
"""
_INSERT = "INSERT INTO inserts (file, number, line) VALUES (%s, %s, %s)"
_UPDATE = """INSERT INTO updates (file, number, line) VALUES (%s, %s, %s)
ON CONFLICT (file) DO UPDATE SET number = excluded.number, line = excluded.line, changed = clock_timestamp()"""


class JdbcLoad:
    """As `both.Load`, with up to `per_second` rows in all. Use it as a context manager.

    The server's directory is not below `root`, but linked to from there: it has a user of its own.
    """

    has_spool = has_planner = False

    def __init__(self, root: Path, run: str, per_second: int) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.postgres = Postgres(keep=root / "postgres")
        self.done: Counter[str] = Counter()
        """Transactions by how they ended, and what was done to the server."""
        self.rotations = self.written_bytes = 0
        self._run_name = run
        self._pause_seconds = _SESSIONS * _MOST_ROWS / 2 / per_second
        self._written: dict[str, int] = {}
        self._verifier: Verifier | None = None
        self._stop, self._go = threading.Event(), threading.Event()
        self._go.set()
        self._lock = threading.Lock()
        self._busy = 0
        work = [(f"session-{number:02}", self._session) for number in range(_SESSIONS)] + [("trouble", self._trouble)]
        self._threads = [threading.Thread(target=self._safely, args=(one, name), name=name, daemon=True) for name, one in work]
        self._error: BaseException | None = None

    def watch(self, verifier: Verifier) -> None:
        """It knows what has arrived. To be called first."""
        self._verifier = verifier
        for session in range(_SESSIONS):
            for row in range(_CHANGED_ROWS):
                verifier.excuse(_changed(session, row))  # all but the last version

    def counts(self) -> dict[str, int]:
        """File -> its lines that are committed."""
        if self._error:
            raise self._error
        with self._lock:
            return dict(self._written)

    def pause(self) -> None:
        """Begin no transaction until `resume`. Returns when none is open."""
        self._go.clear()
        wait_until(lambda: self._error or not self._busy, _PAUSE_SECONDS, "a transaction does not end")

    def resume(self) -> None:
        """Go on."""
        self._go.set()

    def is_cleaned_up(self) -> bool:
        """Whether the last version of each changed row has arrived; those before it need not."""
        return not self._late_versions()

    def broken(self, _state: Path, _guarantee: str) -> list[str]:
        """Where the tables do not hold what the sessions say they have committed, and last versions that did not arrive."""
        told = [f"did not arrive: {one}" for one in self._late_versions()[:10]]
        if (held := self._held()) != (known := self.counts()):
            told.append(f"the tables hold other rows than were counted: {sorted(set(held.items()) ^ set(known.items()))[:10]}")
        return told

    def __enter__(self) -> Self:
        self.postgres.__enter__()
        try:
            self.postgres.execute(_TABLES)
            self._written = self._held()
        except BaseException:
            self.postgres.__exit__(None, None, None)
            raise
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._go.set()
        for thread in self._threads:
            thread.join()
        self.postgres.__exit__(None, None, None)
        if self._error:
            raise self._error

    def _held(self) -> dict[str, int]:
        """File -> lines, as the tables have them. Numbers of a file without a gap; repeats would be of a wrong load."""
        rows = self.postgres.execute("SELECT file, count(*), count(DISTINCT number), max(number) + 1 FROM inserts GROUP BY file")
        for file, *numbers in rows:
            assert len(set(numbers)) == 1, (file, numbers)
        return {row[0]: row[1] for row in rows} | dict(self.postgres.execute("SELECT file, number + 1 FROM updates"))

    def _late_versions(self) -> list[str]:
        assert self._verifier is not None
        view = self._verifier.committed
        last = {file: count - 1 for file, count in self.counts().items() if file.startswith("updates/")}
        return [f"{file}|{number}" for file, number in last.items() if not view.has(file, number)]

    # Sessions

    def _safely(self, work: Any, name: str) -> None:
        try:
            work(name)
        except BaseException as error:  # noqa: BLE001 - raised where it is seen
            self._error = error

    def _begun(self) -> bool:
        """Whether something may begin now: `_ended` says when it is over."""
        with self._lock:
            self._busy += self._go.is_set()
            return self._go.is_set()

    def _ended(self) -> None:
        with self._lock:
            self._busy -= 1

    def _session(self, name: str) -> None:
        number, dice = int(name.removeprefix("session-")), random.Random()
        connection: psycopg.Connection[Any] | None = None
        while not self._stop.wait(dice.uniform(0, 2 * self._pause_seconds)):
            if not self._begun():
                self._go.wait()
                continue
            try:
                written: dict[str, int] = {}
                try:
                    connection = connection or self.postgres.connect()
                    self._transact(connection, number, dice, written)
                except psycopg.Error:
                    self.done["interrupted"] += 1
                    connection = None
                    self._settle(written)
            finally:
                self._ended()
        if connection is not None:
            connection.close()

    def _transact(self, connection: psycopg.Connection[Any], session: int, dice: random.Random, written: dict[str, int]) -> None:
        """One transaction. `written`: file -> its lines with those of this transaction, once it is to be committed."""
        undone = dice.random() < _ROLLBACK_SHARE
        file, rows = f"inserts/{session:02}", dice.randint(1, _MOST_ROWS)
        first = number = self._written.get(file, 0)
        while rows:
            block = dice.randint(1, rows)
            rows -= block
            has_savepoint = dice.random() < _SAVEPOINT_SHARE
            is_undone = has_savepoint and dice.random() < _UNDO_SHARE
            if has_savepoint:
                connection.execute("SAVEPOINT one")
            lines = range(number, number + block)
            with connection.cursor() as cursor:
                cursor.executemany(_INSERT, [self._row(file, one, dice, undone=undone or is_undone) for one in lines])
            if is_undone:
                connection.execute("ROLLBACK TO SAVEPOINT one")
            elif has_savepoint and dice.random() < 0.5:
                connection.execute("RELEASE SAVEPOINT one")
            number += 0 if is_undone else block
        changed = self._change(connection, session, dice, undone=undone) if dice.random() < _UPDATE_SHARE else {}
        if dice.random() < _LATE_SHARE:
            self._stop.wait(dice.uniform(0, _LATE_SECONDS))
        if undone:
            connection.rollback()
            self.done["rolled back"] += 1
            return
        written |= changed | ({file: number} if number > first else {})
        connection.commit()
        self._note(written)
        self.done["committed"] += 1

    def _change(self, connection: psycopg.Connection[Any], session: int, dice: random.Random, *, undone: bool) -> dict[str, int]:
        files = [_changed(session, row) for row in dice.sample(range(_CHANGED_ROWS), dice.randint(1, 5))]
        numbers = {file: self._written.get(file, 0) for file in files}
        for file, number in numbers.items():
            connection.execute(_UPDATE, self._row(file, number, dice, undone=undone))
        return {file: number + 1 for file, number in numbers.items()}

    def _row(self, file: str, number: int, dice: random.Random, *, undone: bool) -> tuple[str, int, str]:
        payload = bytes(dice.choices(_PAYLOAD, k=dice.randint(10, 120)))
        line = make_line(self._run_name, f"{file}-undone" if undone else file, number, payload)
        return file, number, line.decode().removesuffix("\n")

    def _note(self, written: dict[str, int]) -> None:
        with self._lock:
            self._written |= written

    def _settle(self, written: dict[str, int]) -> None:
        """The session ended in a transaction: it is committed or not, and the table knows once the server answers again."""
        while written and not self._stop.is_set():
            with suppress(psycopg.Error):
                file, count = next(iter(written.items()))
                table = file.partition("/")[0]
                found = self.postgres.execute(f"SELECT max(number) + 1 FROM {table} WHERE file = %s", file)  # noqa: S608 - ours
                if found[0][0] == count:
                    self._note(written)
                return
            self._stop.wait(_TICK_SECONDS)

    def _trouble(self, _name: str) -> None:
        dice = random.Random()
        due = time.monotonic() + dice.uniform(*_TROUBLE_SECONDS)
        while not self._stop.wait(_TICK_SECONDS):
            if time.monotonic() < due or not self._begun():
                continue
            try:
                if dice.random() < _RESTART_SHARE:
                    self.postgres.restart("immediate")
                    self.done["crashes"] += 1
                else:
                    with suppress(psycopg.Error):
                        self.done["sessions ended"] += self.postgres.terminate_sessions()
            finally:
                self._ended()
            due = time.monotonic() + dice.uniform(*_TROUBLE_SECONDS)


def _changed(session: int, row: int) -> str:
    return f"updates/{session:02}-{row:02}"


def jdbc_definitions(load: JdbcLoad, topics: dict[str, str], guarantee: str) -> dict[str, dict[str, object]]:
    """Name -> connector."""
    modes: dict[str, dict[str, object]] = {
        "inserts": {"mode": "incrementing"},
        "updates": {"mode": "timestamp", "columns": {"timestamp": "changed"}},
    }
    server = load.postgres
    return {
        name: {
            "source": {
                "type": "jdbc",
                "url": server.url,
                "user": server.user,
                "password": server.password,
                "tables": [f"public.{name}"],
                "poll_interval": "300ms",
                **modes[name],
            },
            "record": {"topic": topics[name], "key": "{file}", "value": "{line}"},
            "delivery": {"tasks_max": 2, "max_batch_bytes": "256KiB", "guarantee": guarantee},
        }
        for name in CONNECTORS
    }
