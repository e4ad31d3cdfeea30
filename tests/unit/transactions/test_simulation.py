"""Exactly once, through thousands of histories of everything that goes wrong, with the code that runs in production.

A history that breaks the promise is made as short as it still does, and told. `COPYCAT_SEED=n` replays one, and so
does a kind behind it (`n copies`).
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.unit.transactions.history import BrokenPromiseError, History

HISTORIES = {"": 400, "copies": 240, "cut off": 270, "lost store": 400, "upgrade": 200}
"""Of each kind, so many in the default run: see `History`."""
LIMITS = {(71579, "upgrade")}
"""Histories of what docs/exactly-once.md does not promise: a backup from within an upgrade is put back after a store was lost."""


def tell(history: History) -> str:
    """The shortest version of a history that breaks the promise, step by step."""
    for budget in range(20, 221, 20):
        short = replace(history, budget=budget, traced=True, trace=[])
        try:
            short.run()
        except BrokenPromiseError as error:
            name = f"{history.seed} {history.kind}".strip()
            return f"{error}\nCOPYCAT_SEED='{name}', {budget} turns:\n" + "\n".join(short.trace)
    return f"seed {history.seed} breaks the promise only at its full length"


def holds(seeds: range, kind: str = "") -> None:
    """All of these histories keep the promise."""
    for seed in seeds:
        if (seed, kind) in LIMITS:
            continue
        history = History(seed, kind)
        try:
            history.run()
        except BrokenPromiseError:
            pytest.fail(tell(history), pytrace=False)


def test_every_line_is_there_exactly_once_whatever_happens() -> None:
    holds(range(HISTORIES[""]))


def test_of_two_copies_one_goes_on_and_loses_and_repeats_nothing() -> None:
    holds(range(HISTORIES["copies"]), "copies")


@pytest.mark.parametrize("kind", ["cut off", "lost store"])
def test_nothing_is_lost_or_repeated_when_a_leader_that_was_cut_off_is_asked(kind: str) -> None:
    holds(range(HISTORIES[kind]), kind)


def test_nothing_is_lost_or_repeated_when_a_version_before_ids_is_upgraded() -> None:
    holds(range(HISTORIES["upgrade"]), "upgrade")


@pytest.mark.long
@pytest.mark.parametrize("begin", range(0, 900_000, 50_000))
def test_every_line_is_there_exactly_once_in_a_million_histories(begin: int) -> None:
    holds(range(HISTORIES[""] + begin, HISTORIES[""] + begin + 50_000))


@pytest.mark.long
@pytest.mark.parametrize("begin", range(0, 100_000, 50_000))
@pytest.mark.parametrize("kind", ["copies", "cut off", "lost store", "upgrade"])
def test_every_line_is_there_exactly_once_in_a_hundred_thousand_histories(kind: str, begin: int) -> None:
    holds(range(HISTORIES[kind] + begin, HISTORIES[kind] + begin + 50_000), kind)


@pytest.mark.skipif("COPYCAT_SEED" not in os.environ, reason="replays the history that COPYCAT_SEED names")
def test_one_history_is_replayed() -> None:
    seed, _, kind = os.environ["COPYCAT_SEED"].partition(" ")
    history = History(int(seed), kind, traced=True)
    try:
        history.run()
    finally:
        print("\n".join(history.trace))
