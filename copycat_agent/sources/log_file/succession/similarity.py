"""Compares files: whether one holds the bytes of another, or still its own, judging by hashes or by both files.

Compares heads and ends only, whatever the sizes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from copycat_agent.formats import TAIL_BYTES, Reader
from copycat_agent.model import SourceOffset
from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.files.paths.discovery import Warn
from copycat_agent.sources.files.paths.regular_files import Opener
from copycat_agent.sources.log_file.descriptors import close_if_stale
from copycat_agent.sources.log_file.rotation import is_newest, is_rotated
from copycat_agent.sources.log_file.succession import rules
from copycat_agent.sources.log_file.tracked import TrackedFile


def is_quiet(file: TrackedFile) -> bool:
    """Returns whether it is unchanged for `QUIET_SECONDS`, even if the agent was started only just now."""
    if time.monotonic() - file.grown_at >= rules.QUIET_SECONDS:
        return True
    return unchanged_seconds(file) >= rules.QUIET_SECONDS


def unchanged_seconds(file: TrackedFile) -> float:
    """Returns the least time since its last change; 0.0 if it is closed."""
    return 0.0 if file.fd < 0 else clock.seconds_since(file.identity.device, os.fstat(file.fd).st_ctime_ns)


@contextlib.contextmanager
def kept_open(file: TrackedFile, opener: Opener) -> Iterator[bool]:
    """Opens `file` for the block, and closes it if it was closed. Yields False if it is missing or replaced; then a scan will tell."""
    was_open = file.fd >= 0
    is_open = False
    try:
        with contextlib.suppress(OSError):
            is_open = file.open(opener)
        yield is_open
    finally:
        if is_open and not was_open:
            file.close()


def head_of(file: TrackedFile) -> bytes:
    """Returns the head of an open file, unpacked if it is packed. Raises OSError."""
    if file.is_packed:
        return compressions.head_of(file.read, file.offset.compression, fingerprint.HEAD_BYTES)
    return file.read(0, fingerprint.HEAD_BYTES)


def holds(file: TrackedFile, offset: SourceOffset) -> bool:
    """Returns whether the open file, which is not packed, holds what was read up to `offset`, and anything was. Raises OSError."""
    proof = offset.fingerprint
    return 0 < offset.position <= file.size and bool(proof.head_bytes) and fingerprint.holds(file.read, proof, offset.position)


def begins_like(file: TrackedFile, other: TrackedFile, size: int) -> bool:
    """Returns whether the first `size` bytes of two open files agree, judging by head and end of that range. Raises OSError."""
    return agree(file.read, other.read, size)


def agree(read: Reader, other: Reader, size: int) -> bool:
    """Returns whether the first `size` bytes of two readers agree, judging by head and end of that range. Raises OSError."""
    head, tail = min(size, fingerprint.HEAD_BYTES), min(size, TAIL_BYTES)
    mine, others = (one(0, head) + one(size - tail, tail) for one in (read, other))
    return len(mine) == head + tail and mine == others


def last_name(file: TrackedFile) -> str:
    """Returns the last name of a deleted file, as the kernel remembers it; "" if it is not deleted, or not open."""
    if not file.is_deleted():
        return ""
    try:
        return os.fsdecode(Path(f"/proc/self/fd/{file.fd}").readlink()).removesuffix(" (deleted)")
    except OSError:
        return ""


def was_there_before(file: TrackedFile, deleted: TrackedFile) -> bool:
    """Returns whether `file` was made before the other one, which is open, was deleted, so that it was moved over it. Raises OSError.

    If the last change of that one was a write, the write may have been after the deletion, whose time is then not known.
    """
    info = os.fstat(deleted.fd)
    return info.st_mtime_ns < info.st_ctime_ns and 0 < file.identity.birth_ns < info.st_ctime_ns


def _was_made_after(file: TrackedFile, deleted: TrackedFile) -> bool:
    """Returns whether `file` was made after the other one was deleted. The other one is open. Raises OSError."""
    info, identity = os.fstat(deleted.fd), file.identity
    return info.st_dev == identity.device and info.st_mtime_ns < info.st_ctime_ns <= identity.birth_ns


def replaced(file: TrackedFile, one: TrackedFile) -> rules.DeletedFile | None:
    """Returns the evidence that open `file` replaced, or is a copy of, an open deleted one; None if it did not. Raises OSError."""
    name = last_name(one)
    moved_over = name == file.path and is_newest(name) and was_there_before(file, one)  # under a rotated name it is the next generation
    was_copied = is_rotated(file.path) and not is_rotated(name) and not _was_made_after(file, one)
    if not (moved_over or was_copied) or not one.size or file.size < one.size or not begins_like(file, one, one.size):
        return None
    return rules.DeletedFile(one.partition, replace(one.offset, path=name, size=one.known_size), one.in_flight)


def what_changed(file: TrackedFile, opener: Opener, warn: Warn) -> str:
    """Returns why the file is not what was read, or seen, of it, judging without reading on; "" if it is.

    `warn` is called for one that cannot be read; the next look tries again.
    """
    if file.is_packed or file.seen.rewritten:
        return _why_other_content(file)
    return _why_other_bytes(file, opener, warn) or ("it was cut before anything of it was read" if file.is_cut_unread else "")


def _why_other_content(file: TrackedFile) -> str:
    """Returns what a task has found. Only a task can tell what an archive holds."""
    if file.seen.rewritten:
        return "it holds other bytes than were read"
    return "it is empty" if file.offset.position and not file.size else ""


def _why_other_bytes(file: TrackedFile, opener: Opener, warn: Warn) -> str:
    """Compares the bytes of a file that is not packed, if they may have changed."""
    seen, position = file.seen, file.offset.position
    is_grown = 0 < position < seen.size and seen.cut is None
    is_live = is_grown and file.draining_since is None and is_newest(file.path)  # its task will see; an archive may be overwritten
    if is_live or (seen.mtime_ns == file.verified.mtime_ns and seen.size >= position and not (position and seen.cut)):
        return ""
    was_open = file.fd >= 0
    try:
        if not file.open(opener):
            return ""
        file.note_verified()
        found = rules.KnownContent(file.size, file.offset.position, file.begins_otherwise(), file.holds())
        return rules.why_anew(found)
    except OSError as error:
        warn(file.path, f"cannot be read: {error.strerror}")
        file.note_unverified()
        close_if_stale(file)
        return ""
    finally:
        if not was_open:
            file.close()
