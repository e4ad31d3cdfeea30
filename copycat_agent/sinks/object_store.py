"""Object stores through obstore, which only this module uses: S3 and compatible stores, Google Cloud Storage, Azure.

A put is atomic, and `If-None-Match: *` (or generation 0) makes it a put-if-absent. No store renames, so publishing is a copy within
the store and a deletion: a late copy finds no source, or writes the same bytes again. What is uploaded carries its pending key as metadata,
which copies keep: so a copy that was made is not made again, and another connector's file is told from it before it would be overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote
from uuid import uuid4

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from copycat_agent.errors import BlockedError, CopycatError, FatalError, FileError, RetriableError
from copycat_agent.sinks.file_names import CONTROL
from copycat_agent.sinks.scratch import own_scratch
from copycat_agent.sources.files.reading.address import Address

if TYPE_CHECKING:
    from obstore import GetResult
    from obstore.store import ClientConfig, RetryConfig

REQUEST_SECONDS, TRANSFER_SECONDS = 15.0, 40.0
"""Timeouts of a small request, and of one that uploads a part of a file or copies a file. A process whose batch is 60 s late is killed."""
PART_BYTES, PARTS, SENT_AT_ONCE = 8 * 2**20, 2, 4
"""Bytes of a part, concurrent parts of a file, and concurrent files of an upload: together 64 MiB of memory."""
ASKED_AT_ONCE = 16
"""Concurrent copies or deletions, which need no memory."""
MOST_BYTES = 5 * 2**30
"""Largest object that S3 copies in one request."""
KEY_BYTES = 1024
"""Longest key that stores take."""
MARK = "copycat"
"""Name of the metadata that tells of which pending object one is a copy."""
RENEW_SECONDS = 10.0
"""A client whose request failed is replaced if it is older than this."""

_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,60})</Code>|\"reason\": ?\"([A-Za-z]{1,60})\"|\(code: ([A-Za-z]{1,60})\)")
_STATUS = re.compile(r"status code: (\d{3})|: (\d{3}) [A-Z][a-z]+")
_NO_KEY = re.compile(r"DeleteObjects request failed for key .* \(code: NoSuchKey\)")
_NO_BUCKET = re.compile(r"NoSuchBucket|bucket does not exist|ContainerNotFound|ContainerBeingDeleted")
_NO_CREDENTIALS = re.compile(r"token request|169\.254\.|credential provider|CredentialProvider|instance metadata", re.IGNORECASE)
_UNKNOWN = re.compile(r"NotImplemented|code: 501")
_RIGHTS = "give these credentials the right to list, read, write and delete, or the environment other credentials"
_FOR_PEOPLE: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"AccessDenied|AllAccessDisabled|ExpiredToken|InvalidAccessKeyId|InvalidToken|SignatureDoesNotMatch|code: 40[13]"),
        _RIGHTS,
    ),
    (re.compile(r"QuotaExceeded|InsufficientStorage|XMinioStorageFull|code: 507"), "make room in the store"),
    (
        re.compile(r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|InvalidBucketName|redirect without LOCATION"),
        "look at bucket, region and endpoint_override in sink.uri",
    ),
)
"""Patterns of answers that a person has to act on, and the hint for each."""

_KINDS = {"kind: Timeout": "it does not answer in time", "redirect": "it redirects to another place", "HTTP error": "it does not answer"}

T = TypeVar("T")
K = TypeVar("K")


class _Clients(NamedTuple):
    asking: Any
    sending: Any


class ObjectStore:
    """A `SinkStore` in a prefix of a bucket. Files are written below `scratch` before they are uploaded."""

    def __init__(self, address: Address, scratch: Path) -> None:
        self._address = address
        self._base = scratch
        self._kept: _Clients | None = None
        self._made_at = 0.0

    def shown(self, key: str = "") -> str:
        if len(f"{self._address.path.strip('/')}/{key}".encode()) > KEY_BYTES:
            raise FileError(f"object stores take no key of more than {KEY_BYTES} bytes: {key}", "write to a shorter sink.uri or sink.path")
        return f"{self._address.shown.rstrip('/')}/{key}"

    def scratch(self) -> Path:
        return own_scratch(self._base)

    def has_conditional_put(self) -> bool:
        key = f"{CONTROL}/probes/{uuid4().hex}"
        try:
            answers = [self.put_if_absent(key, b"first"), self.put_if_absent(key, b"second")]
            if all(answers):
                return False
            if answers[1] or self.get(key) != b"first":  # the first may be refused and yet be stored: it was sent twice
                raise RetriableError(f"{self.shown(key)} was refused, and is not there", "it is tried again")
            return True
        except FatalError:  # the store refuses the header
            return False
        finally:
            with contextlib.suppress(CopycatError):
                self.delete([key])

    def put_if_absent(self, key: str, data: bytes) -> bool:
        def ask(clients: _Clients) -> bool:
            try:
                obstore.put(clients.asking, key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

        return self._ask("write", ask)

    def get(self, key: str) -> bytes | None:
        def ask(clients: _Clients) -> bytes | None:
            try:
                return obstore.get(clients.asking, key).bytes().to_bytes()
            except FileNotFoundError as error:
                _pass_missing(error)
                return None

        return self._ask("read", ask)

    def upload(self, files: Mapping[str, Path]) -> None:
        for path in files.values():
            if (size := path.stat().st_size) > MOST_BYTES:
                raise FatalError(f"a file of {size:,} bytes is more than stores copy in one request", "set sink.roll.bytes to less")
        self._each(SENT_AT_ONCE, files.items(), self._send)

    def _send(self, file: tuple[str, Path]) -> None:
        key, path = file
        how: dict[str, Any] = {"chunk_size": PART_BYTES, "max_concurrency": PARTS, "attributes": {MARK: _mark(key)}}
        self._ask("write", lambda clients: obstore.put(clients.sending, key, path, **how))

    def publish(self, moves: Mapping[str, str]) -> None:
        directories = {one.rpartition("/")[0] for one in moves}
        there = {key for directory in directories for key in self.list(directory)}
        self._each(ASKED_AT_ONCE, [(one, final) for one, final in moves.items() if one in there], self._copy)
        self.delete(there & moves.keys())

    def _copy(self, move: tuple[str, str]) -> None:
        temporary, final = move

        def ask(clients: _Clients) -> None:
            if self._is_copied(clients.asking, temporary, final):
                return
            try:
                obstore.copy(clients.sending, temporary, final)
            except FileNotFoundError as error:
                _pass_missing(error)
                if temporary in self.list(temporary.rpartition("/")[0]):  # something before the store, say a proxy, has answered
                    raise RetriableError("the store denies an object that it lists", "look at what stands before the store") from None

        self._ask("copy", ask)

    def _is_copied(self, client: Any, temporary: str, final: str) -> bool:  # noqa: ANN401 - one of three classes of obstore's
        """Returns whether a copy that was asked for earlier is there. Raises FatalError for an object that is no such copy."""
        there = _found(client, final)
        mark = there and there.attributes.get(MARK)
        if mark == _mark(temporary):
            return True
        mine = _found(client, temporary) if there and not mark else None  # without a mark it may be of an earlier version
        if mark or (there and mine and there.meta["size"] != mine.meta["size"]):
            raise FatalError(f"{self.shown(final)} is not this connector's file", "let no two connectors write a topic to one directory")
        return False

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        def ask(clients: _Clients) -> list[str]:
            found = obstore.list(clients.asking, directory or None, offset=after or None).collect()
            return sorted(one["path"] for one in found if one["path"] > after)

        yield from self._ask("list", ask)

    def delete(self, keys: Iterable[str]) -> None:
        every = list(keys)
        if not every:
            return
        if self._address.scheme != "s3" or not self._ask("delete", lambda clients: _deletes_at_once(clients.asking, every)):
            self._each(ASKED_AT_ONCE, every, self._delete)

    def _delete(self, key: str) -> None:
        """Deletes one object: of several, stores other than S3 stop at the first that is missing."""

        def ask(clients: _Clients) -> None:
            try:
                obstore.delete(clients.asking, key)
            except FileNotFoundError as error:
                _pass_missing(error)

        self._ask("delete", ask)

    @staticmethod
    def _each(at_once: int, what: Iterable[K], do: Callable[[K], None]) -> None:
        """Calls `do` for each on a few threads. All calls have ended when this returns or raises."""
        with ThreadPoolExecutor(at_once) as pool:
            done = [pool.submit(do, one) for one in what]
        for one in done:
            one.result()

    def _ask(self, what: str, ask: Callable[[_Clients], T]) -> T:
        """Sends a request and translates its errors. After a failure the next request reads the credentials anew: they may have changed."""
        try:
            clients = self._kept
            if clients is None:
                clients, self._made_at = _clients(self._address), time.monotonic()
                self._kept = clients
            return ask(clients)
        except CopycatError:
            raise
        except (BaseError, OSError, ValueError) as error:
            if time.monotonic() - self._made_at > RENEW_SECONDS:
                self._kept = None
            raise _as_ours(what, self.shown(), error) from None


def _deletes_at_once(client: Any, keys: list[str]) -> bool:  # noqa: ANN401 - one of three classes of obstore's
    """Returns False if some were missing, which servers other than Amazon's report as an error: the rest may not be deleted."""
    try:
        obstore.delete(client, keys)
    except BaseError as error:
        if _NO_KEY.search(str(error)):
            return False
        raise
    return True


