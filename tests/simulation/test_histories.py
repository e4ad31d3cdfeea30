"""Random histories of a whole connector break no promise.

To replay one, with everything that happens in it: `python -m tests.simulation.histories --guarantee exactly_once --seed 17`.
"""

from __future__ import annotations

import pytest

from tests.simulation.histories import GUARANTEES, run

HISTORIES = 1_000
"""Of each guarantee, in every run of the tests."""
PARTS = 4
LONG_HISTORIES = 100_000
LONG_PARTS = 20


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
