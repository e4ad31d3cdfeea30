"""What of a file Kafka has already: sent by the live connector, or by an earlier backfill, under this name or another one.

A saved offset proves it by the bytes before it, never by a name alone. In doubt the answer is "nothing": repeated, not left out.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from copycat_agent.formats import TAIL_BYTES, Reader
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources import fingerprint
from copycat_agent.sources.identity import Identity, identify
from copycat_agent.sources.packing import packed
from copycat_agent.sources.rotation import kin

_TELLING_BYTES = 96
"""A head that packs to less says the same again and again: many files may begin with it."""
_HASH_BLOCK_BYTES = 2**20


class Former(NamedTuple):
    """A saved offset, whose file it was, and who sent it, in words."""

    offset: SourceOffset
    identity: Identity | None
    who: str

    @property
    def words(self) -> str:
        """For the account."""
        return f"delivered by {self.who} as {self.offset.path}" if self.offset.path else f"delivered by {self.who}"


@dataclass(frozen=True, slots=True)
class Looked:
    """An open file: `read` gives its bytes as they lie on the disk; `codec` is how it is packed, "" when it is not."""

    path: str
    identity: Identity
    size: int
    codec: str
    read: Reader


class Delivered:
    """Saved offsets, looked up by the beginning of the files they belong to."""

    def __init__(self, rows: Iterable[tuple[SourcePartition, SourceOffset, str]]) -> None:
        """`rows`: partition, offset, and whose it is, in words. Those that prove nothing are left out."""
        self._by_head: dict[tuple[int, str], list[Former]] = {}
        self._whole: dict[int, dict[str, Former]] = {}
        for partition, offset, who in rows:
            proof = offset.fingerprint
            former = Former(offset, _identity(partition.key), who)
            if proof.head_bytes > fingerprint.HEAD_BYTES:
                if offset.done and not offset.trouble and proof.head_bytes == offset.size:
                    self._whole.setdefault(offset.size, {})[proof.head] = former
            elif proof.head_bytes and offset.position:
                self._by_head.setdefault((proof.head_bytes, proof.head), []).append(former)
                if offset.done and not offset.trouble and proof.head_bytes == offset.size:
                    self._whole.setdefault(offset.size, {})[proof.head] = former

    def before(self, file: Looked) -> list[Former]:
        """What the file may go on behind, that which reaches furthest first. Raises OSError.

        Of a file that is not packed, the first is proven. Of a packed one only unpacking tells: a task does that (`Split.origins`).
        """
        if not self._by_head:
            return []
        head = packed.head_of(file.read, file.codec, fingerprint.HEAD_BYTES) if file.codec else file.read(0, fingerprint.HEAD_BYTES)
        found = [
            former
            for length in {length for length, _ in self._by_head}
            if length <= len(head)
            for former in self._by_head.get((length, fingerprint.digest(head[:length])), ())
            if self._is_related(former, file, head)
        ]
        found.sort(key=lambda former: -former.offset.position)
        return found if file.codec else [former for former in found if _holds(file, former.offset)][:1]

    def whole(self, file: Looked) -> Former | None:
        """The file that was read to its end and held these very bytes, whatever its name. Raises OSError."""
        alike = self._whole.get(file.size)
        return alike.get(_digest(file)) if alike and file.size else None

    def _is_related(self, former: Former, file: Looked, head: bytes) -> bool:
        """Whether equal bytes make it the same log: the very file, or one of its names and a beginning that no other log has.

        While the file that was read stands where it was, another one with its beginning is a copy only if that says something.
        """
        if former.identity == file.identity:
            return True
        proof = former.offset.fingerprint
        is_near = former.offset.path.rpartition("/")[0] == file.path.rpartition("/")[0]
        if kin(former.offset.path) != kin(file.path) or not (is_near or proof.head_bytes == fingerprint.HEAD_BYTES):
            return False
        is_telling = former.offset.position >= fingerprint.HEAD_BYTES + TAIL_BYTES and len(zlib.compress(head)) >= _TELLING_BYTES
        return is_telling or not _stands(former)


def _holds(file: Looked, offset: SourceOffset) -> bool:
    return file.size >= offset.position and fingerprint.holds(file.read, offset.fingerprint, offset.position)


def _stands(former: Former) -> bool:
    """Whether the file that was read still has its last name."""
    try:
        with Path(former.offset.path).open("rb") as file:
            info = Path(former.offset.path).stat()
            return identify(file.fileno(), info) == former.identity
    except (OSError, ValueError):
        return False


def _identity(key: str) -> Identity | None:
    try:
        return Identity.parse(key)[0]
    except ValueError:
        return None


def _digest(file: Looked) -> str:
    """As `fingerprint.digest`, of the whole file."""
    found = hashlib.blake2b(digest_size=16)
    position = 0
    while data := file.read(position, _HASH_BLOCK_BYTES):
        found.update(data)
        position += len(data)
    return found.hexdigest()
