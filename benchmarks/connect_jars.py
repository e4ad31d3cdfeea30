"""Kafka Connect's jars: fetched once through the Ivy inside PySpark's jars, as the development broker's are, and kept beside them.

The spooldir plugin is not there: the public Maven repository that Ivy asks does not have it. `benchmarks/spooldir` builds it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from copycat_agent.dev_broker.jars import KAFKA_VERSION, cache_dir, java, pyspark_jars

_MODULES = ("connect-runtime", "connect-file")
_FETCH_SECONDS = 600.0


def class_path() -> str:
    """Kafka Connect with its file connectors, and PySpark's log4j behind slf4j. Fetches what is missing; raises RuntimeError."""
    target = cache_dir() / f"connect-{KAFKA_VERSION}"
    if not _is_intact(target):
        _fetch(target)
    logging = pyspark_jars("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")
    others = (target / name for name in _pinned() if not name.startswith(("slf4j-", "log4j-")))
    return os.pathsep.join(str(jar) for jar in (*logging, *others))


def _pinned() -> dict[str, str]:
    """File name -> SHA-256, in the form that `sha256sum -c` reads."""
    lines = Path(__file__).with_name("connect_jars.sha256").read_text("ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _is_intact(directory: Path) -> bool:
    return all((directory / name).is_file() and _sha256(directory / name) == digest for name, digest in _pinned().items())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(target: Path) -> None:
    cache = cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="connect-", dir=cache) as name:
        jars = Path(name, "jars")
        jars.mkdir()
        for module in _MODULES:
            _run_ivy(cache, jars, module)
        if not _is_intact(jars):
            msg = f"the fetched jars of Kafka Connect {KAFKA_VERSION} are not the pinned ones"
            raise RuntimeError(msg)
        shutil.rmtree(target, ignore_errors=True)
        jars.rename(target)


def _run_ivy(cache: Path, jars: Path, module: str) -> None:
    command = [
        java(), "-Xmx256m", f"-Djava.io.tmpdir={jars.parent}", f"-Divy.default.ivy.user.dir={cache / 'ivy'}",
        "-cp", str(pyspark_jars("ivy-*.jar")[0]), "org.apache.ivy.Main", "-cache", str(cache / "ivy"), "-confs", "default",
        "-dependency", "org.apache.kafka", module, KAFKA_VERSION, "-retrieve", f"{jars}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    answer = subprocess.run(command, cwd=jars.parent, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if answer.returncode:
        msg = f"Ivy cannot fetch {module} {KAFKA_VERSION}: {answer.stdout[-500:]}"
        raise RuntimeError(msg)
