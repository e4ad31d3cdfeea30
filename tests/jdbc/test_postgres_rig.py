"""The databases of these tests are real, keep what was committed through stops and crashes, and go when they should."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest

from tests.rig.agent import is_alive
from tests.rig.h2 import fresh_h2
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from tests.rig.postgres import Database, Postgres

_OWNER = """
import time
from tests.rig.postgres import Postgres
with Postgres() as server:
    print(server.pid, server._directory, flush=True)
    time.sleep(600)
"""


def test_what_was_committed_survives_restarts_crashes_and_ended_sessions(own_postgres: Postgres) -> None:
    with own_postgres.database() as database:
        database.execute("CREATE TABLE item (id int, name text); INSERT INTO item VALUES (1, 'one')")
        database.execute("INSERT INTO item VALUES (%s, %s)", 2, "50 % of 'two'")
        url, first = database.url, own_postgres.pid
        own_postgres.restart()
        database.execute("INSERT INTO item VALUES (3, 'three')")
        own_postgres.restart("immediate")
        assert "automatic recovery in progress" in own_postgres.log
        wait_until(lambda: own_postgres.terminate_sessions() == 0, 60, "a session that was closed ends a moment later")
        assert database.execute("SELECT * FROM item ORDER BY id") == [(1, "one"), (2, "50 % of 'two'"), (3, "three")]
        assert (database.url, own_postgres.pid != first) == (url, True)


def test_a_session_that_is_ended_loses_what_it_had_not_committed(postgres: Postgres, database: Database) -> None:
    database.execute("CREATE TABLE item (id int)")
    postgres.terminate_sessions()
    with database.connect() as open_session:
        wait_until(lambda: is_alone(open_session), 60, "a session that was closed ends a moment later")
        open_session.execute("INSERT INTO item VALUES (1)")
        assert postgres.terminate_sessions() == 1
        with pytest.raises(psycopg.OperationalError, match="terminating connection"):
            open_session.execute("SELECT 1")
    assert database.execute("SELECT * FROM item") == []


def is_alone(session: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Whether the server has no other session."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    ((count,),) = session.execute(others).fetchall()
    session.rollback()  # a transaction sees them as they were
    return bool(count == 0)


def test_each_database_is_fresh_and_wants_the_password(postgres: Postgres, database: Database) -> None:
    with postgres.database() as other:
        other.execute("CREATE TABLE item (id int)")
        assert database.execute("SELECT count(*) FROM pg_class WHERE relname = 'item'") == [(0,)]
    assert postgres.execute("SELECT count(*) FROM pg_database WHERE datname = %s", other.name) == [(0,)]
    database.password = "wrong"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        database.connect()


def test_transaction_ids_wrap_around_and_rows_stay(own_postgres: Postgres) -> None:
    with own_postgres.database() as database:
        database.execute("CREATE TABLE item (id int); INSERT INTO item VALUES (0)")
        own_postgres.stop()
        own_postgres.reset_xid(2**32 - 20)
        own_postgres.start()
        for number in range(1, 41):
            database.execute("INSERT INTO item VALUES (%s)", number)
        ids = [int(xmin) for (xmin,) in database.execute("SELECT xmin FROM item WHERE id > 0 ORDER BY id")]
        assert 2**32 - 20 <= ids[0] < 2**32
        assert 3 < ids[-1] < 1000
        database.execute("DELETE FROM item WHERE id = 40")
        database.execute("VACUUM (FREEZE)")
        own_postgres.restart("immediate")
        assert database.execute("SELECT id FROM item ORDER BY id") == [(number,) for number in range(40)]
        own_postgres.stop()
        own_postgres.reset_xid(2**31, epoch=7)
        own_postgres.start()
        assert 7 * 2**32 + 2**31 <= database.execute("SELECT pg_current_xact_id()::text::bigint")[0][0] < 7 * 2**32 + 2**31 + 100
        assert database.execute("SELECT count(*) FROM item") == [(40,)]


def test_listens_on_loopback_only(postgres: Postgres) -> None:
    listening = [each.laddr.ip for each in psutil.Process(postgres.pid).net_connections() if each.status == psutil.CONN_LISTEN]
    assert listening == ["127.0.0.1"]


def test_dies_with_its_owner() -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as owner:
        try:
            assert owner.stdout is not None
            pid, directory = owner.stdout.readline().split()
            server = psutil.Process(int(pid))
            processes = [server, *server.children(recursive=True)]  # those end a moment later, and write until then
        finally:
            owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, processes)), 60, "PostgreSQL outlived its owner")
    subprocess.run(["rm", "-r", directory], check=True)


def test_h2_keeps_what_several_statements_wrote_in_one_go(tmp_path: Path) -> None:
    database = fresh_h2(tmp_path)
    database.execute(
        "CREATE TABLE item (id INT, name VARCHAR(20))", "INSERT INTO item VALUES (1, 'one'), (2, 'two')", "DELETE FROM item WHERE id = 1"
    )
    answer = database.execute("SELECT * FROM item")
    assert "two" in answer
    assert "one" not in answer
    with pytest.raises(AssertionError, match="NOWHERE"):
        database.execute("SELECT * FROM nowhere")
