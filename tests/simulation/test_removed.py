"""Random histories of a connector that deletes what it has read break no promise. To replay one, see `removed`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from copycat_agent.sources.log_file import removal
from copycat_agent.sources.log_file.tracked import TrackedFile
from tests.simulation.removed import run
from tests.simulation.running import GUARANTEES, Plant, always, changed, is_noticed, run_part

pytestmark = pytest.mark.timeout(300)
"""Nothing waits here: it is the processor's time, of which a busy machine gives little."""

HISTORIES = 35
"""Of each guarantee, in every run of the tests."""
LONG_HISTORIES = 30_000
LONG_PARTS = 10
MOST_HISTORIES = 300
"""Until a planted bug has to show."""
SHOWING = (56,)
"""A history that has shown what few others show: it is tried before the others."""


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_histories(guarantee: str) -> None:
    run_part(run, guarantee, 0, 1, HISTORIES)
    for seed in SHOWING:
        run(seed, guarantee)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(LONG_PARTS))
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_many_histories(guarantee: str, part: int) -> None:
    run_part(run, guarantee, part, LONG_PARTS, LONG_HISTORIES)


def _unlinks(_: Any) -> Any:
    """Deletes whatever has the name."""

    def delete(_self: removal.FileRemoval, file: TrackedFile) -> None:
        Path(file.path).unlink()

    return delete


BUGS: dict[str, Plant] = {
    "every file counts as read": always(removal, "_is_read", value=True),
    "whatever has the name is deleted": changed(removal.FileRemoval, "_delete", _unlinks),
}
"""Rules of deletion, each taken out."""


@pytest.mark.parametrize("bug", BUGS)
def test_a_rule_that_is_taken_out_is_missed(bug: str) -> None:
    is_noticed(run, BUGS[bug], MOST_HISTORIES, SHOWING)
