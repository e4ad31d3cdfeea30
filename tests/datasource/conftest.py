"""What these tests work with: readers, and what became of their records."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import struct
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sources.datasource.reader_process import ReaderProcess
from tests.rig.kafka import consume
from tests.rig.shipping import Shipping, running_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs/extending.md"
BATCHES = Path(__file__).with_name("batches.py.txt")
"""Readers as people write them, without types."""


def shown(name: str) -> str:
    """The reader, or the definition, that docs/extending.md shows under this name, as it stands there."""
    blocks: list[str] = re.findall(r"```(?:python|yaml)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return next(block for block in blocks if block.startswith(f"# {name}\n"))


class Shop:
    """The table of orders that the page's reader reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, amount REAL)")

    def add(self, first: int, last: int) -> None:
        """Orders `first` to `last`, both included, at once."""
        rows = [(number, f"c{number % 7}", number / 2) for number in range(first, last + 1)]
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """An empty table."""
    return Shop(tmp_path / "shop.db")


@pytest.fixture
def readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the page's reader and those of `batches.py.txt`, which this process can import."""
    directory = tmp_path / "readers"
    directory.mkdir()
    (directory / "orders.py").write_text(shown("orders.py"), "utf-8")
    (directory / "batches.py").write_text(BATCHES.read_text("utf-8"), "utf-8")
    for name in ("orders", "batches"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(directory))
    return directory


@pytest.fixture
def here(readers: Path) -> dict[str, str]:
    """The environment in which a command can import the readers."""
    return {"PYTHONPATH": f"{PROJECT}:{readers}"}


@pytest.fixture
def shipping(tmp_path: Path, broker: DevBroker, readers: Path, make_topic: Callable[..., str]) -> Iterator[Shipping]:
    """A connector of the real worker on a real broker, whose batches run in this process; not started."""
    del readers
    with running_here(Shipping, tmp_path, "app", broker.bootstrap, make_topic()) as shipping:
        yield shipping


def of(kind: str, options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A source section."""
    return {"type": "datasource", "class": kind, "options": {name: str(value) for name, value in options.items()}, **more}


class UnhurriedStart(ReaderProcess):
    """Its time-out holds once it is up: what it imports takes long on a busy machine."""

    def __init__(self, name: str, options: dict[str, str], timeout: float) -> None:
        super().__init__(name, options, 100)
        self._timeout = timeout
        with socket.socket(fileno=os.dup(self._connection.fileno())) as connection:
            for direction in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                connection.setsockopt(socket.SOL_SOCKET, direction, struct.pack("ll", int(timeout), 0))


def arrived(bootstrap: str, topic: str, field: str = "id", count: int | None = None) -> list[Any]:
    """One field of every record that a read_committed reader finds, in the order of the topic."""
    return [json.loads(one.value or b"")[field] for one in consume(bootstrap, topic, "read_committed", count, 60.0)]
