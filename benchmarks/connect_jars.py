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
_SOURCELAB_VERSION = "4.0.4"
_SOURCELAB_SHA256 = "18dcdb2f72949f3fc5f5d8677f1d41a84f026a8194deb7162b499d3abfc17c88"
_FETCH_SECONDS = 600.0


def class_path() -> str:
    """Kafka Connect with its file connectors, and PySpark's log4j behind slf4j. Fetches what is missing; raises RuntimeError."""
    target = cache_dir() / f"connect-{KAFKA_VERSION}"
    if not _is_intact(target):
        _fetch(target)
    logging = pyspark_jars("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")
    others = (target / name for name in _pinned() if not name.startswith(("slf4j-", "log4j-")))
    return os.pathsep.join(str(jar) for jar in (*logging, *others))


def sourcelab_jar() -> Path:
    """A client of Connect's REST API without what it depends on: `org.sourcelab:kafka-connect-client`. Fetches it; raises RuntimeError."""
    module = "kafka-connect-client"
    target = cache_dir() / f"{module}-{_SOURCELAB_VERSION}.jar"
    if not target.is_file() or _sha256(target) != _SOURCELAB_SHA256:
        with tempfile.TemporaryDirectory(prefix="connect-", dir=cache_dir()) as name:
            _run_ivy(cache_dir(), Path(name), "org.sourcelab", module, _SOURCELAB_VERSION, "-notransitive")
            fetched = Path(name, target.name)
            if not fetched.is_file() or _sha256(fetched) != _SOURCELAB_SHA256:
                msg = f"the fetched {target.name} is not the pinned one"
                raise RuntimeError(msg)
            fetched.rename(target)
    return target


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
            _run_ivy(cache, jars, "org.apache.kafka", module, KAFKA_VERSION)
        if not _is_intact(jars):
            msg = f"the fetched jars of Kafka Connect {KAFKA_VERSION} are not the pinned ones"
            raise RuntimeError(msg)
        shutil.rmtree(target, ignore_errors=True)
        jars.rename(target)


def _run_ivy(cache: Path, jars: Path, organisation: str, module: str, version: str, *options: str) -> None:
    command = [
        java(), "-Xmx256m", f"-Djava.io.tmpdir={jars.parent}", f"-Divy.default.ivy.user.dir={cache / 'ivy'}",
        "-cp", str(pyspark_jars("ivy-*.jar")[0]), "org.apache.ivy.Main", "-cache", str(cache / "ivy"), "-confs", "default",
        "-dependency", organisation, module, version, *options, "-retrieve", f"{jars}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    answer = subprocess.run(command, cwd=jars.parent, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if answer.returncode:
        msg = f"Ivy cannot fetch {module} {version}: {answer.stdout[-500:]}"
        raise RuntimeError(msg)
