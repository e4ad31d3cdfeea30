"""Fetches jars of the public Maven repository, keeps them in a cache, and finds the Java that runs them.

They are fetched through the Ivy inside PySpark's own jars, so the repository is Ivy's, and a proxy is set as for any Java.
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
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from copycat_agent import logs
from copycat_agent.errors import FatalError, RetriableError

_LEAST_JAVA = 17
_HINT = (
    "install Java 17 or later (Debian/Ubuntu: apt install openjdk-17-jre-headless; "
    "Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk@17) or set JAVA_HOME"
)
_PROBE_SECONDS = 30.0

PAUSES_SECONDS = (2.0, 8.0, 0.0)
"""Pauses after failed attempts; files that Ivy has downloaded stay in its cache, so that an attempt resumes the one before."""
_FETCH_SECONDS = 900.0
_NETWORK_HINT = (
    "check the network; behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; "
    "it is needed once, afterwards the cache is used"
)
_ABSENT = "Not Found url="
"""Ivy's message, in a line with the address, if the repository itself answered that a file does not exist."""
_PUBLISHED = ("sha256", "sha1")
"""Checksums that a repository keeps beside its files, the better one first: all have the second, newer ones both."""
_COORDINATES = re.compile(r"(?P<group>[\w-]+(?:\.[\w-]+)*):(?P<artifact>\w[\w.-]*):(?P<version>(?!latest\.)\w[\w.-]*)", re.ASCII)
_IVY_FILE = """<ivy-module version="2.0">
  <info organisation="copycat" module="jar"/>
  <dependencies>
    <dependency org="{group}" name="{artifact}" rev="{version}" transitive="false" conf="default->master">
      <artifact name="{artifact}" type="jar" ext="jar"/>
      <artifact name="{artifact}" type="jar.{checksum}" ext="jar.{checksum}"/>
    </dependency>
  </dependencies>
</ivy-module>
"""

_log = logs.get("maven")


def java() -> str:
    """Returns the path of a Java of version 17 or later: from JAVA_HOME, else from PATH. Raises FatalError with a hint if there is none."""
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
    """Returns 17 for `version "17.0.15"`, 8 for `version "1.8.0_402"`, 0 if it has no version."""
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else 0


