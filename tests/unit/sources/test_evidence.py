"""What proves that one file goes on with another, and what does not: no file is needed to say so."""

from __future__ import annotations

from typing import Any

import pytest

from copycat_agent.model import Fingerprint, SourceOffset
from copycat_agent.sources.files.fingerprint import HEAD_BYTES
from copycat_agent.sources.log_file.succession.evidence import Evidence, Unseen, claim, claim_unread, why_owed

READ = SourceOffset(5000, size=6000, fingerprint=Fingerprint(HEAD_BYTES, "head", 256, "tail"))
"""Of a file of which enough was read to prove something."""
LITTLE = SourceOffset(10, size=6000, fingerprint=Fingerprint(10, "head", 10, "tail"))
UNREAD = SourceOffset(0, size=6000)


def found(**facts: Any) -> Evidence:
    return Evidence(**{"size": 6000, "is_previous": False, "copied": 0, "stands": False, "holds": False, "made_after": False, **facts})


def unseen(**facts: Any) -> Unseen:
    """A file that was there when the connector last looked."""
    there = {"birth_ns": 50, "changed_ns": 150, "looked_ns": 100, "doubt_ns": 100, "may_be_cut": False, "is_known": False, "newest_ns": 0}
    return Unseen(**{**there, **facts})


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
    reached = claim(offset, found(**facts))
    assert reached is not None
    assert reached.why
    assert not reached.is_shorter


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
    ],
)
def test_equal_text_alone_proves_nothing(offset: SourceOffset, facts: dict[str, Any]) -> None:
    assert claim(offset, found(**facts)) is None


@pytest.mark.parametrize("facts", [{"made_after": True}, {"copied": 4000}])
def test_a_copy_from_before_the_last_lines_is_gone_on_with_at_its_own_end(facts: dict[str, Any]) -> None:
    reached = claim(READ, found(is_previous=True, size=4000, **facts))
    assert reached is not None
    assert reached.is_shorter


def test_of_a_file_that_was_cut_unread_time_or_size_tells_the_copy() -> None:
    assert claim_unread(UNREAD, 10, made_after=True) is not None
    assert claim_unread(UNREAD, 6000, made_after=False) is not None
    assert claim_unread(UNREAD, 5999, made_after=False) is None
    assert claim_unread(READ, 6000, made_after=True) is None


@pytest.mark.parametrize(
    ("facts", "is_owed"),
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
def test_what_nobody_has_seen_is_owed(facts: dict[str, Any], is_owed: bool) -> None:
    assert bool(why_owed(unseen(**facts))) == is_owed
