"""The stores that the tests of this directory run on."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from copycat_agent.dev_broker import free_port
from copycat_agent.sinks.sink_stores import SinkStore, store_at
from tests.rig.hdfs import Hdfs
from tests.rig.object_store import CREDENTIALS, object_store
from tests.rig.waiting import wait_until

VERSITYGW = shutil.which("versitygw") or "/tmp/gw/versitygw"
"""An S3 server over a directory; where it is not there its tests are skipped."""


@pytest.fixture(scope="session")
def moto_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a bucket of moto's server."""
    with object_store(tmp_path_factory.mktemp("moto")) as store:
        yield f"s3://logs/{{}}?endpoint_override={store.endpoint}&region=us-east-1"


@pytest.fixture(scope="session")
def versitygw_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a bucket of versitygw's."""
    if not Path(VERSITYGW).exists():
        pytest.skip("versitygw is not installed")
    root, port = tmp_path_factory.mktemp("versitygw"), free_port()
    keys = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    command = [VERSITYGW, "--access", keys[0], "--secret", keys[1], "--port", f"127.0.0.1:{port}", "posix", str(root)]
    with pytest.MonkeyPatch.context() as patch, (root.parent / "versitygw.log").open("wb") as log:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as server:
            try:
                wait_until(lambda: _answers(port))
                client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1")
                client.create_bucket(Bucket="lake")
                yield f"s3://lake/{{}}?endpoint_override=http://127.0.0.1:{port}&region=us-east-1"
            finally:
                server.kill()


@pytest.fixture(scope="session")
def hdfs_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a directory of HDFS."""
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as hdfs:
        yield f"{hdfs.url}/lake/{{}}"


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture(params=["directory", "moto", "versitygw", pytest.param("hdfs", marks=pytest.mark.long)])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of an empty store."""
    if request.param == "directory":
        return f"file://{tmp_path}/lake"
    found: str = request.getfixturevalue(f"{request.param}_uri")
    return found.format(tmp_path.name)


@pytest.fixture
def store(uri: str) -> SinkStore:
    """An empty store."""
    return store_at(uri)
