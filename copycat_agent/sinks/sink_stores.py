"""The contract of a store of files, and the store for an address.

A store is the directory that `sink.uri` names. Keys are relative to it, with parts between slashes, none of them empty, `.` or `..`.

::

    store = store_at("s3://lake/orders/?region=eu-central-1")
    store.has_conditional_put()                 # False: not safe with several writers
    directory = store.scratch()                 # write local files here, then
    store.upload({key: path})                   # ... upload complete files to pending keys,
    store.publish({temporary: final})           # ... and move them to the keys that readers see

All methods raise the errors of `copycat_agent.errors`: RetriableError for what passes, BlockedError for what a person has to repair
outside (refused credentials, no bucket, no space), FatalError for a mistake in the definition. Messages never show the request.
After any error the operation may have been done, may be done later, or not at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl

from copycat_agent.errors import FatalError
from copycat_agent.sinks.directory_store import DirectoryStore
from copycat_agent.sources.files.reading.address import Address, parse_address

OPTIONS: dict[str, tuple[str, ...]] = {
    "file": (),
    "s3": ("region", "endpoint_override", "scheme", "profile"),
    "gs": ("endpoint_override", "scheme", "anonymous"),
    "abfss": ("endpoint_override", "scheme"),
    "hdfs": (),
}
"""Options that the query of an address may have, by scheme."""


class SinkStore(Protocol):
    """A directory of a store. Thread-safe; created in each process, never inherited by a fork."""

    def shown(self, key: str = "") -> str:
        """Returns the address of a key for messages, without options and secrets. Raises FatalError for a key that the store refuses."""

    def scratch(self) -> Path:
        """Returns a local directory of this process alone, for files before `upload`. Those of dead processes are removed.

        Give files in it no extension: a `DirectoryStore` has it below its root, where DuckDB's `**/*.parquet` would find them.
        """

    def has_conditional_put(self) -> bool:
        """Tries out whether `put_if_absent` is conditional. A store where it is not is not safe with several writers."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Writes an object unless it exists: of all writers that ever try, at most one gets True.

        The object is complete, and durable when this returns. False may be caused by this call's own request, if that was sent twice, or,
        with S3, by another request that is still under way: only `get` tells which object exists.
        """

    def get(self, key: str) -> bytes | None:
        """Returns the content of an object, None if it does not exist. What was returned once is durable."""

    def upload(self, files: Mapping[str, Path]) -> None:
        """Uploads local files, closed and complete, by key. Durable when it returns. Files in `scratch` may be gone afterwards."""

    def publish(self, moves: Mapping[str, str]) -> None:
        """Moves objects from their temporary to their final keys. A final key has a complete file or none, and never changes afterwards.

        A temporary object that is missing was published by another writer. Durable when it returns, whoever published.
        """

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        """Yields the keys below a directory ("" is all) that are greater than `after`, in the order of their bytes."""

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes objects. Keys without one are skipped."""


def check_address(uri: str) -> Address:
    """Returns the parsed address of a store. Raises FatalError, whose message shows no secret. Sends no request."""
    address = parse_address(uri, tuple(OPTIONS))
    unknown = [name for name, _ in parse_qsl(address.query, keep_blank_values=True) if name not in OPTIONS[address.scheme]]
    if unknown:
        known = ", ".join(OPTIONS[address.scheme]) or "none"
        raise FatalError(f"the address has an option that is not known: {unknown[0]}", f"known of {address.scheme}:// are: {known}")
    parts = address.path.strip("/").split("/")
    if any(one in (".", "..") or (one == "" and len(parts) > 1) for one in parts):
        raise FatalError("parts of the address's path are empty, . or ..", "write it without them")
    if address.scheme == "hdfs" and "@" in address.authority:
        raise FatalError("the address names a user", "set HADOOP_USER_NAME instead")
    if address.scheme == "hdfs" and ":" in address.path:
        raise FatalError("the address has a colon in its path", "HDFS takes no names with a colon")
    if address.scheme == "file" and (address.authority or not address.path.strip("/")):
        raise FatalError("the address is not that of a directory of this host", "as in file:///srv/lake/orders/")
    return address


def store_at(uri: str) -> SinkStore:
    """Returns the store at an address. Raises FatalError for an invalid address, or if a library is missing. Sends no request.

    Files for an object store are written below the system's temporary directory before they are uploaded.
    """
    address = check_address(uri)
    if address.scheme == "file":
        return DirectoryStore(Path(address.path))
    base, extra = Path(tempfile.gettempdir(), f"copycat-files-{os.getuid()}"), "hdfs" if address.scheme == "hdfs" else "lake"
    try:
        if extra == "hdfs":
            from copycat_agent.sinks.hdfs_store import HdfsStore  # noqa: PLC0415 - hdfs-native is an extra

            return HdfsStore(address, base)
        from copycat_agent.sinks.object_store import ObjectStore  # noqa: PLC0415 - obstore is an extra
    except ImportError as error:
        raise FatalError(f"{address.scheme}:// needs {error.name}", f"pip install 'copycat-agent[{extra}]'") from None
    return ObjectStore(address, base)
