"""A simulation is worth what it sees: each rule that is taken out makes some history break a promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from copycat_agent.delivery.at_least_once import AtLeastOnceDelivery
from copycat_agent.delivery.exactly_once import driver, lane_recovery
from copycat_agent.errors import RetriableError
from copycat_agent.model import Head, SourceOffset
from copycat_agent.offsets import lanes
from copycat_agent.sources.files.reading.stream import Stream
from copycat_agent.sources.log_file import file_planner, followed, log_file, rotation, tracked, unfollowed_partitions
from copycat_agent.sources.log_file.beginning import start
from copycat_agent.sources.log_file.known_file import KnownFile
from copycat_agent.sources.log_file.succession import rules, similarity
from copycat_agent.worker import connector_io, machine
from copycat_agent.worker.orders import ConnectorCommands
from tests.simulation.histories import run
from tests.simulation.running import GUARANTEES, Plant, always, changed, commits_nothing, is_noticed

pytestmark = pytest.mark.timeout(300)
"""Nothing waits here: it is the processor's time, of which a busy machine gives little."""

HISTORIES = 400
"""Most histories until the bug has to show."""
SHOWING = 7
"""A history that shows many of them."""


def _settled_further(original: Any) -> Any:
    """All of each split counts as read."""

    def changes_of(self: Any, results: Any) -> Any:
        further = [replace(one, offset=replace(one.offset, position=max(one.offset.position, one.split.end))) for one in results]
        return original(self, further)

    return changes_of


def _forgets_where(original: Any) -> Any:
    """Positions come back a line or so too early."""

    def read(self: Any, *args: Any) -> Any:
        partition, offset, generation = original(self, *args)
        return (
            partition,
            offset if partition is None else replace(offset, position=0, records=0, fingerprint=SourceOffset(0).fingerprint),
            generation,
        )

    return read


def _saves_in_vain(original: Any) -> Any:
    def save(self: Any, unsaved: Any) -> Any:
        try:
            return original(self, unsaved)
        except RetriableError:
            return 0.0

    return save


def _closes_what_left(original: Any) -> Any:
    def left(self: Any) -> None:
        original(self)
        self.close()

    return left


def _saved_as_there(original: Any) -> Any:
    def left(self: Any) -> None:
        original(self)
        self.offset = replace(self.offset, gone_ms=0)

    return left


def _keeps_position(original: Any) -> Any:
    def begun_anew(self: Any, *args: Any, **more: Any) -> Any:
        offset = self.offset
        fresh = original(self, *args, **more)
        fresh.offset = offset
        return fresh

    return begun_anew


def _closes_all(original: Any) -> Any:
    def finish(self: Any, results: Any, changes: Any) -> None:
        original(self, results, changes)
        for file in list(self._followed.draining)[: len(results)]:
            file.close()
            self._followed.draining.discard(file)

    return finish


def _lands_nothing(original: Any) -> Any:
    def finish(self: Any, results: Any, changes: Any) -> None:
        original(self, [one for one in results if one.error is None], changes)

    return finish


def _never_smaller(original: Any) -> Any:
    def observe(self: Any, info: Any) -> None:
        if info.st_size >= self.size:
            original(self, info)

    return observe


def _at_the_end(begun: Any, info: Any) -> Any:
    """A beginning at the end of the file."""
    return begun._replace(offset=replace(begun.offset, position=info.st_size))


def _sees_only_cuts(_original: Any) -> Any:
    """Of a file that was read, its bytes are not compared with what was read of it."""

    def what_changed(file: Any, *_: Any) -> str:
        return "it was cut before anything of it was read" if file.is_cut_unread else ""

    return what_changed


def _never_undecided(original: Any) -> Any:
    """What a new file is counts as known at once: a file of its own where nothing else is known yet."""

    def match(*args: Any) -> Any:
        verdict = original(*args)
        return rules.OwnFile() if isinstance(verdict, rules.Undecided) else verdict

    return match


def _newest_first(original: Any) -> Any:
    """What goes into one batch is read in the opposite order."""

    def plan(self: Any, shares: int) -> Any:
        planned = original(self, shares)
        return planned._replace(splits=planned.splits[::-1])

    return plan


