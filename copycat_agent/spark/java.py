"""Builds the command that starts a JVM: finds Java, sets options and class path, and keeps an archive of classes that halves the start.

The archive (AppCDS) is a memory image of the classes that a session loads; the JVM writes it when it exits. Measured on two cores: first
batch after 1.4 s with it, 2.8 s without, 4.4 s in the run that records it. It belongs to one Java, one Spark and one set of options, and is
only a hint: whatever is wrong with it, the session starts without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from copycat_agent.errors import FatalError
from copycat_agent.spark import rundir

OLDEST_JAVA = 17
"""Oldest version that Spark 4 runs on."""

KEEP_ARCHIVE_SECONDS = 30 * 86400.0
"""Archives (70 MB each) that no start has used for this long are deleted."""

KEEP_RECORDING_SECONDS = 600.0
"""Unfinished archives older than this are deleted: a JVM writes one within a minute."""

_INSTALL_HINT = f"install Java {OLDEST_JAVA} or newer (Debian: apt install openjdk-17-jre-headless) or point JAVA_HOME at one"

_OPENED_PACKAGES = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""The options of `org.apache.spark.launcher.JavaModuleOptions` (a test compares them), without the vector incubator, used by MLlib only."""

# The JVM is tuned for little memory and a quick start: no records pass through it, except those of queries and tables.
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"

JVM_OPTIONS = (
    *MODULE_OPTIONS,
    "-XX:+UseSerialGC",
    _QUICK_COMPILER,
    "-Xms64m",
    "-Duser.timezone=UTC",  # JDBC's times without a zone are in the JVM's zone, which must not skip an hour
    "-XX:NewSize=8m",  # the allocations of the start would touch all 20 MiB of the default
    "-Xshare:auto",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:ArchiveRelocationMode=0",  # relocated to a random address, most pages of the archive would become private copies
    "-XX:-UsePerfData",  # avoids a world-readable file in /tmp
    "-XX:-CreateCoredumpOnCrash",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",  # recording an archive warns about every class that does not fit
)


def jvm_options(*, queries: bool) -> tuple[str, ...]:
    """Returns the JVM's options. With `queries` it uses the full compiler, which pays off after some hundred thousand records."""
    return tuple(option for option in JVM_OPTIONS if not (queries and option == _QUICK_COMPILER))


# The jars with most of a session's classes come first. A recording JVM searches the class path for every class: with Spark's 280 jars in
# directory order that takes 3 s, in this order 0.8 s.
_FIRST_JARS = (
    "spark-core",
    "scala-library",
    "log4j-core",
    "jackson-databind",
    "spark-config",
    "spark-network-common",
    "hadoop-client-api",
    "hadoop-client-runtime",
    "netty-common",
    "netty-transport",
    "jackson-module-scala",
    "log4j-api",
    "jackson-core",
    "netty-buffer",
    "spark-common-utils",
    "py4j",
    "jackson-annotations",
    "json4s-ast",
    "log4j-1.2-api",
    "lz4-java",
    "metrics-core",
)


class Java(NamedTuple):
    """A Java runtime: its launcher, and its version such as `17.0.15`."""

    path: str
    version: str


def find_java(environ: Mapping[str, str]) -> Java:
    """Returns the first Java that is new enough: JAVA_HOME's, else PATH's. Raises FatalError, which says what to install."""
    home = environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java"] if home else []
    found = shutil.which("java", path=environ.get("PATH"))
    candidates += [found] if found else []
    seen = []
    for path in candidates:
        version = _java_version(path)
        if version and _major(version) >= OLDEST_JAVA:
            return Java(path, version)
        seen.append(f"{path} is {f'version {version}' if version else 'not a Java'}")
    what = "; ".join(seen) or "there is none in JAVA_HOME or PATH"
    raise FatalError(f"Spark needs Java {OLDEST_JAVA} or newer: {what}", _INSTALL_HINT)


def _java_version(path: str) -> str:
    """Returns the version from the `release` file beside the launcher, or by running it (50 ms); "" if it is no Java."""
    with contextlib.suppress(OSError):
        match = re.search(r'^JAVA_VERSION="([^"]+)"', (Path(path).resolve().parents[1] / "release").read_text("utf-8"), re.MULTILINE)
        if match and os.access(path, os.X_OK):
            return match[1]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run([path, "-version"], capture_output=True, text=True, errors="replace", timeout=20, check=True).stderr
        match = re.search(r'version "([^"]+)"', said)
        return match[1] if match else ""
    return ""


