"""S3, or whatever speaks its protocol, through boto3: it lists behind a name, and reads the version that was found by its ETag."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from botocore.parsers import ResponseParserError

from copycat_agent.extending import Address
from copycat_agent.sources.objects.blocks import BlockFile, ReplacedError
from copycat_agent.sources.objects.notices import SqsQueue
from copycat_agent.sources.objects.passes import NameRange
from copycat_agent.sources.objects.stores import Listed, NoticeQueue, directory_of

_CONNECT_SECONDS, _READ_SECONDS = 4.0, 15.0
_PAGE = 1000
_MISSING = ("404", "NoSuchKey", "NotFound", "NoSuchVersion")
_REPLACED = ("412", "PreconditionFailed")
_FORBIDDEN = (
    "401",
    "403",
    "AccessDenied",
    "AllAccessDisabled",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
)

T = TypeVar("T")


class S3Store:
    """A bucket of S3, or of whatever speaks its protocol."""

    lists_behind = True

    def __init__(self, address: Address) -> None:
        options = dict(parse_qsl(address.query, keep_blank_values=True))
        endpoint = options.pop("endpoint_override", None)
        if endpoint and "://" not in endpoint:
            endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": 2, "mode": "standard"},
            max_pool_connections=16,
            s3={"addressing_style": "path" if endpoint else "auto"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        session = boto3.session.Session(profile_name=options.get("profile"))

        def client(service: str, endpoint: str | None) -> Any:  # noqa: ANN401 - boto3 has no types
            return session.client(service, endpoint_url=endpoint, region_name=options.get("region"), config=config)

        self._client = client("s3", endpoint)
        self._make_client = client
        self._bucket = address.authority
        self.prefix = directory_of(address.path[1:])

    def shown(self, name: str) -> str:
        return f"s3://{self._bucket}/{name}"

    def name_at(self, path: str) -> str:
        return path.lstrip("/")

    def listed(self, names: NameRange) -> Iterator[Listed]:
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": names.prefix or self.prefix, "MaxKeys": _PAGE}
        if names.after:
            asked["StartAfter"] = names.after
        while True:
            page = _told("list", lambda: self._client.list_objects_v2(**asked))
            yield from (_of_s3(one["Key"], one) for one in page.get("Contents", ()))
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def look(self, name: str) -> Listed:
        found = _told("look at", lambda: self._client.head_object(Bucket=self._bucket, Key=name))
        return _of_s3(name, {**found, "Size": found["ContentLength"]})

    def open(self, found: Listed) -> BlockFile:
        def fetch(position: int, size: int) -> bytes:
            asked = {
                "Bucket": self._bucket,
                "Key": found.name,
                "Range": f"bytes={position}-{position + size - 1}",
                "IfMatch": found.version,
            }
            return _told("read", lambda: bytes(self._client.get_object(**asked)["Body"].read()))

        return BlockFile(found.size, fetch)

    def queue(self, url: str) -> NoticeQueue:
        parts = urlsplit(url)
        return SqsQueue(self._make_client("sqs", f"{parts.scheme}://{parts.netloc}"), _told, url, self._bucket)

    def delete(self, name: str) -> None:
        _told("delete", lambda: self._client.delete_object(Bucket=self._bucket, Key=name))

    def copy(self, name: str, to: str) -> None:
        _told("copy", lambda: self._client.copy({"Bucket": self._bucket, "Key": name}, self._bucket, to))

    def tag(self, name: str, tag: str, value: str) -> None:
        def ask() -> None:
            known = self._client.get_object_tagging(Bucket=self._bucket, Key=name).get("TagSet", [])
            tags = [*(one for one in known if one["Key"] != tag), {"Key": tag, "Value": value}]
            self._client.put_object_tagging(Bucket=self._bucket, Key=name, Tagging={"TagSet": tags})

        _told("tag", ask)


def _of_s3(name: str, found: dict[str, Any]) -> Listed:
    return Listed(name, found["Size"], int(found["LastModified"].timestamp() * 1000), found["ETag"])


def _told(what: str, ask: Callable[[], T]) -> T:
    """What S3 answers. Raises OSError."""
    try:
        return ask()
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        words = f"{code or 'an error'} from {error.operation_name}"
        if code in _MISSING:
            raise FileNotFoundError(errno.ENOENT, "there is no such object") from None
        if code in _REPLACED:
            raise ReplacedError(errno.ESTALE, "it was replaced while it was read") from None
        if code in ("NoSuchBucket", "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"):
            raise FileNotFoundError(
                errno.ENODEV, "there is no such bucket" if code == "NoSuchBucket" else "there is no such queue"
            ) from None
        if code in _FORBIDDEN:
            raise PermissionError(errno.EACCES, f"it is not allowed ({words})") from None
        raise OSError(errno.EIO, words) from None
    except (NoCredentialsError, PartialCredentialsError):
        raise PermissionError(errno.EACCES, "no credentials were found") from None
    except (BotoCoreError, ResponseParserError) as error:
        raise OSError(errno.EIO, f"the store does not answer ({type(error).__name__}, {what})") from None
    except (OSError, ValueError) as error:  # of the connection that an answer was read from
        raise OSError(errno.EIO, f"the connection broke ({type(error).__name__}, {what})") from None
