"""`copycat demo` proves what it says, and ends cleanly whenever it is told to."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.demo import Proof, Traffic, prove
from tests.cli.conftest import COMMAND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Done


def test_everything_that_is_written_arrives_exactly(copycat: Callable[..., Done], tmp_path: Path) -> None:
    done = copycat("demo", "--seconds", "3", "--dir", tmp_path / "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EXACT: all " in done.stdout.splitlines()[-2]
    assert (tmp_path / "kept" / "connectors.d" / "web-access.yaml").exists()
    assert list((tmp_path / "kept" / "logs").rglob("*.log.1")), "logs were rotated"


def test_a_directory_that_is_not_empty_is_left_alone(copycat: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    assert copycat("demo", "--dir", tmp_path / "mine").returncode == 2
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A temporary directory with a short name: the path of a unix socket below it has to stay below 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="t") as name:
        yield Path(name)


@pytest.mark.parametrize(
    "when", [*(pytest.param(one, marks=pytest.mark.long) for one in ("definitions:", "starting", "broker:")), "RUNNING"]
)
def test_ctrl_c_ends_it_and_leaves_nothing(environment: dict[str, str], short_dir: Path, when: str) -> None:
    variables = environment | {"TMPDIR": str(short_dir), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([*COMMAND, "demo"], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            said = next(line for line in process.stdout if when in line)
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=240)[0]
        finally:
            process.kill()
    assert process.returncode == 130, said + rest
    assert rest.splitlines()[-1] == "stopped"
    assert list(short_dir.iterdir()) == []


@pytest.fixture
def traffic(tmp_path: Path) -> Iterator[Traffic]:
    """Logs with a hundred lines each, rotated once."""
    with Traffic(tmp_path / "logs", 1, 1.0) as traffic:
        for log in traffic.logs:
            log.write(60)
            log.rotate()
            log.write(40)
        yield traffic


def _lines(traffic: Traffic) -> list[bytes]:
    paths = [path for log in traffic.logs for path in (log.path.with_name(f"{log.path.name}.1"), log.path)]
    return [line for path in paths for line in path.read_bytes().splitlines()]


def test_exact_is_exact(traffic: Traffic) -> None:
    proofs = prove(traffic.logs, _lines(traffic))
    assert [(proof.exact, proof.written, proof.arrived) for proof in proofs] == [(True, 100, 100)] * 4


def _without_one(lines: list[bytes]) -> list[bytes]:
    return lines[:50] + lines[51:]


def _with_one_twice(lines: list[bytes]) -> list[bytes]:
    return [*lines[:51], lines[50], *lines[51:]]


def _with_two_swapped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:50], lines[51], lines[50], *lines[52:]]


def _with_one_altered(lines: list[bytes]) -> list[bytes]:
    return [*lines[:50], b"x" + lines[50], *lines[51:]]


def _with_a_stranger(lines: list[bytes]) -> list[bytes]:
    return [*lines, b"what is this"]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (_without_one, Proof("shop", 100, 99, 1, 0, 0, 0, altered=False)),
        (_with_one_twice, Proof("shop", 100, 101, 0, 1, 0, 0, altered=False)),
        (_with_two_swapped, Proof("shop", 100, 100, 0, 0, 1, 0, altered=False)),
        (_with_one_altered, Proof("shop", 100, 100, 0, 0, 0, 0, altered=True)),
        (_with_a_stranger, Proof("?", 0, 1, 0, 0, 0, 1, altered=False)),
    ],
)
def test_whatever_is_not_exact_is_found(traffic: Traffic, spoil: Callable[[list[bytes]], list[bytes]], expected: Proof) -> None:
    assert [proof for proof in prove(traffic.logs, spoil(_lines(traffic))) if not proof.exact] == [expected]
