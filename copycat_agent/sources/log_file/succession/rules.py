"""The rules by which one file continues another, and the reasons, as pure functions of the findings.

Nothing here opens a file, reads a clock or changes anything: `newcomers`, `archives` and `missed_rotations` collect the findings and apply
the verdict. Each verdict has its reason, which `explain` prints.

Equal text alone proves nothing. A newcomer continues a known file if both are of one rotation family, if the known file does not have its
bytes any more (it was cut, or is gone), and if the newcomer has them. In doubt nothing is claimed and the newcomer is read from its
beginning, which repeats lines and loses none. If text cannot tell a copy from a log that was begun anew with the same lines, times of birth
and of unlinking have to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files import fingerprint

QUIET_SECONDS = 10.0
"""A file that is unchanged this long is complete: nobody is about to add to it, or to cut the original of it."""
YOUNG_SECONDS = 600.0
"""A copy that is unchanged this long is not being made any more."""


# -- evidence -----------------------------------------------------------------------------------------------------------------------


class Newcomer(NamedTuple):
    """A file of which nothing is read, and which may be a copy, an archive, or the rest of a known one.

    `has_enough`: it has enough bytes to be compared. `may_grow`: somebody may be about to add to it, so that more will be known later.
    `unchanged_seconds`: the least time since its last change. `made_ns`: the earliest time of its content, epoch nanoseconds by the clock
    of its file system, 0 if unknown.
    """

    size: int
    has_enough: bool
    may_grow: bool = True
    unchanged_seconds: float = 0.0
    made_ns: int = 0


class BeingRead(NamedTuple):
    """A task has been reading the file at `path`, a relative, since the newcomer was first compared: its progress is not known."""

    path: str


class JustCut(NamedTuple):
    """The file at `path`, a relative, shrank or holds other bytes than were read of it. `in_flight`: a task reads it."""

    path: str
    in_flight: bool


class LongerHead(NamedTuple):
    """A known file of the family is recognised by more bytes than the newcomer, an archive, has."""


class Original(NamedTuple):
    """An existing file that begins like the newcomer, an archive. `is_short`: the archive has too few bytes to be certain.

    `goes_first`: a task reads it, or it has unread lines of the time when the archive last grew.
    """

    path: str
    is_short: bool
    goes_first: bool


class UnfollowedRow(NamedTuple):
    """The saved offset of a file that is not followed.

    `is_previous`: that file has begun anew since. `copied`: how many bytes of it the newcomer was seen to hold, 0 if that was not compared.
    `stands`: that file still has its last name, so that its bytes exist. `holds`: the newcomer has the bytes that were read. `made_after`:
    the newcomer was made while that file was in its place and held these bytes, so that it can only be a copy. `was_read_later`: that file
    still held what was read of it after the newcomer's last modification.
    """

    partition: SourcePartition
    offset: SourceOffset
    is_previous: bool
    copied: int
    stands: bool
    holds: bool
    made_after: bool
    was_read_later: bool


class UnreadRow(NamedTuple):
    """The row of a file that was cut before anything of it was read, and not before the newcomer was made.

    `made_after` is as in `UnfollowedRow`.
    """

    partition: SourcePartition
    offset: SourceOffset
    made_after: bool


class DeletedFile(NamedTuple):
    """A relative that is held open though deleted, that the newcomer has replaced, and all of whose bytes the newcomer has."""

    partition: SourcePartition
    offset: SourceOffset
    in_flight: bool


class StandingFile(NamedTuple):
    """An existing relative that begins with all that the newcomer holds so far.

    `caught_up_seconds`: how long the newcomer has had all that this file held at the first comparison, -inf while it has less.
    """

    path: str
    caught_up_seconds: float


Evidence = BeingRead | JustCut | LongerHead | Original | UnfollowedRow | UnreadRow | DeletedFile | StandingFile


# -- verdicts -----------------------------------------------------------------------------------------------------------------------


class Undecided(NamedTuple):
    """It cannot be decided yet, and the newcomer is not read. `needs_scan`: the next scan will know more."""

    why: str
    needs_scan: bool = False


class Continuation(NamedTuple):
    """The newcomer continues the offset of `partition`. `is_shorter`: it holds less than was read, and continues at its own end."""

    partition: SourcePartition
    offset: SourceOffset
    why: str
    is_shorter: bool = False


class OwnFile(NamedTuple):
    """The newcomer is read as a file of its own. `other`: the path of a file with the same content, "" if there is none."""

    other: str = ""


Verdict = Undecided | Continuation | OwnFile


# -- rules --------------------------------------------------------------------------------------------------------------------------


def match(newcomer: Newcomer, evidence: Iterable[Evidence]) -> Verdict:
    """Returns the verdict on the newcomer.

    `evidence` comes in the order in which it decides, and is consumed only up to the first piece that does: comparisons are expensive.
    """
    if not newcomer.size:
        return Undecided("it is empty")
    if not newcomer.has_enough:
        return Undecided("it has too few bytes to tell whether it is packed")
    own = OwnFile()
    for found in evidence:
        verdict = _judge(newcomer, found)
        if isinstance(verdict, OwnFile):
            own = verdict
        elif verdict is not None:
            return verdict
    return own


def _judge(newcomer: Newcomer, found: Evidence) -> Verdict | None:
    """Returns the verdict by one piece of evidence; None if it decides nothing. `OwnFile` holds unless a later piece decides otherwise."""
    verdict: Verdict | None = None
    match found:
        case BeingRead(path):
            verdict = Undecided(f"a task still reads {path}")
        case JustCut(path, in_flight):
            verdict = Undecided(f"{path} was cut just now", needs_scan=not in_flight)
        case LongerHead() if newcomer.may_grow:
            verdict = Undecided("it has too few bytes to tell which file it was made of")
        case Original():
            verdict = _archive_of(newcomer, found)
        case UnfollowedRow():
            verdict = claim(newcomer, found)
        case UnreadRow():
            verdict = claim_unread(newcomer, found)
        case DeletedFile(_, offset, True):
            verdict = Undecided(f"a task still reads {offset.path}, which is deleted")
        case DeletedFile(partition, offset):
            verdict = Continuation(partition, offset, "it came into the place of that file, which is deleted, and has all that it held")
        case StandingFile():
            verdict = _copy_of(newcomer, found)
    return verdict


def _archive_of(newcomer: Newcomer, found: Original) -> Verdict | None:
    """Makes an archive wait until the existing file that it was made of is read to its end. Then a task unpacks it."""
    if found.is_short and newcomer.may_grow:
        return Undecided(f"it has too few bytes to tell whether it was made of {found.path}")
    return Undecided(f"it was made of {found.path}, which is read first") if found.goes_first else None


def can_prove(offset: SourceOffset, *, is_previous: bool, copied: int) -> bool:
    """Returns whether enough of the file was read, or is known, for its bytes to prove anything."""
    return is_previous or copied > 0 or offset.fingerprint.head_bytes == fingerprint.HEAD_BYTES


def claim(newcomer: Newcomer, found: UnfollowedRow) -> Continuation | None:
    """Returns that the newcomer continues a file if it has that file's bytes and they are nowhere else; None if not."""
    partition, offset = found.partition, found.offset
    if not can_prove(offset, is_previous=found.is_previous, copied=found.copied) or found.stands:
        return None
    if found.holds:
        return Continuation(partition, offset, "it holds the bytes before that offset, and that file has them no more")
    if found.copied and not offset.position:
        return Continuation(partition, offset, "it was seen to be a copy of it before it was cut, and nothing of it had been read")
    is_copy = (found.copied == newcomer.size or found.made_after) and found.was_read_later  # else it may hold what was written since a cut
    if is_copy and 0 < newcomer.size < offset.position:
        why = "it is a copy that was made before that file was written to, and read, for the last time"
        return Continuation(partition, offset, why, is_shorter=True)
    return None


