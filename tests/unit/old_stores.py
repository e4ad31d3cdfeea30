"""State directories and offsets topics that earlier versions have left, as files in `version_N` beside this one."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from copycat_agent.errors import RetriableError
from copycat_agent.offsets import OffsetStore, schema
from copycat_agent.transactions.protocol import Entry
from tests.unit.worker.test_names import Host

NOTHING = Entry(b"[]", None)


def _data(version: int) -> Path:
    return Path(__file__).with_name(f"version_{version}")


def topic_of(version: int) -> dict[str, Any]:
    """What the offsets topic held, and where each connector has to go on."""
    told: dict[str, Any] = json.loads((_data(version) / "topic.json").read_text())
    return told


def old_store(version: int, state: Path) -> Path:
    """A state directory as that version has left it."""
    state.mkdir(mode=0o700)
    with closing(sqlite3.connect(state / "offsets.db")) as connection:
        connection.executescript((_data(version) / "offsets.sql").read_text())
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
    shutil.copy(_data(version) / "identity.json", state)
    return state


def upgraded(version: int, state: Path) -> Host:
    """This version on that state directory, and the topic as it is."""
    host, topic = Host(), topic_of(version)
    host.store = OffsetStore.open(state)
    host.kafka.partitions = topic["partitions"]
    host.kafka.cluster = host.store.lanes("orders").cluster
    for partition, offset, key, value in topic["records"]:
        while len(host.kafka.log) <= offset:  # offsets that the store knows are lower bounds of where entries stand
            host.kafka.append([NOTHING])
        host.kafka.append([Entry(key.encode(), None if value is None else value.encode())])
        assert partition < host.kafka.partitions
    return host


def open_killed(host: Host, name: str, commits: int) -> None:
    """Open a connector; the agent dies before or after (odd) its commit number `commits // 2`, and another one opens it."""
    left = commits // 2

    def killed(step: str) -> None:
        nonlocal left
        left -= step == "commit"
        if left < 0:
            host.kafka.at_step = lambda _: None
            host.kafka.fail_commit(after=bool(commits % 2))

    host.kafka.at_step = killed
    try:
        host.open(name)
    except RetriableError:
        host.kafka.at_step = lambda _: None
        host.open(name)


class KilledError(Exception):
    """The process ends here."""


class Dying(sqlite3.Connection):
    """Its process ends before statement number `left`."""

    left = 0

    def execute(self, *told: Any) -> sqlite3.Cursor:
        self._die()
        return super().execute(*told)

    def executemany(self, *told: Any) -> sqlite3.Cursor:
        self._die()
        return super().executemany(*told)

    def _die(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KilledError


def migrate_dying(database: Path, count: int) -> bool:
    """Migrate the store; the process ends before statement number `count`. Returns whether it came to its end before."""
    with closing(sqlite3.connect(database, isolation_level=None, factory=Dying)) as connection:
        assert isinstance(connection, Dying)
        connection.left = count
        try:
            schema.migrate(connection)
        except KilledError:
            return False
    return True
