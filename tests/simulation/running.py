"""How histories are run, whatever they are of: one to its end, many of them, from the command line, and with a rule taken out."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol
from unittest.mock import patch

import pytest

STEPS = 40
"""Things that happen in a history."""
GUARANTEES = ("at_least_once", "exactly_once")
Tell = Callable[[str], None]
Plant = Callable[[], AbstractContextManager[Any]]
"""Takes a rule out, for as long as the context lasts."""


class Run(Protocol):
    """One history. Raises AssertionError where a promise is broken."""

    def __call__(self, seed: int, guarantee: str, tell: Tell = ..., /) -> None: ...


class Played(Protocol):
    """What a history has to have to be played."""

    tell: Tell

    def start(self) -> None: ...

    def step(self) -> None: ...

    def teardown(self) -> None: ...

    def discard(self) -> None: ...


def play(history: Played) -> None:
    """From its beginning to its end. Raises AssertionError where a promise is broken."""
    try:
        history.start()
        for _ in range(STEPS):
            history.step()
        history.tell("the end")
        history.teardown()
    finally:
        history.discard()


def run_part(run: Run, guarantee: str, part: int, parts: int, histories: int) -> None:
    """One of so many parts of the histories from seed 0 on. Fails with the end of the first that breaks a promise."""
    size = histories // parts
    for seed in range(part * size, (part + 1) * size):
        trace: list[str] = []
        try:
            run(seed, guarantee, trace.append)
        except AssertionError as error:
            end = "\n".join(trace[-60:])
            pytest.fail(f"history {seed}, {guarantee}: {error}\nit ends with\n{end}")


def changed(owner: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    """`make(original)` in the place of a method or function."""
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def always(owner: Any, name: str, value: Any) -> Plant:
    return changed(owner, name, lambda _: lambda *_, **__: value)


def commits_nothing(original: Any) -> Any:
    """What stands in for `AtLeastOnceDelivery.save`."""

    def save(self: Any, unsaved: Any, accounts: Any) -> bool:
        return True if unsaved.results else bool(original(self, unsaved, accounts))

    return save


def is_noticed(run: Run, plant: Plant, histories: int, first: Sequence[int] = ()) -> None:
    """Fails when no history of the first `histories` breaks a promise with the rule taken out; those of `first` are tried before others."""
    with plant():
        for seed in (*first, *range(histories)):
            for guarantee in GUARANTEES:
                try:
                    run(seed, guarantee)
                except AssertionError:
                    return
    pytest.fail(f"{histories} histories of each guarantee, and nobody noticed")


def main(run: Run) -> None:
    """Replay one history with everything that happens in it, or run many and print those that break a promise."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--guarantee", choices=GUARANTEES, default=GUARANTEES[0])
    parser.add_argument("--seed", type=int, default=0, help="the history, or the first of them")
    parser.add_argument("--count", type=int, default=1, help="how many; of more than one, only the broken ones are told")
    options = parser.parse_args()
    if options.count == 1:
        run(options.seed, options.guarantee, print)
        return
    broken = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            run(seed, options.guarantee)
        except AssertionError as error:
            broken += 1
            print(f"history {seed}: {error}", flush=True)
    print(f"{options.guarantee}: {options.count:,} histories from {options.seed}, {broken} broken")
