"""Random histories of a whole connector break no promise.

To replay one, with everything that happens in it: `python -m tests.simulation.histories --guarantee exactly_once --seed 17`.
"""

from __future__ import annotations

import pytest

from tests.simulation.histories import run
from tests.simulation.running import GUARANTEES, run_part

pytestmark = pytest.mark.timeout(300)
"""Nothing waits here: it is the processor's time, of which a busy machine gives little."""

HISTORIES = 120
"""Of each guarantee, in every run of the tests."""
LONG_HISTORIES = 100_000
LONG_PARTS = 20


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_histories(guarantee: str) -> None:
    run_part(run, guarantee, 0, 1, HISTORIES)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(LONG_PARTS))
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_many_histories(guarantee: str, part: int) -> None:
    run_part(run, guarantee, part, LONG_PARTS, LONG_HISTORIES)
