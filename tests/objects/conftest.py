"""What these tests work with: a store of objects, or a tree of files, and a connector that follows it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import yaml

from tests.rig.cache import CACHE
from tests.rig.object_store import CREDENTIALS, ObjectStore, object_store
from tests.rig.shipping import Shipping, running_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 server; each test has a prefix of its own."""
    with object_store(tmp_path_factory.mktemp("store")) as store:
        yield store


class Place(Protocol):
    """A directory of objects."""

    @property
    def uri(self) -> str:
        """What a definition says."""

    def put(self, name: str, data: bytes) -> None:
        """Write one, in place of one that is there."""

    def delete(self, name: str) -> None:
        """Delete one."""

    def names(self) -> list[str]:
        """All that are there."""


class Bucket:
    """A directory of a bucket."""

    def __init__(self, store: ObjectStore, directory: str) -> None:
        self.store = store
        self.directory = directory
        self.uri = store.uri(f"{directory}/")

    def put(self, name: str, data: bytes) -> None:
        self.store.client.put_object(Bucket=self.store.bucket, Key=f"{self.directory}/{name}", Body=data)

    def delete(self, name: str) -> None:
        self.store.client.delete_object(Bucket=self.store.bucket, Key=f"{self.directory}/{name}")

    def names(self, directory: str = "") -> list[str]:
        prefix = f"{directory or self.directory}/"
        found = self.store.client.list_objects_v2(Bucket=self.store.bucket, Prefix=prefix).get("Contents", [])
        return [one["Key"].removeprefix(prefix) for one in found]


class Tree:
    """A directory of this host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.uri = f"file://{root}"

    def put(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.parent.parent / "beside"
        beside.write_bytes(data)
        os.utime(beside, ns=(time.time_ns(), time.time_ns()))
        beside.rename(path)

    def delete(self, name: str) -> None:
        (self.root / name).unlink()

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())


@pytest.fixture(params=["s3", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Both kinds of stores: one that lists behind a name and reads by version, and one that does neither."""
    if request.param == "file":
        return Tree(tmp_path / "tree")
    return Bucket(request.getfixturevalue("s3"), tmp_path.name)


@pytest.fixture
def bucket(s3: ObjectStore, tmp_path: Path) -> Bucket:
    """A directory of the S3 server."""
    return Bucket(s3, tmp_path.name)


crossed = pytest.mark.parametrize(
    ("place", "guarantee"),
    [
        ("s3", "exactly_once"),
        ("file", "at_least_once"),
        pytest.param("s3", "at_least_once", marks=pytest.mark.long),
        pytest.param("file", "exactly_once", marks=pytest.mark.long),
    ],
    indirect=["place"],
)
"""Each kind of store and each guarantee once, and with `-m long` both of each."""

LIST = b'<?xml version="1.0"?><ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>'


class Server(ThreadingHTTPServer):
    """`answer` makes each answer; `keys` are the access keys of those who asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Callable[[Handler], None] = lambda handler: handler.say(200, LIST)
        self.keys: list[str] = []

    @property
    def uri(self) -> str:
        """Address of a bucket of it."""
        return f"s3://b/?endpoint_override=http://127.0.0.1:{self.server_port}&region=us-east-1"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_GET(self) -> None:
        self.server.keys.append(self.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        self.server.answer(self)

    def do_DELETE(self) -> None:
        self.do_GET()

    def do_HEAD(self) -> None:
        self.do_GET()

    def say(self, status: int, body: bytes, *, length: int | None = None, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """It answers on loopback."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with Server() as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        try:
            yield one
        finally:
            one.shutdown()
            thread.join()


class Objects(Shipping):
    """A connector that follows a place."""

    def follow(self, place: Place, source: dict[str, Any] | None = None, *, until_idle: bool = False, **sections: Any) -> None:
        """Run it. `sections` are those of a definition."""
        self.start(until_idle=until_idle, source={"type": "objects", "uri": place.uri, "min_age": "0s", **(source or {})}, **sections)


@pytest.fixture
def shipping(tmp_path: Path, broker: DevBroker, make_topic: Callable[..., str]) -> Iterator[Objects]:
    """A connector of the real worker on a real broker, whose batches run in this process; not started."""
    with running_here(Objects, tmp_path, "objects", broker.bootstrap, make_topic()) as one:
        yield one


Done = subprocess.CompletedProcess[str]


class Command:
    """`copycat` as a process of its own, over `connectors.d/NAME.yaml` of a directory that its state is in, too."""

    def __init__(self, root: Path, bootstrap: str) -> None:
        self._root = root
        self._bootstrap = bootstrap
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(root), "NO_COLOR": "1", **CACHE, **CREDENTIALS}

    def define(self, name: str, source: dict[str, Any], topic: str, **sections: Any) -> Path:
        """Write a definition."""
        document = {"name": name, "source": {"type": "objects", **source}, "record": {"topic": topic}, **sections}
        path = self._root / "connectors.d" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        beside = path.with_suffix(".tmp")
        beside.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
        return beside.rename(path)

    def __call__(self, *arguments: object, state: bool = True, broker: bool = True) -> Done:
        """Run it to its end. `state`, `broker`: whether it takes an option that says where those are."""
        where = ["--state-dir", str(self._root / "state")] if state else []
        where += ["--bootstrap-servers", self._bootstrap] if broker else []
        command = [sys.executable, "-m", "copycat_agent", *map(str, arguments), *where]
        return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=self.environment, cwd=self._root)


@pytest.fixture
def copycat(tmp_path: Path, broker: DevBroker) -> Command:
    """The command, on a real broker."""
    return Command(tmp_path, broker.bootstrap)
