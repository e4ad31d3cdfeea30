"""The unit: how exposed it is, whether systemd understands it, and that its times fit those of the code."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from copycat_agent.cli import exits
from copycat_agent.definitions import load_agent
from copycat_agent.spark.jvm import EXIT_SECONDS, RECORD_SECONDS
from copycat_agent.worker.worker import STOP_SECONDS
from tests.packaging.confined import settings, system_calls

SYSTEMD = Path(__file__).parents[2] / "packaging/systemd"
UNIT = SYSTEMD / "copycat.service"
DROP_INS = sorted((SYSTEMD / "drop-ins").glob("*.conf"))
MOST_EXPOSURE = 1.5

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze judges the unit")


@pytest.fixture
def unit() -> dict[str, list[str]]:
    return settings(UNIT.read_text("utf-8"))


def exposure(unit: Path) -> float:
    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"Overall exposure level for copycat.service: ([\d.]+)", said)
    assert found, said
    return float(found[1])


def complaints(directory: Path) -> str:
    """What `systemd-analyze verify` says about the unit in `directory` (with its drop-ins), as if everything were installed."""
    unit = directory / "copycat.service"
    unit.write_text(UNIT.read_text("utf-8").replace("/usr/bin/copycat", "/bin/true").replace("Documentation=", "#"), "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    return "".join(line for line in done.stderr.splitlines() if "copycat" in line) or ("" if done.returncode == 0 else done.stderr)


@needs_systemd
def test_the_unit_is_hardly_exposed() -> None:
    assert exposure(UNIT) <= MOST_EXPOSURE


@needs_systemd
def test_a_unit_with_less_protection_is_found_to_be_exposed(tmp_path: Path) -> None:
    weaker = tmp_path / "copycat.service"
    weaker.write_text(re.sub("^(SystemCall|Protect|Capab).*$", "", UNIT.read_text("utf-8"), flags=re.MULTILINE), "utf-8")
    assert exposure(weaker) > MOST_EXPOSURE


@needs_systemd
def test_systemd_understands_every_line_of_the_unit(tmp_path: Path) -> None:
    assert complaints(tmp_path) == ""


@needs_systemd
@pytest.mark.parametrize("drop_in", DROP_INS, ids=lambda path: path.stem)
def test_systemd_understands_the_drop_ins(tmp_path: Path, drop_in: Path) -> None:
    place = tmp_path / "copycat.service.d"
    place.mkdir()
    shutil.copy(drop_in, place)
    assert complaints(tmp_path) == ""
    (place / drop_in.name).write_text("[Service]\nMemmoryMax=1G\n", "utf-8")
    assert "copycat.service.d" in complaints(tmp_path), "drop-ins are looked at"


def test_commands_find_what_the_service_keeps_by_the_packaged_agent_file(unit: dict[str, list[str]]) -> None:
    """`copycat plan /etc/copycat/connectors.d` reads the agent.yaml beside that directory, and is not told the service's environment."""
    agent = load_agent(SYSTEMD.parent / "nfpm/agent.yaml")
    assert agent.state_dir == f"/var/lib/{unit['StateDirectory'][0]}"
    assert agent.api.socket == f"/run/{unit['RuntimeDirectory'][0]}/agent.sock"


def test_a_stop_has_the_time_it_needs(unit: dict[str, list[str]]) -> None:
    seconds = int(unit["TimeoutStopSec"][0].removesuffix("s"))
    assert seconds >= STOP_SECONDS + EXIT_SECONDS + RECORD_SECONDS


def test_what_trying_again_cannot_help_is_not_tried_again(unit: dict[str, list[str]]) -> None:
    assert unit["Restart"] == ["on-failure"]
    assert set(unit["RestartPreventExitStatus"][0].split()) == {str(exits.USAGE), str(exits.DEFINITION_ERROR)}
    assert unit["StartLimitIntervalSec"] == ["0"]


def test_the_jvm_may_compile(unit: dict[str, list[str]]) -> None:
    assert "MemoryDenyWriteExecute" not in unit


@needs_systemd
def test_the_filter_lets_pass_what_files_and_workers_need_and_nothing_for_root(unit: dict[str, list[str]]) -> None:
    allowed = system_calls(unit["SystemCallFilter"])
    assert {"inotify_add_watch", "prctl", "flock", "memfd_create", "fsync", "renameat2", "execve", "prlimit64"} <= allowed
    assert not {"mount", "ptrace", "chown", "setuid", "bpf", "init_module", "reboot"} & allowed


def test_user_and_directories_of_unit_sysusers_and_tmpfiles_agree(unit: dict[str, list[str]]) -> None:
    sysusers = (SYSTEMD / "copycat.sysusers").read_text("utf-8")
    tmpfiles = (SYSTEMD / "copycat.tmpfiles").read_text("utf-8")
    user = unit["User"][0]
    assert re.search(rf"^u {user} ", sysusers, re.MULTILINE)
    assert re.search(rf"^m {user} adm$", sysusers, re.MULTILINE)
    assert f"d /var/lib/{unit['StateDirectory'][0]} {unit['StateDirectoryMode'][0]} {user} {user} -" in tmpfiles
    assert f"d /var/cache/{unit['CacheDirectory'][0]} {unit['CacheDirectoryMode'][0]} {user} {user} -" in tmpfiles
