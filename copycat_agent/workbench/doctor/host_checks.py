"""Checks the host: Python, Java, memory, cores, disk for caches, the clock; and its limits: open files, processes, watches."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from copycat_agent import __version__
from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.options import SparkOptions
from copycat_agent.sources.files.paths.regular_files import kernel_protects
from copycat_agent.spark.java import cache_directory, find_java, spark_home
from copycat_agent.workbench.doctor.steps import CheckStep, Notes
from copycat_agent.workbench.doctor.users import SERVICE_USER, User, drop_in, exists

OTHERS_BYTES = 250 * 2**20
"""Memory that the agent's processes need beside the JVM's heap: the JVM itself, the driver, forked workers that share most pages."""
_ARCHIVE_BYTES = 200 * 2**20
_EARLIEST = 1_767_225_600
"""2026-01-01 (epoch seconds): an earlier clock is wrong, since this program did not exist then."""
OTHER_FILES = 512
"""Descriptors that the agent needs beside log files: sockets, the JVM's pipes, the offset store, producers' connections."""
THREADS = 512
"""Processes and threads of a small agent, the JVM's included: about 150, more with every connector and producer."""
_INSTANCES = 2
"""inotify instances that the agent uses: for log files, and for definitions."""


def examine_host(user: User, spark: SparkOptions, environ: Mapping[str, str], *, runs: bool) -> list[CheckStep]:
    """Returns the steps of section `host`. `runs`: an agent runs, and has its memory already."""
    notes = Notes("host")
    _examine_user(notes, user)
    _examine_python(notes)
    _examine_java(notes, environ)
    _examine_memory(notes, spark.driver_memory + OTHERS_BYTES, runs=runs)
    _examine_cores(notes)
    _examine_cache(notes, user, environ)
    _examine_clock(notes)
    _examine_links(notes)
    return notes.steps


def _examine_user(notes: Notes, user: User) -> None:
    if user.is_current and user.uid == 0 and exists(SERVICE_USER):
        text = f"looking as {user.name}, who may read everything; the service runs as {SERVICE_USER}"
        notes.warn("user", text, f"copycat doctor DIR --user {SERVICE_USER}")
    else:
        notes.ok("user", f"{user.name} ({user.uid})" + ("" if user.is_current else ", judged by mode bits, groups and ACLs"))


def _examine_python(notes: Notes) -> None:
    versions = []
    for package in ("pyspark", "confluent-kafka"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            notes.fail("python", f"{package} is not installed in {sys.prefix}", "install copycat-agent with its dependencies")
            return
    try:
        spark_home()
    except FatalError as error:
        notes.fail("python", error.message, error.hint)
        return
    notes.ok("python", f"{platform.python_version()} at {sys.executable}; copycat-agent {__version__}, {', '.join(versions)}")


def _examine_java(notes: Notes, environ: Mapping[str, str]) -> None:
    home = environ.get("JAVA_HOME")
    try:
        java = find_java(environ)
    except CopycatError as error:
        notes.fail("java", error.message, error.hint)
        return
    if home and java.path != f"{home}/bin/java":
        text = f"JAVA_HOME={home} has no Java that Spark can use; {java.path} ({java.version}) is taken instead"
        notes.warn("java", text, "correct JAVA_HOME, or unset it")
    else:
        notes.ok("java", f"{java.version} at {java.path}" + (" (JAVA_HOME)" if home else ""))


def _examine_memory(notes: Notes, needed: int, *, runs: bool) -> None:
    available = _memory_available()
    limit = _cgroup_number("memory.max")
    shown = f"the agent needs up to {_mib(needed)}"
    if limit is not None and limit < needed:
        fix = "raise MemoryMax= of the service (or the container's limit), or lower spark.driver_memory in agent.yaml (at least 512m)"
        notes.fail("memory", f"the control group allows {_mib(limit)}, {shown}", fix)
    elif available is None:
        notes.skip("memory", f"/proc/meminfo says nothing; {shown}")
    elif available < needed and not runs:
        notes.warn("memory", f"{_mib(available)} are available, {shown}", "free some: the kernel may kill the agent, or swap it")
    else:
        notes.ok("memory", f"{_mib(available)} available, {shown}" + (" and runs" if runs else ""))


def _examine_cores(notes: Notes) -> None:
    cores = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError, IndexError):
        quota, period = _cgroup_text("cpu.max").split()
        if quota != "max":
            cores = min(cores, int(quota) / int(period))
    if cores < 1:
        notes.warn("cores", f"{cores:g} of a core: starting takes a minute or more", "raise CPUQuota= of the service")
    else:
        notes.ok("cores", f"{cores:g}")


