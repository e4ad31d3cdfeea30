"""Random histories of a spool directory break no promise, and each rule that is taken out makes some history break one.

To replay one, with everything that happens in it: `python -m tests.simulation.spooled --guarantee exactly_once --seed 17`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from copycat_agent.delivery.at_least_once import AtLeastOnceDelivery
from copycat_agent.sources.planner import Planner
from copycat_agent.sources.spool_dir import outcomes, preparation, rows, spool_catalog, spool_dir, spool_stream
from copycat_agent.sources.spool_dir.cleanup import cleaner, cleanup_queue, moves
from copycat_agent.sources.spool_dir.file_progress import FileProgress
from tests.simulation.running import GUARANTEES, Plant, always, changed, commits_nothing, is_noticed, run_part
from tests.simulation.spooled import run

pytestmark = pytest.mark.timeout(300)
"""Nothing waits here: it is the processor's time, of which a busy machine gives little."""

HISTORIES = 35
"""Of each guarantee, in every run of the tests."""
LONG_HISTORIES = 50_000
LONG_PARTS = 20
MOST_HISTORIES = 200
"""Until a planted bug has to show."""


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_histories(guarantee: str) -> None:
    run_part(run, guarantee, 0, 1, HISTORIES)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(LONG_PARTS))
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_many_histories(guarantee: str, part: int) -> None:
    run_part(run, guarantee, part, LONG_PARTS, LONG_HISTORIES)


def _cleans_at_once(original: Any) -> Any:
    """Files are handed to cleanup when results are settled, not when that is saved."""

    def changes_of(self: Any, results: Any) -> Any:
        changes = original(self, results)
        for result in results:
            offset = changes.offsets.get(result.split.partition)
            if offset is not None and offset.done:
                file = self._planner.in_flight[result.split.partition].file
                self._cleanup.add(rows.FileRow(file.partition, file.identity, file.key.generation, None, offset))
                self._cleanup.work()
        return changes

    return changes_of


def _settles_all(original: Any) -> Any:
    def offset_to_save(result: Any, *, stop: bool = False) -> Any:
        return replace(original(result, stop=stop), done=True)

    return offset_to_save


BUGS: dict[str, Plant] = {
    "a file is cleaned up before its row is saved": changed(spool_dir.SpoolDirSource, "changes_of", _cleans_at_once),
    "a file that is read in part is done": changed(outcomes, "offset_to_save", _settles_all),
    "results are not saved": changed(AtLeastOnceDelivery, "save", commits_nothing),
    "files that are done are not known again": always(spool_catalog.SpoolCatalog, "_done_row", None),
    "what is saved of a file is forgotten at a start": always(spool_catalog.SpoolCatalog, "_recall", None),
    "files that were cut or empty do not go on once that is saved": changed(preparation.Preparation, "finish", lambda _: lambda *_: []),
    "a file may be in two batches": changed(Planner, "release", lambda _: lambda self, partition: self.in_flight[partition]),
    "nobody compares a file with what was read of it": always(spool_stream.SpoolStream, "is_what_was_read", True),
    "another file in its place is cleaned up": always(moves, "seen", moves.NameState.IT),
    "nothing is ever cleaned up": always(cleanup_queue.CleanupQueue, "add", None),
    "ranges are never read": always(FileProgress, "next_range", None),
    "cleanup has nothing to do": always(cleaner.Cleaner, "does", value=False),
}

SEEDS = {
    "a file is cleaned up before its row is saved": 3,
    "what is saved of a file is forgotten at a start": 2,
    "files that were cut or empty do not go on once that is saved": 4,
    "a file may be in two batches": 4,
    "nobody compares a file with what was read of it": 2,
    "another file in its place is cleaned up": 2,
    "ranges are never read": 5,
}
"""Histories that have shown those that the first history does not show. Each is tried before all others."""


@pytest.mark.parametrize("bug", BUGS)
def test_a_rule_that_is_taken_out_is_missed(bug: str) -> None:
    is_noticed(run, BUGS[bug], MOST_HISTORIES, (SEEDS.get(bug, 0),))