def _mark(key: str) -> str:
    """Returns what tells an object from others, as ASCII, which is all that metadata may be."""
    return hashlib.sha256(key.encode()).hexdigest()


def _found(client: Any, key: str) -> GetResult | None:  # noqa: ANN401 - one of three classes of obstore's
    """Returns an object without its content, None if it does not exist."""
    try:
        return obstore.get(client, key, options={"head": True})
    except FileNotFoundError:
        return None


def _pass_missing(error: FileNotFoundError) -> None:
    """Raises the error if the bucket is missing, and not just the object."""
    if _NO_BUCKET.search(str(error)):
        raise error


def _as_ours(what: str, where: str, error: Exception) -> CopycatError:
    """Translates an error. Only codes of its text are shown: the rest may contain the request."""
    text = str(error)
    code = _CODE.search(text) or _STATUS.search(text)
    msg = f"cannot {what} at {where} ({code[code.lastindex or 0] if code else _kind(text, error)})"
    if _NO_BUCKET.search(text) or (what == "write" and isinstance(error, FileNotFoundError)):
        return BlockedError(f"there is no bucket for {where}", "make it, or look at its name and at the region in sink.uri")
    if isinstance(error, NotSupportedError | InvalidPathError | ValueError) or _UNKNOWN.search(text):
        return FatalError(msg, "look at sink.uri and sink.path: stores that cannot do all that is needed are no use")
    if _NO_CREDENTIALS.search(text):
        return BlockedError(f"no credentials for {where} were found", "give them where the store's SDK looks for them")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return BlockedError(msg, _RIGHTS)
    hint = next((hint for pattern, hint in _FOR_PEOPLE if pattern.search(text)), None)
    return BlockedError(msg, hint) if hint else RetriableError(msg, "look at the network and the store")


