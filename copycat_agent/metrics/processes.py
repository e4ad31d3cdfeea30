"""CPU, memory, descriptors and threads of the agent's processes, from /proc: the driver, Spark's JVM, its Python daemon and workers."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_MAX_FDS = re.compile(rb"^Max open files\s+(\d+)", re.MULTILINE)


class Process(NamedTuple):
    """One process. `name` is `driver`, `jvm`, `daemon`, or `worker-1` and so on. Fields that the kernel does not tell are None."""

    name: str
    cpu_seconds: float
    resident_bytes: int
    proportional_bytes: int | None
    open_fds: int | None
    max_fds: int | None
    threads: int
    pid: int


class _Stat(NamedTuple):
    pid: int
    name: str
    parent: int
    cpu_seconds: float
    threads: int
    started: int
    resident_bytes: int


class Processes:
    """Names and measures processes. A worker keeps its name while it lives; a new one gets the first free name. Not thread-safe."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[int, int]] = {}

    def look(self, java_pid: int | None) -> tuple[Process, ...]:
        """Returns the agent's processes. Takes 10 µs for each process of the host, and more for each of the agent's."""
        found = {stat.pid: stat for stat in map(_stat, _pids()) if stat is not None}
        ours = [("driver", found[os.getpid()])] if os.getpid() in found else []
        daemons, workers = [], []
        if java_pid in found:
            ours.append(("jvm", found[java_pid]))
            daemons = [one for one in found.values() if one.parent == java_pid and one.name.startswith("python")]
            workers = [one for one in found.values() if one.parent in {daemon.pid for daemon in daemons}]
        named = {**self._kept("daemon", daemons), **self._kept("worker", workers)}
        self._names = {name: (stat.pid, stat.started) for name, stat in named.items()}
        return tuple(_process(name, stat) for name, stat in (*ours, *named.items()))

    def _kept(self, kind: str, stats: Iterable[_Stat]) -> dict[str, _Stat]:
        """Returns the processes by name. The first daemon has no number: there is rarely a second one."""
        there = {(stat.pid, stat.started): stat for stat in sorted(stats, key=lambda one: (one.started, one.pid))}
        named = {name: there.pop(key) for name, key in self._names.items() if name.startswith(kind) and key in there}
        free = (name for name in _names_of(kind) if name not in named)
        return named | dict(zip(free, there.values(), strict=False))


def _names_of(kind: str) -> Iterator[str]:
    yield kind if kind == "daemon" else f"{kind}-1"
    yield from (f"{kind}-{number}" for number in itertools.count(2))


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - pathlib makes an object of each


def _stat(pid: int) -> _Stat | None:
    content = _read(pid, "stat")
    name, closed, rest = content.partition(b"(")[2].rpartition(b")")
    fields = rest.split()
    if not closed or fields[0] == b"Z":
        return None  # it has ended
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    words = name.decode("utf-8", "replace")
    return _Stat(pid, words, int(fields[1]), cpu, int(fields[17]), int(fields[19]), int(fields[21]) * _PAGE_BYTES)


def _process(name: str, stat: _Stat) -> Process:
    pss, most = _PSS.search(_read(stat.pid, "smaps_rollup")), _MAX_FDS.search(_read(stat.pid, "limits"))
    descriptors = None
    with contextlib.suppress(OSError):
        descriptors = len(os.listdir(f"/proc/{stat.pid}/fd"))  # noqa: PTH208 - there may be thousands
    return Process(
        name, stat.cpu_seconds, stat.resident_bytes, int(pss[1]) * 1024 if pss else None, descriptors, int(most[1]) if most else None,
        stat.threads, stat.pid,
    )  # fmt: skip


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - as above
            return file.read()
    except OSError:
        return b""
