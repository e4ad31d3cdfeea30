"""A data source that somebody else has published, from PyPI and unmodified: OpenSky's aircraft, whose host is served here.

Its address is fixed in its code, so the agent runs in a mount namespace with a hosts file of its own, and trusts a CA of this test. It is
installed into the test's own directory, since it is nothing that this project needs.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.datasource.conftest import PROJECT
from tests.rig.agent import AgentProcess
from tests.rig.kafka import consume
from tests.rig.secured import make_authority, sign

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker

PACKAGE = "pyspark-data-sources==0.1.11"
HOST, ADDRESS = "opensky-network.org", "127.0.53.1"
NOW = 1_700_000_000

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, for a mount namespace and port 443"),
]


def aircraft(number: int) -> list[Any]:
    """A state vector as the API gives it."""
    return [
        f"a{number:05}",
        f"FL{number}",
        "Utopia",
        NOW,
        NOW,
        8.5,
        47.4,
        10_000.0,
        False,
        240.0,
        90.0,
        0.0,
        None,
        10_100.0,
        "1000",
        False,
        0,
    ]


class Sky(http.server.BaseHTTPRequestHandler):
    """Answers each question with three aircraft, a second later than the one before."""

    asked = 0

    def do_GET(self) -> None:
        """See `http.server`."""
        body = json.dumps({"time": NOW + Sky.asked, "states": [aircraft(3 * Sky.asked + number) for number in range(3)]}).encode()
        Sky.asked += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name
        """Nothing."""


@contextmanager
def sky(directory: Path) -> Iterator[None]:
    """The API at its own port, on a loopback address of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / f"{HOST}.pem", directory / f"{HOST}.key")
    server = http.server.ThreadingHTTPServer((ADDRESS, 443), Sky)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The package as pip installs it."""
    target = tmp_path / "site"
    quietly = ("-q", "--no-deps", "--no-compile", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *quietly, "--target", str(target), PACKAGE], check=True, timeout=120)
    return target


def test_a_published_reader_runs_unmodified_with_exactly_once(broker: DevBroker, topic: str, site: Path, tmp_path: Path) -> None:
    make_authority(tmp_path, "ca")
    sign(tmp_path, HOST, "-days", "30", subject=f"DNS:{HOST}")
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{ADDRESS} {HOST}\n", "utf-8")
    script = f"mount --bind {hosts} /etc/hosts && exec {sys.executable} -m copycat_agent run {tmp_path / 'agent/connectors.d'}"
    command = ["unshare", "-m", "sh", "-c", f'{script} "$@"', "sh"]
    source = {"type": "datasource", "class": "pyspark_datasources.opensky:OpenSkyDataSource", "options": {"region": "EUROPE"}}
    sections = {"transforms": [{"drop_if": {"icao24": "a00001"}}], "delivery": {"guarantee": "exactly_once"}}
    with sky(tmp_path), AgentProcess(tmp_path / "agent", broker.bootstrap, command) as agent:
        agent.define("sky", {"source": source, "record": {"topic": topic, "key": "{icao24}"}, **sections})
        agent.start(env={"PYTHONPATH": f"{PROJECT}:{site}", "REQUESTS_CA_BUNDLE": str(tmp_path / "ca.pem")})
        found = consume(broker.bootstrap, topic, "read_committed", until=8, deadline=180.0)
        agent.stop(60)
    assert [one.key for one in found[:8]] == [f"a{number:05}".encode() for number in (0, *range(2, 9))]
    first = json.loads(found[0].value or b"")
    assert (first["callsign"], first["origin_country"], first["latitude"], first["on_ground"]) == ("FL0", "Utopia", 47.4, False)
    assert first["time_position"].startswith("2023-11-14T22:13:20")
