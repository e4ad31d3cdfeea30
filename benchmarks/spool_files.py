"""Files to drop: orders with ten columns as CSV and as JSON Lines, access logs as lines; plain, or packed with gzip."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.lines import access_line

_CITIES = ("Berlin", "São Paulo", "Kraków", "New York", "東京")
_STATES = ("new", "paid", "packed", "sent", "returned")

KINDS = ("csv", "jsonl", "lines")
"""What can be written; each with and without `.gz`."""


COLUMNS = ("order_id", "customer", "name", "city", "qty", "price", "state", "ordered_at", "note", "is_gift")
"""Of CSV and of JSON Lines."""


def write(path: Path, kind: str, count: int, *, first: int = 0) -> None:
    """A file of `count` records, numbered from `first`; packed when its name ends in `.gz`."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    with plain.open("w", encoding="utf-8") as file:
        file.writelines(_WRITERS[kind](range(first, first + count)))
    if plain != path:
        subprocess.run(["gzip", "-6", str(plain)], check=True)


def _orders(numbers: range) -> Iterator[dict[str, str | int | float]]:
    chance = random.Random(numbers.start)
    for number in numbers:
        yield {
            "order_id": f"A{number:09d}",
            "customer": chance.randrange(10**6),
            "name": f"Customer {chance.randrange(10**5)}",
            "city": chance.choice(_CITIES),
            "qty": chance.randrange(1, 100),
            "price": chance.randrange(100, 10**6) / 100,
            "state": chance.choice(_STATES),
            "ordered_at": f"2026-11-{chance.randrange(1, 29):02d}T{chance.randrange(24):02d}:{chance.randrange(60):02d}:00Z",
            "note": f"ref {chance.randrange(10**8):08x}, leave at door",
            "is_gift": chance.choice(("true", "false")),
        }


def _csv(numbers: range) -> Iterator[str]:
    yield ",".join(COLUMNS) + "\n"
    for order in _orders(numbers):
        yield ",".join(f'"{value}"' if name == "note" else str(value) for name, value in order.items()) + "\n"


def _jsonl(numbers: range) -> Iterator[str]:
    for order in _orders(numbers):
        yield json.dumps(order, ensure_ascii=False) + "\n"


def _lines(numbers: range) -> Iterator[str]:
    chance = random.Random(numbers.start)
    for number in numbers:
        yield access_line(number, chance) + "\n"


_WRITERS: dict[str, Callable[[range], Iterator[str]]] = {"csv": _csv, "jsonl": _jsonl, "lines": _lines}
