"""A jar is fetched once, is what the repository says it is, and stays that; Java is found or asked for. The repository is a directory."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from copycat_agent import maven
from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.maven import cache_dir, fetch_jar, java
from tests.rig.maven import FakeMaven

if TYPE_CHECKING:
    from pathlib import Path

_JAR = "org.example.db:driver:1.2.3"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMaven:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr(maven, "PAUSES_SECONDS", (0.0, 0.0))
    fake = FakeMaven(tmp_path / "jdk")
    fake.install()
    return fake


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_java_that_is_missing_is_named_with_a_way_out(repository: FakeMaven) -> None:
    repository.java.unlink()
    with pytest.raises(FatalError, match=r"no java in JAVA_HOME .* install Java 17"):
        java()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "nonsense"])
def test_java_that_is_too_old_is_named_with_a_way_out(repository: FakeMaven, version: str) -> None:
    repository.install(version=version)
    with pytest.raises(FatalError, match=r"too old for Kafka and Spark; install Java 17"):
        java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_17_and_later_is_taken(repository: FakeMaven, version: str) -> None:
    repository.install(version=version)
    assert java() == str(repository.java)


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "copycat"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "copycat"


@pytest.mark.parametrize(("checksums", "runs"), [(["sha256", "sha1"], 1), (["sha1"], 2)])
def test_a_jar_is_fetched_once_and_checked_with_the_best_checksum_there_is(
    repository: FakeMaven, cache: Path, checksums: list[str], runs: int
) -> None:
    repository.publish(_JAR, b"jar", *checksums)
    jar = fetch_jar(_JAR, cache=cache)
    repository.go_down()
    assert fetch_jar(_JAR, cache=cache) == jar == cache / "jars" / "org.example.db" / "driver-1.2.3.jar"
    assert jar.read_bytes() == b"jar"
    assert repository.runs == runs
    assert {path.name for path in jar.parent.iterdir()} == {jar.name, f"{jar.name}.sha256", f"{jar.name}.lock"}


def test_a_jar_that_was_damaged_is_fetched_anew(repository: FakeMaven, cache: Path) -> None:
    repository.publish(_JAR, b"jar", "sha256")
    fetch_jar(_JAR, cache=cache).write_bytes(b"ja")
    assert fetch_jar(_JAR, cache=cache).read_bytes() == b"jar"
    fetch_jar(_JAR, cache=cache).unlink()
    assert fetch_jar(_JAR, cache=cache).read_bytes() == b"jar"


def test_a_jar_that_changed_since_is_refused_also_when_its_checksum_changed_with_it(repository: FakeMaven, cache: Path) -> None:
    repository.publish(_JAR, b"jar", "sha256")
    jar = fetch_jar(_JAR, cache=cache)
    jar.unlink()
    repository.publish(_JAR, b"another", "sha256")
    with pytest.raises(FatalError, match=rf"is not the one fetched before; .* remove {jar}\.sha256"):
        fetch_jar(_JAR, cache=cache)
    assert not jar.exists()
    jar.with_name(f"{jar.name}.sha256").unlink()
    assert fetch_jar(_JAR, cache=cache).read_bytes() == b"another"


def test_a_pinned_jar_has_to_be_that_one(repository: FakeMaven, cache: Path) -> None:
    repository.publish(_JAR, b"another", "sha256")
    pin = hashlib.sha256(b"jar").hexdigest()
    with pytest.raises(FatalError, match="is not the one that the agent knows"):
        fetch_jar(_JAR, pin, cache)
    repository.publish(_JAR, b"jar", "sha256")
    assert fetch_jar(_JAR, pin, cache).read_bytes() == b"jar"


@pytest.mark.parametrize("checksum", ["sha256", "sha1"])
def test_a_jar_that_differs_from_its_checksum_is_refused(repository: FakeMaven, cache: Path, checksum: str) -> None:
    repository.publish(_JAR, b"jar", checksum)
    repository.forge(_JAR, b"evil")
    with pytest.raises(RetriableError, match=f"does not agree with its {checksum}"):
        fetch_jar(_JAR, cache=cache)
    assert [path.name for path in (cache / "jars" / "org.example.db").iterdir()] == ["driver-1.2.3.jar.lock"]


def test_a_jar_without_a_checksum_is_refused(repository: FakeMaven, cache: Path) -> None:
    repository.publish(_JAR, b"jar")
    with pytest.raises(FatalError, match=r"publishes no checksum of org\.example\.db:driver:1\.2\.3; .* give the path"):
        fetch_jar(_JAR, cache=cache)


def test_a_jar_that_the_repository_does_not_have_is_not_asked_for_again(repository: FakeMaven, cache: Path) -> None:
    with pytest.raises(FatalError, match=r"has no org\.example\.db:driver:1\.2\.3; check group, artifact and version"):
        fetch_jar(_JAR, cache=cache)
    assert repository.runs == 1


def test_without_a_network_ivys_words_and_a_way_out_are_given_and_it_works_later(repository: FakeMaven, cache: Path) -> None:
    repository.publish(_JAR, b"jar", "sha256")
    repository.go_down()
    with pytest.raises(RetriableError, match=r"cannot fetch org.example.db:driver:1.2.3: Server access error at url .*; check the network"):
        fetch_jar(_JAR, cache=cache)
    assert repository.runs == 2
    repository.come_up()
    assert fetch_jar(_JAR, cache=cache).read_bytes() == b"jar"


@pytest.mark.parametrize(
    "text", ["", "driver", "a:b", "a:b:c:d", "a:b:latest.release", "a:b:[1,2)", "a:b:1+", 'a:b:1"/>', "a:../b:1", "a:b:1 "]
)
def test_what_names_no_version_of_a_jar_is_refused(repository: FakeMaven, cache: Path, text: str) -> None:
    with pytest.raises(FatalError, match="neither Maven coordinates nor a path from the root; write group:artifact:version"):
        fetch_jar(text, cache=cache)
    assert repository.runs == 0


def test_a_cache_that_cannot_be_written_is_named(repository: FakeMaven, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RetriableError, match=rf"cannot keep driver-1.2.3.jar in {tmp_path}/file/jars/.*; make room"):
        fetch_jar(_JAR, cache=tmp_path / "file")


def test_callers_at_the_same_time_fetch_once_and_what_a_killed_one_left_goes(repository: FakeMaven, cache: Path) -> None:
    repository.install(seconds=0.3)
    repository.publish(_JAR, b"jar", "sha256")
    directory = cache / "jars" / "org.example.db"
    (directory / "driver-1.2.3.jar-fetch-left").mkdir(parents=True)
    script = "import pathlib, sys; from copycat_agent.maven import fetch_jar; fetch_jar(sys.argv[1], None, pathlib.Path(sys.argv[2]))"
    callers = [subprocess.Popen([sys.executable, "-c", script, _JAR, str(cache)], env={**os.environ}) for _ in range(3)]
    assert [caller.wait(90) for caller in callers] == [0, 0, 0]
    assert repository.runs == 1
    assert len(list(directory.iterdir())) == 3
