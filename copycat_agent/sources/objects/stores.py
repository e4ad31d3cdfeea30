"""The interface of an object store.

All failures are OSErrors whose `strerror` may be shown to people: it names the operation and contains no data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from copycat_agent.sources.objects.blocks import BlockFile
    from copycat_agent.sources.objects.listing_schedule import NameRange


class ListedObject(NamedTuple):
    """An object as in a listing. `name` is its whole key. `version` changes with its bytes: an ETag, or size and time."""

    name: str
    size: int
    mtime_ms: int
    version: str


KEY = "o:"
"""Prefix of the partition keys of objects."""


def key_of(found: ListedObject) -> str:
    """Returns the partition key of one version of an object: a hash, because names may contain anything."""
    text = f"{found.name}\0{found.version}\0{found.size}".encode("utf-8", "surrogatepass")
    return KEY + hashlib.blake2b(text, digest_size=16).hexdigest()


def directory_of(path: str) -> str:
    """Returns a path with one slash at its end, as the prefix of all names below it; "" for the root."""
    return f"{path.rstrip('/')}/" if path.strip("/") else ""


class ObjectNotification(NamedTuple):
    """A message about new objects. It is deleted by its `receipt`."""

    names: tuple[str, ...]
    receipt: str


class NotificationQueue(Protocol):
    """A queue of messages about new objects. All methods raise OSError."""

    def receive(self, wait_seconds: int) -> Iterator[ObjectNotification]:
        """Yields messages; waits `wait_seconds` for the first. Each comes again after a while, until it is deleted."""

    def delete(self, receipts: Sequence[str]) -> None:
        """Deletes messages by their receipts."""


class Store(Protocol):
    """An object store, or a file system, below one prefix. Thread-safe.

    All methods raise OSError: FileNotFoundError for what does not exist, PermissionError for what is not allowed.
    """

    @property
    def prefix(self) -> str:
        """The beginning of the names of all its objects. Ends with a slash, or is ""."""

    @property
    def lists_behind(self) -> bool:
        """Whether listing the names after a given one costs less than listing all."""

    @property
    def refused(self) -> Mapping[str, str]:
        """The directories, and files, that the last listing left out because nobody lets this user look at them, and why."""

    def shown(self, name: str) -> str:
        """Returns an object's address, for people and templates."""

    def name_at(self, path: str) -> str:
        """Returns the name of the object at this path of the bucket or file system."""

    def listed(self, names: NameRange) -> Iterator[ListedObject]:
        """Yields the objects in this range below `prefix`, in the order of their names' UTF-8 bytes."""

    def look(self, name: str, *, is_certain: bool = True) -> ListedObject:
        """Returns an object as it is now. `is_certain`: if the whole store is away, raises another OSError, or one with ENODEV.

        That takes some stores another request for an object that does not exist.
        """

    def open(self, found: ListedObject) -> BlockFile:
        """Opens this version of an object. A missing one may raise only when it is read."""

    def queue(self, url: str) -> NotificationQueue:
        """Returns the queue at this URL, which gets messages about new objects."""

    def delete(self, found: ListedObject) -> None:
        """Deletes an object. If the store can compare versions, raises ReplacedError for another one."""

    def copy(self, found: ListedObject, to: str) -> None:
        """Copies an object to another name, and replaces what is there. Compares versions like `delete`."""

    def tag(self, name: str, tag: str, value: str) -> None:
        """Adds a tag to an object's other tags."""
