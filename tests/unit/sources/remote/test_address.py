"""What an address of remote files may say, and that a secret in one is refused and never shown."""

from __future__ import annotations

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.sources.files.reading.address import is_remote, parse_address

SECRET = "wJalr7canary"


@pytest.mark.parametrize(
    ("text", "remote"),
    [
        ("s3://bucket/a", True),
        ("hdfs://host:8020/a", True),
        ("file:///mnt/a", True),
        ("/var/log/a", False),
        ("/odd/s3://name", False),
        ("logs/a", False),
    ],
)
def test_a_uri_is_told_from_a_path(text: str, remote: bool) -> None:
    assert is_remote(text) is remote


@pytest.mark.parametrize(
    ("text", "inside", "root"),
    [
        ("s3://bucket/a b/*.gz?region=x", "bucket/a b/*.gz", "s3://bucket?region=x"),
        ("gs://bucket/a%20b", "bucket/a%20b", "gs://bucket"),
        ("hdfs://name:8020/logs/a", "/logs/a", "hdfs://name:8020/"),
        ("hdfs://user@name:8020/logs/a", "/logs/a", "hdfs://user@name:8020/"),
        ("file:///mnt/logs/a", "/mnt/logs/a", "file:///"),
        ("abfss://box@account.dfs.core.windows.net/a", "box/a", "abfss://box@account.dfs.core.windows.net"),
    ],
)
def test_an_address_is_taken_apart_without_decoding_names(text: str, inside: str, root: str) -> None:
    address = parse_address(text)
    assert (address.inside, address.root) == (inside, root)
    assert address.uri == text
    assert address.at(inside + ".1").shown == text.partition("?")[0] + ".1"


@pytest.mark.parametrize(
    "text",
    [
        f"s3://key:{SECRET}@bucket/a",
        f"s3://key:{SECRET[:4]}/{SECRET[4:]}@bucket/a",
        f"s3://{SECRET}@bucket/a",
        f"s3://bucket/a?secret_key={SECRET}",
        f"s3://bucket/a?region=x&access_key={SECRET}",
        f"s3://bucket/a?session%5Ftoken={SECRET}",
        f"s3://bucket/a?endpoint_override=http://user:{SECRET}@host",
        f"abfs://user:{SECRET}@account/a",
        f"hdfs://user:{SECRET}@host/a",
        f"abfs://box@account/a?sas_token={SECRET}",
        f"gs://{SECRET}@bucket/a",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(FatalError, match="must not hold") as caught:
        parse_address(text)
    said = str(caught.value)
    assert not any(piece in said for piece in (SECRET, SECRET[:4], SECRET[4:]))
    assert "environment" in said


@pytest.mark.parametrize("text", ["ftp://host/a", "s3:///a", "nothing"])
def test_what_cannot_be_used_is_refused_with_what_can(text: str) -> None:
    with pytest.raises(FatalError):
        parse_address(text)
