"""Does one file go on with another, and why: the rules of succession, as functions of what was found.

Nothing here opens a file, asks a clock or changes anything: `newcomers`, `archives` and `missed` look, hand over what they found, and do
what the verdict says. Each verdict has its reason, which `explain` prints.

Equal text alone proves nothing. A newcomer goes on with a known file when both are of one rotation family, when the known file has its
bytes no more (it was cut, or is gone), and when the newcomer has them. In doubt nothing is claimed and the newcomer is read from its
beginning, which repeats lines and loses none. Where text cannot tell a copy from a log that was begun anew with the same lines, times of
birth and of unlinking have to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files import fingerprint

QUIET_SECONDS = 10.0
"""Nobody is about to add to a file, or to cut the one it is a copy of, when nothing has happened to it for so long."""
YOUNG_SECONDS = 600.0
"""A copy that was not touched for so long is none in the making."""


# -- evidence -----------------------------------------------------------------------------------------------------------------------


class Newcomer(NamedTuple):
    """A file of which nothing is read, and which may be a copy, an archive, or the rest of a known one.

    `has_enough`: there is enough of it to look at. `may_grow`: somebody may be about to add to it, so that time will tell more.
    `unchanged_seconds`: so long nobody has touched it, at least. `made_ns`: since when it may hold what it holds, epoch nanoseconds by the
    clock of its file system, 0 when unknown.
    """

    size: int
    has_enough: bool
    may_grow: bool = True
    unchanged_seconds: float = 0.0
    made_ns: int = 0


class BeingRead(NamedTuple):
    """A task reads the file at `path`, a relative, as it did when the newcomer was first looked at: how far it came is not known."""

    path: str


class JustCut(NamedTuple):
    """The file at `path`, a relative, shrank or holds other bytes than were read of it. `in_flight`: a task reads it."""

    path: str
    in_flight: bool


class LongerHead(NamedTuple):
    """A known file of the family is recognised by more bytes than the newcomer, an archive, has."""


class Original(NamedTuple):
    """A file that is there, and begins like the newcomer, an archive. `is_short`: as far as there is enough of the archive to tell.

    `goes_first`: a task reads it, or it has unread lines of the time when the archive last grew.
    """

    path: str
    is_short: bool
    goes_first: bool


class UnfollowedRow(NamedTuple):
    """The saved offset of a file that nobody follows.

    `is_previous`: that file has begun anew since. `copied`: so many bytes of it the newcomer was seen to hold, 0 when it was not looked at.
    `stands`: that file still has its last name, so that its bytes are there. `holds`: the newcomer has the bytes that were read.
    `made_after`: the newcomer was made while that file stood in its place and held these bytes, so that it can only be a copy.
    `was_read_later`: that file still held what was read of it when the newcomer had been written to for the last time.
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

    `made_after` as in `UnfollowedRow`.
    """

    partition: SourcePartition
    offset: SourceOffset
    made_after: bool


class DeletedFile(NamedTuple):
    """A relative that is held open though deleted, whose place the newcomer came into, and all of whose bytes it has."""

    partition: SourcePartition
    offset: SourceOffset
    in_flight: bool


class StandingFile(NamedTuple):
    """A relative that is there, and begins with all that the newcomer holds so far.

    `caught_up_seconds`: so long the newcomer has had all that this file held when both were first compared, -inf while it has less.
    """

    path: str
    caught_up_seconds: float


Evidence = BeingRead | JustCut | LongerHead | Original | UnfollowedRow | UnreadRow | DeletedFile | StandingFile


# -- verdicts -----------------------------------------------------------------------------------------------------------------------


class Undecided(NamedTuple):
    """Nothing can be said yet, and the newcomer is not read. `needs_scan`: the next scan will know more."""

    why: str
    needs_scan: bool = False


class GoOn(NamedTuple):
    """The newcomer goes on with the offset of `partition`. `is_shorter`: it holds less than was read, and goes on at its own end."""

    partition: SourcePartition
    offset: SourceOffset
    why: str
    is_shorter: bool = False


class Own(NamedTuple):
    """The newcomer is read as a file of its own. `other`: the path of one that holds what it holds too, "" when none does."""

    other: str = ""


Verdict = Undecided | GoOn | Own


# -- rules --------------------------------------------------------------------------------------------------------------------------


def match(newcomer: Newcomer, evidence: Iterable[Evidence]) -> Verdict:
    """Returns what becomes of the newcomer.

    `evidence` comes in the order in which it decides, and is asked for no further than to the first piece that does: looks cost.
    """
    if not newcomer.size:
        return Undecided("it is empty")
    if not newcomer.has_enough:
        return Undecided("it has too few bytes to tell whether it is packed")
    own = Own()
    for found in evidence:
        verdict = _judge(newcomer, found)
        if isinstance(verdict, Own):
            own = verdict
        elif verdict is not None:
            return verdict
    return own


def _judge(newcomer: Newcomer, found: Evidence) -> Verdict | None:
    """Returns what one piece of evidence says; None when it says nothing. `Own` holds unless a later piece says otherwise."""
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
            verdict = GoOn(partition, offset, "it came into the place of that file, which is deleted, and has all that it held")
        case StandingFile():
            verdict = _copy_of(newcomer, found)
    return verdict


def _archive_of(newcomer: Newcomer, found: Original) -> Verdict | None:
    """An archive waits until the file that it was made of, and that is there still, is read as far as it goes. Then a task unpacks it."""
    if found.is_short and newcomer.may_grow:
        return Undecided(f"it has too few bytes to tell whether it was made of {found.path}")
    return Undecided(f"it was made of {found.path}, which is read first") if found.goes_first else None


def can_prove(offset: SourceOffset, *, is_previous: bool, copied: int) -> bool:
    """Whether enough was read of the file, or is known of it, for its bytes to prove anything."""
    return is_previous or copied > 0 or offset.fingerprint.head_bytes == fingerprint.HEAD_BYTES


def claim(newcomer: Newcomer, found: UnfollowedRow) -> GoOn | None:
    """A file whose bytes are nowhere else goes on in the newcomer that has them."""
    partition, offset = found.partition, found.offset
    if not can_prove(offset, is_previous=found.is_previous, copied=found.copied) or found.stands:
        return None
    if found.holds:
        return GoOn(partition, offset, "it holds the bytes before that offset, and that file has them no more")
    if found.copied and not offset.position:
        return GoOn(partition, offset, "it was seen to be a copy of it before it was cut, and nothing of it had been read")
    is_copy = (found.copied == newcomer.size or found.made_after) and found.was_read_later  # else it may hold what was written since a cut
    if is_copy and 0 < newcomer.size < offset.position:
        why = "it is a copy that was made before that file was written to, and read, for the last time"
        return GoOn(partition, offset, why, is_shorter=True)
    return None


def claim_unread(newcomer: Newcomer, found: UnreadRow) -> GoOn | None:
    """The same where nothing was read: nothing proves a copy but when it was made, or that it is as large."""
    if found.offset.position:
        return None
    if found.made_after:
        return GoOn(found.partition, found.offset, "it was made while that file stood in its place unread, so it is a copy")
    if newcomer.size >= found.offset.size:
        return GoOn(found.partition, found.offset, "it is as large as that file was when it was cut unread")
    return None


def may_be_copy(newcomer: Newcomer, birth_ns: int) -> bool:
    """Whether the newcomer may be a copy in the making of a file that was born then: it is young, and not made before that one."""
    return newcomer.unchanged_seconds <= YOUNG_SECONDS and not 0 < newcomer.made_ns < birth_ns


def _copy_of(newcomer: Newcomer, found: StandingFile) -> Verdict:
    """A copy of a file that is there waits until that one is cut or gone, or nothing happens for a while."""
    if newcomer.may_grow and found.caught_up_seconds < QUIET_SECONDS:
        return Undecided(f"so far it is a copy of {found.path}, which may be about to be cut")
    return Own(found.path)


HOLDS_REST = "no pattern matches it, and it holds the bytes before that offset"
"""Why a file outside the patterns goes on with an unclaimed range: nothing but its bytes leads to it, so these have to be the same."""


class Unseen(NamedTuple):
    """What was found of a file outside the patterns, whose log was rotated. Times are epoch nanoseconds, 0 when not known.

    `birth_ns` and `mtime_ns` are its own. What was made at `looked_ns` or later nobody has seen, what was made before `doubt_ns` was
    there when the connector last looked. `may_be_cut`: a file of the log was cut in its place, or may have been. `is_known`: what it holds
    is known, None when nobody has compared that. `newest_ns`: when the newest archive of known content was last changed.
    """

    birth_ns: int
    mtime_ns: int
    looked_ns: int
    doubt_ns: int
    may_be_cut: bool
    is_known: bool | None
    newest_ns: int


def why_owed(found: Unseen) -> str:
    """Returns why the file's lines are owed, for people; "" when they are not."""
    if not found.birth_ns or found.birth_ns >= found.looked_ns:
        return "it was made since the connector last looked"
    if found.is_known is None or found.is_known:
        return ""
    if found.birth_ns >= found.doubt_ns:
        return "it may have been made since the connector last looked, and nothing is known of what it holds"
    is_newer = found.mtime_ns >= found.newest_ns or found.doubt_ns < found.looked_ns  # else nothing was written in the order of times
    return "it was written over since, and nothing is known of what it holds" if found.may_be_cut and is_newer else ""


