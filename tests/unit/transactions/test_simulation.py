"""Exactly once, through thousands of histories of everything that goes wrong, with the code that runs in production.

A history that breaks the promise is made as short as it still does, and told. `COPYCAT_SEED=n` replays one (`n` or `n copies`).
"""

from __future__ import annotations

import os

import pytest

from tests.unit.transactions.history import BrokenPromiseError, History

HISTORIES, COPIES = 2400, 700
"""Of the default run: of one agent and everything that befalls it, and of two agents with one identity."""
PARTS = 8


def tell(history: History) -> str:
    """The shortest version of a history that breaks the promise, step by step."""
    for budget in range(20, 221, 20):
        short = History(history.seed, copies=history.copies, budget=budget, traced=True)
        try:
            short.run()
        except BrokenPromiseError as error:
            name = f"{history.seed}{' copies' if history.copies else ''}"
            return f"{error}\nCOPYCAT_SEED='{name}', {budget} turns:\n" + "\n".join(short.trace)
    return f"seed {history.seed} breaks the promise only at its full length"


def holds(seeds: range, *, copies: bool) -> None:
    """All of these histories keep the promise."""
    for seed in seeds:
        history = History(seed, copies=copies)
        try:
            history.run()
        except BrokenPromiseError:
            pytest.fail(tell(history), pytrace=False)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_line_is_there_exactly_once_whatever_happens(part: int) -> None:
    holds(range(part, HISTORIES, PARTS), copies=False)


def test_of_two_copies_one_goes_on_and_loses_and_repeats_nothing() -> None:
    holds(range(COPIES), copies=True)


@pytest.mark.long
@pytest.mark.parametrize("begin", range(0, 900_000, 50_000))
def test_every_line_is_there_exactly_once_in_a_million_histories(begin: int) -> None:
    holds(range(HISTORIES + begin, HISTORIES + begin + 50_000), copies=False)


@pytest.mark.long
@pytest.mark.parametrize("begin", range(0, 100_000, 50_000))
def test_of_two_copies_one_goes_on_in_a_hundred_thousand_histories(begin: int) -> None:
    holds(range(COPIES + begin, COPIES + begin + 50_000), copies=True)


@pytest.mark.skipif("COPYCAT_SEED" not in os.environ, reason="replays the history that COPYCAT_SEED names")
def test_one_history_is_replayed() -> None:
    seed, _, kind = os.environ["COPYCAT_SEED"].partition(" ")
    history = History(int(seed), copies=kind == "copies", traced=True)
    try:
        history.run()
    finally:
        print("\n".join(history.trace))