def pyspark_jars(*patterns: str) -> tuple[Path, ...]:
    """Returns the jars inside PySpark that match the patterns, one each, newest name last. PySpark is located, not imported."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise FatalError("PySpark is not installed", "pip install copycat-agent installs it")
    directory = Path(spec.submodule_search_locations[0], "jars")
    found = tuple(jar for pattern in patterns for jar in sorted(directory.glob(pattern))[-1:])
    if len(found) != len(patterns):
        raise FatalError(f"{directory} lacks one of {', '.join(patterns)}", "reinstall PySpark: pip install --force-reinstall pyspark")
    return found


def cache_dir() -> Path:
    """Returns the directory of fetched files: $XDG_CACHE_HOME/copycat, else ~/.cache/copycat. Does not create it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if base.startswith("/") else Path.home() / ".cache", "copycat")


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file's content, in lower-case hexadecimal digits."""
    return _digest(path, "sha256")


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive flock on `path`; the kernel frees it if the process dies."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def workplace(directory: Path, prefix: str) -> Iterator[Path]:
    """Yields a temporary directory in `directory`, and removes those of killed processes. Call it under the lock."""
    for left_over in directory.glob(f"{prefix}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=directory, ignore_cleanup_errors=True) as name:
        yield Path(name)


class _IvyRun(NamedTuple):
    """The result of one run of Ivy. `words` describe the error in one line, `absent` names the files that the repository lacks."""

    is_done: bool
    words: str
    absent: frozenset[str] = frozenset()


def retrieve(what: str, ivy: Path, jars: Path, *arguments: str, needed: frozenset[str] = frozenset()) -> frozenset[str]:
    """Runs Ivy until it succeeds; returns which of the `needed` files the repository lacks, none if everything was fetched.

    `ivy` is Ivy's cache, `jars` the directory for the files, named `artifact-version.ext`, `arguments` select them. Missing files are
    reported only with `-verbose` among them. Raises RetriableError with Ivy's last message if no attempt succeeds.
    """
    words = ""
    for pause in PAUSES_SECONDS:
        is_done, words, absent = _run_ivy(ivy, jars, arguments)
        if is_done:
            return frozenset()
        if absent & needed:
            return absent & needed
        time.sleep(pause)
    raise RetriableError(f"cannot fetch {what}: {words}", _NETWORK_HINT)


def _run_ivy(ivy: Path, jars: Path, arguments: tuple[str, ...]) -> _IvyRun:
    jars.mkdir(exist_ok=True)
    command = [
        java(), "-Xmx256m", f"-Djava.io.tmpdir={jars.parent}", f"-Divy.default.ivy.user.dir={ivy}",
        "-cp", str(pyspark_jars("ivy-*.jar")[0]), "org.apache.ivy.Main", "-cache", str(ivy), "-confs", "default",
        *arguments, "-retrieve", f"{jars}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    try:
        answer = subprocess.run(command, cwd=jars.parent, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return _IvyRun(is_done=False, words=f"no end after {_FETCH_SECONDS:.0f} s")
    lines = (answer.stdout + answer.stderr).splitlines()
    absent = frozenset(line.rpartition("/")[2].strip() for line in lines if _ABSENT in line)
    return _IvyRun(answer.returncode == 0, _complaint(lines), absent)


def _complaint(lines: list[str]) -> str:
    """Returns Ivy's most informative line: the first that names an error or something unresolved, else its last one."""
    said = [re.sub(r"^(WARN|ERROR):\s*", "", line.strip(" \t:")) for line in lines if line.strip(" \t:") and _ABSENT not in line]
    telling = [line for line in said if re.search(r"error|unresolved dependency|host \S+ not found", line, re.IGNORECASE)]
    return (telling or said[-1:] or ["Ivy said nothing"])[0]


def fetch_jar(coordinates: str, sha256: str | None = None, cache: Path | None = None) -> Path:
    """Returns the jar `group:artifact:version`, from the cache, else fetched from the repository, without its dependencies.

    With `sha256` the jar has to be that one. Without, it has to agree with the checksum that the repository publishes, and its SHA-256 is
    kept beside it: a jar that was damaged since is fetched anew, and has to be the same. Safe to call from several processes at once: one
    fetches, the others wait. Raises RetriableError without network or disk space, FatalError if the repository has no such jar, or another
    one.
    """
    match = _COORDINATES.fullmatch(coordinates)
    if match is None:
        raise FatalError(
            f"{coordinates} is neither Maven coordinates nor a path from the root",
            "write group:artifact:version, such as org.postgresql:postgresql:42.7.14, or /opt/drivers/driver.jar",
        )
    directory = (cache or cache_dir()) / "jars" / match["group"]
    jar = directory / f"{match['artifact']}-{match['version']}.jar"
    try:
        if _is_known(jar, sha256):
            return jar
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / f"{jar.name}.lock"):
            if not _is_known(jar, sha256):
                _fetch(match, jar, sha256)
    except OSError as error:
        raise RetriableError(
            f"cannot keep {jar.name} in {directory}: {error.strerror or error}", "make room or give rights there, or set XDG_CACHE_HOME"
        ) from error
    return jar


def _is_known(jar: Path, sha256: str | None) -> bool:
    return jar.is_file() and sha256_of(jar) == (sha256 or _remembered(jar))


def _note(jar: Path) -> Path:
    return jar.with_name(f"{jar.name}.sha256")


def _remembered(jar: Path) -> str | None:
    """Returns the SHA-256 that the jar had when it was first fetched, None if it never was."""
    return _note(jar).read_text("ascii").strip() if _note(jar).is_file() else None


def _fetch(match: re.Match[str], jar: Path, sha256: str | None) -> None:
    """Fetches into a temporary directory, checks, and renames: `jar` is never incomplete. Call it under the jar's lock."""
    _log.info("a jar is fetched, once", jar=match[0], directory=jar.parent)
    with workplace(jar.parent, f"{jar.name}-fetch-") as work:
        fetched = _fetch_checked(match, work)
        digest = sha256_of(fetched)
        if digest != (sha256 or _remembered(jar) or digest):
            before = "the one that the agent knows" if sha256 else "the one fetched before"
            raise FatalError(
                f"the repository's {match[0]} is not {before}",
                "something between here and the Maven repository alters files; if the change is meant, "
                + ("give the path of a jar instead" if sha256 else f"remove {_note(jar)}"),
            )
        if not sha256:
            (work / "note").write_text(digest, "ascii")
            (work / "note").rename(_note(jar))
        fetched.rename(jar)


def _fetch_checked(match: re.Match[str], work: Path) -> Path:
    """Fetches the jar, and compares it with the best checksum that the repository publishes beside it. Returns its path."""
    fetched = work / "jars" / f"{match['artifact']}-{match['version']}.jar"
    for checksum in _PUBLISHED:
        published = fetched.with_name(f"{fetched.name}.{checksum}")
        (work / "ivy.xml").write_text(_IVY_FILE.format(**match.groupdict(), checksum=checksum), "utf-8")
        arguments = ("-verbose", "-ivy", str(work / "ivy.xml"))
        absent = retrieve(match[0], work / "ivy", fetched.parent, *arguments, needed=frozenset({fetched.name, published.name}))
        if fetched.name in absent:
            raise FatalError(f"the Maven repository has no {match[0]}", "check group, artifact and version, or give the path of a jar")
        if published.name not in absent:
            if published.read_text("ascii", "replace").split()[:1] != [_digest(fetched, checksum)]:
                raise RetriableError(f"the fetched {match[0]} does not agree with its {checksum}", "it is fetched again")
            return fetched
    raise FatalError(f"the Maven repository publishes no checksum of {match[0]}", "fetch it yourself, and give the path of the jar")
