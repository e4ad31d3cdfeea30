"""What was written against what arrived."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from copycat_agent.demo.traffic import DemoLog, number_of


@dataclass(frozen=True, slots=True)
class Proof:
    """What became of one log's lines. `altered`: numbers and order are right, but some bytes are not."""

    log: str
    written: int
    arrived: int
    lost: int
    duplicated: int
    out_of_order: int
    unknown: int
    altered: bool

    @property
    def exact(self) -> bool:
        """Whether every line arrived once, in order, byte by byte, and nothing else did."""
        return not (self.lost or self.duplicated or self.out_of_order or self.unknown or self.altered)


@dataclass(slots=True)
class _Seen:
    """Arrivals of one log."""

    numbers: set[int] = field(default_factory=set)
    arrived: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    unknown: int = 0
    latest: int = -1
    digest: hashlib.blake2b = field(default_factory=hashlib.blake2b)

    def take(self, number: int, line: bytes, written: int) -> None:
        """One arrival, in the order of its partition."""
        self.arrived += 1
        self.digest.update(line + b"\n")
        if number >= written:
            self.unknown += 1
        elif number in self.numbers:
            self.duplicated += 1
        else:
            self.numbers.add(number)
            self.out_of_order += number < self.latest
            self.latest = max(self.latest, number)


def prove(logs: Iterable[DemoLog], lines: Iterable[bytes]) -> tuple[Proof, ...]:
    """Compare `lines`, as they arrived and without their newlines, with what was written to `logs`.

    One proof for each log, and one named "?" when lines arrived that belong to none of them.
    """
    written = {log.name: log for log in logs}
    seen = {name: _Seen() for name in written}
    strangers = 0
    for line in lines:
        found = number_of(line)
        if found is None or found[0] not in seen:
            strangers += 1
        else:
            seen[found[0]].take(found[1], line, written[found[0]].written)
    proofs = tuple(_proof(log, seen[log.name]) for log in written.values())
    return (*proofs, Proof("?", 0, strangers, 0, 0, 0, strangers, altered=False)) if strangers else proofs


def _proof(log: DemoLog, seen: _Seen) -> Proof:
    lost = log.written - len(seen.numbers)
    numbered_right = not (lost or seen.duplicated or seen.out_of_order or seen.unknown)
    altered = numbered_right and seen.digest.digest() != log.digest.digest()
    return Proof(log.name, log.written, seen.arrived, lost, seen.duplicated, seen.out_of_order, seen.unknown, altered)