def _major(version: str) -> int:
    """Returns the major version: 17 of `17.0.15`, 21 of `21-ea`, 8 of `1.8.0_402`."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def spark_home() -> Path:
    """Returns pyspark's directory without importing it, which takes time in which the JVM could already start. Raises FatalError."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise FatalError("pyspark is not installed in this Python", "install copycat-agent with its dependencies")
    return Path(next(iter(spec.submodule_search_locations)))


def class_path(jars: Path) -> str:
    """Returns all of Spark's jars in a fixed order, on which the archive depends."""
    names = sorted(path.name for path in jars.glob("*.jar"))
    first = [name for prefix in _FIRST_JARS for name in names if name.startswith(prefix)]
    return ":".join(str(jars / name) for name in dict.fromkeys(first + names))


def cache_directory(environ: Mapping[str, str]) -> Path | None:
    """Returns the directory for archives: $CACHE_DIRECTORY (systemd), $XDG_CACHE_HOME/copycat or ~/.cache/copycat; None if unusable.

    No other user may have write access to it, because an archive is code.
    """
    service = environ.get("CACHE_DIRECTORY", "").split(":")[0]
    base = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    path = Path(service or (f"{base}/copycat" if base else ""))
    if not path.is_absolute():
        return None
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError:
        return None
    private = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return path if private and os.access(path, os.W_OK) else None


class Archive:
    """The archive of one Java, one Spark and one set of options. It is used if it exists, else recorded.

    Not thread-safe. No method raises.
    """

    def __init__(self, directory: Path | None, java: Java, options: tuple[str, ...], classes: str) -> None:
        parts = (os.path.realpath(java.path), java.version, importlib.metadata.version("pyspark"), classes, *options)
        key = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._directory = directory
        self._path = directory / f"spark-{key}.jsa" if directory else Path()
        self._recording = directory / f".spark-{key}.{os.getpid()}.tmp" if directory else Path()
        self.recording = False
        """Whether the JVM with the last `options` writes an archive when it exits, which takes seconds."""

    def options(self) -> tuple[str, ...]:
        """Returns JVM options for the next start."""
        self.recording = False
        if self._directory is None:
            return ()
        _sweep(self._directory)
        try:
            if self._path.lstat().st_uid == os.geteuid():
                os.utime(self._path)
                return (f"-XX:SharedArchiveFile={self._path}", "-XX:+VerifySharedSpaces")  # the JVM ignores a damaged one
        except OSError:
            pass
        self.recording = True
        return (f"-XX:ArchiveClassesAtExit={self._recording}",)

    def keep(self) -> None:
        """Called when a recording JVM has exited cleanly: its archive is complete and will be used."""
        if self._directory is None or not self._recording.exists():
            return
        with contextlib.suppress(OSError):
            self._recording.replace(self._path)

    def discard(self, *, is_suspect: bool) -> None:
        """Called when a start failed or a JVM did not exit cleanly. Deletes an unfinished recording; this process uses no archive any more.

        `is_suspect`: the archive may be the reason. It is deleted, for other agents too. It is not where something else killed the JVM.
        """
        paths = (self._recording, self._path) if is_suspect else (self._recording,)
        for path in paths if self._directory else ():
            with contextlib.suppress(OSError):
                path.unlink()
        self._directory = None


class Launcher:
    """Builds the command that starts a JVM with Spark."""

    def __init__(self, options: tuple[str, ...]) -> None:
        """`options` are the JVM's. Raises FatalError if there is no Java."""
        java = find_java(os.environ)
        self._java = java.path
        self._options = options
        self._classes = class_path(spark_home() / "jars")
        self.archive = Archive(cache_directory(os.environ), java, options, self._classes)

    def command(self, run_dir: Path) -> tuple[str, ...]:
        """Returns the command for the next start. `run_dir` gets temporary files and crash reports."""
        return (
            self._java,
            *self._options,
            *self.archive.options(),
            f"-Djava.io.tmpdir={run_dir / rundir.TEMPORARY}",
            f"-XX:ErrorFile={run_dir}/hs_err_%p.log",
            f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}",
            "-cp",
            self._classes,
        )


def _sweep(directory: Path) -> None:
    """Deletes unused archives, and what JVMs have left that were killed while they recorded."""
    now = time.time()
    for pattern, seconds in (("spark-*.jsa", KEEP_ARCHIVE_SECONDS), (".spark-*.tmp", KEEP_RECORDING_SECONDS)):
        for path in directory.glob(pattern):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < now - seconds:
                    path.unlink()
