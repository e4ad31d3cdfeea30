"""A server on a real unix socket (and a port), and clients of it."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from copycat_agent import api as api_client
from copycat_agent.api import AgentClient, rate_history
from copycat_agent.api.port_access import line_of
from copycat_agent.api.server import ApiServer
from tests.rig.threads import NewThreads
from tests.unit.api.doubles import MemoryControl

DEFINITION = """\
name: app
source:
  type: log_file
  include: [/var/log/app.log]
record: {topic: logs.app, headers: {host: h1}}
transforms:
  - drop_if: {path: /healthz}
converters:
  value: json
"""


PASSWORD = "s3cret-Zq7"


CLIENT_SECONDS = 60.0
"""How long a client of these tests waits for what comes at once where a machine is not busy."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait for a busy machine, and no rate is known by the time that something is looked at."""
    monkeypatch.setattr(api_client, "ANSWER_SECONDS", CLIENT_SECONDS)
    monkeypatch.setattr(rate_history, "LOOK_SECONDS", 3600.0)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "connectors.d"
    made.mkdir()
    (made / "app.yaml").write_text(DEFINITION)
    return made


@pytest.fixture
def control(directory: Path) -> MemoryControl:
    return MemoryControl(directory)


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "agent.sock"


@pytest.fixture
def threads() -> NewThreads:
    """Made before the server is, so that its threads are among them."""
    return NewThreads()


@pytest.fixture
def server(control: MemoryControl, socket_path: Path, threads: NewThreads) -> Iterator[ApiServer]:
    server = ApiServer(control, socket_path)
    server.start()
    yield server
    control.hold.set()
    server.close()


@pytest.fixture
def client(server: ApiServer, socket_path: Path) -> AgentClient:
    return AgentClient(socket_path)


def connect(path: Path, *, at_once: bool = True) -> socket.socket:
    """A bare connection; one to be, with `at_once` False."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(CLIENT_SECONDS)
    if at_once:
        made.connect(str(path))
    return made


@pytest.fixture
def send(server: ApiServer, socket_path: Path) -> Callable[..., Answer]:
    """`send("GET", "/v1", body=b"", Host="x")`: any request, as any client could send it."""

    def call(method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("localhost", timeout=CLIENT_SECONDS)
        connection.sock = connect(socket_path)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
            for name, value in ({"Content-Length": str(len(body))} if body is not None else {}).items():
                connection.putheader(name, value)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            if body:
                connection.send(body)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    return call


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(f"# who may ask\n\n{line_of('prometheus', PASSWORD, 1000)}\n{line_of('größe', 'p:w', 1000)}\n", "utf-8")
    return path


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture(scope="session")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two self-signed certificates for localhost: `1.crt` and `1.key`, `2.crt` and `2.key`; and `locked.key`, which has a password."""
    directory = tmp_path_factory.mktemp("pems")
    for number in "12":
        made = ["-keyout", f"{number}.key", "-out", f"{number}.crt", "-days", "2", "-subj", f"/CN=localhost{number}"]
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *made, *names]
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
    locked = ["openssl", "pkey", "-in", "1.key", "-aes256", "-passout", "pass:x", "-out", "locked.key"]
    subprocess.run(locked, cwd=directory, check=True, capture_output=True)
    return directory


def trusting(pems: Path, number: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pems / f"{number}.crt"))


@pytest.fixture
def pair(pems: Path, tmp_path: Path) -> dict[str, str]:
    for kind in ("crt", "key"):
        shutil.copy(pems / f"1.{kind}", tmp_path / f"port.{kind}")
    return {"cert_file": str(tmp_path / "port.crt"), "key_file": str(tmp_path / "port.key")}
