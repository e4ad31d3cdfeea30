"""Kafka Connect's jars: fetched once through the Ivy inside PySpark's jars, as the development broker's are, and kept beside them.

The spooldir plugin is not there: the public Maven repository that Ivy asks does not have it. `benchmarks/spooldir` builds it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from copycat_agent.dev_broker.jars import KAFKA_VERSION
from copycat_agent.errors import FatalError
from copycat_agent.maven import cache_dir, fetch_jar, locked, pyspark_jars, retrieve, sha256_of, workplace

_MODULES = ("connect-runtime", "connect-file")
_SOURCELAB = "org.sourcelab:kafka-connect-client:4.0.4"
_SOURCELAB_SHA256 = "18dcdb2f72949f3fc5f5d8677f1d41a84f026a8194deb7162b499d3abfc17c88"


def class_path() -> str:
    """Kafka Connect with its file connectors, and PySpark's log4j behind slf4j. Fetches what is missing; raises as `sourcelab_jar`."""
    target = cache_dir() / f"connect-{KAFKA_VERSION}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / "connect.lock"):
        if not _is_intact(target):
            _fetch(target)
    logging = pyspark_jars("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")
    others = (target / name for name in _pinned() if not name.startswith(("slf4j-", "log4j-")))
    return os.pathsep.join(str(jar) for jar in (*logging, *others))


def sourcelab_jar() -> Path:
    """A client of Connect's REST API without what it depends on. Fetches it; raises FatalError, RetriableError."""
    return fetch_jar(_SOURCELAB, _SOURCELAB_SHA256)


def _pinned() -> dict[str, str]:
    """File name -> SHA-256, in the form that `sha256sum -c` reads."""
    lines = Path(__file__).with_name("connect_jars.sha256").read_text("ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _is_intact(directory: Path) -> bool:
    return all((directory / name).is_file() and sha256_of(directory / name) == digest for name, digest in _pinned().items())


def _fetch(target: Path) -> None:
    cache = target.parent
    with workplace(cache, "connect-fetch-") as work:
        jars = work / "jars"
        for module in _MODULES:
            retrieve(f"Kafka Connect {KAFKA_VERSION}", cache / "ivy", jars, "-dependency", "org.apache.kafka", module, KAFKA_VERSION)
        if not _is_intact(jars):
            raise FatalError(f"the fetched jars of Kafka Connect {KAFKA_VERSION} are not the pinned ones")
        shutil.rmtree(target, ignore_errors=True)
        jars.rename(target)
