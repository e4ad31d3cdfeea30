"""What a store of objects has to be able to do, and which one is behind an address.

Every trouble is an OSError whose `strerror` may be shown: it names the operation, never what was sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from copycat_agent.sources.objects.blocks import BlockFile
    from copycat_agent.sources.objects.passes import NameRange


class Listed(NamedTuple):
    """An object as a listing has it. `name` is all of its key. `version` differs whenever its bytes do (an ETag, or size and time)."""

    name: str
    size: int
    mtime_ms: int
    version: str


KEY = "o:"
"""What the keys of objects begin with."""


def key_of(found: Listed) -> str:
    """Key of the partition of one version of an object. A hash, as names may hold anything."""
    text = f"{found.name}\0{found.version}\0{found.size}".encode("utf-8", "surrogatepass")
    return KEY + hashlib.blake2b(text, digest_size=16).hexdigest()


def directory_of(path: str) -> str:
    """The prefix of what lies below a path: with a slash at its end, unless it is ""."""
    return f"{path.rstrip('/')}/" if path.strip("/") else ""


class Notice(NamedTuple):
    """A message that tells of new objects, by their names. `receipt`: what it is deleted by."""

    names: tuple[str, ...]
    receipt: str


class NoticeQueue(Protocol):
    """Where messages come from. Everything raises OSError."""

    def receive(self, wait_seconds: int) -> Iterator[Notice]:
        """What it has, or gets in so long. Each comes again after a while, until it is deleted."""

    def delete(self, receipts: Sequence[str]) -> None:
        """These are done with."""


class Store(Protocol):
    """Thread-safe. `prefix` is what the names of all its objects begin with.

    Everything raises OSError: FileNotFoundError for what is not there, PermissionError for what is not allowed.
    """

    @property
    def prefix(self) -> str:
        """Ends with a slash, or is ""."""

    @property
    def lists_behind(self) -> bool:
        """Whether listing what lies behind a name costs less than listing everything."""

    def shown(self, name: str) -> str:
        """The address of one, for people and templates."""

    def name_at(self, path: str) -> str:
        """The name of what lies at this path of the bucket or file system."""

    def listed(self, names: NameRange) -> Iterator[Listed]:
        """What has such names, below `prefix`, by name in the order of its UTF-8 bytes."""

    def look(self, name: str) -> Listed:
        """How one is now."""

    def open(self, found: Listed) -> BlockFile:
        """This version of one, for reading. Whether it is there shows when it is read."""

    def queue(self, url: str) -> NoticeQueue:
        """The queue with this URL, which is told what is new."""

    def delete(self, found: Listed) -> None:
        """Delete one. Where the store can compare, only this version; ReplacedError where it is another one."""

    def copy(self, found: Listed, to: str) -> None:
        """Copy one to another name, in place of what is there. Of which version: as `delete`."""

    def tag(self, name: str, tag: str, value: str) -> None:
        """Give one a tag, beside those that it has."""
