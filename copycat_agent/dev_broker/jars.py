"""Kafka's jars: fetched once, checked against pinned hashes, and kept in the cache."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from copycat_agent.errors import FatalError
from copycat_agent.maven import cache_dir, locked, retrieve, sha256_of, workplace

KAFKA_VERSION = "4.1.0"


def fetch_kafka(cache: Path | None = None) -> Path:
    """Returns the directory with exactly Kafka's jars; fetches them if they are missing or damaged.

    Safe to call from several processes at once: one fetches, the others wait for it. Raises RetriableError without a network, FatalError
    without Java or if what was fetched is not what was pinned.
    """
    cache = cache or cache_dir()
    target = cache / f"kafka-{KAFKA_VERSION}"
    if _is_intact(target):
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "kafka.lock"):
        if not _is_intact(target):
            _fetch(cache, target)
    return target


def pinned() -> dict[str, str]:
    """Returns file name -> SHA-256, from the format of `sha256sum -c`."""
    lines = files("copycat_agent.dev_broker").joinpath("kafka_jars.sha256").read_text("ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _is_intact(directory: Path) -> bool:
    """Returns whether every pinned jar exists with its pinned content (45 files, 43 MB: about 0.1 s)."""
    return all((directory / name).is_file() and sha256_of(directory / name) == digest for name, digest in pinned().items())


def _fetch(cache: Path, target: Path) -> None:
    """Fetches into a temporary directory and renames: `target` is never incomplete. Call it under the lock."""
    with workplace(cache, "fetch-") as work:
        jars = work / "jars"
        with _saying(f"Fetching Kafka {KAFKA_VERSION} (43 MB, once) into {cache}"):
            retrieve(f"Kafka {KAFKA_VERSION}", cache / "ivy", jars, "-dependency", "org.apache.kafka", "kafka_2.13", KAFKA_VERSION)
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
    """Shows a moving line on a terminal, a plain one elsewhere, on standard error."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.print(text, markup=False)
    with console.status(text):
        yield


def _drop_unpinned(jars: Path) -> None:
    """Deletes jars that are not pinned, so that they never reach a class path."""
    kept = pinned()
    for jar in jars.iterdir():
        if jar.name not in kept:
            jar.unlink()
