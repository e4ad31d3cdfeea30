"""What the kernel allows: open files, processes, watched directories."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from copycat_agent.doctor.model import Notes, Step
from copycat_agent.doctor.users import drop_in

OTHER_FILES = 512
"""Descriptors beside the logs': sockets, the JVM's pipes, the offset store, producers' connections."""
THREADS = 512
"""Processes and threads of a small agent, the JVM's included: about 150, more with every connector and producer."""
_INSTANCES = 2
"""inotify instances: of the logs, and of the definitions."""


def examine_limits(max_open_files: Sequence[int], directories: int, pid: int | None) -> list[Step]:
    """Steps of section `limits`.

    `max_open_files` of all connectors, the number of `directories` that are to be watched, and the `pid` of the agent where
    one runs: then its limits count, else this process's.
    """
    notes = Notes("limits")
    whose = f"of the agent with pid {pid}" if pid else "of this shell"
    _examine_files(notes, sum(max_open_files) + OTHER_FILES, pid, whose)
    _examine_processes(notes, pid, whose)
    _examine_watches(notes, directories)
    return notes.steps


def _examine_files(notes: Notes, needed: int, pid: int | None, whose: str) -> None:
    """The agent raises its soft limit as far as the hard one allows."""
    _, hard = _limit(pid, "Max open files", resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        text = f"{hard:,} {whose}; the connectors' max_open_files and the agent itself add up to {needed:,}"
        notes.fail("open files", text, f"{drop_in(f'LimitNOFILE={needed}', 'limits')}\nor lower source.max_open_files")
    else:
        notes.ok("open files", f"{'no limit' if hard == resource.RLIM_INFINITY else f'{hard:,}'} {whose}, {needed:,} needed at most")


def _examine_processes(notes: Notes, pid: int | None, whose: str) -> None:
    soft, _ = _limit(pid, "Max processes", resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and soft < THREADS:
        text = f"{soft:,} processes and threads {whose}: the JVM and the producers may want {THREADS:,}"
        notes.warn("processes", text, drop_in("LimitNPROC=4096\\nTasksMax=4096", "limits"))
    else:
        notes.ok("processes", f"{'no limit' if soft == resource.RLIM_INFINITY else f'{soft:,}'} {whose}")


def _examine_watches(notes: Notes, directories: int) -> None:
    """Where a watch cannot be had the agent polls, so this is never a failure."""
    for name, needed, what in (
        ("max_user_watches", directories, f"{directories:,} {'directory is' if directories == 1 else 'directories are'} to be watched"),
        ("max_user_instances", _INSTANCES, f"the agent takes {_INSTANCES}"),
    ):
        found = _sysctl(name)
        if found is None:
            notes.skip(name, "inotify is not there: the agent looks every scan_interval")
        elif found < needed:
            wanted = max(2 * needed, 1024)
            fix = f"echo fs.inotify.{name}={wanted} > /etc/sysctl.d/60-copycat.conf && sysctl -p /etc/sysctl.d/60-copycat.conf"
            notes.warn(name, f"{found:,}; {what}: the rest is looked at every scan_interval", fix)
        else:
            notes.ok(name, f"{found:,}; {what}")


def _sysctl(name: str) -> int | None:
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/sys/fs/inotify/{name}").read_text("ascii"))
    return None


def _limit(pid: int | None, label: str, number: int) -> tuple[int, int]:
    """Soft and hard limit of a process, of this one where the other's cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/limits").read_text("ascii").splitlines() if pid else ():
            if line.startswith(label):
                soft, hard = line[len(label) :].split()[:2]
                return _number(soft), _number(hard)
    return resource.getrlimit(number)


def _number(text: str) -> int:
    return resource.RLIM_INFINITY if text == "unlimited" else int(text)
