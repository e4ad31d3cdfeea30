"""What `copycat run` says, and with which code it ends, when it cannot begin."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest

from copycat_agent.offsets import OffsetStore
from tests.cli.conftest import COMMAND

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Done, Said

NOWHERE = ("--bootstrap-servers", "127.0.0.1:1")


def test_78_when_no_definition_loads_with_the_place_of_what_is_wrong(quick: Callable[..., Done], connectors: Path) -> None:
    (connectors / "bad.yaml").write_text("name: bad\nsource: {type: log_fil}\n")
    done = quick("run", connectors, *NOWHERE)
    assert done.returncode == 78
    assert "connectors.d/bad.yaml:2:" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_78_when_the_directory_is_empty_or_missing(quick: Callable[..., Done], connectors: Path) -> None:
    for directory in (connectors, connectors / "missing"):
        done = quick("run", directory, *NOWHERE)
        assert (done.returncode, done.stdout) == (78, "")
        assert str(directory) in done.stderr


def test_78_when_agent_yaml_is_wrong(quick: Callable[..., Done], connectors: Path, define: Callable[..., Path], tmp_path: Path) -> None:
    define("app")
    (tmp_path / "agent.yaml").write_text("kafka: {bootstrap_server: [a:1]}\n")
    done = quick("run", connectors)
    assert done.returncode == 78
    assert "agent.yaml:1:" in done.stderr


def test_78_without_any_kafka_address_and_dev_broker_is_named(
    quick: Callable[..., Done], connectors: Path, define: Callable[..., Path]
) -> None:
    define("app")
    done = quick("run", connectors)
    assert done.returncode == 78
    assert "copycat dev-broker" in done.stderr
    assert "--bootstrap-servers" in done.stderr


@pytest.mark.parametrize("arguments", [["run"], ["run", "connectors.d", "--no-such-option"], ["no-such-command"]])
def test_2_for_wrong_usage(in_process: Callable[..., Said], arguments: list[str]) -> None:
    done = in_process(*arguments)
    assert done.code == 2
    assert "Usage" in done.err


def test_2_for_only_of_a_connector_that_is_not_there(quick: Callable[..., Done], connectors: Path, define: Callable[..., Path]) -> None:
    define("app")
    done = quick("run", connectors, *NOWHERE, "--only", "ap")
    assert done.returncode == 2
    assert "no definition named ap" in done.stderr


def test_1_without_java_and_it_says_so(copycat: Callable[..., Done], connectors: Path, define: Callable[..., Path], tmp_path: Path) -> None:
    define("app")
    done = copycat("run", connectors, *NOWHERE, env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "error: Spark needs Java 17 or newer" in done.stderr
    assert "Traceback" not in done.stderr


def test_1_for_a_damaged_store_which_is_kept_aside_until_someone_decides(
    copycat: Callable[..., Done], connectors: Path, define: Callable[..., Path], tmp_path: Path
) -> None:
    define("app")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "offsets.db").write_bytes(b"this is no database" * 100)
    for _ in range(2):
        done = copycat("run", connectors, *NOWHERE, "--state-dir", state)
        assert done.returncode == 1
        assert "damaged" in done.stderr
        assert "Traceback" not in done.stderr
    (kept,) = state.glob("offsets.db.damaged-*")
    assert kept.read_bytes() == b"this is no database" * 100


def test_1_for_a_second_agent_on_a_state_directory_and_the_first_is_named(
    copycat: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    define("app")
    with OffsetStore.open(tmp_path / "state"):
        done = copycat("run", connectors, *NOWHERE, "--state-dir", tmp_path / "state")
    assert done.returncode == 1
    assert f"another agent (pid {os.getpid()})" in done.stderr


@pytest.mark.parametrize(("option", "variables", "colored"), [((), {}, True), (("--no-color",), {}, False), ((), {"NO_COLOR": "1"}, False)])
def test_problems_are_colored_on_a_terminal_unless_told_otherwise(
    connectors: Path, environment: dict[str, str], option: tuple[str, ...], variables: dict[str, str], colored: bool
) -> None:
    (connectors / "bad.yaml").write_text("name: bad\n")
    ours, theirs = pty.openpty()
    command = [*COMMAND, "run", str(connectors), *NOWHERE, *option]
    done = subprocess.run(command, env=environment | variables, stdin=subprocess.DEVNULL, stderr=theirs, timeout=60, check=False)
    os.close(theirs)
    said = os.read(ours, 100_000)
    os.close(ours)
    assert done.returncode == 78
    assert (b"\x1b[" in said) is colored


@pytest.mark.parametrize("command", ["run", "check", "schema", "dev-broker", "demo", "version"])
def test_every_command_explains_itself(in_process: Callable[..., Said], command: str) -> None:
    assert f" {command} " in in_process("--help").out
    done = in_process(command, "--help")
    assert done.code == 0
    assert any("Usage: " in line and f" {command} " in line for line in done.out.splitlines())


def test_the_usage_names_the_program(copycat: Callable[..., Done]) -> None:
    done = copycat("run", "--help")
    assert done.returncode == 0
    assert "Usage: copycat run" in done.stdout or "Usage: python -m copycat_agent run" in done.stdout


@pytest.mark.parametrize("argument", ["version", "--version"])
def test_version_is_one_line(copycat: Callable[..., Done], argument: str) -> None:
    done = copycat(argument)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
