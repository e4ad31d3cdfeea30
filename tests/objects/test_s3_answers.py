"""Answers of an S3 store that are rare: made up by a server of a few lines, read by the real client."""

from __future__ import annotations

import errno
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pytest

from copycat_agent.extending import parse_address
from copycat_agent.sources.objects import s3_store
from copycat_agent.sources.objects.blocks import ReplacedError
from copycat_agent.sources.objects.listing_schedule import NameRange
from copycat_agent.sources.objects.s3_store import S3Store
from copycat_agent.sources.objects.stores import ListedObject
from tests.objects.conftest import LIST
from tests.rig.object_store import CREDENTIALS

if TYPE_CHECKING:
    from tests.objects.conftest import Handler, Server

FOUND = ListedObject("a", 10, 1000, '"one"')


def read(server: Server) -> bytes:
    return S3Store(parse_address(server.uri)).open(FOUND).read_at(0, 10)


def test_another_version_is_not_read_from_a_store_that_does_not_know_if_match(server: Server) -> None:
    server.answer = lambda handler: handler.say(206, b"0123456789", headers={"ETag": '"two"'})
    with pytest.raises(ReplacedError):
        read(server)


def test_an_answer_that_trickles_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_store, "BODY_SECONDS", 0.5)
    monkeypatch.setattr(s3_store, "PART_BYTES", 1)
    over = threading.Event()

    def trickle(handler: Handler) -> None:
        handler.say(206, b"", length=10_000, headers={"ETag": '"one"'})
        while not over.wait(0.2):
            handler.wfile.write(b"x")

    server.answer = trickle
    try:
        with pytest.raises(OSError, match="TimeoutError"):  # its end would come long after this test's
            read(server)
    finally:
        over.set()


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (301, "PermanentRedirect"), (416, "InvalidRange")])
def test_words_of_a_refusal_name_its_code_and_nothing_that_was_sent(server: Server, status: int, code: str) -> None:
    body = f"<Error><Code>{code}</Code><Message>{CREDENTIALS['AWS_SECRET_ACCESS_KEY']}</Message></Error>".encode()
    server.answer = lambda handler: handler.say(status, body)
    with pytest.raises(OSError, match=code) as caught:
        read(server)
    assert str(caught.value).startswith("[Errno 5]")
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_body_that_ends_early_is_no_end_of_the_object(server: Server) -> None:
    server.answer = lambda handler: handler.say(206, b"0123", headers={"ETag": '"one"'})
    with pytest.raises(OSError, match="4 bytes came of 10"):
        read(server)


def test_credentials_that_were_changed_are_read_anew_after_a_refusal(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_store, "RENEW_SECONDS", 0.0)

    def answer(handler: Handler) -> None:
        if server.keys[-1] == "new":
            handler.say(200, LIST)
        else:
            handler.say(403, b"<Error><Code>ExpiredToken</Code></Error>")

    server.answer = answer
    store = S3Store(parse_address(server.uri))
    with pytest.raises(PermissionError):
        list(store.listed(NameRange()))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
    assert list(store.listed(NameRange())) == []
    assert server.keys == ["test", "new"]


@pytest.mark.parametrize(
    ("uri", "words"),
    [("s3://b/?profile=nobody", "ProfileNotFound"), ("s3://Bad_!b/", "name of the bucket"), ("s3://b/?region=a+b", "profile or region")],
)
def test_an_address_that_cannot_be_asked_is_told_in_words(uri: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OSError, match=words):
        list(S3Store(parse_address(uri)).listed(NameRange()))


def test_an_object_of_a_bucket_that_is_away_was_not_deleted(server: Server) -> None:
    missing = b"<Error><Code>NoSuchBucket</Code></Error>"
    server.answer = lambda handler: handler.say(404, b"" if handler.command == "HEAD" else missing)
    store = S3Store(parse_address(server.uri))
    with pytest.raises(FileNotFoundError, match="no such bucket") as caught:
        store.look("a")
    assert caught.value.errno == errno.ENODEV
    server.answer = lambda handler: handler.say(404, b"") if handler.command == "HEAD" else handler.say(200, LIST)
    with pytest.raises(FileNotFoundError, match="no such object") as caught:
        store.look("a")
    assert caught.value.errno == errno.ENOENT


