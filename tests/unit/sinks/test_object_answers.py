"""Answers of object stores that are rare: made up by a server of a few lines, read by the real client."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest

from copycat_agent.errors import BlockedError, CopycatError, FatalError, FileError, RetriableError
from copycat_agent.sinks import object_store
from copycat_agent.sinks.claims import Claims, LocalFile, Range
from copycat_agent.sinks.sink_stores import SinkStore, store_at
from tests.rig.object_store import CREDENTIALS

SECRET = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
LISTED = b"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>%s</ListBucketResult>"
ONE = b"<Contents><Key>x/0</Key><Size>1</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>1</ETag></Contents>"


class Server(ThreadingHTTPServer):
    """`answer` makes each answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Callable[[Handler], None] = lambda handler: handler.say(200)
        self.asked: list[Handler] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def _any(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(self)
        self.server.answer(self)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any  # noqa: N815 - names of http.server

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "ETag": '"1"', **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """It answers on loopback."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with Server() as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield one
        finally:
            one.shutdown()
            thread.join()


@pytest.fixture
def store(server: Server) -> SinkStore:
    """A bucket of it."""
    return store_at(f"s3://b/?endpoint_override={server.endpoint}&region=us-east-1")


def bucket_of(uri: str, name: str) -> tuple[Any, str]:
    """Another client of a bucket of moto's, and the prefix of a store in it."""
    endpoint = parse_qs(urlsplit(uri).query)["endpoint_override"][0]
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1"), name


def error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{SECRET}</Message><AWSAccessKeyId>{SECRET}</AWSAccessKeyId></Error>".encode()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", BlockedError),
        (403, "SignatureDoesNotMatch", BlockedError),
        (400, "ExpiredToken", BlockedError),
        (404, "NoSuchBucket", BlockedError),
        (301, "PermanentRedirect", BlockedError),
        (400, "AuthorizationHeaderMalformed", BlockedError),
        (507, "XMinioStorageFull", BlockedError),
        (501, "NotImplemented", FatalError),
        (503, "SlowDown", RetriableError),
        (500, "InternalError", RetriableError),
    ],
)
def test_a_refusal_says_what_to_do_and_nothing_that_was_sent(
    server: Server, store: SinkStore, tmp_path: Path, status: int, code: str, kind: type[CopycatError]
) -> None:
    server.answer = lambda handler: handler.say(status, error(code))
    file = tmp_path / "file"
    file.write_bytes(b"x")
    asked: list[Callable[[], object]] = [
        lambda: store.put_if_absent("a", b"x"),
        lambda: store.get("a"),
        lambda: list(store.list("a")),
        lambda: store.delete(["a"]),
        lambda: store.upload({"a": file}),
        lambda: store.publish({"a/0": "b"}),
    ]
    for ask in asked:
        with pytest.raises(kind) as raised:
            ask()
        assert type(raised.value) is kind
        assert {"NoSuchBucket": "no bucket", "PermanentRedirect": "it redirects"}.get(code, code) in str(raised.value)
        assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r}"


def test_a_server_that_does_not_answer_is_given_up(server: Server, store: SinkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "REQUEST_SECONDS", 0.5)
    over = threading.Event()
    server.answer = lambda _: bool(over.wait(100))  # type: ignore[assignment]
    begun = time.monotonic()
    try:
        with pytest.raises(RetriableError, match="does not answer in time"):
            store.put_if_absent("a", b"x")
    finally:
        over.set()
    assert time.monotonic() - begun < 50


def test_a_server_that_is_not_there_is_given_up() -> None:
    store = store_at("s3://b/?endpoint_override=http://127.0.0.1:1&region=us-east-1")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with pytest.raises(RetriableError, match="it does not answer"):
            store.get("a")


def test_a_store_that_does_not_know_conditions_is_told(server: Server, store: SinkStore) -> None:
    server.answer = lambda handler: handler.say(200, b"second")
    assert not store.has_conditional_put()
    server.answer = lambda handler: handler.say(501, error("NotImplemented"))
    assert not store.has_conditional_put()


@pytest.mark.parametrize("refused", [b"PreconditionFailed", b"ConditionalRequestConflict"])
def test_a_put_whose_answer_was_lost_is_no_proof_that_a_store_does_not_know_conditions(
    server: Server, store: SinkStore, refused: bytes
) -> None:
    """The client sends it again, and hears that there is one."""
    puts: list[int] = []

    def answer(handler: Handler) -> None:
        if handler.command == "PUT":
            puts.append(500 if not puts else 412 if refused == b"PreconditionFailed" else 409)
            handler.say(puts[-1], error(refused.decode()))
        else:
            handler.say(200, b"first")

    server.answer = answer
    assert store.has_conditional_put()
    assert len(puts) == 3


def test_a_store_that_refuses_what_is_not_there_is_asked_again(server: Server, store: SinkStore) -> None:
    server.answer = lambda handler: handler.say(412 if handler.command == "PUT" else 404, error("NoSuchKey"))
    with pytest.raises(RetriableError, match="was refused, and is not there"):
        store.has_conditional_put()


def test_a_conflict_is_no_proof_that_anything_is_there(server: Server, store: SinkStore, tmp_path: Path) -> None:
    """S3 says so while another request for the key is under way: nothing is deleted then, for one's own may yet count."""

    def answer(handler: Handler) -> None:
        if handler.command == "PUT":
            handler.say(409 if "/claims/" in handler.path else 200, error("ConditionalRequestConflict"))
        else:
            handler.say(*((200, LISTED % b"") if "list-type" in handler.path else (404, error("NoSuchKey"))))

    server.answer = answer
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(RetriableError, match="was refused, and none is there"):
        Claims(store, "lake").commit(Range("orders", 0, 0, 9), [LocalFile(tmp_path / "file", "a", 1)], "jsonl")
    assert not [one for one in server.asked if one.command in ("DELETE", "POST")]


