"""Finding Java, its class path, and the archive that a start may use but never needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.spark import java
from copycat_agent.spark.java import Archive, Java, cache_directory, class_path, find_java, spark_home

if TYPE_CHECKING:
    from copycat_agent.spark.host import SparkHost

JAVA = Java("/jdk/bin/java", "21.0.1")


def _jdk(home: Path, version: str, release: str = "") -> Path:
    """A Java that answers `-version` as Java does, on stderr."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    launcher.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return launcher


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first, second = _jdk(tmp_path / "a", "21.0.1"), _jdk(tmp_path / "b", "17.0.9")
    assert find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": str(second.parent)}) == (str(first), "21.0.1")
    assert find_java({"PATH": str(second.parent)}) == (str(second), "17.0.9")


def test_the_release_file_is_believed_without_starting_java(tmp_path: Path) -> None:
    launcher = _jdk(tmp_path, "11.0.1", release="17.0.15")
    assert find_java({"PATH": str(launcher.parent)}).version == "17.0.15"


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16"])
def test_an_old_java_is_passed_over(tmp_path: Path, version: str) -> None:
    _jdk(tmp_path / "old", version)
    new = _jdk(tmp_path / "new", "17")
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}).path == str(new)
    with pytest.raises(FatalError, match=rf"version {version}") as caught:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)})
    assert "install Java 17" in caught.value.hint


def test_no_java_at_all_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="JAVA_HOME or PATH") as caught:
        find_java({"PATH": str(tmp_path)})
    assert "apt install" in caught.value.hint


def test_a_java_home_that_is_no_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="is not a Java"):
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path)})


def test_the_class_path_holds_every_jar_once_and_the_busiest_first() -> None:
    jars = spark_home() / "jars"
    parts = class_path(jars).split(":")
    assert sorted(parts) == sorted(str(path) for path in jars.glob("*.jar"))
    assert "spark-core" in parts[0]


def test_spark_is_found_without_importing_it() -> None:
    code = "import sys; from copycat_agent.spark import host, java; java.spark_home(); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_module_options_are_those_of_spark(host: SparkHost) -> None:
    jvm = host.session(60).context._jvm
    assert jvm
    theirs = set(getattr(jvm, "org.apache.spark.launcher.JavaModuleOptions").defaultModuleOptionArray())
    assert theirs - set(java.MODULE_OPTIONS) == {"--add-modules=jdk.incubator.vector"}
    assert set(java.MODULE_OPTIONS) <= theirs


def test_queries_get_the_full_compiler_and_nothing_else_does() -> None:
    assert set(java.jvm_options(queries=False)) - set(java.jvm_options(queries=True)) == {"-XX:TieredStopAtLevel=1"}
    assert java.jvm_options(queries=False) == java.JVM_OPTIONS


def test_this_java_knows_the_options_that_keep_it_small() -> None:
    """`-XX:+IgnoreUnrecognizedVMOptions` would hide that one is gone, or that it says no any more."""
    said = subprocess.run(
        [find_java(os.environ).path, *java.JVM_OPTIONS, "-XX:+PrintFlagsFinal", "-version"], capture_output=True, text=True, check=True
    ).stdout
    flags = {line.split()[1]: line.split()[3] for line in said.splitlines() if len(line.split()) > 3}
    assert flags["ArchiveRelocationMode"] == "0"
    assert flags["NewSize"] == str(8 * 2**20)
    assert int(flags["MaxNewSize"]) > int(flags["NewSize"]), "a query may take more"


def test_the_cache_is_where_the_environment_says(tmp_path: Path) -> None:
    assert cache_directory({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "copycat"
    assert cache_directory({"HOME": "/x", "XDG_CACHE_HOME": str(tmp_path / "c")}) == tmp_path / "c" / "copycat"
    assert cache_directory({"CACHE_DIRECTORY": f"{tmp_path}/s:/other", "HOME": "/x"}) == tmp_path / "s"
    assert cache_directory({}) is None


def test_a_cache_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "copycat").mkdir()
    (tmp_path / "copycat").chmod(0o777)
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) is None


def test_a_cache_that_cannot_be_made_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path / "file")}) is None


def _option(archive: Archive, name: str) -> str | None:
    return next((option.split("=", 1)[1] for option in archive.options() if option.startswith(f"-XX:{name}=")), None)


