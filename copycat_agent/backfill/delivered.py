"""Finds what Kafka has of a file already: sent by the live connector or an earlier backfill, under this name or another one.

A saved offset proves it by the bytes before it, never by a name alone. In doubt nothing counts as sent: records are repeated, not lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from copycat_agent.formats import Reader
from copycat_agent.formats.timestamps import recognise
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, identify
from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.log_file.rotation import rotation_family

_TELLING_BYTES = 96
"""A head that compresses to less is short or repetitive: many files may begin with it."""
_HASH_BLOCK_BYTES = 2**20
_MOST_ALIKE = 64
"""Most files of one name and one beginning that a file is compared with: with thousands of them it would take too long."""


class EarlierDelivery(NamedTuple):
    """A saved offset, the file it belongs to, and what sent it, in words."""

    offset: SourceOffset
    identity: Identity | None
    who: str

    @property
    def words(self) -> str:
        """Returns the text for the account."""
        return f"delivered by {self.who} as {self.offset.path}" if self.offset.path else f"delivered by {self.who}"


@dataclass(frozen=True, slots=True)
class ReadableFile:
    """An open file: `read` returns its bytes as stored; `codec` is its compression, "" without."""

    path: str
    identity: Identity
    size: int
    mtime_ns: int
    codec: str
    read: Reader


class EarlierDeliveries:
    """Saved offsets, looked up by the beginning of the files they belong to."""

    def __init__(self, rows: Iterable[tuple[SourcePartition, SourceOffset, str]]) -> None:
        """`rows`: partition, offset, and what saved it, in words. Those that prove nothing are left out."""
        self._by_head: dict[tuple[int, str, str], list[EarlierDelivery]] = {}
        self._by_identity: dict[Identity, list[EarlierDelivery]] = {}
        self._whole: dict[int, dict[str, list[EarlierDelivery]]] = {}
        self._listings: dict[str, dict[int, str]] = {}
        for partition, offset, who in rows:
            proof = offset.fingerprint
            former = EarlierDelivery(offset, identity_of(partition.key), who)
            if proof.head_bytes > fingerprint.HEAD_BYTES:
                if offset.done and not offset.trouble and proof.head_bytes == offset.size:
                    self._whole.setdefault(offset.size, {}).setdefault(proof.head, []).append(former)
            elif proof.head_bytes and offset.position:
                self._by_head.setdefault((proof.head_bytes, proof.head, rotation_family(offset.path)), []).append(former)
                if former.identity:
                    self._by_identity.setdefault(former.identity.lasting, []).append(former)
                if offset.done and not offset.trouble and proof.head_bytes == offset.size:
                    self._whole.setdefault(offset.size, {}).setdefault(proof.head, []).append(former)
        self._lengths = {length for length, *_ in self._by_head}

    def before(self, file: ReadableFile) -> list[EarlierDelivery]:
        """Returns the offsets after which the file may be continued, the furthest first. Raises OSError.

        For a file that is not compressed, the first is proven. For a compressed one a task unpacks it to prove one (`Split.origins`).
        """
        if not self._by_head:
            return []
        head = compressions.head_of(file.read, file.codec, fingerprint.HEAD_BYTES) if file.codec else file.read(0, fingerprint.HEAD_BYTES)
        found = [former for former in self._by_identity.get(file.identity.lasting, ()) if _begins_with(head, former)]
        found += [former for former in self._alike(file, head) if self._is_copy(former, file, head)]
        found.sort(key=lambda former: -former.offset.position)
        return found if file.codec else [former for former in found if _holds(file, former.offset)][:1]

    def _alike(self, file: ReadableFile, head: bytes) -> Iterable[EarlierDelivery]:
        """Returns other files of its name with the same beginning, `_MOST_ALIKE` at most."""
        name = rotation_family(file.path)
        lengths = (length for length in self._lengths if length <= len(head))
        alike = (self._by_head.get((length, fingerprint.digest(head[:length]), name), ()) for length in lengths)
        others = (former for former in itertools.chain.from_iterable(alike) if not _is_of(former, file.identity))
        return itertools.islice(others, _MOST_ALIKE)

    def whole(self, file: ReadableFile) -> EarlierDelivery | None:
        """Returns the file that was read to its end with the same bytes, and is this one, or had its name or its time. Raises OSError.

        Under another name equal bytes may be new records, as in a report that is written every hour.
        """
        alike = self._whole.get(file.size)
        if not (alike and file.size):
            return None
        name = file.path.rpartition("/")[2]
        for former in alike.get(_digest(file), ()):
            of_name = former.offset.path.rpartition("/")[2] == name
            if of_name or _is_of(former, file.identity) or former.offset.mtime_ns == file.mtime_ns:
                return former
        return None

    def _is_copy(self, former: EarlierDelivery, file: ReadableFile, head: bytes) -> bool:
        """Returns whether equal bytes make another file of that name the same log: bytes that no other log has.

        Head and tail are all of a small file. What lies between them in a larger one is unknown, so a beginning that other logs may have
        proves nothing. If the file that was read still exists, all of it is compared, or it counts as another one.
        """
        offset, proof = former.offset, former.offset.fingerprint
        is_near = offset.path.rpartition("/")[0] == file.path.rpartition("/")[0]
        if not (is_near or proof.head_bytes == fingerprint.HEAD_BYTES):
            return False
        is_all = offset.position <= proof.head_bytes + proof.tail_bytes
        proven = head[: proof.head_bytes]
        if len(zlib.compress(proven)) < _TELLING_BYTES and not (is_all and _says_when(proven)):
            return False
        with self._standing(former) as read:
            if read is None:
                return True
            if file.codec:
                return not is_all and _says_when(head)
            return not is_all and fingerprint.holds(read, proof, offset.position) and _same(read, file.read, offset.position)

    @contextlib.contextmanager
    def _standing(self, former: EarlierDelivery) -> Iterator[Reader | None]:
        """Yields the open file that was read; None when it is gone. Raises OSError."""
        directory = former.offset.path.rpartition("/")[0] or "/"
        if directory not in self._listings:
            self._listings[directory] = _inodes(directory)
        path = self._listings[directory].get(former.identity.inode) if former.identity else None
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK) if path else -1
        except OSError:
            fd = -1
        try:
            yield fingerprint.reader(fd) if fd >= 0 and _is_of(former, identify(fd, os.fstat(fd))) else None
        finally:
            if fd >= 0:
                os.close(fd)


def _inodes(directory: str) -> dict[int, str]:
    try:
        with os.scandir(directory) as entries:
            return {one.inode(): one.path for one in entries if one.is_file(follow_symlinks=False)}
    except OSError:
        return {}


def _is_of(former: EarlierDelivery, identity: Identity) -> bool:
    """Returns whether the offset is the file's own, whatever number its device had."""
    return former.identity is not None and former.identity.lasting == identity.lasting


