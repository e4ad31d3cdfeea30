"""The made-up lines: they look like logs, and each says which log it belongs to and how many came before it."""

from __future__ import annotations

import random
import re
import time

WEB = ("shop", "api")
"""Logs in the combined format, below `web/`."""
APP = ("checkout", "worker")
"""Logs of JSON lines, below `app/`."""

_PATHS = ("/", "/cart", "/item/17", "/item/4711", "/search?q=cat", "/checkout", "/img/logo.svg", "/login")
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "okhttp/4.12.0", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1)")
_EVENTS = ("order paid", "stock reserved", "mail queued", "cache miss", "retry scheduled", "session ended")
_NUMBER = re.compile(rb'(?:"| )seq(?:"|)[:=]"?([a-z]+)/(\d{1,12})"?\}?')


def make_lines(log: str, first: int, count: int, dice: random.Random) -> list[bytes]:
    """`count` lines of `log`, numbered from `first`, each with its newline."""
    make = _web_line if log in WEB else _app_line
    now = time.time()
    return [make(log, number, now, dice) for number in range(first, first + count)]


def number_of(line: bytes) -> tuple[str, int] | None:
    """Which log and which number a line is; None for a line that nobody here made."""
    match = _NUMBER.search(line, max(0, len(line) - 60))
    return (match[1].decode(), int(match[2])) if match and match.end() == len(line) else None


def _web_line(log: str, number: int, now: float, dice: random.Random) -> bytes:
    chance = dice.random()
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now))
    request = _PATHS[int(chance * len(_PATHS))]
    status = 200 if chance < 0.96 else 404  # noqa: PLR2004 - some requests fail
    agent = _AGENTS[number % len(_AGENTS)]
    return (
        f'203.0.113.{int(chance * 1e6) % 254 + 1} - - [{stamp}] "GET {request} HTTP/1.1" {status} {int(chance * 1e7) % 90000} "-" "{agent}"'
        f" seq={log}/{number}\n"
    ).encode()


def _app_line(log: str, number: int, now: float, dice: random.Random) -> bytes:
    chance = dice.random()
    event = _EVENTS[int(chance * len(_EVENTS))]
    order = int(chance * 1e9) % 1_000_000
    return f'{{"ts":{now:.3f},"level":"info","event":"{event}","order":{order},"seq":"{log}/{number}"}}\n'.encode()
