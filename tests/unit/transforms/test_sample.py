"""Promises of `sample`: the part that was asked for, the same records again, and all or none of a key."""

from __future__ import annotations

from typing import Any

import pytest

from copycat_agent.formats import Envelope
from copycat_agent.options import WrittenFloat
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms import Draft
from tests.unit.transforms.steps import META, step

MANY = 20_000


def chosen(sample: Any, starts: range, value: Any = b"x", meta: SplitMeta = META) -> list[int]:
    take = step({"sample": sample}, meta)
    return [start for start in starts if take(Draft(value, start, start + 1))]


@pytest.mark.parametrize("rate", ["0.001", "0.01", "0.1", "0.5", "0.9"])
@pytest.mark.parametrize("length", [1, 80, 1024, 4096])
def test_about_the_part_that_was_asked_for_goes_on(rate: str, length: int) -> None:
    wanted = float(rate) * MANY
    found = len(chosen(WrittenFloat(rate), range(0, MANY * length, length)))
    assert abs(found - wanted) < 5 * (wanted * (1 - float(rate))) ** 0.5 + 2


def test_one_lets_everything_go_on() -> None:
    assert len(chosen(1, range(MANY))) == MANY


def test_a_replay_chooses_the_same_records_under_whatever_name() -> None:
    renamed = SplitMeta("/var/log/app.log.1", META.inode, "web1", "app")
    assert chosen(WrittenFloat("0.1"), range(MANY)) == chosen({"rate": WrittenFloat("0.1")}, range(MANY), b"y", renamed)


def test_files_are_sampled_at_other_places() -> None:
    other = SplitMeta(META.path, META.inode + 1, "web1", "app")
    here, there = set(chosen(WrittenFloat("0.1"), range(MANY))), set(chosen(WrittenFloat("0.1"), range(MANY), meta=other))
    assert len(here & there) < 0.3 * len(here)
    nowhere = [SplitMeta(f"s3://b/{name}", 0, "web1", "app") for name in "ab"]
    assert chosen(WrittenFloat("0.1"), range(MANY), meta=nowhere[0]) != chosen(WrittenFloat("0.1"), range(MANY), meta=nowhere[1])


def test_a_key_goes_as_a_whole_and_keys_are_about_the_part() -> None:
    take = step({"sample": {"rate": WrittenFloat("0.1"), "key": "u.id"}})

    def goes(key: Any, start: int) -> bool:
        return take(Draft({"u": {"id": key}}, start, start + 1))

    passed = [key for key in range(MANY) if goes(key, 5)]
    assert 0.09 < len(passed) / MANY < 0.11
    assert all(goes(str(key), 10 * key) for key in passed)
    assert {goes(key, start) for key in passed[:5] for start in range(100)} == {True}


@pytest.mark.parametrize("fields", [{}, {"k": None}, {"k": [1]}, {"k": 10**5000}], ids=["missing", "null", "list", "digits"])
def test_a_record_without_a_key_is_chosen_for_itself(fields: dict[str, Any]) -> None:
    found = chosen({"rate": WrittenFloat("0.5"), "key": "k"}, range(MANY), fields)
    assert found == chosen(WrittenFloat("0.5"), range(MANY), fields)
    assert 0.45 < len(found) / MANY < 0.55


def test_a_record_of_kafka_is_chosen_by_its_own_offset_wherever_the_batch_begins() -> None:
    """Offsets have gaps: `start` is the end of the record before, or where the batch begins."""
    take = step({"sample": WrittenFloat("0.5")})

    def goes(start: int, offset: int) -> bool:
        return take(Draft(b"x", start, offset + 1).within(Envelope()))

    chosen_ones = [{goes(start, offset) for start in range(offset - 9, offset + 1)} for offset in range(10, 1000, 10)]
    assert {frozenset(each) for each in chosen_ones} == {frozenset([True]), frozenset([False])}
