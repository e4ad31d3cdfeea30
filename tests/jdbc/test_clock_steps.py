"""The host's clock is set while tables are read: no reading waits for the old time, no row that is still to come is given up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from copycat_agent.extending import Found
from copycat_agent.sources.jdbc.bulk_reader import BulkReader
from copycat_agent.sources.jdbc.chosen_tables import TrackedTable
from copycat_agent.sources.jdbc.database import TableInfo
from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions
from copycat_agent.sources.jdbc.numbered_reader import DelayedClock, NumberedRows
from copycat_agent.sources.jdbc.statements import Dialect
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from copycat_agent.sources.jdbc.database import Database

HOUR_MS = 3_600_000
NO_DATABASE = cast("Database", None)


def test_after_a_clock_that_was_ahead_was_set_back_a_table_is_read_again_at_its_interval() -> None:
    options = JdbcOptions(url="jdbc:h2:mem:x", tables=("t",), mode="bulk", poll_interval=0.3)
    reader, tracked = BulkReader(options, NO_DATABASE), TrackedTable(TableInfo(("t",), (), ()), None, None)
    saved = {"t": {"run": 2, "after": None, "range": [None, None], "ended_ms": int(time.time() * 1000) + HOUR_MS}}

    def is_read() -> bool:
        (found,) = reader.look("t", tracked, saved, to_the_end=False)
        return isinstance(found, Found) and found.end is not None

    assert not is_read(), "the reading before has just ended"
    wait_until(is_read, 60)


class Clocks:
    """A wall clock that can be set."""

    wall, running = 1_700_000_000.0, 0.0

    def __init__(self) -> None:
        self.late = DelayedClock(60.0, lambda: self.wall, lambda: self.running)

    def after(self, seconds: float) -> int:
        self.wall, self.running = self.wall + seconds, self.running + seconds
        return self.late.now_ms()


def test_a_missing_number_has_its_time_though_the_clock_is_set_an_hour_ahead() -> None:
    clocks, numbers = Clocks(), NumberedRows(Dialect("h2"), "id", 60.0)
    position = {"last": 9, "gaps": [[5, 5, clocks.after(0)]], "top": None, "missing": 0, "asked_ms": 0}
    assert numbers.overdue(position, clocks.after(10)) is None
    clocks.wall += 3600
    assert numbers.overdue(position, clocks.after(1)) is None, "it has been missing for 11 s"
    assert numbers.overdue(position, clocks.after(48)) is None
    assert numbers.overdue(position, clocks.after(2)) == 5


def test_the_late_clock_is_the_wall_clock_in_the_end_and_follows_it_back_at_once() -> None:
    clocks = Clocks()
    clocks.wall += 3600
    assert clocks.after(1) == 1_700_000_001_000
    assert clocks.after(60) == int(clocks.wall * 1000)
    clocks.wall -= 86_400
    assert clocks.after(5) == int(clocks.wall * 1000)
    for _ in range(100):  # it drifts
        clocks.wall += 0.5
        assert clocks.after(5) == int(clocks.wall * 1000)
