"""Random histories of a spool directory break no promise, and each rule that is taken out makes some history break one.

To replay one, with everything that happens in it: `python -m tests.simulation.spooled --guarantee exactly_once --seed 17`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from copycat_agent.delivery.at_least_once import AtLeastOnce
from copycat_agent.sources.planner import Planner
from copycat_agent.sources.spool_dir import catalog, outcomes, preparation, rows, spool_dir, spool_stream
from copycat_agent.sources.spool_dir.cleanup import cleaner, cleanup_queue, moves
from copycat_agent.sources.spool_dir.file_progress import FileProgress
from tests.simulation.spooled import GUARANTEES, run

HISTORIES = 200
"""Of each guarantee, in every run of the tests."""
PARTS = 2
LONG_HISTORIES = 50_000
LONG_PARTS = 20
MOST_HISTORIES = 200
"""Until a planted bug has to show."""
Plant = Callable[[], AbstractContextManager[Any]]


def _run_part(guarantee: str, part: int, parts: int, histories: int) -> None:
    size = histories // parts
    for seed in range(part * size, (part + 1) * size):
        trace: list[str] = []
        try:
            run(seed, guarantee, trace.append)
        except AssertionError as error:
            end = "\n".join(trace[-60:])
            pytest.fail(f"history {seed}, {guarantee}: {error}\nit ends with\n{end}")


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_histories(guarantee: str, part: int) -> None:
    _run_part(guarantee, part, PARTS, HISTORIES)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(LONG_PARTS))
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_many_histories(guarantee: str, part: int) -> None:
    _run_part(guarantee, part, LONG_PARTS, LONG_HISTORIES)


def changed(owner: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    """`make(original)` in the place of a method or function."""
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def always(owner: Any, name: str, value: Any) -> Plant:
    return changed(owner, name, lambda _: lambda *_, **__: value)


def commits_nothing(original: Any) -> Any:
    def save(self: Any, one: Any, accounts: Any) -> bool:
        return True if one.results else bool(original(self, one, accounts))

    return save


def _cleans_at_once(original: Any) -> Any:
    """Files are handed to cleanup when results are settled, not when that is saved."""

    def settle(self: Any, results: Any) -> Any:
        changes = original(self, results)
        for result in results:
            offset = changes.offsets.get(result.split.partition)
            if offset is not None and offset.done:
                file = self._planner.in_flight[result.split.partition].file
                self._cleanup.add(rows.Row(file.partition, file.identity, file.key.generation, None, offset))
                self._cleanup.work()
        return changes

    return settle


def _settles_all(original: Any) -> Any:
    def settled(result: Any, *, stop: bool = False) -> Any:
        return replace(original(result, stop=stop), done=True)

    return settled


BUGS: dict[str, Plant] = {
    "a file is cleaned up before its row is saved": changed(spool_dir.SpoolDir, "settle", _cleans_at_once),
    "a file that is read in part is done": changed(outcomes, "settled", _settles_all),
    "results are not saved": changed(AtLeastOnce, "save", commits_nothing),
    "files that are done are not known again": always(catalog.Catalog, "_done_row", None),
    "what is saved of a file is forgotten at a start": always(catalog.Catalog, "_recall", None),
    "files that were cut or empty do not go on once that is saved": changed(preparation.Preparation, "finish", lambda _: lambda *_: []),
    "a file may be in two batches": changed(Planner, "land", lambda _: lambda self, partition: self.in_flight[partition]),
    "nobody compares a file with what was read of it": always(spool_stream.SpoolStream, "is_what_was_read", True),
    "another file in its place is cleaned up": always(moves, "seen", moves.Seen.IT),
    "nothing is ever cleaned up": always(cleanup_queue.CleanupQueue, "add", None),
    "ranges are never read": always(FileProgress, "next_range", None),
    "cleanup has nothing to do": always(cleaner.Cleaner, "does", value=False),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_rule_that_is_taken_out_is_missed(bug: str) -> None:
    with BUGS[bug]():
        for seed in range(MOST_HISTORIES):
            for guarantee in GUARANTEES:
                try:
                    run(seed, guarantee)
                except AssertionError:
                    return
    pytest.fail(f"{MOST_HISTORIES} histories of each guarantee, and nobody noticed")
