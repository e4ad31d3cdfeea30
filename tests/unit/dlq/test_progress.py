"""What was replayed is remembered exactly, in the words that a consumer group can keep; in doubt a letter goes again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.dlq import ReplayProgress
from copycat_agent.producer.topic_reader import GroupPosition

OUTCOMES = st.lists(st.booleans(), max_size=300)


@given(OUTCOMES)
def test_what_is_saved_is_what_was_done(outcomes: list[bool]) -> None:
    progress = ReplayProgress()
    for offset, went in enumerate(outcomes):
        (progress.done if went else progress.leave)(offset)
    again = ReplayProgress.of(progress.saved())
    for kept in (progress, again):
        assert [kept.is_done(offset) for offset in range(len(outcomes) + 5)] == [*outcomes, *[False] * 5]
        assert kept.begin == (outcomes.index(False) if False in outcomes else len(outcomes))


@given(st.integers(0, 10**12), st.integers(1, 3000))
def test_words_never_outgrow_what_a_broker_takes_and_never_claim_too_much(first: int, count: int) -> None:
    progress = ReplayProgress(first)
    for offset in range(first, first + 2 * count, 2):
        progress.leave(offset)
        progress.done(offset + 1)
    saved = progress.saved()
    assert len(saved.words) < 4096
    again = ReplayProgress.of(saved)
    assert not any(again.is_done(offset) for offset in range(first, first + 2 * count, 2))
    assert again.begin == first


def test_a_second_try_takes_it_off_the_list() -> None:
    progress = ReplayProgress()
    progress.leave(0)
    progress.done(1)
    progress.done(0)
    assert (progress.begin, progress.saved()) == (2, GroupPosition(2, ""))


def test_what_is_passed_over_to_try_a_later_one_is_left() -> None:
    progress = ReplayProgress(3, [(1, 1)])
    progress.pass_to(6)
    progress.done(6)
    progress.pass_to(2)
    progress.done(2)
    assert [progress.is_done(offset) for offset in range(8)] == [True, False, True, False, False, False, True, False]
    assert progress.saved() == GroupPosition(1, "copycat1 7 1-1,3-5")


def test_a_letter_of_long_ago_can_be_left_again() -> None:
    progress = ReplayProgress(10)
    progress.leave(3)
    assert (progress.begin, progress.is_done(3), progress.is_done(9)) == (3, False, True)


def test_letters_that_the_topic_has_deleted_are_forgotten() -> None:
    progress = ReplayProgress(10, [(3, 3), (8, 8)])
    progress.forget(5, 12)
    assert (progress.begin, progress.saved()) == (8, GroupPosition(8, "copycat1 10 8-8"))
    progress.forget(20, 30)
    assert progress.saved() == GroupPosition(20, "")


@pytest.mark.parametrize("words", ["", "somebody else's", "copycat1 x", "copycat1 9 1-2", "copycat1 9 8-7", "copycat1 9 5-9"])
def test_words_that_are_not_ours_or_cannot_be_leave_the_number(words: str) -> None:
    progress = ReplayProgress.of(GroupPosition(5, words))
    assert (progress.begin, progress.is_done(4), progress.is_done(5)) == (5, True, False)


def test_without_a_position_nothing_is_done() -> None:
    assert ReplayProgress.of(None).begin == 0


def test_a_topic_that_was_made_anew_is_read_from_its_beginning() -> None:
    progress = ReplayProgress(10, [(3, 3), (8, 8)])
    progress.forget(0, 9)
    assert (progress.begin, progress.is_done(0)) == (0, False)


def test_many_letters_that_were_passed_take_no_memory_each() -> None:
    progress = ReplayProgress()
    progress.pass_to(10**15)
    progress.done(10**15)
    again = ReplayProgress.of(progress.saved())
    assert (again.begin, again.is_done(10**15 - 1), again.is_done(10**15)) == (0, False, True)


@given(st.lists(st.tuples(st.sampled_from(["done", "leave", "pass_to"]), st.integers(0, 40)), max_size=30))
def test_ranges_say_what_single_offsets_would(calls: list[tuple[str, int]]) -> None:
    progress, left, end = ReplayProgress(), set[int](), 0
    for name, offset in calls:
        if name != "pass_to" and offset > end:
            progress.pass_to(offset)
            left |= set(range(end, offset))
        if name == "leave" and offset < end and offset not in left:
            continue
        getattr(progress, name)(offset)
        left |= set(range(end, offset)) if name == "pass_to" else set()
        left = left - {offset} if name == "done" else left | {offset} if name == "leave" else left
        end = max(end, offset + (name != "pass_to"))
        assert {one for one in range(60) if progress.is_done(one)} == set(range(end)) - left
        assert progress.begin == min(left, default=end)
        again = ReplayProgress.of(progress.saved())
        assert {one for one in range(60) if again.is_done(one)} == set(range(end)) - left
