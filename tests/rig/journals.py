"""Real journals without a running systemd: systemd-journal-remote writes them, from entries in journal export format."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

REMOTE = "/usr/lib/systemd/systemd-journal-remote"
MISSING = "" if Path(REMOTE).exists() and shutil.which("journalctl") else "journalctl and systemd-journal-remote are not installed"
"""Why journals cannot be made here, "" where they can."""
BOOT = "0123456789abcdef0123456789abcdef"
BEGIN_US = 1_700_000_000_000_000
"""When entry 0 was written."""

Entry = dict[str, Any]


def exported(fields: Mapping[str, Any], number: int, boot: str = BOOT) -> bytes:
    """An entry in export format: the `number`-th of its journal, a millisecond behind the one before it. Lists repeat a field."""
    parts = [b"__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%s\n" % (_time_us(number), number * 1000 + 1, boot.encode())]
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            data = one if isinstance(one, bytes) else str(one).encode()
            if isinstance(one, bytes) or b"\n" in data:
                parts.append(name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n")
            else:
                parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts) + b"\n"


def _time_us(number: int) -> int:
    return BEGIN_US + number * 1000


def lines(first: int, last: int, **more: Any) -> Iterator[Entry]:
    """Entries `first` to `last`, both included, each with its number as MESSAGE."""
    return ({"MESSAGE": f"line {number}", "PRIORITY": str(number % 8), **more} for number in range(first, last + 1))


class JournalWriter:
    """Writes `directory/NAME.journal` as entries come, until it is closed. Entries are numbered from 0, over rotations too."""

    def __init__(self, directory: Path, name: str = "app", boot: str = BOOT, *, first: int = 0) -> None:
        self.directory = directory
        self.path = directory / f"{name}.journal"
        self.written = first
        self._boot = boot
        self._before = 0
        """Entries of the file that are known to be in it."""
        directory.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, entries: Iterable[Entry]) -> None:
        """Write these, and wait until they are in the journal."""
        before = self.written
        self.begin(entries)
        wait_until(lambda: self._in_file() >= self.written - before + self._before, 60, lambda: f"{self.path}: {self._in_file()} entries")
        # An entry that is counted is linked, and the file's time set, a moment later; all is done once the writer waits for more.
        wait_until(self._rests, 60, lambda: f"{self.path}: its writer goes on")
        self._before += self.written - before

    def begin(self, entries: Iterable[Entry]) -> None:
        """Write these; they are in the journal soon."""
        process = self._running()
        assert process.stdin is not None
        for entry in entries:
            process.stdin.write(exported(entry, self.written, self._boot))
            self.written += 1
        process.stdin.flush()

    def close(self) -> None:
        """All that was begun is in the journal, and it is closed."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0

    def rotate(self) -> Path:
        """The file takes the name of an archived one; the next entry begins another, with a sequence of its own."""
        self.close()
        self._before = 0
        archived = self.path.with_name(f"{self.path.stem}@{uuid.uuid4().hex}-{self.written:016x}-{_time_us(self.written):016x}.journal")
        self.path.rename(archived)
        return archived

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [REMOTE, f"--output={self.path}", "-"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return self._process

    def _rests(self) -> bool:
        return psutil.Process(self._running().pid).status() == psutil.STATUS_SLEEPING

    def _in_file(self) -> int:
        """By the journal's header."""
        with contextlib.suppress(OSError):
            header = os.open(self.path, os.O_RDONLY)
            try:
                return int.from_bytes(os.pread(header, 8, 152), "little")
            finally:
                os.close(header)
        return 0


def write_journal(directory: Path, entries: Iterable[Entry], name: str = "app") -> Path:
    """A whole journal of these entries."""
    with JournalWriter(directory, name) as writer:
        writer.begin(entries)
    return writer.path


def vacuum(directory: Path, files: int = 1) -> None:
    """Have journalctl remove the oldest archived journals until no more than so many files are left."""
    command = ["journalctl", f"--directory={directory}", f"--vacuum-files={files}"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