def _examine_cache(notes: Notes, user: User, environ: Mapping[str, str]) -> None:
    """Checks the cache directory. It is optional: without the archive of loaded classes every start takes twice as long."""
    if not user.is_current:
        notes.skip("cache", f"the cache directory of {user.name} is its own: systemd's CacheDirectory= makes it")
        return
    directory = cache_directory(environ)
    if directory is None:
        text = "no private cache directory: every start of Spark takes twice as long"
        notes.warn(
            "cache", text, "set HOME, XDG_CACHE_HOME or (systemd) CacheDirectory=copycat to a directory that only this user can write"
        )
        return
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    if free < _ARCHIVE_BYTES and not any(directory.glob("spark-*.jsa")):
        notes.warn("cache", f"{_mib(free)} free at {directory}; the archive of loaded classes takes 70 MB", f"make room: df -h {directory}")
    else:
        notes.ok("cache", str(directory))


def _examine_clock(notes: Notes) -> None:
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    if now < _EARLIEST:
        text = f"it says {stamp}, which is past: certificates do not hold, records get wrong times and retention deletes them"
        notes.fail("clock", text, "timedatectl set-ntp true")
    else:
        notes.ok("clock", stamp)


def _examine_links(notes: Notes) -> None:
    protects = kernel_protects()
    if protects:
        notes.ok("hard links", "fs.protected_hardlinks is 1: nobody can put other users' files into a directory that is read")
        return
    said = "cannot be read, which counts as 0" if protects is None else "is 0"
    text = (
        f"fs.protected_hardlinks {said}: who may write to a directory can link other users' files there; new files with several links are"
        " passed over, unless follow_hard_links is set or only their owner can have put them there"
    )
    fix = "echo fs.protected_hardlinks=1 > /etc/sysctl.d/61-copycat.conf && sysctl -p /etc/sysctl.d/61-copycat.conf"
    notes.warn("hard links", text, fix)


def _mib(size: int) -> str:
    return f"{size // 2**20:,} MiB"


def _memory_available() -> int | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _cgroup_number(name: str) -> int | None:
    """Returns a limit of this process's control group (version 2), None without one."""
    with suppress(OSError, ValueError):
        return int(_cgroup_text(name))
    return None


def _cgroup_text(name: str) -> str:
    own = Path("/proc/self/cgroup").read_text("utf-8").splitlines()[-1].split(":", 2)[2]
    return (Path("/sys/fs/cgroup") / own.lstrip("/") / name).read_text("ascii").strip()


def examine_limits(max_open_files: Sequence[int], directories: int, pid: int | None) -> list[CheckStep]:
    """Returns the steps of section `limits`.

    `max_open_files` is that of each connector, `directories` the number to be watched, `pid` that of a running agent, whose limits
    count then; None: those of this process count.
    """
    notes = Notes("limits")
    whose = f"of the agent with pid {pid}" if pid else "of this shell"
    _examine_files(notes, sum(max_open_files) + OTHER_FILES, pid, whose)
    _examine_processes(notes, pid, whose)
    _examine_watches(notes, directories)
    return notes.steps


def _examine_files(notes: Notes, needed: int, pid: int | None, whose: str) -> None:
    """Checks the hard limit: the agent raises its soft limit up to it."""
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
    """Checks the limits of inotify. Never fails: without a watch the agent polls."""
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
    """Returns the soft and hard limit of a process; those of this one when the other's cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/limits").read_text("ascii").splitlines() if pid else ():
            if line.startswith(label):
                soft, hard = line[len(label) :].split()[:2]
                return _number(soft), _number(hard)
    return resource.getrlimit(number)


def _number(text: str) -> int:
    return resource.RLIM_INFINITY if text == "unlimited" else int(text)
