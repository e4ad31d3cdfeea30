"""A store for S3 and compatible services, through boto3. It lists after a given name, and reads the version that was found by its ETag."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    InvalidRegionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from copycat_agent.extending import Address
from copycat_agent.sources.objects.blocks import BlockFile, ReplacedError
from copycat_agent.sources.objects.listing_schedule import NameRange
from copycat_agent.sources.objects.notifications import SqsQueue
from copycat_agent.sources.objects.s3_pages import parse_pages_quickly
from copycat_agent.sources.objects.stores import ListedObject, NotificationQueue, directory_of

_CONNECT_SECONDS, _READ_SECONDS = 4.0, 15.0
BODY_SECONDS = 40.0
"""Time limit for a block of an object: a process whose batch is 60 s late is killed, with the batches of others."""
RENEW_SECONDS = 10.0
"""Least age of a client that is replaced after a refusal: a new one takes 0.1 s of CPU."""
PART_BYTES = 2**18
_PAGE = 1000
_MISSING = ("404", "NoSuchKey", "NotFound", "NoSuchVersion")
_NO_QUEUE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
_QUEUE_HOST = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.")
_REPLACED = ("412", "PreconditionFailed")
_FORBIDDEN = (
    "401",
    "403",
    "AccessDenied",
    "AccessDeniedException",
    "AllAccessDisabled",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidToken",
    "KMS.AccessDeniedException",
    "SignatureDoesNotMatch",
)

_UNKNOWN = ("501", "NotImplemented")

T = TypeVar("T")


class _UnknownHeaderError(OSError):
    """The service does not implement a header of the request."""


class S3Store:
    """A `Store` for a bucket."""

    lists_behind = True
    refused: Mapping[str, str] = MappingProxyType({})

    def __init__(self, address: Address) -> None:
        options = dict(parse_qsl(address.query, keep_blank_values=True))
        endpoint = options.pop("endpoint_override", None)
        if endpoint and "://" not in endpoint:
            endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
        self._config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": 2, "mode": "standard"},
            max_pool_connections=16,
            s3={"addressing_style": "path" if endpoint else "auto"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self._endpoint = endpoint
        self._options = options
        self._kept: Any = None
        self._made_at = 0.0
        self._compares = True
        self._bucket = address.authority
        self.prefix = directory_of(address.path[1:])

    @property
    def _client(self) -> Any:  # noqa: ANN401 - boto3 has no types
        client = self._kept  # another thread may drop it
        if client is None:
            client, self._made_at = self._make("s3", self._endpoint), time.monotonic()
            parse_pages_quickly(client)
            self._kept = client
        return client

    def _make(self, service: str, endpoint: str | None, region: str | None = None) -> Any:  # noqa: ANN401 - as above
        session = boto3.session.Session(profile_name=self._options.get("profile"))
        return session.client(service, endpoint_url=endpoint, region_name=region or self._options.get("region"), config=self._config)

    def _ask(self, what: str, ask: Callable[[Any], T]) -> T:
        """Returns S3's answer. Raises OSError. After a refusal the next request reads the credentials anew: they may have changed."""
        try:
            return _translated(what, lambda: ask(self._client))
        except PermissionError:
            if time.monotonic() - self._made_at > RENEW_SECONDS:
                self._kept = None
            raise

    def shown(self, name: str) -> str:
        return f"s3://{self._bucket}/{name}"

    def name_at(self, path: str) -> str:
        return path.lstrip("/")

    def listed(self, names: NameRange) -> Iterator[ListedObject]:
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": names.prefix or self.prefix, "MaxKeys": _PAGE}
        if names.after:
            asked["StartAfter"] = names.after
        while True:
            page = self._ask("list", lambda client: client.list_objects_v2(**asked))
            yield from (_of_s3(one["Key"], one) for one in page.get("Contents", ()))
            if not page.get("IsTruncated"):
                return
            if not page.get("NextContinuationToken"):
                raise OSError(errno.EIO, "a listing broke off in the middle")
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def look(self, name: str, *, is_certain: bool = True) -> ListedObject:
        try:
            found = self._ask("look at", lambda client: client.head_object(Bucket=self._bucket, Key=name))
        except FileNotFoundError:
            if is_certain:  # a HEAD has the same answer when the bucket is away, a listing has not
                page = self._ask("look at", lambda client: client.list_objects_v2(Bucket=self._bucket, Prefix=name, MaxKeys=1))
                for one in page.get("Contents", ()):
                    if one["Key"] == name:
                        return _of_s3(name, one)
            raise
        return _of_s3(name, {**found, "Size": found["ContentLength"]})

    def open(self, found: ListedObject) -> BlockFile:
        def fetch(position: int, size: int) -> bytes:
            asked = {
                "Bucket": self._bucket,
                "Key": found.name,
                "Range": f"bytes={position}-{position + size - 1}",
                "IfMatch": found.version,
            }
            return self._ask("read", lambda client: _body(client.get_object(**asked), found.version))

        return BlockFile(found.size, fetch)

    def queue(self, url: str) -> NotificationQueue:
        parts = urlsplit(url)
        region = _QUEUE_HOST.match(parts.netloc)
        client = _translated("open the queue", lambda: self._make("sqs", f"{parts.scheme}://{parts.netloc}", region[1] if region else None))
        return SqsQueue(client, _translated, url, self._bucket)

    def delete(self, found: ListedObject) -> None:
        """One request per object, to compare versions: DeleteObjects would also delete replaced objects in stores that cannot compare."""
        asked = {"Bucket": self._bucket, "Key": found.name}
        if self._compares:
            try:
                self._ask("delete", lambda client: client.delete_object(**asked, IfMatch=found.version))
                return
            except _UnknownHeaderError:
                self._compares = False
        self._ask("delete", lambda client: client.delete_object(**asked))

    def copy(self, found: ListedObject, to: str) -> None:
        source, version = {"Bucket": self._bucket, "Key": found.name}, {"CopySourceIfMatch": found.version}
        self._ask("copy", lambda client: client.copy(source, self._bucket, to, ExtraArgs=version))

    def tag(self, name: str, tag: str, value: str) -> None:
        def ask(client: Any) -> None:  # noqa: ANN401 - as above
            known = client.get_object_tagging(Bucket=self._bucket, Key=name).get("TagSet", [])
            tags = [*(one for one in known if one["Key"] != tag), {"Key": tag, "Value": value}]
            client.put_object_tagging(Bucket=self._bucket, Key=name, Tagging={"TagSet": tags})

        self._ask("tag", ask)


