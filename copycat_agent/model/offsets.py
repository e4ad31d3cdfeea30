"""Who owns what, and how far it is settled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Reduced = tuple[type, tuple[Any, ...]]
"""How a value is pickled: as its class and the arguments that make it anew. What frozen dataclasses with slots do by
themselves takes five times as long, which a log that trickles pays twenty times a second."""


class TaskId(NamedTuple):
    """A task: the connector's name and a number from 0."""

    connector: str
    number: int


class SourcePartition(NamedTuple):
    """What an offset belongs to. `key` names one generation of one file, never a path alone (see `sources.files.identity`)."""

    connector: str
    key: str


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Proof that a file still holds the bytes that were read from it.

    `head` hashes the first `head_bytes` bytes and grows with the file up to a limit; `tail` hashes the `tail_bytes` bytes
    just before the offset. Hex digests; lengths of 0 mean "nothing to compare".
    """

    head_bytes: int = 0
    head: str = ""
    tail_bytes: int = 0
    tail: str = ""

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        return Fingerprint, (self.head_bytes, self.head, self.tail_bytes, self.tail)


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """How far a partition is settled.

    `position` is the next byte to read (for formats that cannot seek: the next record's number). `records` counts the
    records before it. `done` means that nothing will ever follow. `skipping` means that `position` lies inside an over-long
    line whose beginning is settled: the rest of that line belongs to it. `path` is the last known name, for people.
    `size` is how large the file was known to be. `gone_ms` is when it was found to be gone (epoch milliseconds), 0 while it is
    there. `compression` is how a packed file is packed (a name in `sources.files.packing`), "" for all others: then `position` counts
    unpacked bytes and `size` is the packed size on disk; `done` means that everything up to that size is read. Of a spooled file:
    `mtime_ns` is when what was read of it was last changed, and `trouble` says why it cannot be read to its end: `done` means
    then that it is given up, and has to be set aside. `cut`: `position` lies between two parts of a record that goes in parts, and this
    is what its format has to know of it (`formats.parts`); `skipping` then, too. `cursor` is where the source itself says it is, any JSON
    value as text, which only the source compares; `position` then counts the records before it. "" for files.
    """

    position: int
    records: int = 0
    done: bool = False
    skipping: bool = False
    path: str = ""
    size: int = 0
    gone_ms: int = 0
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    compression: str = ""
    mtime_ns: int = 0
    trouble: str = ""
    cut: str = ""
    cursor: str = ""

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        words = (self.path, self.size, self.gone_ms, self.fingerprint, self.compression, self.mtime_ns, self.trouble, self.cut, self.cursor)
        return SourceOffset, (self.position, self.records, self.done, self.skipping, *words)
