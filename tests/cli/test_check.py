"""`copycat check` says what would keep `run` from starting a connector, without calling a definition bad for it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from copycat_agent.definitions import NO_ADDRESS

if TYPE_CHECKING:
    from tests.cli.conftest import Done


@pytest.fixture
def check(connectors: Path) -> Callable[..., Done]:
    def call(*options: str) -> Done:
        done = CliRunner().invoke(app, ["check", str(connectors), *options], catch_exceptions=False)
        return subprocess.CompletedProcess([], done.exit_code, done.stdout, done.stderr)

    return call


def test_that_no_kafka_address_is_known_is_a_warning(check: Callable[..., Done], define: Callable[..., Path], connectors: Path) -> None:
    for name in "abcde":
        define(name)
    done = check()
    assert done.returncode == 0
    assert f"{connectors}: warning[no-address] {NO_ADDRESS}" in done.stderr
    assert "run would not start a, b, c and 2 more; for a trial, start a broker with: copycat dev-broker" in done.stderr
    assert "good a: log_file -> t" in done.stdout
    report = json.loads(check("--format", "json").stdout)
    assert (report["good"], [one["code"] for one in report["warnings"]]) == (True, ["no-address"])


def test_only_those_without_an_address_that_would_run_are_named(
    check: Callable[..., Done], define: Callable[..., Path], connectors: Path
) -> None:
    define("own", "t", "kafka: {bootstrap_servers: ['k1:9092']}\n")
    define("off", "t", "enabled: false\n")
    assert check().stderr == ""
    define("bare")
    assert "run would not start bare;" in check().stderr
    (connectors.parent / "agent.yaml").write_text("kafka: {bootstrap_servers: ['k1:9092']}\n")
    assert check().stderr == ""
    (connectors.parent / "agent.yaml").write_text("kafka: {bootstrap_servers: ['${env:NOWHERE}']}\n")
    assert "no-address" not in check("--no-env").stderr, "it may be there when the agent starts"
