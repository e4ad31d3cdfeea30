"""Does one file go on with another, and why: decisions on what looks at both have found.

All are pure. Whoever looks (`origins`, `missed`) gathers the evidence; nothing here opens a file or asks a clock. Equal text alone is no
proof: in doubt nothing is claimed, and a file is read from its beginning, which repeats lines and loses none. Where text cannot tell a
copy from a log that was begun anew with the same lines, times of birth and of unlinking have to.
"""

from __future__ import annotations

from typing import NamedTuple

from copycat_agent.model import SourceOffset
from copycat_agent.sources.files import fingerprint


class Evidence(NamedTuple):
    """What was found of a newcomer of `size` bytes and of the file that an offset was saved of.

    `is_previous`: that file has begun anew since. `copied`: so many bytes of it the newcomer was seen to hold, 0 when it was not looked at.
    `stands`: that file still has its last name, so that its bytes are there. `holds`: the newcomer has the bytes that were read.
    `made_after`: the newcomer was made while that file stood in its place, so that it can only be a copy.
    """

    size: int
    is_previous: bool
    copied: int
    stands: bool
    holds: bool
    made_after: bool


class Succession(NamedTuple):
    """Why a newcomer goes on with a saved offset, for people. `is_shorter`: it holds less than was read, and goes on at its own end."""

    why: str
    is_shorter: bool = False


def can_prove(offset: SourceOffset, *, is_previous: bool, copied: int) -> bool:
    """Whether enough was read of the file, or is known of it, for its bytes to prove anything."""
    return is_previous or copied > 0 or offset.fingerprint.head_bytes == fingerprint.HEAD_BYTES


def claim(offset: SourceOffset, found: Evidence) -> Succession | None:
    """Why the newcomer goes on with `offset`, None when it does not."""
    if not can_prove(offset, is_previous=found.is_previous, copied=found.copied) or found.stands:
        return None
    if found.holds:
        return Succession("it holds the bytes before that offset, and that file has them no more")
    if found.copied and not offset.position:
        return Succession("it was seen to be a copy of it before it was cut, and nothing of it had been read")
    is_copy = found.copied == found.size or found.made_after
    if is_copy and 0 < found.size < offset.position:
        return Succession("it is a copy that was made before that file was written to, and read, for the last time", is_shorter=True)
    return None


def claim_unread(offset: SourceOffset, size: int, *, made_after: bool) -> Succession | None:
    """The same of a file that was cut before anything of it was read.

    Nothing proves a copy of it but when that was made, or that it is as large.
    """
    if offset.position:
        return None
    if made_after:
        return Succession("it was made while that file stood in its place unread, so it is a copy")
    return Succession("it is as large as that file was when it was cut unread") if size >= offset.size else None


class Unseen(NamedTuple):
    """What was found of a file outside the patterns, whose log was rotated. Times are epoch nanoseconds, 0 when not known.

    `birth_ns` and `changed_ns` are its own. What was made at `looked_ns` or later nobody has seen, what was made before `doubt_ns` was
    there when the connector last looked. `may_be_cut`: a file of the log was cut in its place, or may have been. `is_known`: what it holds
    is known, None when nobody has compared that. `newest_ns`: when the newest archive of known content was last changed.
    """

    birth_ns: int
    changed_ns: int
    looked_ns: int
    doubt_ns: int
    may_be_cut: bool
    is_known: bool | None
    newest_ns: int


def why_owed(found: Unseen) -> str:
    """Why the file's lines are owed, for people; "" when they are not."""
    if not found.birth_ns or found.birth_ns >= found.looked_ns:
        return "it was made since the connector last looked"
    if found.is_known is None or found.is_known:
        return ""
    if found.birth_ns >= found.doubt_ns:
        return "it may have been made since the connector last looked, and nothing is known of what it holds"
    is_newer = found.changed_ns >= found.newest_ns or found.doubt_ns < found.looked_ns  # else nothing was written in the order of times
    return "it was written over since, and nothing is known of what it holds" if found.may_be_cut and is_newer else ""