def test_an_archive_is_recorded_then_used(tmp_path: Path) -> None:
    archive = Archive(tmp_path, JAVA, ("-Xmx512m",), "a.jar")
    recorded = _option(archive, "ArchiveClassesAtExit")
    assert recorded
    assert archive.recording
    Path(recorded).write_bytes(b"classes")
    archive.keep()
    later = Archive(tmp_path, JAVA, ("-Xmx512m",), "a.jar")
    assert _option(later, "SharedArchiveFile")
    assert not later.recording


@pytest.mark.parametrize(
    ("version", "options", "classes"),
    [
        ("21.0.2", ("-Xmx512m",), "a.jar"),
        ("21.0.1", ("-Xmx1g",), "a.jar"),
        ("21.0.1", ("-Xmx512m",), "b.jar"),
    ],
)
def test_an_archive_of_something_else_is_not_used(tmp_path: Path, version: str, options: tuple[str, ...], classes: str) -> None:
    archive = Archive(tmp_path, JAVA, ("-Xmx512m",), "a.jar")
    Path(_option(archive, "ArchiveClassesAtExit") or "").write_bytes(b"classes")
    archive.keep()
    assert Archive(tmp_path, Java(JAVA.path, version), options, classes).options()[0].startswith("-XX:ArchiveClassesAtExit=")


def test_a_recording_that_was_cut_short_is_never_used(tmp_path: Path) -> None:
    archive = Archive(tmp_path, JAVA, (), "a.jar")
    Path(_option(archive, "ArchiveClassesAtExit") or "").write_bytes(b"half")
    archive.discard(is_suspect=False)
    assert list(tmp_path.iterdir()) == []
    assert archive.options() == ()  # and none is tried again in this process


@pytest.mark.parametrize("is_suspect", [True, False])
def test_only_an_archive_that_may_be_the_reason_of_a_failed_start_is_deleted(tmp_path: Path, is_suspect: bool) -> None:
    Path(_option(Archive(tmp_path, JAVA, (), "a.jar"), "ArchiveClassesAtExit") or "").write_bytes(b"classes")
    (recording,) = tmp_path.iterdir()
    Archive(tmp_path, JAVA, (), "a.jar").keep()
    assert not recording.exists()
    used = Archive(tmp_path, JAVA, (), "a.jar")
    assert _option(used, "SharedArchiveFile")
    used.discard(is_suspect=is_suspect)
    assert used.options() == ()
    assert len(list(tmp_path.iterdir())) == (not is_suspect)


def test_archives_nobody_uses_any_more_are_deleted(tmp_path: Path) -> None:
    old, used = tmp_path / "spark-old.jsa", tmp_path / "spark-used.jsa"
    old.write_bytes(b"")
    used.write_bytes(b"")
    os.utime(old, (0, 0))
    archive = Archive(tmp_path, JAVA, (), "a.jar")
    Path(_option(archive, "ArchiveClassesAtExit") or "").write_bytes(b"classes")
    archive.keep()
    assert not old.exists()
    assert used.exists()


def test_recordings_of_jvms_that_were_killed_are_deleted_those_under_way_are_not(tmp_path: Path) -> None:
    left, under_way = tmp_path / ".spark-a.1.tmp", tmp_path / ".spark-a.2.tmp"
    for recording in (left, under_way):
        recording.write_bytes(b"half")
    os.utime(left, (0, 0))
    Archive(tmp_path, JAVA, (), "a.jar").options()
    assert not left.exists()
    assert under_way.exists()


def test_without_a_cache_there_is_no_archive() -> None:
    archive = Archive(None, JAVA, (), "a.jar")
    assert archive.options() == ()
    archive.keep()
    archive.discard(is_suspect=True)


_SESSION = """
import sys, pathlib
from copycat_agent.options import SparkOptions
from copycat_agent.spark.host import SparkHost

host = SparkHost(SparkOptions(), pathlib.Path(sys.argv[1]), 1)
host.start()
print(host.session(100).context.applicationId)
host.close()
"""


@pytest.mark.long
def test_a_damaged_archive_does_not_stop_a_start(tmp_path: Path) -> None:
    """Recorded by a real session, then damaged in its middle, cut off, and replaced by rubbish; an unreadable one besides."""

    def start() -> None:
        environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        said = subprocess.run(
            [sys.executable, "-c", _SESSION, str(tmp_path / "run")], env=environ, capture_output=True, text=True, check=True, timeout=110
        )
        assert "local-" in said.stdout

    start()
    (path,) = (tmp_path / "cache" / "copycat").glob("*.jsa")
    whole = path.read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:middle] + b"\0" * 100_000 + whole[middle + 100_000 :], whole[:middle], b"rubbish"):
        path.unlink(missing_ok=True)
        path.write_bytes(damaged)
        start()
