"""What was written against what arrived: numbered lines with checksums, and the count of every way to be wrong.

A line is `run|file|seq|length|crc32|payload`. Only lines whose write() returned are held to be written.
"""

from __future__ import annotations

import contextlib
import os
import random
import string
import uuid
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tests.rig.kafka import Consumed, Isolation, consume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_ALPHABET = (string.ascii_letters + string.digits + " .,:;-_/=").encode("ascii")


@dataclass(frozen=True)
class Verdict:
    """What became of the written lines, in lines. Truthy when every line arrived exactly once, unharmed and in order.

    `phantom`: well-formed, but never written (or its write() did not return). `corrupt`: the checksum or the form is wrong.
    `reordered`: arrived for the first time after a later line of the same file in the same partition.
    """

    written: int
    delivered: int
    lost: int
    duplicated: int
    phantom: int
    corrupt: int
    reordered: int
    lost_examples: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.is_complete and self.duplicated == 0

    @property
    def is_complete(self) -> bool:
        """At least once: nothing lost, invented, damaged or out of order; repeats are allowed."""
        return self.lost == self.phantom == self.corrupt == self.reordered == 0


class LedgerWriter:
    """Appends numbered lines to one file, from one thread. Use it as a context manager, or `close` it."""

    def __init__(self, path: Path, run: str, file: str, randomness: random.Random, written: int = 0) -> None:
        """`written`: what an earlier writer of this file has written."""
        self.path = path
        self.run = run
        self.file = file
        self.written = written
        """Lines completely written, numbered from 0; another thread may read it."""
        self._randomness = randomness
        self._rest = b""
        self._fd = self._open()

    def write(self, count: int = 1, payload_bytes: tuple[int, int] = (10, 120)) -> int:
        """Append `count` lines, one system call each; returns `written`.

        OSError (a full disk, say) as it comes; the unfinished line is not counted, and finished by the next call.
        """
        for _ in range(count):
            if not self._rest:
                self._rest = make_line(self.run, self.file, self.written, self._payload(payload_bytes))
            while self._rest:
                self._rest = self._rest[os.write(self._fd, self._rest) :]
            self.written += 1
        return self.written

    def write_block(self, count: int, payload_bytes: tuple[int, int] = (10, 120)) -> int:
        """Append `count` lines with as few write() calls as possible, for volume; returns `written`."""
        numbers = range(self.written, self.written + count)
        block = memoryview(b"".join(make_line(self.run, self.file, n, self._payload(payload_bytes)) for n in numbers))
        while block:
            block = block[os.write(self._fd, block) :]
        self.written += count
        return self.written

    def reopen(self) -> None:
        """Go on in a new file at `path`, as a daemon does after a rotation by rename. Numbers continue."""
        os.close(self._fd)
        self._fd = self._open()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _payload(self, size: tuple[int, int]) -> bytes:
        return bytes(self._randomness.choices(_ALPHABET, k=self._randomness.randint(*size)))


class Ledger:
    """All writers of one test and the verdict over what arrived. `seed` makes the payloads repeatable."""

    def __init__(self, seed: int = 0, run: str = "") -> None:
        self.run = run or uuid.uuid4().hex[:8]
        self._randomness = random.Random(seed)
        self._writers: dict[str, LedgerWriter] = {}

    def writer(self, path: Path, file: str = "", written: int = 0) -> LedgerWriter:
        """A writer for `path`; `file` is its name in the lines, by default the path's name, and unique in a ledger.

        `written`: the lines that an earlier process of the same run has written there.
        """
        name = file or path.name
        assert name not in self._writers, f"a second writer for {name}"
        self._writers[name] = LedgerWriter(path, self.run, name, self._randomness, written)
        return self._writers[name]

    def counts(self) -> dict[str, int]:
        """File -> lines written so far."""
        return {name: writer.written for name, writer in list(self._writers.items())}

    @property
    def written(self) -> int:
        """Lines written so far, over all writers."""
        return sum(writer.written for writer in self._writers.values())

    def verify(self, records: Iterable[Consumed]) -> Verdict:
        """Compare with what a topic holds (records in offset order per partition, as `consume` returns them)."""
        seen: Counter[tuple[str, int]] = Counter()
        latest: dict[tuple[int, str], int] = {}
        phantom = corrupt = reordered = delivered = 0
        for record in records:
            delivered += 1
            line = parse_line(record.value or b"")
            if line is None:
                corrupt += 1
            elif not self._is_written(*line):
                phantom += 1
            else:
                _, file, number = line
                reordered += not seen[file, number] and number < latest.get((record.partition, file), -1)
                latest[record.partition, file] = max(number, latest.get((record.partition, file), -1))
                seen[file, number] += 1
        missing = [f"{file}|{number}" for file, number in self._all() if not seen[file, number]]
        duplicated = sum(count - 1 for count in seen.values() if count > 1)
        return Verdict(self.written, delivered, len(missing), duplicated, phantom, corrupt, reordered, tuple(missing[:10]))

    def all_arrived(self) -> Callable[[list[Consumed]], bool]:
        """A predicate for `consume(until=...)`: every line written by now is among the records."""
        missing = set(self._all())
        looked_at = 0

        def check(records: list[Consumed]) -> bool:
            nonlocal looked_at
            for record in records[looked_at:]:
                line = parse_line(record.value or b"")
                if line is not None:
                    missing.discard(line[1:])
            looked_at = len(records)
            return not missing

        return check

    def verify_topic(self, bootstrap: str, topic: str, deadline: float = 60.0, isolation: Isolation = "read_uncommitted") -> Verdict:
        """Wait until every line has arrived or the deadline is over, then the verdict over all that the topic holds."""
        with contextlib.suppress(AssertionError):  # what is lost is in the verdict
            consume(bootstrap, topic, isolation, until=self.all_arrived(), deadline=deadline)
        return self.verify(consume(bootstrap, topic, isolation))

    def close(self) -> None:
        """Close all writers."""
        for writer in self._writers.values():
            writer.close()

    def _is_written(self, run: str, file: str, number: int) -> bool:
        return run == self.run and file in self._writers and number < self._writers[file].written

    def _all(self) -> Iterator[tuple[str, int]]:
        return ((name, number) for name, writer in self._writers.items() for number in range(writer.written))


def make_line(run: str, file: str, number: int, payload: bytes) -> bytes:
    """The line with its newline."""
    head = f"{run}|{file}|{number}|{len(payload)}".encode()
    return b"%s|%08x|%s\n" % (head, zlib.crc32(head + payload), payload)


def parse_line(line: bytes) -> tuple[str, str, int] | None:
    """(run, file, number) of a line without its newline, None when it is not exactly what was made."""
    try:
        run, file, number, length, crc, payload = line.split(b"|", 5)
        is_sound = int(length) == len(payload) and int(crc, 16) == zlib.crc32(b"|".join((run, file, number, length)) + payload)
        return (run.decode(), file.decode(), int(number)) if is_sound else None
    except ValueError:
        return None
