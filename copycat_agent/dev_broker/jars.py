"""Kafka's jars and the Java that runs them.

The jars are fetched once, through the Ivy inside PySpark's own jars, checked against pinned hashes, and kept in a cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from copycat_agent.errors import FatalError, RetriableError

_LEAST_JAVA = 17
_HINT = (
    "install Java 17 or later (Debian/Ubuntu: apt install openjdk-17-jre-headless; "
    "Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk@17) or set JAVA_HOME"
)
_PROBE_SECONDS = 30.0


def java() -> str:
    """Path of a Java of version 17 or later: from JAVA_HOME, else from PATH. FatalError with a hint when there is none."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if path is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise FatalError(f"no java {where}", _HINT)
    version = _major_version(path)
    if version < _LEAST_JAVA:
        raise FatalError(f"{path} is Java {version or '(unknown version)'}, too old for Kafka and Spark", _HINT)
    return path


def _major_version(path: str) -> int:
    """17 for `version "17.0.15"`, 8 for `version "1.8.0_402"`, 0 when it does not say."""
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else 0


def pyspark_jars(*patterns: str) -> tuple[Path, ...]:
    """The jars inside PySpark that match the patterns, one each, newest name last. PySpark is located, not imported."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise FatalError("PySpark is not installed", "pip install copycat-agent installs it")
    directory = Path(spec.submodule_search_locations[0], "jars")
    found = tuple(jar for pattern in patterns for jar in sorted(directory.glob(pattern))[-1:])
    if len(found) != len(patterns):
        raise FatalError(f"{directory} lacks one of {', '.join(patterns)}", "reinstall PySpark: pip install --force-reinstall pyspark")
    return found


KAFKA_VERSION = "4.1.0"
PAUSES_SECONDS = (2.0, 8.0, 0.0)
"""After each failed attempt; what Ivy has already downloaded stays in its cache, so that an attempt resumes the one before."""
_FETCH_SECONDS = 900.0
_NETWORK_HINT = (
    "check the network; behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; "
    "it is needed once, afterwards the cache is used"
)


def cache_dir() -> Path:
    """Returns the directory of fetched files: $XDG_CACHE_HOME/copycat, else ~/.cache/copycat. Does not create it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if base.startswith("/") else Path.home() / ".cache", "copycat")


def fetch_kafka(cache: Path | None = None) -> Path:
    """The directory that holds exactly Kafka's jars; fetches them when they are not there or damaged.

    Safe to call from several processes at once: one fetches, the others wait for it. RetriableError without a network,
    FatalError without Java or when what was fetched is not what was pinned.
    """
    cache = cache or cache_dir()
    target = cache / f"kafka-{KAFKA_VERSION}"
    if _is_intact(target):
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "kafka.lock"):
        if not _is_intact(target):
            _fetch(cache, target)
    return target


def pinned() -> dict[str, str]:
    """File name -> SHA-256, in the form that `sha256sum -c` reads."""
    lines = files("copycat_agent.dev_broker").joinpath("kafka_jars.sha256").read_text("ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _is_intact(directory: Path) -> bool:
    """Whether every pinned jar is there with its pinned content (45 files, 43 MB: about 0.1 s)."""
    return all((directory / name).is_file() and _sha256(directory / name) == digest for name, digest in pinned().items())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive flock on `path`; the kernel frees it when the process dies."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(cache: Path, target: Path) -> None:
    """Fetch into a temporary directory and rename: `target` is never there half full. Call it under the lock."""
    for left_over in cache.glob("fetch-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache, ignore_cleanup_errors=True) as name:
        jars = Path(name, "jars")
        with _saying(f"Fetching Kafka {KAFKA_VERSION} (43 MB, once) into {cache}"):
            _retrieve(cache, jars)
        _drop_unpinned(jars)
        if not _is_intact(jars):
            raise FatalError(
                f"the fetched jars of Kafka {KAFKA_VERSION} are not the pinned ones",
                f"something between here and the Maven repository alters files; remove {cache / 'ivy'} and try again",
            )
        shutil.rmtree(target, ignore_errors=True)
        jars.rename(target)


@contextmanager
def _saying(text: str) -> Iterator[None]:
    """A moving line on a terminal, a plain one elsewhere, on standard error."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.print(text, markup=False)
    with console.status(text):
        yield


def _drop_unpinned(jars: Path) -> None:
    """Delete jars that are not pinned, so that they never reach a class path."""
    kept = pinned()
    for jar in jars.iterdir():
        if jar.name not in kept:
            jar.unlink()


def _retrieve(cache: Path, jars: Path) -> None:
    """Run Ivy until it succeeds; RetriableError with Ivy's own last words when no attempt does."""
    words = ""
    for pause in PAUSES_SECONDS:
        ok, words = _run_ivy(cache, jars)
        if ok:
            return
        time.sleep(pause)
    raise RetriableError(f"cannot fetch Kafka {KAFKA_VERSION}: {words}", _NETWORK_HINT)


def _run_ivy(cache: Path, jars: Path) -> tuple[bool, str]:
    """One attempt: (success, what went wrong in one line)."""
    jars.mkdir(exist_ok=True)
    class_path = os.pathsep.join(str(jar) for jar in pyspark_jars("ivy-*.jar"))
    command = [
        java(), "-Xmx256m", f"-Djava.io.tmpdir={jars.parent}", f"-Divy.default.ivy.user.dir={cache / 'ivy'}",
        "-cp", class_path, "org.apache.ivy.Main", "-cache", str(cache / "ivy"), "-confs", "default",
        "-dependency", "org.apache.kafka", "kafka_2.13", KAFKA_VERSION, "-retrieve", f"{jars}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    try:
        answer = subprocess.run(command, cwd=jars.parent, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no end after {_FETCH_SECONDS:.0f} s"
    return answer.returncode == 0, _complaint(answer.stdout + answer.stderr)


def _complaint(output: str) -> str:
    """Ivy's most telling line: the first that names an error or something unresolved, else its last one."""
    lines = [line.strip(" \t:") for line in output.splitlines() if line.strip(" \t:")]
    telling = [line for line in lines if "error" in line.lower() or "unresolved dependency" in line.lower()]
    return (telling or lines[-1:] or ["Ivy said nothing"])[0]
