"""Text to ship: lines that look like an access log, about 170 bytes each, the same for the same seed."""

from __future__ import annotations

import random
from pathlib import Path

_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36",
    "curl/8.14.1",
    "Prometheus/3.5.0",
)


def access_line(number: int, chance: random.Random) -> str:
    """One line without its newline."""
    address = f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(256)}"
    path = f"/shop/{chance.randrange(10**6):06d}/item?id={number}&ref={chance.randrange(10**8):08x}"
    stamp = f"21/Nov/2026:{number // 3_600_000 % 24:02d}:{number // 60_000 % 60:02d}:{number // 1000 % 60:02d} +0000"
    size = chance.randrange(100, 99999)
    return f'{address} - - [{stamp}] "GET {path} HTTP/1.1" {chance.choice((200, 200, 200, 304, 404))} {size} "-" "{chance.choice(_AGENTS)}"'


def write(path: Path, count: int, seed: int = 1) -> None:
    """A file of `count` lines."""
    chance = random.Random(seed)
    with path.open("w") as file:
        for number in range(count):
            file.write(access_line(number, chance) + "\n")
