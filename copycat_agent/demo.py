"""The data of `copycat demo`: generated logs that grow and rotate, their definitions, and the proof that all their lines arrived.

The lines look like logs, and each has the name of its log and the number of lines before it. Logs are rotated by rename, as logrotate does
without copytruncate.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

WEB = ("shop", "api")
"""Logs in the combined format, below `web/`."""
APP = ("checkout", "worker")
"""Logs of JSON lines, below `app/`."""

_PATHS = ("/", "/cart", "/item/17", "/item/4711", "/search?q=cat", "/checkout", "/img/logo.svg", "/login")
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "okhttp/4.12.0", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1)")
_EVENTS = ("order paid", "stock reserved", "mail queued", "cache miss", "retry scheduled", "session ended")
_NUMBER = re.compile(rb'(?:"| )seq(?:"|)[:=]"?([a-z]+)/(\d{1,12})"?\}?')


def make_lines(log: str, first: int, count: int, dice: random.Random) -> list[bytes]:
    """Returns `count` lines of `log`, numbered from `first`, each with its newline."""
    make = _web_line if log in WEB else _app_line
    now = time.time()
    return [make(log, number, now, dice) for number in range(first, first + count)]


def number_of(line: bytes) -> tuple[str, int] | None:
    """Returns the log and the number of a line; None for a line that was not made here."""
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


_TICK_SECONDS = 0.05


class DemoLog:
    """One log: a file that grows, and its rotated generations `.1`, `.2`, ... (the highest is the oldest); all of them stay."""

    def __init__(self, path: Path, seed: int) -> None:
        self.name = path.stem
        self.path = path
        self.written = 0
        """Lines completely written, numbered from 0."""
        self.rotations = 0
        self.digest = hashlib.blake2b()
        """Digest of all lines in order."""
        self._dice = random.Random(seed)  # noqa: S311 - makes lines, protects nothing
        self._file: BinaryIO = path.open("ab", buffering=0)

    def write(self, count: int) -> None:
        """Appends `count` lines, in pieces that do not end where lines end, as buffered writers do."""
        block = b"".join(make_lines(self.name, self.written, count, self._dice))
        half = len(block) // 2
        for piece in (block[:half], block[half:]):
            left = memoryview(piece)
            while left:
                left = left[self._file.write(left) or 0 :]
        self.digest.update(block)
        self.written += count

    def rotate(self) -> None:
        """Renames every generation one up, the current file last, and goes on in a new one."""
        for number in range(self.rotations, 0, -1):
            self.path.with_name(f"{self.path.name}.{number}").rename(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        self._file.close()
        self._file = self.path.open("ab", buffering=0)
        self.rotations += 1

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class Traffic:
    """A thread that writes all logs. `start`, then `stop`; the numbers may be read at any time."""

    def __init__(self, directory: Path, lines_per_second: int, rotate_seconds: float) -> None:
        """Makes `web/` and `app/` below `directory`, with empty logs."""
        self.error: OSError | None = None
        """The error that ended it early, such as a full disk."""
        self._rate = lines_per_second
        self._rotate_seconds = rotate_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-traffic", daemon=True)
        paths = [directory / "web" / f"{name}.log" for name in WEB] + [directory / "app" / f"{name}.log" for name in APP]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.logs = tuple(DemoLog(path, seed) for seed, path in enumerate(paths))

    @property
    def written(self) -> int:
        """Lines written so far, over all logs."""
        return sum(log.written for log in self.logs)

    @property
    def rotations(self) -> int:
        """Rotations so far, over all logs."""
        return sum(log.rotations for log in self.logs)

    def start(self) -> None:
        """Begins to write. Called once."""
        self._thread.start()

    def stop(self) -> None:
        """Ends writing; returns when the last line is complete. Safe to call twice, and without `start`."""
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        for log in self.logs:
            log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._write_until_stopped()
        except OSError as error:
            self.error = error

    def _write_until_stopped(self) -> None:
        began = time.monotonic()
        next_rotation = began + self._rotate_seconds
        turn = 0
        while not self._stop.wait(_TICK_SECONDS):
            due = int((time.monotonic() - began) * self._rate) - self.written
            for log in self.logs:
                log.write(max(0, due) // len(self.logs))
            if time.monotonic() >= next_rotation:
                next_rotation += self._rotate_seconds
                self.logs[turn % len(self.logs)].rotate()
                turn += 1


@dataclass(frozen=True, slots=True)
class Proof:
    """The outcome of one log's lines. `altered`: numbers and order are right, but some bytes are not."""

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
        """Takes in one arrival, in the order of its partition."""
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
    """Compares `lines`, as they arrived and without their newlines, with what was written to `logs`.

    Returns one proof for each log, and one named "?" if lines arrived that belong to none of them.
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


TOPICS = {"web-access": "demo.web", "app-events": "demo.app"}
"""The topic of each connector."""

_WEB = """\
# Access logs. One partition, so that the order of each log shows; rotated files (shop.log.1, ...) belong to their log.
name: web-access

source:
  type: log_file
  include: [{include}]
  rotate_wait: 30s

record:
  topic: demo.web
  key: "{{@file.name}}"
  headers: {{host: "{{@host}}"}}
  origin_headers: true                # copycat.file, copycat.offset, copycat.end

kafka:
  create_topics: {{partitions: 1}}
"""

_APP = """\
# JSON lines, as they are: nothing is parsed that nobody asks for.
name: app-events

source:
  type: log_file
  include: [{include}]
  rotate_wait: 30s

record:
  topic: demo.app

kafka:
  create_topics: {{partitions: 1}}
"""


def write_definitions(directory: Path, logs: Path, bootstrap: str) -> Path:
    """Writes `agent.yaml` and `connectors.d/` below `directory`, for the logs below `logs`; returns the path of `connectors.d`."""
    connectors = directory / "connectors.d"
    connectors.mkdir(parents=True)
    (directory / "agent.yaml").write_text(f"kafka:\n  bootstrap_servers: [{json.dumps(bootstrap)}]\n", "utf-8")
    for name, text, pattern in (("web-access", _WEB, "web/*.log*"), ("app-events", _APP, "app/*.log*")):
        (connectors / f"{name}.yaml").write_text(text.format(include=json.dumps(f"{logs}/{pattern}")), "utf-8")
    return connectors
