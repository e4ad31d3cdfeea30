"""The rates of the last 15 minutes: right, bounded, and forgotten with their connectors."""

from __future__ import annotations

import pytest

from copycat_agent.api import rate_history
from copycat_agent.api.rate_history import LOOKS, RateHistory, means
from copycat_agent.errors import CopycatError
from copycat_agent.model import Counts
from copycat_agent.worker import Status
from tests.rig.waiting import wait_until


class Connectors:
    """What a history looks at."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.fail = False
        self.looked = 0

    def statuses(self) -> tuple[Status, ...]:
        self.looked += 1
        if self.fail:
            raise CopycatError("not now")
        return tuple(Status(name, counts=Counts(acknowledged=count)) for name, count in self.counts.items())


def test_a_rate_is_what_was_acknowledged_between_two_looks() -> None:
    seen = Connectors()
    history = RateHistory(seen.statuses)
    seen.counts["app"] = 1000
    history.look(100.0)
    assert (history.rate("app"), history.rates("app")) == (None, ())
    seen.counts["app"] = 1050
    history.look(105.0)
    history.look(110.0)
    assert history.rates("app") == (10.0, 0.0)
    assert history.rate("app") == 0.0


def test_a_line_has_no_more_points_than_asked_for_and_its_newest_one_is_whole() -> None:
    assert means([], 15) == []
    assert means([7.0], 15) == [7.0]
    assert means([1.0, *[2.0] * 12, *[4.0] * 12], 15) == [1.0, 2.0, 4.0]
    assert len(means([1.0] * LOOKS, 7)) == 7
    seen = Connectors()
    history = RateHistory(seen.statuses)
    for at, count in ((0.0, 0), (5.0, 20)):
        seen.counts = {"app": count, "other": 0}
        history.look(at)
    assert history.lines(15) == {"app": [4.0], "other": [0.0]}


def test_a_connector_that_was_started_again_counts_from_nothing() -> None:
    seen = Connectors()
    history = RateHistory(seen.statuses)
    for at, count in ((0.0, 1000), (5.0, 20)):
        seen.counts["app"] = count
        history.look(at)
    assert history.rates("app") == (4.0,)


def test_it_keeps_15_minutes_and_forgets_connectors_that_are_gone() -> None:
    seen = Connectors()
    history = RateHistory(seen.statuses)
    for number in range(3 * LOOKS):
        seen.counts["app"] = number * number
        history.look(5.0 * number)
    assert len(history.rates("app")) == LOOKS
    assert history.rate("app") == pytest.approx((6 * LOOKS - 3) / 5)
    del seen.counts["app"]
    history.look(5.0 * 3 * LOOKS)
    assert history.rates("app") == ()


def test_a_look_that_fails_is_tried_again_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_history, "LOOK_SECONDS", 0.01)
    seen = Connectors()
    seen.fail = True
    history = RateHistory(seen.statuses)
    history.start()
    wait_until(lambda: seen.looked > 2)
    seen.fail, seen.counts["app"] = False, 1
    wait_until(lambda: history.rate("app") is not None)
    monkeypatch.setattr(rate_history, "LOOK_SECONDS", 60.0)  # so long is waited for the end of a look
    history.close()
    after = seen.looked
    history.close()
    assert seen.looked == after


def test_one_that_was_never_started_closes() -> None:
    RateHistory(Connectors().statuses).close()