class OutsideContent(NamedTuple):
    """What a file outside the patterns holds, whose lines are owed as far as times tell.

    `is_rest`: it has the bytes that were read of a file of which a range is unclaimed. `copied`: the offset of what a file held before it
    was cut in its place, when this is the oldest copy of it, None when it is none. `is_in_live`: the log that stands in its place has
    all of it.
    """

    is_rest: bool
    copied: SourceOffset | None = None
    is_in_live: bool = False


def is_owed(found: OutsideContent) -> bool | None:
    """Whether the file is read from its beginning; None while that cannot be said: a search for unclaimed ranges may take it up."""
    if found.is_rest:
        return None
    return not ((found.copied is not None and found.copied.position) or found.is_in_live)


class Content(NamedTuple):
    """What was found in a known file: `size` bytes, of which `position` were read.

    `begins_otherwise`: nothing of it is read, and it does not begin as it did. `holds`: it has the bytes that were read.
    """

    size: int
    position: int
    begins_otherwise: bool
    holds: bool


def why_anew(found: Content) -> str:
    """Returns why a file no longer is what was read, or seen, of it, so that it begins anew; "" when it still is."""
    if found.begins_otherwise:
        return "it was cut, and written to again, before anything of it was read"
    if found.size < found.position:
        return f"it is {found.size} bytes long, {found.position} were read"
    return "" if found.holds else "it holds other bytes before its offset"  # nothing new to read, or cut and grown since
