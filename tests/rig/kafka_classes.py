"""The classes that Kafka loads, archived for all brokers that tests start: each start takes four of ten seconds of a processor less."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING
from unittest.mock import patch

from copycat_agent import dev_broker
from copycat_agent.dev_broker import DevBroker, fetch_kafka
from copycat_agent.errors import FatalError
from copycat_agent.maven import java, locked, workplace
from tests.rig.kafka import create_topic, unique_topic, values

if TYPE_CHECKING:
    from pathlib import Path

_START_SECONDS = _STOP_SECONDS = 120.0
"""A JVM writes the archive as it ends."""


class _Recording(DevBroker):
    """Writes down what it has loaded, into `classes.jsa` of its directory, as it ends."""

    def _spawn(self, class_path: str) -> None:
        options = (*dev_broker._JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={self.data_dir / 'classes.jsa'}")
        with patch.object(dev_broker, "_JVM_OPTIONS", options):
            super()._spawn(class_path)


def with_classes(cache: Path) -> tuple[str, ...]:
    """JVM options of a broker, those of an archive in `cache` among them, which is made when it is not there.

    Several processes may ask at once. A JVM that cannot use an archive goes on without it.
    """
    options = dev_broker._JVM_OPTIONS
    parts = (os.path.realpath(java()), str(fetch_kafka()), version("pyspark"), *options)
    path = cache / f"kafka-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}.jsa"
    with locked(cache / "lock"):
        if not path.exists():
            with workplace(cache, "recording-") as work, suppress(FatalError, FileNotFoundError):  # too slow: the next run tries again
                _record(work).replace(path)
    return (*options, f"-XX:SharedArchiveFile={path}") if path.exists() else options


def _record(work: Path) -> Path:
    broker = _Recording(work)
    broker.start(_START_SECONDS)
    try:
        assert values(broker.bootstrap, create_topic(broker.bootstrap, unique_topic())) == []
    finally:
        broker.stop(_STOP_SECONDS)
    return work / "classes.jsa"
