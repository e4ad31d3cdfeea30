"""Fingerprints that show whether a file is still the one that was read: hashes of its head and of the bytes just before an offset.

They are taken of bytes that were really read, and compared before every split and, the head, after every run.
"""

from __future__ import annotations

import hashlib
import os

from copycat_agent.formats import TAIL_BYTES, Reader
from copycat_agent.model import Fingerprint

HEAD_BYTES = 1024
"""The head's hash grows with the file up to this length. Log files differ early; longer heads cost a read per check."""


def digest(data: bytes) -> str:
    """Returns BLAKE2b, 128 bits, as hex. Different files of a host do not share it by accident."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def reader(fd: int) -> Reader:
    """Returns a reader of an open file by position, which raises OSError."""
    return lambda position, size: os.pread(fd, size, position)


def take(read: Reader, position: int) -> Fingerprint:
    """Returns the fingerprint of a file whose first `position` bytes count as read. Raises OSError."""
    if not position:
        return Fingerprint()
    head = read(0, min(HEAD_BYTES, position))
    tail = read(max(0, position - TAIL_BYTES), min(TAIL_BYTES, position))
    return of(head, tail)


def of(head: bytes, tail: bytes) -> Fingerprint:
    """Returns the fingerprint of known bytes. Empty ones are not compared."""
    return Fingerprint(len(head), digest(head) if head else "", len(tail), digest(tail) if tail else "")


def holds(read: Reader, fingerprint: Fingerprint, position: int) -> bool:
    """Returns whether the file still has the head, and the bytes before `position`, of `fingerprint`. Raises OSError."""
    head = b""
    if fingerprint.head_bytes:
        head = read(0, fingerprint.head_bytes)
        if len(head) < fingerprint.head_bytes or digest(head) != fingerprint.head:
            return False
    if fingerprint.tail_bytes:
        begin = position - fingerprint.tail_bytes
        tail = head[begin:position] if position <= len(head) else read(begin, fingerprint.tail_bytes)  # one read for a small file
        return len(tail) == fingerprint.tail_bytes and digest(tail) == fingerprint.tail
    return True
