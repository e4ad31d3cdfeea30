"""Fetching Kafka without a network, a Java, or luck: stand-ins for Java on PATH, a made-up cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from copycat_agent import dev_broker, maven
from copycat_agent.dev_broker import fetch_kafka, free_port, is_free
from copycat_agent.dev_broker import jars as jars_module
from copycat_agent.errors import FatalError, RetriableError

_JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit 0; fi
echo run >> {log}
for last; do :; done
target=$(dirname "$last")
{fetch}
"""
_JARS = {"a.jar": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}  # the letter a
_GOOD = 'printf a > "$target/a.jar"; printf b > "$target/unpinned.jar"'


class _FakeJava:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "runs"
        (home / "bin").mkdir()

    def install(self, fetch: str = _GOOD) -> None:
        path = self.home / "bin" / "java"
        path.write_text(_JAVA.format(log=self.log, fetch=fetch), "utf-8")
        path.chmod(0o755)

    @property
    def runs(self) -> int:
        return self.log.read_text("utf-8").count("run") if self.log.exists() else 0


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _FakeJava:
    """Its own JAVA_HOME; Ivy's work is a line of shell; two jars' worth of pins; no pauses."""
    (tmp_path / "jdk").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr(jars_module, "pinned", lambda: _JARS)
    monkeypatch.setattr(maven, "PAUSES_SECONDS", (0.0, 0.0))
    return _FakeJava(tmp_path / "jdk")


def test_fetches_once_and_keeps_only_what_is_pinned(fake_java: _FakeJava, tmp_path: Path) -> None:
    fake_java.install()
    for _ in range(2):
        target = fetch_kafka(tmp_path / "cache")
    assert [jar.name for jar in target.iterdir()] == ["a.jar"]
    assert fake_java.runs == 1
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"kafka.lock", target.name}


def test_a_damaged_cache_is_fetched_again(fake_java: _FakeJava, tmp_path: Path) -> None:
    fake_java.install()
    (fetch_kafka(tmp_path / "cache") / "a.jar").write_bytes(b"")
    assert (fetch_kafka(tmp_path / "cache") / "a.jar").read_bytes() == b"a"


def test_a_flaky_network_is_tried_again(fake_java: _FakeJava, tmp_path: Path) -> None:
    fake_java.install(f"test $(wc -l < {fake_java.log}) = 1 && exit 1; {_GOOD}")
    fetch_kafka(tmp_path / "cache")
    assert fake_java.runs == 2


def test_without_a_network_ivys_words_and_a_way_out_are_given(fake_java: _FakeJava, tmp_path: Path) -> None:
    fake_java.install("echo ':: loading'; echo '  Server access error at url X'; exit 1")
    with pytest.raises(RetriableError, match=r"Server access error at url X; check the network"):
        fetch_kafka(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["kafka.lock"]


def test_altered_files_are_refused(fake_java: _FakeJava, tmp_path: Path) -> None:
    fake_java.install('printf evil > "$target/a.jar"')
    with pytest.raises(FatalError, match="not the pinned ones"):
        fetch_kafka(tmp_path / "cache")


def test_callers_at_the_same_time_fetch_once(fake_java: _FakeJava, tmp_path: Path) -> None:
    fake_java.install(f"sleep 0.3; {_GOOD}")
    script = (
        "import pathlib, sys; from copycat_agent.dev_broker import jars; "
        f"jars.pinned = lambda: {_JARS!r}; jars.fetch_kafka(pathlib.Path(sys.argv[1]))"
    )
    callers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "cache")]) for _ in range(3)]
    assert [caller.wait(90) for caller in callers] == [0, 0, 0]
    assert fake_java.runs == 1


def test_the_pins_are_those_of_one_kafka() -> None:
    pinned = jars_module.pinned()
    assert len(pinned) == 45
    assert f"kafka_2.13-{jars_module.KAFKA_VERSION}.jar" in pinned


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev_broker, "_PORTS", [free_port(), free_port()])
    with pytest.raises(OSError, match="no free port"):
        free_port()


def test_free_ports_lie_below_the_ephemeral_range() -> None:
    port = free_port()
    assert is_free(port)
    low, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()
    assert port < int(low)