def _kind(text: str, error: Exception) -> str:
    """Returns words for an error that carries no code of an answer."""
    found = next((words for sign, words in _KINDS.items() if sign in text), None)
    return found or type(error).__name__


def _clients(address: Address) -> _Clients:
    make = _STORES[address.scheme]
    options = dict(parse_qsl(address.query, keep_blank_values=True))
    endpoint = options.get("endpoint_override")
    if endpoint and "://" not in endpoint:
        options["endpoint_override"] = f"{options.get('scheme', 'https')}://{endpoint}"
    return _Clients(*(make(address, options, _http(seconds)) for seconds in (REQUEST_SECONDS, TRANSFER_SECONDS)))


def _http(seconds: float) -> dict[str, Any]:
    """Returns options with few and short retries, since the agent itself retries."""
    client: ClientConfig = {"allow_http": True, "connect_timeout": timedelta(seconds=4), "timeout": timedelta(seconds=seconds)}
    retry: RetryConfig = {
        "max_retries": 2,
        "retry_timeout": timedelta(seconds=10),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 3},
    }
    return {"client_options": client, "retry_config": retry}


def _prefix(address: Address) -> str | None:
    return address.path.strip("/") or None


def _s3(address: Address, options: Mapping[str, str], http: dict[str, Any]) -> Any:  # noqa: ANN401 - one of three classes of obstore's
    config: dict[str, Any] = {"region": options["region"]} if options.get("region") else {}
    if endpoint := options.get("endpoint_override"):
        config |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
    if options.get("profile") or not os.environ.get("AWS_ACCESS_KEY_ID"):
        config["credential_provider"] = _of_boto3(options.get("profile"))
    return S3Store(address.authority, prefix=_prefix(address), **http, **config)


def _of_boto3(profile: str | None) -> Any:  # noqa: ANN401 - boto3 has no types
    """Returns credentials from where source `objects` finds them: files, profiles, roles. obstore alone knows fewer places."""
    from boto3.session import Session  # noqa: PLC0415 - takes 0.3 s, and is not needed with credentials in the environment
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - as above
    from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - as above

    try:
        return Boto3CredentialProvider(Session(profile_name=profile))
    except (BotoCoreError, ValueError):
        raise BlockedError("no credentials for S3 were found", "give them where AWS's SDK looks for them") from None


def _gcs(address: Address, options: Mapping[str, str], http: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
    config: dict[str, Any] = {}
    if endpoint := options.get("endpoint_override"):
        config["base_url"] = endpoint
    if options.get("anonymous") == "true":
        config["bearer_token"] = "anonymous"  # noqa: S105 - says that there is none; skip_signature is for reading alone
    return GCSStore(address.authority, prefix=_prefix(address), **http, **config)


def _azure(address: Address, options: Mapping[str, str], http: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
    container, _, host = unquote(address.authority).partition("@")
    config: dict[str, Any] = {"endpoint": options["endpoint_override"]} if options.get("endpoint_override") else {}
    return AzureStore(container, account_name=host.partition(".")[0], prefix=_prefix(address), **http, **config)


_STORES = {"s3": _s3, "gs": _gcs, "abfss": _azure}
