"""The same kills for every shipper: what is planned, what a reader saw, and the table that is made of it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from benchmarks import kill_loop_report
from benchmarks.peers_plan import START_SECONDS, WORKING_SECONDS, kills, rotation_pauses
from benchmarks.peers_report import Told, tables
from benchmarks.peers_tools import PEERS, Route
from benchmarks.peers_watch import Arrived
from tests.rig.ledger import Verdict, make_line

if TYPE_CHECKING:
    from pathlib import Path


def arrived(*lines: tuple[float, int]) -> Arrived:
    found = Arrived()
    for moment, number in lines:
        found.take(moment, make_line("run", "app.log", number, b"payload")[:-1])
    return found


def test_a_seed_is_the_same_for_every_tool_and_another_seed_another() -> None:
    assert kills(7, 20) == kills(7, 20)
    assert kills(7, 20) != kills(8, 20)
    assert list(islice(rotation_pauses(7, 12), 9)) == list(islice(rotation_pauses(7, 12), 9))


def test_most_kills_meet_a_tool_that_works_some_one_that_starts_and_the_first_one_that_works() -> None:
    planned = kills(1, 300)
    starting = [kill for kill in planned if kill.moment == "start"]
    assert len(planned) == 300
    assert 60 <= len(starting) <= 120
    assert planned[0].moment == "working"
    assert all(0 <= kill.delay_seconds <= START_SECONDS for kill in starting)
    assert max(kill.delay_seconds for kill in planned) <= WORKING_SECONDS


def test_rotations_come_about_as_often_as_was_asked_for_or_never() -> None:
    assert all(6 <= pause <= 18 for pause in islice(rotation_pauses(3, 12), 100))
    assert list(rotation_pauses(3, 0)) == []


def test_recovery_ends_with_the_first_line_written_after_the_kill_not_with_a_repeat() -> None:
    found = arrived((1.0, 0), (2.0, 1), (7.0, 1), (8.0, 2), (9.5, 3))
    assert found.recoveries([(3.0, 3)]) == [6.5]


def test_a_kill_before_the_one_before_was_recovered_from_leaves_only_the_last_to_count() -> None:
    found = arrived((1.0, 0), (9.0, 1), (9.1, 2))
    assert found.recoveries([(3.0, 1), (5.0, 1)]) == [4.0]


def test_a_tool_that_never_came_back_has_no_recovery() -> None:
    assert arrived((1.0, 0)).recoveries([(3.0, 1)]) == []


def test_repeats_count_with_the_kill_before_them() -> None:
    found = arrived((1.0, 0), (1.5, 0), (4.0, 0), (4.0, 0), (8.0, 1), (9.0, 1))
    assert found.repeats_per_kill([(3.0, 1), (5.0, 1), (20.0, 2)]) == [2, 1, 0]


def test_what_is_no_line_is_no_progress_but_something_came() -> None:
    found = Arrived()
    found.take(5.0, b"half a li")
    assert (found.progress, found.seen, found.last) == ([], set(), 5.0)


def test_a_row_shows_both_readers_and_no_recovery_as_a_dash() -> None:
    committed = Verdict(written=1000, delivered=1000, lost=3, duplicated=3, phantom=0, corrupt=1, reordered=2)
    uncommitted = Verdict(written=1000, delivered=1020, lost=3, duplicated=23, phantom=0, corrupt=1, reordered=2)
    told = Told(
        "flume", "rotated", 2, 1, 0, is_settled=True, committed=committed, uncommitted=uncommitted, repeats=[3, 0], recoveries=[], load=1.5
    )
    row = tables([told], {"flume": "Flume"}).splitlines()[-1]
    assert row == "| Flume | rotated | 1,000 | 3 | 3 | 3 | 1 | 0 | 2 | 23 | - | - | 0 of 2 | 1.5 |"
    assert "| 3 not yet there |" in tables([replace(told, is_settled=False)], {"flume": "Flume"})
    assert json.loads(json.dumps(told.values()))["uncommitted"]["duplicated"] == 23


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_copycat_is_given_its_defaults_and_the_guarantee_alone(tmp_path: Path, guarantee: str) -> None:
    PEERS[guarantee].prepare(Route({tmp_path / "app.log": "t"}, "127.0.0.1:9092", tmp_path))
    definition = json.loads((tmp_path / "connectors.d" / "t.yaml").read_text())
    assert definition["delivery"] == {"guarantee": guarantee}
    assert definition["source"] == {"type": "log_file", "include": [str(tmp_path / "app.log")]}


def test_rsyslog_is_told_never_to_give_up_a_line(tmp_path: Path) -> None:
    command = PEERS["rsyslog"].prepare(Route({tmp_path / "a.log": "t1", tmp_path / "b.log": "t2"}, "127.0.0.1:9092", tmp_path))
    text = (tmp_path / "rsyslog.conf").read_text()
    assert command[0] == "rsyslogd"
    assert text.count('queue.syncQueueFiles="on"') == text.count('action.resumeRetryCount="-1"') == text.count('"acks=all"') == 2
    assert "{" not in text.replace("{\n", "")


def test_a_kill_loop_counts_a_repeat_with_the_kill_before_it() -> None:
    again = kill_loop_report.repeats([10.0, 20.0, 30.0], [20_500, 20_900, 31_000])
    assert again == {"kills": 3, "with_repeats": 2, "mean": 1.0, "median": 1, "p95": 2, "max": 2}
    assert kill_loop_report.repeats([], []) == {"kills": 0}
