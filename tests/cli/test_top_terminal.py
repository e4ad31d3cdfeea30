"""`copycat top` on a real terminal of 80 by 24: choosing and opening connectors with keys, and a terminal that is given back as it was."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from copycat_agent.api import AgentClient
from copycat_agent.api.server import ApiServer
from copycat_agent.dev_broker import DevBroker
from copycat_agent.errors import CopycatError
from copycat_agent.sources import FileView
from copycat_agent.worker import State, Status
from tests.cli.conftest import COMMAND
from tests.rig.agent import AgentProcess
from tests.rig.kafka import create_topic, unique_topic
from tests.rig.terminal import Terminal
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import DEFINITION
from tests.unit.api.doubles import MemoryControl

UP, DOWN, END, ESC, ENTER, CTRL_C, PAGE_DOWN = "\x1b[A", "\x1b[B", "\x1b[F", "\x1b", "\r", "\x03", "\x1b[6~"
SECONDS = 120.0
"""How long something may take on a busy machine."""
pytestmark = pytest.mark.timeout(900)
HOSTILE = "\x1b[31m\x1b[2J[bold]\u202e"
LIST_KEYS, OPEN_KEYS = "Enter open   q quit", "Esc back"

Open = Callable[[Path], Terminal]


@pytest.fixture
def on_terminal(environment: dict[str, str]) -> Iterator[Open]:
    """`on_terminal(socket)` runs `copycat top` for the agent behind this socket."""
    opened: list[Terminal] = []

    def start(socket: Path) -> Terminal:
        plain = {name: value for name, value in environment.items() if name != "COLUMNS"}
        opened.append(Terminal([*COMMAND, "top", "--interval", "0.3", "--socket", str(socket)], plain))
        return opened[-1]

    try:
        yield start
    finally:
        for one in opened:
            one.__exit__()


@pytest.fixture
def control(tmp_path: Path) -> MemoryControl:
    directory = tmp_path / "connectors.d"
    directory.mkdir()
    (directory / "app.yaml").write_text(DEFINITION)
    return MemoryControl(directory)


@pytest.fixture
def socket(control: MemoryControl, tmp_path: Path) -> Iterator[Path]:
    """Of an agent in memory."""
    path = tmp_path / "run" / "agent.sock"
    server = ApiServer(control, path)
    server.start()
    try:
        yield path
    finally:
        server.close()


def shows(terminal: Terminal, *words: str) -> None:
    """Waits until one picture holds all of it, between its head and its keys."""

    def is_shown() -> bool:
        screen = "\n".join(terminal.screen)
        return all(one in screen for one in words)

    wait_until(is_shown, SECONDS, lambda: f"{words} in:\n" + "\n".join(terminal.screen))


def told(agent: AgentProcess) -> set[str]:
    """The states of its connectors, none while it does not answer."""
    with contextlib.suppress(CopycatError):
        return {one["state"] for one in AgentClient(agent.state_dir / "agent.sock").get("/v1/connectors")["connectors"]}
    return set()


def add(control: MemoryControl, name: str) -> None:
    """One more connector of the agent in memory."""
    control.states[name], control.paths[name] = Status(name, State.RUNNING), control.paths["app"]


def said(terminal: Terminal, *words: str) -> bool:
    return all(one in terminal.said for one in words)


def test_a_running_agent_is_looked_through_with_the_keyboard(on_terminal: Open, broker: DevBroker, tmp_path: Path) -> None:
    topic, dead = (create_topic(broker.bootstrap, unique_topic(), 1, None) for _ in range(2))
    log = tmp_path / "app.log"
    log.write_text("200\nbad\n")
    errors = {"tolerance": "all", "dlq": {"topic": dead}}
    source = {"type": "log_file", "include": [str(log)]}
    with AgentProcess(tmp_path / "agent", broker.bootstrap) as agent:
        step = {"regex": r"^(?P<status>\d+)$"}
        agent.define("app", {"source": source, "transforms": [step], "record": {"topic": topic}, "errors": errors})
        for number in range(30):
            agent.define(f"off-{number:02}", {"enabled": False, "source": source, "record": {"topic": topic}})
        agent.define("stuck", {"source": source, "record": {"topic": "no-such-topic"}})
        agent.start()
        wait_until(lambda: "running" in told(agent), SECONDS, lambda: agent.log)
        terminal = on_terminal(agent.state_dir / "agent.sock")
        shows(terminal, "copycat ", LIST_KEYS, "app ", "RUNNING", "off-00", "15 minutes")
        wait_until(lambda: any(re.match(r"app +RUNNING .*[▁-█]", line) for line in terminal.screen), SECONDS, lambda: terminal.said)
        wait_until(lambda: len(terminal.screen) == 24, SECONDS, lambda: "\n".join(terminal.screen))
        assert all(len(line) <= 80 for line in terminal.screen)

        terminal.press(ENTER)
        shows(terminal, "app  RUNNING", "dead letters", OPEN_KEYS, "position", "following")
        wait_until(lambda: any(re.search(r"dead letters +1\b", line) for line in terminal.screen), SECONDS)
        shows(terminal, "records/s in 15 minutes", "1 DataError in ", "1 file")
        with log.open("a") as file:
            file.write("201\n" * 500)
        shows(terminal, f"{log.stat().st_size:,}")

        terminal.press(ESC)
        shows(terminal, LIST_KEYS)
        terminal.press(END)
        shows(terminal, "stuck", "BLOCKED", "off-00: disabled")
        terminal.press(ENTER)
        shows(terminal, "stuck  BLOCKED", "no-such-topic")
        terminal.press("q")
        shows(terminal, LIST_KEYS)
        terminal.press("q")
        assert terminal.wait() == 0
        agent.stop()


def test_the_terminal_is_as_it_was_whichever_way_one_leaves(on_terminal: Open, socket: Path) -> None:
    for leave, code in (("q", 0), (CTRL_C, 0), (signal.SIGTERM, 128 + signal.SIGTERM)):
        terminal = on_terminal(socket)
        shows(terminal, LIST_KEYS)
        assert terminal.modes != terminal.before, "keys come one by one"
        if isinstance(leave, str):
            terminal.press(leave)
        else:
            terminal.process.send_signal(leave)
        assert terminal.wait() == code
        assert terminal.modes == terminal.before
        wait_until(partial(said, terminal, "\x1b[?1049l", "\x1b[?25h"), SECONDS)


def test_a_thousand_connectors_fit_any_size_and_the_chosen_one_is_in_sight(on_terminal: Open, control: MemoryControl, socket: Path) -> None:
    for number in range(1000):
        add(control, f"app-{number:04}")
    terminal = on_terminal(socket)
    shows(terminal, "app-0000", LIST_KEYS, "of 10")
    terminal.press(PAGE_DOWN * 3 + UP)
    shows(terminal, "app-0050")
    terminal.press(END)
    shows(terminal, "app-0999")
    terminal.resize(10, 40)
    wait_until(lambda: len(terminal.screen) == 10 and all(len(line) <= 40 for line in terminal.screen), SECONDS)
    shows(terminal, "app-0999")
    terminal.press(ENTER)
    wait_until(lambda: "app-0999  RUNNING" in terminal.screen, SECONDS)


def test_an_agent_that_goes_away_keeps_its_picture_and_a_connector_that_goes_leads_back(
    on_terminal: Open, control: MemoryControl, tmp_path: Path
) -> None:
    add(control, "gone")
    path = tmp_path / "run" / "agent.sock"
    server = ApiServer(control, path)
    server.start()
    try:
        terminal = on_terminal(path)
        shows(terminal, LIST_KEYS)
        terminal.press(DOWN + ENTER)
        shows(terminal, "gone  RUNNING")
        server.close()
        shows(terminal, "waiting for it since", "gone  RUNNING")
        del control.states["gone"]
        server = ApiServer(control, path)
        server.start()
        shows(terminal, LIST_KEYS, "pid 7")
    finally:
        server.close()


def test_no_name_of_a_file_acts_on_the_terminal(
    on_terminal: Open, control: MemoryControl, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = FileView(f"/var/log/{HOSTILE}.log", "k", 5, 10, 1, "failing", True, why=HOSTILE)
    monkeypatch.setattr(control, "files", lambda _: (view,))
    control.states["app"] = Status("app", State.FAILED, HOSTILE, errors={("read", HOSTILE): 1})
    terminal = on_terminal(socket)
    shows(terminal, LIST_KEYS)
    terminal.press(ENTER)
    shows(terminal, r"\x1b[31m\x1b[2J[bold]\u202e", OPEN_KEYS, "app  FAILED")
    assert "\x1b[31m\x1b[2J" not in terminal.said
    assert "\u202e" not in terminal.said
