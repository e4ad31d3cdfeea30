"""The Java that runs Kafka, and the jars that come with PySpark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from copycat_agent.errors import FatalError

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
        msg = f"no java {where}"
        raise FatalError(msg, _HINT)
    version = _major_version(path)
    if version < _LEAST_JAVA:
        msg = f"{path} is Java {version or '(unknown version)'}, too old for Kafka and Spark"
        raise FatalError(msg, _HINT)
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
        msg = "PySpark is not installed"
        raise FatalError(msg, "pip install copycat-agent installs it")
    directory = Path(spec.submodule_search_locations[0], "jars")
    found = tuple(jar for pattern in patterns for jar in sorted(directory.glob(pattern))[-1:])
    if len(found) != len(patterns):
        msg = f"{directory} lacks one of {', '.join(patterns)}"
        raise FatalError(msg, "reinstall PySpark: pip install --force-reinstall pyspark")
    return found