BUGS: dict[str, Plant] = {
    "what was not read counts as read": changed(log_file.LogFileSource, "changes_of", _settled_further),
    "results are not saved": changed(AtLeastOnceDelivery, "save", commits_nothing),
    "a save that failed counts": changed(connector_io.ConnectorIO, "_save", _saves_in_vain),
    "a file is not compared with what was read of it before a batch": always(Stream, "is_what_was_read", True),
    "a file that was rewritten is read on": changed(similarity, "what_changed", _sees_only_cuts),
    "no copy is taken for one": always(rules, "claim", None),
    "copies are not waited for": changed(rules, "match", _never_undecided),
    "new files begin at their end": changed(
        start.StartAt,
        "begin",
        lambda original: lambda self, fd, info, path, *, first: _at_the_end(original(self, fd, info, path, first=first), info),
    ),
    "a file that left its patterns is closed at once": changed(tracked.TrackedFile, "left_patterns", _closes_what_left),
    "a file that left its patterns is saved as one that is there": changed(tracked.TrackedFile, "left_patterns", _saved_as_there),
    "saved positions are not known again": changed(unfollowed_partitions.UnfollowedPartitions, "recall", _forgets_where),
    "newer files of a log wait for ever": always(rotation.RotationOrder, "stop_waiting", None),
    "newer files of a log do not wait for older ones": always(rotation.RotationOrder, "_make_wait", None),
    "a newer file goes first where one batch has both": changed(file_planner.FilePlanner, "plan", _newest_first),
    "unfinished lines are records": changed(
        tracked.TrackedFile, "split", lambda original: lambda self, limit: replace(original(self, limit), final=True)
    ),
    "a pause is not heard": changed(ConnectorCommands, "pause", lambda _: lambda _self: None),
    "a pause has no end": changed(ConnectorCommands, "resume", lambda _: lambda _self: None),
    "what became of a batch is taken for undone without asking Kafka": changed(lane_recovery, "_positions", lambda _: lambda *_: {}),
    "a lane stays where it was after a transaction": changed(
        driver, "_outcome", lambda original: lambda results: (one := original(results)) and one._replace(head=Head())
    ),
    "no batch is admitted": always(driver.ExactlyOnceDelivery, "admit", ()),
    "a file may be in two batches": lambda: patch.object(KnownFile, "may_be_planned", property(lambda _self: True)),
    "growth is not noticed": always(followed.FollowedFiles, "note_readable", None),
    "progress is not noted": always(tracked.TrackedFile, "note_progress", None),
    "a file that was found to be another one is read on": always(tracked.TrackedFile, "note_compared", None),
    "a file begun anew keeps its position": changed(tracked.TrackedFile, "begun_anew", _keeps_position),
    "a stop does not wait for batches": changed(machine.ConnectorMachine, "_settle_in_flight", lambda _: lambda _self: iter(())),
    "what Kafka holds of a lane is not taken at the start": always(lanes, "apply", []),
    "what a previous generation was is forgotten": always(unfollowed_partitions.UnfollowedPartitions, "add_previous", None),
    "nobody with the same head is found": always(unfollowed_partitions.UnfollowedPartitions, "candidates", []),
    "a file with unread lines is let go": changed(log_file.LogFileSource, "finish", _closes_all),
    "what a task gave up is not undone": changed(log_file.LogFileSource, "finish", _lands_nothing),
    "a shrunken file is not seen": changed(tracked.TrackedFile, "observe", _never_smaller),
}

SEEDS = {
    "results are not saved": 43,
    "a save that failed counts": 78,
    "a file is not compared with what was read of it before a batch": 13,
    "no copy is taken for one": 43,
    "copies are not waited for": 165,
    "a file that left its patterns is closed at once": 14,
    "a file that left its patterns is saved as one that is there": 368,
    "newer files of a log do not wait for older ones": 83,
    "a newer file goes first where one batch has both": 83,
    "unfinished lines are records": 201,
    "a pause is not heard": 9,
    "a pause has no end": 13,
    "what became of a batch is taken for undone without asking Kafka": 14,
    "a file may be in two batches": 165,
    "a file that was found to be another one is read on": 13,
    "a stop does not wait for batches": 78,
    "what Kafka holds of a lane is not taken at the start": 0,
    "nobody with the same head is found": 43,
    "a file with unread lines is let go": 13,
}
"""Histories that have shown the others. Each is tried before all others."""


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_histories_that_have_shown_a_bug_break_no_promise_without_it(guarantee: str) -> None:
    for seed in {*SEEDS.values(), SHOWING}:
        run(seed, guarantee)


@pytest.mark.parametrize("bug", BUGS)
def test_a_rule_that_is_taken_out_is_missed(bug: str) -> None:
    is_noticed(run, BUGS[bug], HISTORIES, (SEEDS.get(bug, SHOWING),))
