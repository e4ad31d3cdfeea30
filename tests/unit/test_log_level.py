"""The level of the log at run time: for a while, and then as it was."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest

from copycat_agent import logs
from tests.rig.waiting import wait_until


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.setup("warning", "text", stream)
    yield stream
    logs.setup()


def test_a_level_holds_for_its_time_and_then_the_one_of_the_start_again(written: io.StringIO) -> None:
    passing, log = logs.PassingLevel(), logs.get("worker")
    log.info("before")
    moments = [passing.changed]
    passing.set("debug", 3600.0)
    moments.append(passing.changed)
    assert (logs.level(), passing.until is not None) == ("debug", True)
    log.debug("within")
    begun = time.time()
    passing.set("debug", 0.2)
    wait_until(lambda: logs.level() == "warning")
    log.info("after")
    assert passing.until is None
    wait_until(lambda: (passing.changed or 0.0) > begun + 0.1, message="the end is told as a change")
    assert moments[0] is None
    assert moments[1] is not None
    assert [word for word in ("before", "within", "after") if word in written.getvalue()] == ["within"]


def test_the_last_word_counts_and_the_end_is_the_level_of_the_start(written: io.StringIO) -> None:
    passing = logs.PassingLevel()
    passing.set("debug", 0.05)
    passing.set("error", None)
    passing.set("info", 3600.0)
    first = passing.until
    passing.set("debug", None)
    assert (logs.level(), passing.until, first is not None) == ("debug", None, True)
    passing.close()
    assert logs.level() == "warning"
