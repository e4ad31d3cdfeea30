"""A real schema registry for the tests, Apicurio with Confluent's API, and a front to it that counts, asks for a login, and goes down."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Self

from copycat_agent.dev_broker import free_port
from copycat_agent.maven import cache_dir, java, locked, pyspark_jars
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

VERSION = "2.6.13.Final"
_SHA256 = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"
_FETCH_SECONDS = 600.0
_IVY = f"""
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="copycat" module="tests"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false" conf="default->master">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
_BIND_TO_PARENT = (
    "import ctypes,os,sys; ctypes.CDLL(None).prctl(1, 9); os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)


def fetch_registry() -> Path:
    """The directory with the registry's jar: 142 MB, fetched once through the Ivy inside PySpark, like Kafka, and checked."""
    target = cache_dir() / f"apicurio-registry-{VERSION}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / "registry.lock"):
        if not target.is_dir():
            _fetch(target)
    return target


def _fetch(target: Path) -> None:
    print(f"Fetching the schema registry of the tests (142 MB, once) into {target}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="registry-", dir=target.parent, ignore_cleanup_errors=True) as name:
        directory = Path(name)
        (directory / "ivy.xml").write_text(_IVY)
        command = [
            java(), "-Xmx256m", f"-Djava.io.tmpdir={name}", f"-Divy.default.ivy.user.dir={name}/ivy",
            "-cp", os.pathsep.join(map(str, pyspark_jars("ivy-*.jar"))), "org.apache.ivy.Main", "-cache", f"{name}/ivy",
            "-ivy", "ivy.xml", "-retrieve", f"{name}/[artifact]-[revision](-[classifier]).[ext]", "-types", "tar.gz",
        ]  # fmt: skip
        for is_last in (False, False, True):
            if subprocess.run(command, cwd=name, check=is_last, capture_output=True, timeout=_FETCH_SECONDS).returncode == 0:
                break
        archive = directory / f"apicurio-registry-app-{VERSION}-all.tar.gz"
        with archive.open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == _SHA256, "the fetched registry is not the pinned one"
        with tarfile.open(archive) as tar:
            tar.extractall(directory / "unpacked", filter="data")
        (directory / "unpacked").rename(target)


class SchemaRegistry:
    """A registry in memory on loopback, empty at first. `url` is its Confluent-compatible API."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start, and wait until it answers."""
        home, log = fetch_registry(), self._directory / "registry.log"
        options = ["-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={self._directory}"]
        where = [f"-Dquarkus.http.port={self.port}", "-Dquarkus.http.host=127.0.0.1"]
        command = [java(), *options, *where, "-jar", str(next(home.glob("*-runner.jar")))]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", _BIND_TO_PARENT, str(os.getpid()), shutil.which(command[0]) or command[0], *command[1:]],
                cwd=self._directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        wait_until(self._answers, 100.0, lambda: log.read_text("utf-8", "replace")[-2000:])
        return self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=15) as answer:  # noqa: S310 - our own address
                return bool(answer.status == 200)
        except OSError:
            return False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop; what it held is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class RegistryFront:
    """A server before a registry: `requests` lists what was asked (`GET /subjects/...`). With `login` it wants user and password.

    `bearer` says whether a token is good, of which it then wants one; `told` are the headers of the last request.

    `hold_seconds` is how long it waits before it passes a request on, unless it is stopped; `answer` is given in place of the registry's,
    with `headers`.
    `stop` and `start` take it down and up, at the same address.
    """

    def __init__(self, upstream: str, login: tuple[str, str] | None = None) -> None:
        self.requests: list[str] = []
        self.hold_seconds = 0.0
        self.answer: tuple[int, bytes] | None = None
        self.headers: dict[str, str] = {}
        self.bearer: Callable[[str], bool] | None = None
        self.told: dict[str, str] = {}
        self._upstream = upstream
        self._wanted = None if login is None else "Basic " + base64.b64encode(":".join(login).encode()).decode()
        self._port = free_port()
        self._server: ThreadingHTTPServer | None = None
        self._is_down = threading.Event()

    @property
    def url(self) -> str:
        """What a definition is given."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start_tls(self, certificate: Path, clients: Path | None = None) -> str:
        """Up behind TLS, with this key and certificate (PEM). Returns its address. `clients` has to have signed those of clients."""
        self.stop()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        if clients is not None:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
        self.start(context)
        return self.url.replace("http:", "https:")

    def start(self, context: ssl.SSLContext | None = None) -> None:
        """Up; behind TLS with a context for that."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        self._server.daemon_threads = True
        if context is not None:  # before anything serves: the thread would find a socket that is not there for a moment
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._is_down.clear()
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="registry-front", daemon=True).start()

    def stop(self) -> None:
        """Down: connections are refused."""
        if self._server is not None:
            self._is_down.set()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def lets_in(self, said: str) -> bool:
        """Whether this header is the login, or the token, that is wanted."""
        if self.bearer is not None:
            return said.startswith("Bearer ") and self.bearer(said.removeprefix("Bearer "))
        return self._wanted is None or said == self._wanted

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        front = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._pass()

            def do_POST(self) -> None:
                self._pass()

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                front.requests.append(f"{self.command} {self.path}")
                front.told = dict(self.headers)
                front._is_down.wait(front.hold_seconds)
                if front.answer is not None:
                    self._reply(*front.answer)
                elif not front.lets_in(self.headers.get("Authorization", "")):
                    self._reply(401, b'{"error_code": 40101, "message": "Unauthorized"}')
                else:
                    self._forward(body)

            def _forward(self, body: bytes) -> None:
                headers = {name: self.headers[name] for name in ("Content-Type", "Accept") if name in self.headers}
                request = urllib.request.Request(front._upstream + self.path, body or None, headers, method=self.command)  # noqa: S310 - see above
                try:
                    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - see above
                        self._reply(answer.status, answer.read())
                except urllib.error.HTTPError as error:
                    with error:
                        self._reply(error.code, error.read())

            def _reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                _send_headers(self, front.headers)
                with contextlib.suppress(OSError):  # whoever asked has given up
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Nobody reads it."""

        return Handler


def _send_headers(handler: BaseHTTPRequestHandler, headers: dict[str, str]) -> None:
    for name, value in headers.items():
        handler.send_header(name, value)
