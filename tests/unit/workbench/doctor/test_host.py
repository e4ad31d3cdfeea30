"""The host, its limits, and the state directory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.mountinfo import Mount
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import SparkOptions
from copycat_agent.sources.files.paths import regular_files
from copycat_agent.workbench.doctor import CheckStep, CheckVerdict, User, find_user
from copycat_agent.workbench.doctor.host_checks import examine_host, examine_limits
from copycat_agent.workbench.doctor.state_checks import examine_state, holder
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

ME = find_user(None)
OTHER = User("somebody", 64_321, frozenset({64_321}), is_current=False)


def the(steps: list[CheckStep], name: str) -> CheckStep:
    (found,) = [step for step in steps if step.name == name]
    return found


def host(environ: Mapping[str, str], spark: SparkOptions | None = None) -> list[CheckStep]:
    return examine_host(ME, spark or SparkOptions(), environ, runs=False)


def test_this_host_is_good() -> None:
    steps = host(os.environ)
    assert {step.name for step in steps} == {"user", "python", "java", "memory", "cores", "cache", "clock", "hard links"}
    assert all(step.verdict is not CheckVerdict.FAIL for step in steps)


@pytest.mark.parametrize(("said", "verdict", "words"), [("1\n", "ok", "is 1"), ("0\n", "warn", "is 0"), ("", "warn", "cannot be read")])
def test_a_host_where_anybody_may_link_others_files_is_told_what_that_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, verdict: str, words: str
) -> None:
    monkeypatch.setattr(regular_files, "SYSCTL", tmp_path / "protected_hardlinks")
    if said:
        regular_files.SYSCTL.write_text(said)
    step = the(host(os.environ), "hard links")
    assert (step.verdict, words in step.text) == (verdict, True)
    assert ("sysctl" in step.fix) == (verdict == "warn")


def test_a_host_without_java_is_told_what_to_install(tmp_path: Path) -> None:
    step = the(host({"PATH": str(tmp_path)}), "java")
    assert (step.verdict, "openjdk" in step.fix) == ("fail", True)


def test_a_java_home_that_is_none_is_a_warning_when_there_is_another_java(tmp_path: Path) -> None:
    step = the(host({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)}), "java")
    assert (step.verdict, str(tmp_path) in step.text) == ("warn", True)


def test_a_heap_that_the_host_has_no_memory_for_is_a_warning() -> None:
    step = the(host(os.environ, SparkOptions(driver_memory=2**50)), "memory")
    assert step.verdict in (CheckVerdict.WARN, CheckVerdict.FAIL)


@pytest.mark.parametrize(("needed", "verdict"), [(100, "ok"), (4000, "fail")])
def test_too_few_descriptors_come_with_the_drop_in_that_raises_them(needed: int, verdict: str) -> None:
    """In a process of its own, whose limits can be lowered."""
    code = (
        "import json, sys; from copycat_agent.workbench.doctor.host_checks import examine_limits\n"
        f"print(json.dumps([(s.name, s.verdict, s.fix) for s in examine_limits([{needed}], 3, None)]))"
    )
    lowered = ["prlimit", "--nofile=1024:1024", "--nproc=100:100", sys.executable, "-c", code]
    done = subprocess.run(lowered, capture_output=True, text=True, check=True, timeout=60, cwd=Path(__file__).parents[4])
    found = {name: (how, fix) for name, how, fix in json.loads(done.stdout)}
    assert found["open files"][0] == verdict
    if verdict == "fail":
        assert "LimitNOFILE=4512" in found["open files"][1]
    assert found["processes"][0] == "warn"
    assert "LimitNPROC=" in found["processes"][1]


def test_limits_are_those_of_the_agent_that_runs() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    process = subprocess.Popen(["prlimit", "--nofile=700:700", "sleep", "60"])
    try:

        def step() -> CheckStep:
            return the(examine_limits([600], 0, process.pid), "open files")

        wait_until(lambda: step().verdict is CheckVerdict.FAIL, message="its limit is lowered")
        assert f"700 of the agent with pid {process.pid}" in step().text
    finally:
        process.kill()
        process.wait()
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)


def test_more_directories_than_watches_are_a_warning_with_the_sysctl() -> None:
    step = the(examine_limits([], 10**9, None), "max_user_watches")
    assert step.verdict is CheckVerdict.WARN
    assert "fs.inotify.max_user_watches=2000000000" in step.fix


def state(directory: Path, user: User = ME, mounted: list[Mount] | None = None, socket: Path | None = None) -> list[CheckStep]:
    return examine_state(directory, socket or directory / "agent.sock", user, mounted or [])


def bad(steps: list[CheckStep]) -> list[str]:
    return [step.name for step in steps if step.verdict in (CheckVerdict.FAIL, CheckVerdict.WARN)]


def test_a_state_directory_that_is_not_there_yet_is_good_and_stays_away(tmp_path: Path) -> None:
    assert bad(state(tmp_path / "state")) == []
    assert not (tmp_path / "state").exists()


def test_who_holds_the_state_directory_is_told_and_not_disturbed(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    with OffsetStore.open(directory):
        assert holder(directory) == os.getpid()
        steps = state(directory)
        assert f"pid {os.getpid()}" in the(steps, "lock").text
        assert bad(steps) == []
    assert holder(directory) is None
    assert "free" in the(state(directory), "lock").text
    OffsetStore.open(directory).close()


@pytest.mark.parametrize("mode", [0o770, 0o777])
def test_a_state_directory_that_others_may_write_to_fails(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(mode)
    assert the(state(directory), "directory").fix == f"chmod 700 {directory}"


def test_a_state_directory_of_another_user_fails(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    assert the(state(directory, OTHER), "directory").fix == f"chown -R somebody {directory}"


def test_a_store_of_a_newer_version_and_one_that_is_none(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    OffsetStore.open(directory).close()
    store = directory / "offsets.db"
    data = bytearray(store.read_bytes())
    data[60:64] = (99).to_bytes(4, "big")
    store.write_bytes(data)
    assert "newer copycat-agent (schema 99" in the(state(directory), "offsets").text
    store.write_bytes(b"x" * 200)
    assert "not an offset store" in the(state(directory), "offsets").text
    (directory / "offsets.db.quarantined").touch()
    assert "nobody has decided" in the(state(directory), "offsets").text


@pytest.mark.parametrize(("options", "verdict"), [({"rw"}, "ok"), ({"rw", "noexec"}, "warn"), ({"ro"}, "fail")])
def test_how_the_state_directory_is_mounted(tmp_path: Path, options: set[str], verdict: str) -> None:
    assert the(state(tmp_path / "state", mounted=[Mount("/", "ext4", frozenset(options))]), "mount").verdict == verdict


def test_a_socket_path_that_the_kernel_does_not_take(tmp_path: Path) -> None:
    step = the(state(tmp_path / "state", socket=tmp_path / ("x" * 120)), "socket")
    assert (step.verdict, "api.socket" in step.fix) == ("fail", True)


def test_a_socket_that_nobody_answers_at_is_told(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    (directory / "agent.sock").touch()
    assert the(state(directory), "socket").verdict is CheckVerdict.WARN