def test_a_copy_that_failed_behind_its_first_line_is_none(server: Server, store: SinkStore) -> None:
    """S3 may say 200 at once and what went wrong later."""

    def answer(handler: Handler) -> None:
        handler.say(200, LISTED % ONE if handler.command == "GET" else error("InternalError"))

    server.answer = answer
    with pytest.raises(RetriableError):
        store.publish({"x/0": "b"})
    assert not [one for one in server.asked if one.command in ("DELETE", "POST")], "what is pending stays"


def test_an_object_that_is_listed_is_not_taken_for_published(server: Server, store: SinkStore) -> None:
    """A proxy that finds nothing says 404, too."""
    server.answer = lambda handler: handler.say(*((200, LISTED % ONE) if handler.command == "GET" else (404, b"nothing here")))
    with pytest.raises(RetriableError, match="denies an object that it lists"):
        store.publish({"x/0": "b"})


def test_a_key_that_stores_do_not_take_is_refused_before_it_is_claimed(store: SinkStore, server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(FileError, match="no key of more than 1024 bytes"):
        Claims(store, "app").commit(Range("t", 0, 0, 1), [LocalFile(tmp_path / "file", "a/" * 500, 1)], "jsonl")
    assert not server.asked


def test_a_copy_that_was_made_is_not_made_again(moto_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have taken longer than its request, and its deletion from pending may have failed."""
    store, (client, prefix) = store_at(moto_uri.format(tmp_path.name)), bucket_of(moto_uri, tmp_path.name)
    (tmp_path / "file").write_bytes(b"x" * (9 * 2**20))
    store.upload({"_copycat/x/0": tmp_path / "file"})
    with monkeypatch.context() as patch:
        patch.setattr(object_store.ObjectStore, "delete", lambda *_: None)
        store.publish({"_copycat/x/0": "a/0"})
    assert len(list(store.list(""))) == 2
    made = client.head_object(Bucket="logs", Key=f"{prefix}/a/0")["LastModified"]
    monkeypatch.setattr("obstore.copy", lambda *_: pytest.fail("it is there"))
    store.publish({"_copycat/x/0": "a/0"})
    assert list(store.list("")) == ["a/0"]
    assert client.head_object(Bucket="logs", Key=f"{prefix}/a/0")["LastModified"] == made


@pytest.mark.parametrize(("size", "is_taken"), [(3, True), (4, False)])
def test_a_pending_file_of_an_earlier_version_is_told_from_others_by_its_size(
    moto_uri: str, tmp_path: Path, size: int, *, is_taken: bool
) -> None:
    store, (client, prefix) = store_at(moto_uri.format(tmp_path.name)), bucket_of(moto_uri, tmp_path.name)
    client.put_object(Bucket="logs", Key=f"{prefix}/_copycat/x/0", Body=b"one")
    client.put_object(Bucket="logs", Key=f"{prefix}/a/0", Body=b"x" * size)
    with nullcontext() if is_taken else pytest.raises(FatalError, match="is not this connector's file"):
        store.publish({"_copycat/x/0": "a/0"})
    assert store.get("a/0") == (b"one" if is_taken else b"x" * size)


def test_a_file_that_stores_do_not_copy_is_refused(store: SinkStore, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(5 * 2**30 + 1)
    with pytest.raises(FatalError, match="more than stores copy"):
        store.upload({"a": tmp_path / "file"})


def test_credentials_that_are_not_there_are_asked_for(store: SinkStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BlockedError, match="no credentials for S3 were found"):
        store.get("a")


def test_credentials_of_a_profile_are_used(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[lake]\naws_access_key_id = of-the-profile\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    store_at(f"s3://b/?endpoint_override={server.endpoint}&region=us-east-1&profile=lake").get("a")
    assert "Credential=of-the-profile/" in server.asked[0].headers["Authorization"]


def test_credentials_that_were_changed_are_read_anew_after_a_refusal(
    server: Server, store: SinkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RENEW_SECONDS", 0.0)
    server.answer = lambda handler: handler.say(403, error("ExpiredToken"))
    with pytest.raises(BlockedError):
        store.get("a")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
    server.answer = lambda handler: handler.say(200, b"x")
    assert store.get("a") == b"x"
    assert "Credential=new/" in server.asked[-1].headers["Authorization"]


@pytest.mark.parametrize(
    ("uri", "header", "value", "refusals"),
    [
        ("s3://b/a?endpoint_override={}&region=us-east-1", "if-none-match", "*", (412,)),
        ("gs://b/a?endpoint_override={}&anonymous=true", "x-goog-if-generation-match", "0", (412,)),
        ("abfss://b@account.dfs.core.windows.net/a?endpoint_override={}", "if-none-match", "*", (409,)),
    ],
)
def test_each_store_is_asked_for_its_condition(
    server: Server, monkeypatch: pytest.MonkeyPatch, uri: str, header: str, value: str, refusals: tuple[int, ...]
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    store = store_at(uri.format(server.endpoint))
    server.answer = lambda handler: handler.say(201)
    assert store.put_if_absent("k", b"x")
    assert server.asked[-1].headers[header] == value
    for status in refusals:
        server.answer = lambda handler, status=status: handler.say(status)  # type: ignore[misc]
        assert not store.put_if_absent("k", b"x")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "copycat_agent.sinks.object_store")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(FatalError, match=r"s3:// needs obstore; pip install 'copycat-agent\[lake\]'"):
        store_at("s3://b/")