def test_what_was_replaced_since_it_was_looked_at_is_not_deleted(server: Server) -> None:
    asked: list[str | None] = []

    def answer(handler: Handler) -> None:
        asked.append(handler.headers["If-Match"])
        handler.say(412, b"<Error><Code>PreconditionFailed</Code></Error>")

    server.answer = answer
    with pytest.raises(ReplacedError):
        S3Store(parse_address(server.uri)).delete(FOUND)
    assert asked == ['"one"']


def test_a_store_that_cannot_compare_deletes_all_the_same(server: Server) -> None:
    asked: list[str | None] = []

    def answer(handler: Handler) -> None:
        asked.append(handler.headers["If-Match"])
        if asked[-1]:
            handler.say(501, b"<Error><Code>NotImplemented</Code></Error>")
        else:
            handler.say(204, b"")

    server.answer = answer
    store = S3Store(parse_address(server.uri))
    store.delete(FOUND)
    store.delete(FOUND)
    assert asked == ['"one"', None, None]


def test_a_queue_is_asked_in_the_region_that_its_address_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nobody/has/it")
    store = S3Store(parse_address("s3://b/"))
    store.queue("https://sqs.eu-central-1.amazonaws.com/1/q")
    with pytest.raises(OSError, match="NoRegionError, open the queue"):
        store.queue("https://queue.example/1/q")


def page_of(contents: str) -> bytes:
    head = '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
    return f"{head}<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()


def test_a_page_of_a_listing_is_read_whole(server: Server) -> None:
    sizes = "<ETag>&quot;{0}&quot;</ETag><Size>{0}</Size>"
    one = f"<Contents><Key>a%20{{0}}</Key><LastModified>2026-11-21T05:00:00.123Z</LastModified>{sizes}</Contents>"
    page = page_of("".join(map(one.format, range(1000))))
    server.answer = lambda handler: handler.say(200, page)
    store = S3Store(parse_address(server.uri))
    moment = int(datetime(2026, 11, 21, 5, 0, 0, 123_000, UTC).timestamp() * 1000)
    assert list(store.listed(NameRange())) == [ListedObject(f"a {number}", number, moment, f'"{number}"') for number in range(1000)]


@pytest.mark.parametrize("when", ["Sat, 21 Nov 2026 05:00:00 GMT", "2026-11-21T05:00:00+00:00", "1795237200"])
def test_a_page_of_another_form_is_read_as_botocore_does(server: Server, when: str) -> None:
    page = page_of(f"<Contents><Key>a</Key><LastModified>{when}</LastModified><Size>1</Size></Contents>")
    server.answer = lambda handler: handler.say(200, page)
    assert list(S3Store(parse_address(server.uri)).listed(NameRange())) == [ListedObject("a", 1, 1_795_237_200_000, "")]


def test_a_page_that_breaks_off_is_an_error_of_the_store(server: Server) -> None:
    server.answer = lambda handler: handler.say(200, b"<ListBucketResult><Contents><Key>a</Key>")
    with pytest.raises(OSError, match="500 from ListObjectsV2"):
        list(S3Store(parse_address(server.uri)).listed(NameRange()))


def test_names_that_xml_cannot_hold_are_listed_and_asked_for_as_they_are(server: Server) -> None:
    names = ["new\nline", "nothing\0", "\x1b[31m", "a/../../b", "\u00e9", "e\u0301", "+ %2B"]
    contents = "".join(
        f"<Contents><Key>{quote(one)}</Key><Size>1</Size><LastModified>2026-11-21T05:00:00Z</LastModified></Contents>" for one in names
    )
    page = f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
    asked: list[str] = []

    def answer(handler: Handler) -> None:
        asked.append(unquote(handler.path.partition("?")[0]).removeprefix("/b").removeprefix("/"))
        handler.say(200, page.encode())

    server.answer = answer
    store = S3Store(parse_address(server.uri))
    assert [one.name for one in store.listed(NameRange())] == names
    for one in names:
        store.delete(ListedObject(one, 1, 1, '"v"'))
    assert asked == ["", *names]
