"""What proves that one file goes on with another, and what does not: no file is needed to say so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition
from copycat_agent.sources.files.fingerprint import HEAD_BYTES
from copycat_agent.sources.log_file.succession.rules import (
    BeingRead,
    Continuation,
    DeletedFile,
    Evidence,
    JustCut,
    KnownContent,
    LongerHead,
    Newcomer,
    Original,
    OutsideContent,
    OwnFile,
    StandingFile,
    Undecided,
    UnfollowedRow,
    UnreadRow,
    UnseenFile,
    Verdict,
    match,
    may_be_copy,
    must_read,
    why_anew,
    why_must_read,
)

READ = SourceOffset(5000, size=6000, fingerprint=Fingerprint(HEAD_BYTES, "head", 256, "tail"))
"""Of a file of which enough was read to prove something."""
LITTLE = SourceOffset(10, size=6000, fingerprint=Fingerprint(10, "head", 10, "tail"))
UNREAD = SourceOffset(0, size=6000)


PARTITION = SourcePartition("app", "1:2:3:0")


def row(offset: SourceOffset, **facts: Any) -> UnfollowedRow:
    nothing = {"is_previous": False, "copied": 0, "stands": False, "holds": False, "made_after": False, "was_read_later": True}
    return UnfollowedRow(PARTITION, offset, **{**nothing, **facts})


def judge(*evidence: Evidence, **facts: Any) -> Verdict:
    """What is said of a newcomer that nobody adds to."""
    return match(
        Newcomer(**{"size": 6000, "has_enough": True, "may_grow": False, "unchanged_seconds": 60.0, "made_ns": 0, **facts}), evidence
    )


def unseen(**facts: Any) -> UnseenFile:
    """A file that was there when the connector last looked."""
    there = {"birth_ns": 50, "mtime_ns": 150, "looked_ns": 100, "doubt_ns": 100, "may_be_cut": False, "is_known": False, "newest_ns": 0}
    return UnseenFile(**{**there, **facts})


@pytest.mark.parametrize(
    ("offset", "facts"),
    [
        (READ, {"holds": True}),
        (LITTLE, {"holds": True, "is_previous": True}),
        (LITTLE, {"holds": True, "copied": 20}),
        (UNREAD, {"copied": 6000}),
    ],
)
def test_bytes_that_another_file_has_lost_are_gone_on_with(offset: SourceOffset, facts: dict[str, Any]) -> None:
    reached = judge(row(offset, **facts))
    assert isinstance(reached, Continuation)
    assert (reached.partition, reached.offset, reached.is_shorter) == (PARTITION, offset, False)
    assert reached.why


@pytest.mark.parametrize(
    ("offset", "facts"),
    [
        (READ, {}),
        (READ, {"holds": True, "stands": True}),
        (LITTLE, {"holds": True}),
        (UNREAD, {"is_previous": True}),
        (READ, {"is_previous": True, "size": 100}),
        (READ, {"is_previous": True, "made_after": True, "size": 0}),
        (READ, {"is_previous": True, "made_after": True, "size": 5000}),
        (READ, {"is_previous": True, "made_after": True, "was_read_later": False, "size": 4000}),
        (READ, {"is_previous": True, "copied": 4000, "was_read_later": False, "size": 4000}),
    ],
)
def test_equal_text_alone_proves_nothing(offset: SourceOffset, facts: dict[str, Any]) -> None:
    size = facts.pop("size", 6000)
    assert judge(row(offset, **facts), size=size) in (OwnFile(), Undecided("it is empty"))


@pytest.mark.parametrize("facts", [{"made_after": True}, {"copied": 4000}])
def test_a_copy_from_before_the_last_lines_is_gone_on_with_at_its_own_end(facts: dict[str, Any]) -> None:
    reached = judge(row(READ, is_previous=True, **facts), size=4000)
    assert isinstance(reached, Continuation)
    assert reached.is_shorter


def test_of_a_file_that_was_cut_unread_time_or_size_tells_the_copy() -> None:
    assert isinstance(judge(UnreadRow(PARTITION, UNREAD, made_after=True), size=10), Continuation)
    assert isinstance(judge(UnreadRow(PARTITION, UNREAD, made_after=False), size=6000), Continuation)
    assert judge(UnreadRow(PARTITION, UNREAD, made_after=False), size=5999) == OwnFile()
    assert judge(UnreadRow(PARTITION, READ, made_after=True), size=6000) == OwnFile()


@pytest.mark.parametrize(
    "found",
    [BeingRead("/d/app.log"), Original("/d/app.log", is_short=False, goes_first=True), DeletedFile(PARTITION, READ, in_flight=True)],
)
def test_while_it_is_not_known_how_far_another_file_is_read_nothing_is_said(found: Evidence) -> None:
    said = judge(found)
    assert isinstance(said, Undecided)
    assert not said.needs_scan


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_file_that_was_cut_just_now_is_looked_at_by_a_scan_once_no_task_reads_it(in_flight: bool) -> None:
    assert judge(JustCut("/d/app.log", in_flight)) == Undecided("/d/app.log was cut just now", needs_scan=not in_flight)


@pytest.mark.parametrize(
    "found",
    [
        LongerHead(),
        Original("/d/app.log", is_short=True, goes_first=False),
        StandingFile("/d/app.log", -math.inf),
        StandingFile("/d/a", 9.9),
    ],
)
def test_what_may_grow_is_waited_for_and_what_is_quiet_is_not(found: Evidence) -> None:
    assert isinstance(judge(found, may_grow=True), Undecided)
    assert isinstance(judge(found), OwnFile)


def test_two_files_that_both_grow_with_the_same_lines_are_two_files() -> None:
    assert judge(StandingFile("/d/app.log", 10.0), may_grow=True) == OwnFile("/d/app.log")


def test_a_file_that_came_into_the_place_of_a_deleted_one_goes_on_with_it() -> None:
    said = judge(DeletedFile(PARTITION, READ, in_flight=False))
    assert isinstance(said, Continuation)
    assert (said.partition, said.offset) == (PARTITION, READ)


@pytest.mark.parametrize(("size", "has_enough"), [(0, True), (3, False)])
def test_of_too_few_bytes_nothing_is_said_and_nobody_looks(size: int, has_enough: bool) -> None:
    looks = iter([BeingRead("/d/app.log")])
    assert isinstance(judge(*(), size=size, has_enough=has_enough), Undecided)
    match(Newcomer(size, has_enough), looks)
    assert next(looks) == BeingRead("/d/app.log")


def test_the_first_piece_that_decides_ends_the_looks() -> None:
    looks: Iterator[Evidence] = iter([row(LITTLE, holds=True), row(READ, holds=True), BeingRead("/d/app.log")])
    assert isinstance(match(Newcomer(6000, has_enough=True), looks), Continuation)
    assert list(looks) == [BeingRead("/d/app.log")]


@pytest.mark.parametrize(("birth_ns", "seconds", "is_candidate"), [(4, 600.0, True), (6, 600.0, False), (4, 601.0, False)])
def test_a_copy_in_the_making_is_young_and_not_older_than_what_it_copies(birth_ns: int, seconds: float, is_candidate: bool) -> None:
    assert may_be_copy(Newcomer(10, has_enough=True, unchanged_seconds=seconds, made_ns=5), birth_ns) == is_candidate


@pytest.mark.parametrize(
    ("found", "is_anew"),
    [
        (KnownContent(10, 5, begins_otherwise=False, holds=True), False),
        (KnownContent(10, 5, begins_otherwise=False, holds=False), True),
        (KnownContent(4, 5, begins_otherwise=False, holds=False), True),
        (KnownContent(10, 0, begins_otherwise=True, holds=True), True),
    ],
)
def test_a_file_that_is_not_what_was_read_of_it_begins_anew(found: KnownContent, is_anew: bool) -> None:
    assert bool(why_anew(found)) == is_anew


@pytest.mark.parametrize(
    ("facts", "must_read"),
    [
        ({}, False),
        ({"birth_ns": 100}, True),
        ({"birth_ns": 0}, True),
        ({"may_be_cut": True}, True),
        ({"may_be_cut": True, "is_known": True}, False),
        ({"may_be_cut": True, "is_known": None}, False),
        ({"may_be_cut": True, "newest_ns": 200}, False),
        ({"may_be_cut": True, "newest_ns": 200, "doubt_ns": 80}, True),
        ({"birth_ns": 90, "doubt_ns": 80}, True),
        ({"birth_ns": 70, "doubt_ns": 80}, False),
    ],
)
def test_what_nobody_has_seen_is_owed(facts: dict[str, Any], must_read: bool) -> None:
    assert bool(why_must_read(unseen(**facts))) == must_read


@pytest.mark.parametrize(
    ("found", "owed"),
    [
        (OutsideContent(is_rest=True), None),
        (OutsideContent(is_rest=False), True),
        (OutsideContent(is_rest=False, copied=UNREAD), True),
        (OutsideContent(is_rest=False, copied=READ), False),
        (OutsideContent(is_rest=False, is_in_live=True), False),
    ],
)
def test_what_was_read_elsewhere_is_owed_no_more(found: OutsideContent, owed: bool | None) -> None:
    assert must_read(found) is owed