def claim_unread(newcomer: Newcomer, found: UnreadRow) -> Continuation | None:
    """Returns the same for a row of which nothing was read: only its time, or an equal size, proves a copy."""
    if found.offset.position:
        return None
    if found.made_after:
        return Continuation(found.partition, found.offset, "it was made while that file stood in its place unread, so it is a copy")
    if newcomer.size >= found.offset.size:
        return Continuation(found.partition, found.offset, "it is as large as that file was when it was cut unread")
    return None


def may_be_copy(newcomer: Newcomer, birth_ns: int) -> bool:
    """Returns whether the newcomer may be an unfinished copy of a file born then: it is young, and not older than that one."""
    return newcomer.unchanged_seconds <= YOUNG_SECONDS and not 0 < newcomer.made_ns < birth_ns


def _copy_of(newcomer: Newcomer, found: StandingFile) -> Verdict:
    """Makes a copy of an existing file wait until that one is cut or gone, or nothing happens for a while."""
    if newcomer.may_grow and found.caught_up_seconds < QUIET_SECONDS:
        return Undecided(f"so far it is a copy of {found.path}, which may be about to be cut")
    return OwnFile(found.path)


HOLDS_REST = "no pattern matches it, and it holds the bytes before that offset"
"""Why a file outside the patterns continues an unclaimed range: only its bytes relate it to that, so they have to be the same."""


