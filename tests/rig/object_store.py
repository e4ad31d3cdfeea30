"""An S3 server over real HTTP on loopback: moto in server mode, with one bucket."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import boto3
import pytest
from pyarrow import fs

from copycat_agent.dev_broker import free_port
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret-9f3", "AWS_EC2_METADATA_DISABLED": "true"}
"""To be set in the environment of who reads and writes."""


@contextlib.contextmanager
def object_store(directory: Path) -> Iterator[ObjectStore]:
    """One that runs, with its credentials in the environment of this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with ObjectStore(directory) as store:
            yield store


class ObjectStore:
    """Whoever uses it needs `CREDENTIALS` in its environment, this process as well."""

    def __init__(self, directory: Path, bucket: str = "logs") -> None:
        self.bucket = bucket
        self._port = free_port()
        self._log = directory / "object-store.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def query(self) -> str:
        """Options behind an address, from the question mark on."""
        return f"?endpoint_override={self.endpoint}&scheme=http&region=us-east-1&allow_bucket_creation=true"

    def uri(self, name: str) -> str:
        """Address of an object, or of a pattern."""
        return f"s3://{self.bucket}/{name}{self.query}"

    def put(self, name: str, data: bytes) -> None:
        """Write an object, in place of one that is there."""
        with self._files.open_output_stream(f"{self.bucket}/{name}", compression=None) as out:
            out.write(data)

    @cached_property
    def client(self) -> Any:
        """boto3's, for names that pyarrow does not write, and for what becomes of objects."""
        secrets = {"aws_access_key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", **secrets)

    @property
    def requests(self) -> list[str]:
        """Method and path of each request that it has answered."""
        return re.findall(r'"((?:GET|HEAD|PUT|POST|DELETE) \S+) HTTP', self._log.read_text("utf-8", "replace"))

    def put_elsewhere_in_time(self, name: str, data: bytes) -> None:
        """As `put`, in another second than it was written before: that is how fine the store's clock is."""
        before = self._files.get_file_info(f"{self.bucket}/{name}").mtime
        while time.time() < before.timestamp() + 1.01:
            time.sleep(0.05)
        self.put(name, data)

    def delete(self, name: str) -> None:
        """Delete an object."""
        self._files.delete_file(f"{self.bucket}/{name}")

    def start(self) -> None:
        """It answers, and has nothing but an empty bucket."""
        command = [sys.executable, "-P", str(Path(__file__).with_name("s3_server.py")), str(self._port)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **CREDENTIALS})
        try:
            wait_until(self._answers, 60, lambda: self._log.read_text("utf-8", "replace")[-2000:])
            self._files = fs.FileSystem.from_uri(f"s3://{self.bucket}{self.query}")[0]
            self._files.create_dir(self.bucket)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """It answers no more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        """Start, and make the bucket."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop."""
        self.stop()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False
