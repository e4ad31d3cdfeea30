"""How every tool is killed, and when its log is rotated: by seed, so that all of them go through the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

WORKING_SECONDS = 6.0
START_SECONDS = 5.0
_START_SHARE = 0.3

Moment = Literal["working", "start"]


@dataclass(frozen=True)
class Kill:
    """`working`: so long after the tool has shown that it ships again. `start`: so long after it was started, whatever it does then."""

    moment: Moment
    delay_seconds: float


def kills(seed: int, count: int) -> tuple[Kill, ...]:
    """The same for the same arguments. The first meets a tool that works."""
    dice = random.Random(seed)
    found = []
    for number in range(count):
        moment: Moment = "start" if number and dice.random() < _START_SHARE else "working"
        found.append(Kill(moment, dice.uniform(0, WORKING_SECONDS if moment == "working" else START_SECONDS)))
    return tuple(found)


def rotation_pauses(seed: int, seconds: float) -> Iterator[float]:
    """Between two rotations, half of `seconds` more or less, without an end; 0 for none at all."""
    dice = random.Random(f"{seed}/rotations")
    while seconds:
        yield seconds * dice.uniform(0.5, 1.5)
