"""What the driver asks about packed files: is it the same, is it read, what is lost of it. For all others the answers are the usual ones.

Sizes of a packed file are packed bytes, positions unpacked ones, and nobody knows one from the other: what is lost of it is
entered as a range from the position, as long as the packed bytes that were not read, and its words say so.
"""

from __future__ import annotations

import time
from dataclasses import replace

from copycat_agent.formats import Reader
from copycat_agent.model import Loss, SourceOffset, SplitResult
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.packing import packed


def compression_of(read: Reader) -> str:
    """How a file is packed, "" for lines and for one that is too short to tell. Raises OSError."""
    return packed.recognise(read(0, packed.MAGIC_BYTES)) or ""


def is_same(read: Reader, size: int, offset: SourceOffset) -> bool:
    """Whether a file of `size` bytes still holds what was read from it, as far as its head tells when it is packed. Raises OSError."""
    if not offset.compression:
        return size >= offset.position and fingerprint.holds(read, offset.fingerprint, offset.position)
    if size and packed.recognise(read(0, packed.MAGIC_BYTES)) not in (offset.compression, None):
        return False
    proof = replace(offset.fingerprint, tail_bytes=0, tail="")
    if not proof.head_bytes:
        return True
    head = packed.head_of(read, offset.compression, proof.head_bytes)
    if len(head) < proof.head_bytes and size > packed.HEAD_INPUT_BYTES:
        return True  # it cannot be told here; the task that reads it compares as well
    return fingerprint.holds(lambda position, count: head[position : position + count], proof, offset.position)


def recalled(offset: SourceOffset, size: int) -> SourceOffset:
    """The offset of a file that was away and is `size` bytes long: a packed one of unchanged size that was read needs no reading."""
    is_read = bool(offset.compression) and offset.done and offset.size == size
    if not offset.gone_ms and offset.done == is_read and offset.size <= size:
        return offset
    return replace(offset, gone_ms=0, done=is_read, size=size)


def rest(offset: SourceOffset, kept: int = 0) -> tuple[int, int, str]:
    """What is lost of a file that nobody can read any more, beyond the first `kept` bytes: a range, empty for none, and words."""
    if offset.done:
        return offset.position, offset.position, ""
    if offset.compression:
        return offset.position, offset.position + (0 if kept else offset.size), words(offset)
    start = max(offset.position, kept)
    return start, max(start, offset.size), ""


def words(offset: SourceOffset) -> str:
    """To be added to why bytes were lost; "" for a file that is not packed."""
    return f" (packed as {offset.compression}: these are packed bytes, how many they hold is not known)" if offset.compression else ""


def damage_loss(result: SplitResult) -> Loss:
    """What is not read of a packed file that cannot be unpacked to its end."""
    offset = result.offset
    unread = max(0, offset.size - result.packed_position)
    detail = f"{result.damage}; {unread} packed bytes were not read, how many they hold is not known"
    at_ms = int(time.time() * 1000)
    end = offset.position + unread
    return Loss(result.split.partition, result.split.path, offset.position, end, unread, 0, "damaged", detail, at_ms)


def saved(result: SplitResult, options: object) -> tuple[SourceOffset, tuple[Loss, ...]]:
    """See `SourceKind.saved`."""
    del options
    if not result.damage:
        return result.offset, result.losses
    return replace(result.offset, done=True), (*result.losses, damage_loss(result))