class UnseenFile(NamedTuple):
    """The findings on a file outside the patterns, whose log was rotated. Times are epoch nanoseconds, 0 if not known.

    `birth_ns` and `mtime_ns` are its own. A file made at `looked_ns` or later was never seen, one made before `doubt_ns` existed when the
    connector last looked. `may_be_cut`: a file of the log was cut in place, or may have been. `is_known`: its content is known, None if
    that was not compared. `newest_ns`: when the newest archive of known content was last changed.
    """

    birth_ns: int
    mtime_ns: int
    looked_ns: int
    doubt_ns: int
    may_be_cut: bool
    is_known: bool | None
    newest_ns: int


def why_must_read(found: UnseenFile) -> str:
    """Returns why the file has to be read, as a message; "" if it need not be read."""
    if not found.birth_ns or found.birth_ns >= found.looked_ns:
        return "it was made since the connector last looked"
    if found.is_known is None or found.is_known:
        return ""
    if found.birth_ns >= found.doubt_ns:
        return "it may have been made since the connector last looked, and nothing is known of what it holds"
    is_newer = found.mtime_ns >= found.newest_ns or found.doubt_ns < found.looked_ns  # else nothing was written in the order of times
    return "it was written over since, and nothing is known of what it holds" if found.may_be_cut and is_newer else ""


class OutsideContent(NamedTuple):
    """The content of a file outside the patterns that has to be read, judging by times.

    `is_rest`: it has the bytes that were read of a file with an unclaimed range. `copied`: the offset of a file before it was cut in place,
    if this is the oldest copy of it, None if it is no copy. `is_in_live`: the live file of its log has all of it.
    """

    is_rest: bool
    copied: SourceOffset | None = None
    is_in_live: bool = False


def must_read(found: OutsideContent) -> bool | None:
    """Returns whether the file is read from its beginning; None if that is not known: a search for unclaimed ranges may take it."""
    if found.is_rest:
        return None
    return not ((found.copied is not None and found.copied.position) or found.is_in_live)


class KnownContent(NamedTuple):
    """The findings in a known file: `size` bytes, of which `position` were read.

    `begins_otherwise`: nothing of it is read, and its first bytes have changed. `holds`: it has the bytes that were read.
    """

    size: int
    position: int
    begins_otherwise: bool
    holds: bool


def why_anew(found: KnownContent) -> str:
    """Returns why a file no longer is what was read, or seen, of it, so that it begins anew; "" if it still is."""
    if found.begins_otherwise:
        return "it was cut, and written to again, before anything of it was read"
    if found.size < found.position:
        return f"it is {found.size} bytes long, {found.position} were read"
    return "" if found.holds else "it holds other bytes before its offset"  # nothing new to read, or cut and grown since
