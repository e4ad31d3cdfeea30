"""What the commands say of a database. None of them needs Kafka."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from copycat_agent.cli import check
from copycat_agent.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.rig.postgres import Database

pytestmark = pytest.mark.timeout(300)
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def one_spark() -> Iterator[None]:
    """The commands that run in this process share a Spark."""
    with check.spark_sql(None) as sql, pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "spark_sql", lambda _: contextlib.nullcontext(sql))
        yield


@pytest.fixture(params=["here", pytest.param("alone", marks=pytest.mark.long)])
def copycat(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Done]:
    """`copycat("check", ...)`, in this process, or as a process of its own with a Spark of its own."""
    environment = {"NO_COLOR": "1", "COLUMNS": "200"}
    if request.param == "here":
        request.getfixturevalue("one_spark")

    def call(*arguments: object) -> Done:
        words = [*map(str, arguments), *([] if arguments[0] == "try" else ["--state-dir", str(tmp_path / "state")])]
        if request.param == "alone":
            command = [sys.executable, "-m", "copycat_agent", *words]
            return subprocess.run(
                command, capture_output=True, text=True, timeout=170, check=False, env=os.environ | environment, cwd=tmp_path
            )
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        try:
            done = CliRunner().invoke(app, words, env=environment)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return subprocess.CompletedProcess([], done.exit_code, done.stdout, done.stderr)

    return call


@pytest.fixture
def define(tmp_path: Path, database: Database) -> Callable[..., Path]:
    """`define(name="shop", source options)` writes connectors.d/NAME.yaml, for a table of three orders."""
    database.execute("CREATE TABLE orders (id bigserial PRIMARY KEY, customer text, amount numeric(10, 2))")
    database.execute("INSERT INTO orders (customer, amount) VALUES ('ann', 1.50), ('', NULL), ('eve', 12345678.99)")

    def write(name: str = "shop", key: str = "{id}", **source: Any) -> Path:
        path = tmp_path / f"connectors.d/{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        own = {"url": database.url, "user": database.user, "password": database.password}
        chosen = {"type": "jdbc", **own, "tables": ["public.orders"], "mode": "incrementing", **source}
        kafka = {"bootstrap_servers": ["127.0.0.1:1"]}
        document = {"name": name, "source": chosen, "record": {"topic": "shop.{@file.name}", "key": key}, "kafka": kafka}
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    return write


def test_try_shows_rows_as_they_would_be_sent(copycat: Callable[..., Done], define: Callable[..., Path]) -> None:
    done = copycat("try", "-d", define(), "-n", "2")
    assert done.returncode == 0, done.stderr
    assert '"ann"' in done.stdout
    assert "shop.public.orders" in done.stdout
    assert "2 records in: 2 out" in done.stderr


def test_doctor_names_the_database_its_tables_and_what_is_wrong_and_never_the_password(
    copycat: Callable[..., Done], define: Callable[..., Path]
) -> None:
    define("late", mode="timestamp", columns={"timestamp": "changed"})
    define("locked", password="canary-of-a-password")
    done = copycat("doctor", define().parent)
    for words in ("PostgreSQL", "public.orders", "table public.orders has no column changed", "source.user and source.password"):
        assert words in done.stdout
    assert "canary" not in done.stdout + done.stderr


def test_plan_and_a_dry_run_read_and_move_nothing_and_a_primary_key_is_a_field_of_its_own(
    copycat: Callable[..., Done], define: Callable[..., Path], database: Database, tmp_path: Path
) -> None:
    database.execute('CREATE TABLE lines (id bigint, "line|no" int, what text, PRIMARY KEY (id, "line|no"))')
    database.execute("INSERT INTO lines VALUES (7, 1, 'a')")
    define("keys", "{_key}", tables=["public.*"], mode="bulk", key_field="_key")
    directory = define().parent
    dry = copycat("run", directory, "--dry-run")
    found = [json.loads(line) for line in dry.stdout.splitlines()]
    assert sorted(one["key"] for one in found if one["connector"] == "keys") == ["1", "2", "3", "7|1"]
    values = [json.loads(one["value"]) for one in found if one["connector"] == "shop"]
    assert [(one["id"], one["customer"], one["amount"]) for one in values] == [(1, "ann", 1.5), (2, "", None), (3, "eve", 12345678.99)]
    planned = copycat("plan", directory)
    assert planned.returncode == 0, planned.stderr
    assert "public.orders" in planned.stdout
    assert not (tmp_path / "state").exists()
