"""What tests of the command line work with: `copycat` as a process of its own, with an environment of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.rig.cache import CACHE
from tests.rig.in_process import caller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROJECT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "copycat_agent")
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user without settings, with the caches of this machine."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(PROJECT), "COLUMNS": "100", **CACHE}


@pytest.fixture
def copycat(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Done]:
    """`copycat("check", "connectors.d", env={...})` runs in `tmp_path` to its end, with nothing on stdin and no terminal."""

    def call(*arguments: str | Path, env: dict[str, str] | None = None) -> Done:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)], cwd=tmp_path, env=environment | (env or {}), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=240, check=False,
        )  # fmt: skip

    return call


@pytest.fixture
def connectors(tmp_path: Path) -> Path:
    """An empty `connectors.d`."""
    directory = tmp_path / "connectors.d"
    directory.mkdir()
    return directory


@pytest.fixture
def define(connectors: Path, tmp_path: Path) -> Callable[..., Path]:
    """`define("app", topic)` writes a good definition that reads `tmp_path/NAME-logs/*.log`, whose directory it returns."""

    def write(name: str, topic: str = "t", more: str = "") -> Path:
        directory = tmp_path / f"{name}-logs"
        directory.mkdir(exist_ok=True)
        source = f"source: {{type: log_file, include: ['{directory}/*.log']}}"
        (connectors / f"{name}.yaml").write_text(f"name: {name}\n{source}\nrecord: {{topic: {topic}}}\n{more}", "utf-8")
        return directory

    return write


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


@pytest.fixture
def in_process(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """`in_process("run", "--help")`: what a command says, in this process, in a tenth of the time of a process of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("STATE_DIRECTORY", "RUNTIME_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)

    run = caller(capsys, monkeypatch)

    def call(*arguments: str | Path) -> Said:
        done = run(*arguments)
        return Said(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def quick(in_process: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Done]]:
    """`copycat` as above, but in this process: for commands that start no agent, or end before they do."""
    monkeypatch.chdir(tmp_path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def call(*arguments: str | Path) -> Done:
        said = in_process(*arguments)
        return Done(arguments, said.code, said.out, said.err)

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def offsets(in_process: Callable[..., Said], tmp_path: Path) -> Callable[..., Said]:
    """`offsets("show", "app")` in this process, on the store in `tmp_path / "state"`. `losses` and `ctl` are commands, too."""

    def call(*arguments: str | Path, state: Path = tmp_path / "state") -> Said:
        command = arguments if arguments[0] in {"losses", "ctl"} else ("offsets", *arguments)
        return in_process(*command, "--state-dir", state)

    return call
