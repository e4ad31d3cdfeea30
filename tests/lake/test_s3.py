"""Files in a bucket whose server fails one request in six: before it does what was asked, behind it, or without a word."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import pytest

from copycat_agent.sinks.file_names import parse_name
from tests.lake.conftest import as_json
from tests.rig.object_store import ObjectStore, object_store
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lake.conftest import Lake

SHARE = 1 / 6
OWN = ("content-length", "connection", "date", "server")
"""Headers that the front writes itself."""


class Faulty(ThreadingHTTPServer):
    """A front of a server of objects."""

    daemon_threads = True

    def __init__(self, upstream: str, dice: random.Random) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream, self.dice = urlsplit(upstream), dice
        self.done: Counter[str] = Counter()

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Faulty
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        server = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = server.dice.choice(("before", "behind", "silent")) if server.dice.random() < SHARE else ""
        server.done[fault] += 1
        if fault == "before":
            self.say(503, b"", {})
            return
        upstream = http.client.HTTPConnection(str(server.upstream.hostname), server.upstream.port, timeout=30)
        upstream.request(self.command, self.path, body, dict(self.headers))
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        if fault == "silent":
            self.close_connection = True
        elif fault == "behind":
            self.say(500, b"", {})
        else:
            kept = {
                name: value for name, value in answer.getheaders() if name.lower() not in ("content-length", "connection", "date", "server")
            }
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.say(answer.status, data, kept, length)

    def say(self, status: int, body: bytes, headers: dict[str, str], length: str | None = None) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": length or str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815 - the library's names

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def store(tmp_path: Any) -> Iterator[ObjectStore]:
    with object_store(tmp_path) as one:
        yield one


@pytest.mark.timeout(300)
def test_each_record_is_in_one_object_whatever_requests_fail(
    make_lake: Callable[..., Lake], store: ObjectStore, rng: random.Random
) -> None:
    lake, count = make_lake(2), 600
    with Faulty(store.endpoint, rng) as front:
        uri = f"s3://{store.bucket}/lake/?endpoint_override=http://127.0.0.1:{front.server_port}&region=us-east-1"
        sink = {"uri": uri, "path": "{@topic}", "roll": {"records": 40, "age": "300ms"}}
        lake.start(sink=sink, errors={"retry_max_delay": "300ms"})
        for begin in range(0, count, 50):
            lake.send(as_json(({"n": number} for number in range(begin, begin + 50)), 2))
        wait_until(lambda: len(rows(store)) >= count, 200, lambda: f"{len(rows(store))}; {lake.status}; {front.done}")
        lake.stop()
    found = rows(store)
    assert sorted(found) == list(range(count))
    assert {"before", "behind", "silent"} <= front.done.keys()


def rows(store: ObjectStore) -> list[int]:
    """The numbers of all visible records."""
    found = []
    for page in store.client.get_paginator("list_objects_v2").paginate(Bucket=store.bucket, Prefix="lake/"):
        for one in page.get("Contents", ()):
            if "_copycat" not in one["Key"]:
                assert parse_name(one["Key"]) is not None
                body = store.client.get_object(Bucket=store.bucket, Key=one["Key"])["Body"].read()
                found += [json.loads(line)["n"] for line in body.splitlines()]
    return found