def _body(answer: dict[str, Any], version: str) -> bytes:
    """Returns the whole body within `BODY_SECONDS`: with time limits for its parts alone a slow answer could last for ever."""
    if answer.get("ETag", version) != version:  # not every service implements If-Match
        raise ReplacedError(errno.ESTALE, "it was replaced while it was read")
    deadline, parts = time.monotonic() + BODY_SECONDS, []
    with closing(answer["Body"]) as body:
        while part := body.read(PART_BYTES):
            parts.append(part)
            if time.monotonic() > deadline:
                raise TimeoutError
    return b"".join(parts)


def _of_s3(name: str, found: dict[str, Any]) -> ListedObject:
    return ListedObject(name, found["Size"], int(found["LastModified"].timestamp() * 1000), found.get("ETag", ""))


def _translated(what: str, ask: Callable[[], T]) -> T:
    """Returns S3's answer, and translates exceptions into OSError."""
    try:
        return ask()
    except ReplacedError:
        raise
    except ClientError as error:
        raise _refused(error) from None
    except (NoCredentialsError, PartialCredentialsError):
        raise PermissionError(errno.EACCES, "no credentials were found") from None
    except (ProfileNotFound, InvalidRegionError) as error:
        raise OSError(errno.EINVAL, f"profile or region in its address is none ({type(error).__name__})") from None
    except ParamValidationError:
        raise OSError(errno.EINVAL, f"that cannot be asked of S3: look at the name of the bucket ({what})") from None
    except RecursionError:  # botocore asks for the bucket's region, and is redirected again
        raise OSError(errno.EIO, f"the store sends on to itself (PermanentRedirect, {what})") from None
    except (BotoCoreError, ResponseParserError, HTTPError) as error:
        raise OSError(errno.EIO, f"the store does not answer ({type(error).__name__}, {what})") from None
    except (OSError, ValueError) as error:  # from the connection, while the body was read
        raise OSError(errno.EIO, f"the connection broke ({type(error).__name__}, {what})") from None


def _refused(error: ClientError) -> OSError:
    """Returns the OSError for an error response."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    words = f"{code or 'an error'} from {error.operation_name}"
    if code in _MISSING:
        return FileNotFoundError(errno.ENOENT, "there is no such object")
    if code in _REPLACED:
        return ReplacedError(errno.ESTALE, "it was replaced while it was read")
    if code == "NoSuchBucket" or code in _NO_QUEUE:
        return FileNotFoundError(errno.ENODEV, f"there is no such {'queue' if code in _NO_QUEUE else 'bucket'}")
    if code in _UNKNOWN:
        return _UnknownHeaderError(errno.EIO, words)
    if code in _FORBIDDEN:
        return PermissionError(errno.EACCES, f"it is not allowed ({words})")
    return OSError(errno.EIO, words)