def _begins_with(head: bytes, former: EarlierDelivery) -> bool:
    proof = former.offset.fingerprint
    return len(head) >= proof.head_bytes and fingerprint.digest(head[: proof.head_bytes]) == proof.head


def _holds(file: ReadableFile, offset: SourceOffset) -> bool:
    return file.size >= offset.position and fingerprint.holds(file.read, offset.fingerprint, offset.position)


def _says_when(head: bytes) -> bool:
    """Returns whether the text contains times: two logs are not written at the same times."""
    lines = head.decode("utf-8", "replace").split("\n")
    return recognise(lines, time.time()) is not None


def _same(one: Reader, other: Reader, size: int) -> bool:
    """Returns whether two files hold the same bytes up to `size`. Raises OSError."""
    starts = range(0, size, _HASH_BLOCK_BYTES)
    return all(one(start, length) == other(start, length) for start in starts if (length := min(_HASH_BLOCK_BYTES, size - start)))


def identity_of(key: str) -> Identity | None:
    """Returns the identity in a partition's key, None for a key of another kind."""
    try:
        return Identity.parse(key)[0]
    except ValueError:
        return None


def _digest(file: ReadableFile) -> str:
    """Returns `fingerprint.digest` of the whole file."""
    found = hashlib.blake2b(digest_size=16)
    position = 0
    while data := file.read(position, _HASH_BLOCK_BYTES):
        found.update(data)
        position += len(data)
    return found.hexdigest()
