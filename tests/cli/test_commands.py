"""The commands: each is there, and costs nobody who did not ask for it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import COMMANDS, app
from tests.cli.conftest import COMMAND

if TYPE_CHECKING:
    from pathlib import Path

NEEDLESS = {
    "run": "rich., copycat_agent.workbench.doctor, copycat_agent.demo, copycat_agent.dlq, copycat_agent.dev_broker, copycat_agent.cli.top",
    "ctl": "rich., copycat_agent.definitions., copycat_agent.options., copycat_agent.sources., copycat_agent.offsets., confluent_kafka.",
}
"""By command, the beginnings of names of modules that it does without."""
LOADED = """
import sys
from copycat_agent.cli.main import _load
import copycat_agent.cli.main
_load({command!r})
print(*[name for name in sys.modules for start in {needless!r} if (name + ".").startswith(start)])
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_with_its_help(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"])
    assert (done.exit_code, f"Usage: copycat {name}" in done.stdout.replace("root", "copycat")) == (0, True)


def test_all_are_listed_and_a_mistyped_one_is_guessed() -> None:
    listed = CliRunner().invoke(app, ["--help"]).stdout
    assert all(f" {name} " in listed for name in COMMANDS)
    guessed = CliRunner().invoke(app, ["statu"])
    assert guessed.exit_code == 2
    assert "Did you mean 'status'?" in guessed.stderr


@pytest.mark.parametrize("command", NEEDLESS)
def test_a_command_imports_nothing_that_others_need(environment: dict[str, str], command: str) -> None:
    code = LOADED.format(command=command, needless=NEEDLESS[command].split(", "))
    done = subprocess.run([COMMAND[0], "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_that_cannot_spell_something_costs_no_command(environment: dict[str, str], encoding: str) -> None:
    code = (
        "from copycat_agent.cli.main import forgive_encodings; from rich.console import Console; forgive_encodings()\n"
        "Console().print('bars \\u2581, an odd byte \\udcff')"
    )
    variables = environment | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([COMMAND[0], "-c", code], env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, r"bars \u2581, an odd byte \udcff" + "\n")


def test_an_output_that_cannot_be_written_is_told_without_a_traceback(
    environment: dict[str, str], connectors: Path, tmp_path: Path
) -> None:
    command = " ".join((*COMMAND, "schema > /dev/full"))
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "No space left on device" in done.stderr
