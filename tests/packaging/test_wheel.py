"""The wheel in an empty environment, installed by plain pip: no package is older than in the lock file, and it works without extras.

Takes a minute, most of it pip's, when pip's cache holds PySpark. `.ci/run` runs it as a step of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from tests.test_architecture import LATE

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[2]
_PIP_SECONDS = 600

IMPORTS = """
import importlib, pkgutil, sys, copycat_agent
for one in pkgutil.walk_packages(copycat_agent.__path__, "copycat_agent."):
    if one.name not in sys.argv and not one.name.endswith("__main__"):
        importlib.import_module(one.name)
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def installed() -> Iterator[Path]:
    """The bin directory of a new environment with the wheel of this checkout in it, 900 MB that nobody keeps."""
    with tempfile.TemporaryDirectory(prefix="copycat-wheel-") as name:
        yield install(Path(name))


def install(directory: Path) -> Path:
    """Build and install the wheel; returns the bin directory."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory)]
    subprocess.run([*build, str(PROJECT)], check=True, capture_output=True, timeout=_PIP_SECONDS)
    venv = [sys.executable, "-m", "venv", "--without-pip", str(directory / "venv")]
    subprocess.run(venv, check=True, capture_output=True, timeout=_PIP_SECONDS)
    (wheel,) = directory.glob("*.whl")
    quickly = ["--quiet", "--disable-pip-version-check", "--no-compile"]  # what is imported is compiled then
    subprocess.run([*pip(directory / "venv/bin"), "install", *quickly, str(wheel)], check=True, cwd=directory, timeout=_PIP_SECONDS)
    return directory / "venv/bin"


def pip(programs: Path) -> list[str]:
    """This environment's pip, for the one that has these programs."""
    return [sys.executable, "-m", "pip", "--python", str(programs / "python")]


def locked() -> dict[NormalizedName, Version]:
    """Project -> version, the oldest where there is one for each Python."""
    pins = re.findall(r"^([a-z0-9-]+)==([^ \\;]+)", (PROJECT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in sorted(pins, key=lambda pin: Version(pin[1]), reverse=True)}


def call(command: Path, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment, with nothing of this one; it may take so long."""
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    with tempfile.TemporaryDirectory(prefix="w") as home:  # short: there are unix sockets in it
        environment = {"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, "XDG_CACHE_HOME": cache}
        return subprocess.run(
            [command, *arguments], cwd=home, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )


def test_pip_takes_no_older_versions_than_the_lock_file(installed: Path) -> None:
    command = [*pip(installed), "list", "--format=freeze", "--exclude", "copycat-agent"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PIP_SECONDS).stdout
    taken = {canonicalize_name(name): Version(version) for name, _, version in (line.partition("==") for line in listed.split())}
    known = locked()
    confluent = canonicalize_name("confluent-kafka")
    assert taken[confluent] == known[confluent]
    assert {name: version for name, version in taken.items() if version < known.get(name, version)} == {}, "older than the lock file has"


def test_every_module_can_be_imported_without_an_extra(installed: Path) -> None:
    """The registry's client among them, whose own extra is not used. Those that need one are in the list of late imports."""
    of_extras = {imported for (_, imported), reason in LATE.items() if "an extra" in reason}
    done = call(installed / "python", "-c", IMPORTS, *of_extras)
    assert done.returncode == 0, done.stderr


def test_the_demo_shows_that_every_record_arrives(installed: Path) -> None:
    """The demo, as somebody who has just installed the wheel sees it, with fewer logs."""
    done = call(installed / "copycat", "demo", "--seconds", "3", seconds=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EXACT: all " in done.stdout


def test_a_query_is_refused_with_the_command_that_installs_what_it_needs(installed: Path, tmp_path: Path) -> None:
    source = f"source: {{type: log_file, include: [{tmp_path}/*.log]}}"
    query = 'transforms: [{sql: "SELECT * FROM records"}]'
    (tmp_path / "app.yaml").write_text(f"name: app\n{source}\nrecord: {{topic: t}}\n{query}\n")
    done = call(installed / "copycat", "check", str(tmp_path))
    assert done.returncode == 78
    assert "pip install 'copycat-agent[sql]'" in done.stderr
