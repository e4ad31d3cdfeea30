"""Google Cloud Storage on loopback: fake-gcs-server over a directory, and the server that gives out its tokens."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyarrow import fs

from copycat_agent.dev_broker import free_port
from copycat_agent.extending import parse_address
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

PROGRAM = shutil.which("fake-gcs-server") or str(Path("~/go/bin/fake-gcs-server").expanduser())
WHY_NOT = "" if Path(PROGRAM).exists() else "no fake-gcs-server: go install github.com/fsouza/fake-gcs-server@latest"
"""Why it cannot be had; "" where it can."""
VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
"""Set it to `credentials` where somebody reads or writes."""


class _Tokens(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.dumps({"access_token": "gcs", "expires_in": 3600, "token_type": "Bearer"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class GoogleStorage:
    """A bucket `logs`. This process needs `VARIABLE` in its environment, too."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._tokens = ThreadingHTTPServer(("127.0.0.1", 0), _Tokens)
        self.credentials = root / "credentials.json"
        login = {"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}
        self.credentials.write_text(json.dumps({**login, "token_uri": f"http://127.0.0.1:{self._tokens.server_port}/token"}))
        (root / "buckets" / "logs").mkdir(parents=True)

    def uri(self, directory: str) -> str:
        """Address of a directory of the bucket."""
        return f"gs://logs/{directory}?endpoint_override=127.0.0.1:{self._port}&scheme=http"

    def put(self, name: str, data: bytes) -> None:
        """Write an object."""
        with self.files.open_output_stream(f"logs/{name}", compression=None) as out:
            out.write(data)

    def names(self, directory: str) -> list[str]:
        """What is there."""
        found = self.files.get_file_info(fs.FileSelector(f"logs/{directory}", recursive=True, allow_not_found=True))
        return sorted(one.path for one in found if one.type == fs.FileType.File)

    @property
    def files(self) -> Any:
        """The file system of pyarrow."""
        return fs.FileSystem.from_uri(parse_address(self.uri("")).root)[0]

    def __enter__(self) -> Self:
        assert os.environ[VARIABLE] == str(self.credentials)
        threading.Thread(target=self._tokens.serve_forever, daemon=True).start()
        log = (self._root / "gcs.log").open("wb")
        command = [
            PROGRAM,
            "-scheme",
            "http",
            "-host",
            "127.0.0.1",
            "-port",
            str(self._port),
            "-external-url",
            f"http://127.0.0.1:{self._port}",
        ]
        with log:
            self._process = subprocess.Popen([*command, "-filesystem-root", str(self._root / "buckets")], stdout=log, stderr=log)
        wait_until(lambda: b"server started" in (self._root / "gcs.log").read_bytes(), 60, "no server")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._tokens.shutdown()
        self._tokens.server_close()
