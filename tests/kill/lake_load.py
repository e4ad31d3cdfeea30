"""The load of a kill loop of files from Kafka, below a directory or in a bucket whose server fails; and what is read of the files."""

from __future__ import annotations

import atexit
import sys
import time
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from botocore.exceptions import BotoCoreError, ClientError

from copycat_agent.sinks.file_names import parse_name
from tests.kill.topic_load import PARTITIONS, TopicLoad
from tests.lake.written import files_below
from tests.rig.failing_store import FailingStore
from tests.rig.hdfs import Hdfs
from tests.rig.object_store import ObjectStore
from tests.rig.verifier import View
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CONNECTOR = "lake"
_FAILING_SHARE = 0.1
"""Of the requests to a bucket."""


class LakeLoad(TopicLoad):
    """Into files below a directory."""

    roll: Mapping[str, object] = {"records": 200, "age": "700ms", "idle": "300ms"}
    look_seconds = 0.2
    """Between two looks at what is there."""

    def __init__(self, root: Path, run: str, per_second: int) -> None:
        super().__init__(root, run, per_second, CONNECTOR)
        self._out = root / "out"

    @property
    def uri(self) -> str:
        """Where the files go."""
        return f"file://{self._out}/"

    def keys(self, seen: set[str]) -> Iterator[str]:
        """Names of the files that are there, at least of those that are not in `seen`."""
        del seen
        yield from map(str, files_below(self._out))

    def read(self, key: str) -> bytes:
        """What is in a file."""
        return (self._out / key).read_bytes()


class BucketLoad(LakeLoad):
    """Into objects of a server that forgets them when it ends."""

    roll: Mapping[str, object] = {"records": 400, "age": "1500ms", "idle": "700ms"}
    look_seconds = 2.0

    def __init__(self, root: Path, run: str, per_second: int, dice: random.Random) -> None:
        super().__init__(root, run, per_second)
        self._store = ObjectStore(root)
        atexit.register(self._store.stop)
        self._store.start()
        self._front = FailingStore(self._store.endpoint, dice, _FAILING_SHARE, with_delays=True).__enter__()
        self._client = self._store.client

    @property
    def uri(self) -> str:
        return f"s3://{self._store.bucket}/lake/?endpoint_override={self._front.endpoint}&region=us-east-1"

    def keys(self, seen: set[str]) -> Iterator[str]:
        for partition in range(PARTITIONS):
            prefix = f"lake/{self.topic}/p={partition}/"
            after = max((one for one in seen if one.startswith(prefix)), default="")
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._store.bucket, Prefix=prefix, StartAfter=after):
                yield from (one["Key"] for one in page.get("Contents", ()))

    def read(self, key: str) -> bytes:
        data: bytes = self._client.get_object(Bucket=self._store.bucket, Key=key)["Body"].read()
        return data

    def _close(self) -> None:
        super()._close()
        print(f"requests to the bucket: {dict(self._front.done)}", file=sys.stderr, flush=True)


class HdfsLoad(LakeLoad):
    """Into files of HDFS."""

    roll: Mapping[str, object] = {"records": 400, "age": "1500ms", "idle": "700ms"}
    look_seconds = 2.0

    def __init__(self, root: Path, run: str, per_second: int) -> None:
        super().__init__(root, run, per_second)
        self._hdfs = Hdfs(root / "hdfs")
        atexit.register(self._hdfs.stop)
        self._hdfs.start()
        self._client = self._hdfs.client

    @property
    def uri(self) -> str:
        return f"{self._hdfs.url}/lake/"

    def keys(self, seen: set[str]) -> Iterator[str]:
        del seen
        with suppress(FileNotFoundError):
            yield from (one.path for one in self._client.list_status(f"/lake/{self.topic}", recursive=True) if not one.isdir)

    def read(self, key: str) -> bytes:
        data: bytes = self._client.read(key).read()
        return data


class _Row(NamedTuple):
    """A line of a file, as `View` looks at a message."""

    line: bytes
    written_ms: int

    def value(self) -> bytes:
        return self.line

    def timestamp(self) -> tuple[int, int]:
        return 1, self.written_ms

    def offset(self) -> int:
        return 0


class FilesView(View):
    """Follows the files of a load; each is read once, as it is never changed."""

    def __init__(self, load: LakeLoad, run: str) -> None:
        super().__init__("127.0.0.1:1", (), run, "read_committed", ordered=False)
        self._load = load
        self._seen: set[str] = set()

    def _work(self) -> None:
        while not self._stop.wait(self._load.look_seconds):
            with suppress(BotoCoreError, ClientError, OSError, RuntimeError):
                self.look(self._seen)

    def look(self, seen: set[str]) -> None:
        """Read the files that are new. `seen`: files that need not be listed."""
        with self._lock:
            for key in list(self._load.keys(seen)):
                if key in self._seen:
                    continue
                name = parse_name(PurePath(key).name)
                assert name is not None, key
                data = self._load.read(key)
                self._seen.add(key)
                for line in data.splitlines():
                    self._take(_Row(line, time.time_ns() // 10**6), (key, name.partition))  # type: ignore[arg-type]


class FilesVerifier:
    """As `verifier.Verifier`, of files: there is one view, what is seen is committed."""

    def __init__(self, load: LakeLoad, run: str) -> None:
        self.committed = FilesView(load, run)

    def wait_all(self, written: Mapping[str, int], deadline: float = 60.0, quiet: float = 20.0) -> bool:
        """See `Verifier.wait_all`."""
        del quiet
        try:
            wait_until(lambda: self.committed.has_all(written), deadline)
        except AssertionError:
            return False
        return True

    def finish(self, written: Mapping[str, int]) -> dict[str, Any]:
        """The verdict over all that is there."""
        self.committed.look(set())
        found = self.committed.verdict(written)
        same = {name: found[name] for name in ("delivered", "lost", "phantom", "corrupt")}
        return {"written": sum(written.values()), **found, "aborted": 0, "uncommitted": same}

    def __enter__(self) -> Self:
        self.committed.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.committed.__exit__()


def lake_definition(load: LakeLoad) -> dict[str, object]:
    """The connector: files of a few records each."""
    return {
        "source": {"type": "kafka", "topics": [load.topic], "poll_interval": "100ms"},
        "sink": {"type": "files", "uri": load.uri, "path": "{@topic}/p={@partition}", "format": "lines", "roll": dict(load.roll)},
        "delivery": {"tasks_max": 2},
    }
