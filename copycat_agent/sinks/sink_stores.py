"""What a store of files has to be able to do, and which one is behind an address.

A store is the directory that `sink.uri` names. Keys are relative to it: parts between slashes, none of them empty, `.` or `..`.

::

    store = store_at("s3://lake/orders/?region=eu-central-1")
    store.has_conditional_put()                 # False: it cannot keep two writers apart
    directory = store.scratch()                 # files are best written here, then
    store.upload({key: path})                   # ... complete files get keys that nobody reads yet,
    store.publish({temporary: final})           # ... and those that people see

Everything raises the errors of `copycat_agent.errors`: RetriableError for what passes, BlockedError for what a person has to repair
outside (refused credentials, no bucket, no space), FatalError for what is wrong in the definition. Messages never show what was sent.
After any error nobody knows whether the operation was done, will be done late, or not at all.
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
}
"""Schemes of addresses -> what may stand behind the question mark."""


class SinkStore(Protocol):
    """A directory of a store. Thread-safe; made anew in each process, never forked."""

    def shown(self, key: str = "") -> str:
        """The address of a key, for people. It holds no options and no secrets."""

    def scratch(self) -> Path:
        """A local directory of this process alone, where files are written before `upload`. Those of dead processes are removed.

        Give files there no extension: of a store that is a directory it is below the root, and DuckDB's `**/*.parquet` finds it.
        """

    def has_conditional_put(self) -> bool:
        """Whether `put_if_absent` does what it says, which is tried out. False: not a store for several writers."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one: of all who ever try, one gets True.

        What lies there is complete, and outlives a loss of power when this returns. False may be one's own doing, where a request was sent
        twice, and S3 says it where somebody else's request is under way, too: only what `get` returns is there.
        """

    def get(self, key: str) -> bytes | None:
        """What lies there, None for nothing. What was returned once outlives a loss of power."""

    def upload(self, files: Mapping[str, Path]) -> None:
        """Key -> local file, which is closed and complete. Files in `scratch` may be gone afterwards. Durable when it returns."""

    def publish(self, moves: Mapping[str, str]) -> None:
        """Temporary key -> final key. A final key shows a complete file or none, and is never changed once it is there.

        A temporary object that is not there was published by somebody else. Durable when it returns, whoever did it.
        """

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        """Keys below a directory ("" is all) in the order of their bytes, only those greater than `after`. None when it is not there."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete what is there of these."""


def check_address(uri: str) -> Address:
    """The address of a store. Raises FatalError, which says what is wrong and never shows a secret. Asks nobody."""
    address = parse_address(uri)
    if address.scheme not in OPTIONS:
        msg = f"files are not written to {address.scheme}://"
        raise FatalError(msg, "known are " + ", ".join(f"{one}://" for one in OPTIONS))
    unknown = [name for name, _ in parse_qsl(address.query, keep_blank_values=True) if name not in OPTIONS[address.scheme]]
    if unknown:
        known = ", ".join(OPTIONS[address.scheme]) or "none"
        raise FatalError(f"the address has an option that is not known: {unknown[0]}", f"known of {address.scheme}:// are: {known}")
    parts = address.path.strip("/").split("/")
    if any(one in (".", "..") or (one == "" and len(parts) > 1) for one in parts):
        raise FatalError("parts of the address's path are empty, . or ..", "write it without them")
    if address.scheme == "file" and (address.authority or not address.path.strip("/")):
        raise FatalError("the address is not that of a directory of this host", "as in file:///srv/lake/orders/")
    return address


def store_at(uri: str, scratch: Path | None = None) -> SinkStore:
    """The store at an address. Raises FatalError where it cannot be one, or a library is missing; it is not asked anything yet.

    `scratch` is where files for an object store are written first, the directory for temporary files unless said.
    """
    address = check_address(uri)
    if address.scheme == "file":
        return DirectoryStore(Path(address.path))
    try:
        from copycat_agent.sinks.object_store import ObjectStore  # noqa: PLC0415 - obstore is an extra
    except ImportError as error:
        raise FatalError(f"{address.scheme}:// needs {error.name}", "pip install 'copycat-agent[lake]'") from None
    return ObjectStore(address, scratch or Path(tempfile.gettempdir(), f"copycat-files-{os.getuid()}"))
