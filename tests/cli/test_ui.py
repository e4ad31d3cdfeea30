"""`copycat ui`: where the page is, and opening it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.api.server import ApiServer
from tests.unit.api.doubles import MemoryControl

if TYPE_CHECKING:
    from tests.cli.conftest import Done

ADDRESS = "http://127.0.0.1:8090"


@pytest.fixture
def control(tmp_path: Path) -> MemoryControl:
    (tmp_path / "empty").mkdir()
    return MemoryControl(tmp_path / "empty")


@pytest.fixture
def socket(control: MemoryControl, tmp_path: Path) -> Iterator[Path]:
    server = ApiServer(control, tmp_path / "run" / "agent.sock")
    server.start()
    yield tmp_path / "run" / "agent.sock"
    server.close()


@pytest.fixture
def browser(tmp_path: Path) -> Path:
    """A browser that writes down what it is to open, into a file beside it."""
    made = tmp_path / "browser"
    made.write_text(f'#!{sys.executable}\nimport sys\nopen("{tmp_path}/opened", "w").write(sys.argv[1])\n')
    made.chmod(0o755)
    return made


@pytest.mark.parametrize(("options", "opens"), [((), True), (("--no-open",), False)])
def test_it_prints_the_address_and_opens_it_unless_told_not_to(
    copycat: Callable[..., Done], control: MemoryControl, socket: Path, browser: Path, options: tuple[str, ...], opens: bool
) -> None:
    control.page = ADDRESS
    done = copycat("ui", "--socket", socket, *options, env={"BROWSER": f"{browser} %s"})
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{ADDRESS}\n", "")
    opened = browser.with_name("opened")
    assert (opened.read_text() if opened.exists() else None) == (ADDRESS if opens else None)


def test_in_a_session_without_a_browser_it_prints_the_address_alone(
    copycat: Callable[..., Done], control: MemoryControl, socket: Path
) -> None:
    control.page = ADDRESS
    done = copycat("ui", "--socket", socket)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{ADDRESS}\n", "")


def test_where_the_page_is_off_it_says_how_it_is_turned_on(quick: Callable[..., Done], socket: Path) -> None:
    done = quick("ui", "--socket", socket)
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: this agent serves no page; set api: {page: {listen: 127.0.0.1:8090}} in agent.yaml" in done.stderr


def test_where_no_agent_runs_it_says_how_one_is_started(quick: Callable[..., Done], tmp_path: Path) -> None:
    done = quick("ui", "--socket", tmp_path / "none.sock")
    assert done.returncode == 1
    assert "start it with: copycat run DIR" in done.stderr
