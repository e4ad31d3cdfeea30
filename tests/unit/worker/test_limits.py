"""How much a connector may send: never more than the limit over time, never nothing for ever."""

from __future__ import annotations

import random

import pytest

from copycat_agent.model import Counts
from copycat_agent.options import LimitsOptions
from copycat_agent.worker.schedule import BatchLimits, RateLimits, TokenBucket


class Clock:
    """It stands until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_without_limits_there_is_none(clock: Clock) -> None:
    assert RateLimits.of(LimitsOptions(), clock) is None


def test_a_quiet_connector_saves_up_one_second(clock: Clock) -> None:
    bucket = TokenBucket(100, clock)
    clock.now += 3600
    assert bucket.seconds_left() == 0
    assert bucket.take(1) == 100
    assert bucket.seconds_left() == pytest.approx(0.05)


def test_tasks_share_what_is_there(clock: Clock) -> None:
    limits = RateLimits(LimitsOptions(records_per_second=100, bytes_per_second=10_000), clock)
    assert limits.take(2) == BatchLimits(5_000, 50)
    assert limits.take(1) == BatchLimits(5_000, 50)
    assert limits.seconds_left() > 0


def test_what_was_not_used_is_there_again_and_what_was_used_too_much_is_waited_for(clock: Clock) -> None:
    limits = RateLimits(LimitsOptions(bytes_per_second=2000), clock)
    grant = limits.take(1)
    limits.give_back(grant, [Counts()])
    assert limits.take(1) == grant
    limits.give_back(grant, [Counts(read_bytes=10_000)])  # one long line
    assert limits.seconds_left() == pytest.approx(4.05)
    clock.now += 4.05
    assert limits.seconds_left() == pytest.approx(0)


def test_one_record_per_second_gets_one_at_once_and_then_one_each_second(clock: Clock) -> None:
    limits = RateLimits(LimitsOptions(records_per_second=1), clock)
    for _ in range(3):
        assert limits.seconds_left() == pytest.approx(0)
        grant = limits.take(3)
        assert grant.records == 1
        limits.give_back(grant, [Counts(read=1, acknowledged=1)])
        assert limits.seconds_left() == pytest.approx(1)
        clock.now += 1


def test_over_any_time_it_is_the_rate_and_at_most_one_second_more(clock: Clock, rng: random.Random) -> None:
    limits, sent = RateLimits(LimitsOptions(records_per_second=1000), clock), 0
    flying: list[BatchLimits] = []
    for _ in range(5000):
        clock.now += rng.random() * 0.02
        if limits.seconds_left() == 0 and len(flying) < 3:
            flying.append(limits.take(3 - len(flying)))
        if flying and rng.random() < 0.5:
            grant = flying.pop()
            used = rng.randint(0, grant.records)
            sent += used
            limits.give_back(grant, [Counts(read=used, acknowledged=used // 2, dead_lettered=used - used // 2)])
        assert sent <= 1000 * (clock.now - 1000.0) + 1000
    assert sent > 1000 * (clock.now - 1000.0) * 0.3, "and it is not idle"


def test_records_that_are_dropped_use_up_bytes_and_not_records(clock: Clock) -> None:
    limits = RateLimits(LimitsOptions(records_per_second=100, bytes_per_second=10_000), clock)
    grant = limits.take(1)
    limits.give_back(grant, [Counts(read=10_000, read_bytes=5_000, acknowledged=30, dead_lettered=20, dropped=9_000, rejected=950)])
    assert limits.take(1) == BatchLimits(5_000, 50)
