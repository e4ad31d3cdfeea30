"""What these tests work with: a store of objects, or a tree of files, and a connector that follows it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.rig.object_store import ObjectStore, object_store
from tests.rig.shipping import Shipping, running_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
