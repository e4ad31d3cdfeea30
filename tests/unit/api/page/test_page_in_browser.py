"""The page in a real browser: every view over a running agent with a real broker, and what an agent in memory can be made to show.

`COPYCAT_SCREENSHOTS=docs/images scripts/test tests/unit/api/page/test_page_in_browser.py` makes the pictures of docs/ui.md.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from copycat_agent.api.port_access import line_of
from copycat_agent.api.server import ApiServer
from copycat_agent.dev_broker import DevBroker, free_port
from copycat_agent.model import Sample
from copycat_agent.options import ApiOptions
from copycat_agent.sources import FileView
from copycat_agent.worker import State, Status
from tests.rig import browser as rig
from tests.rig.agent import AgentProcess
from tests.rig.browser import Browser
from tests.rig.kafka import unique_topic
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import PASSWORD, basic
from tests.unit.api.doubles import MemoryControl
from tests.unit.api.page.conftest import PagePort

pytestmark = [pytest.mark.skipif(not rig.is_there(), reason=rig.MISSING), pytest.mark.timeout(400)]

SCREEN, PHONE = (960, 440), (390, 800)
SECONDS = 120.0
"""How long something may take on a busy machine."""
HOSTILE = "<img src=x onerror=window.pwned=1>"
PAGE_BYTES_MAX = 100 * 1024
_TAB, _ENTER = "\ue004", "\ue007"
_SIZES = "return ['navigation', 'resource'].flatMap((kind) => performance.getEntriesByType(kind)).map((one) => one.decodedBodySize)"
_FOCUS_BOX = "document.querySelector('#letters input')?.focus(); return document.activeElement.type"
_VISIBLE = "return [...document.querySelectorAll('#records tbody tr')].filter((row) => !row.hidden).length"
_MARKUP = "return document.querySelectorAll('img, iframe, style, script:not([src])').length + (window.pwned ?? 0)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.devtools("Network.enable")
        headers = {"Authorization": basic("writer", PASSWORD)}
        browser.devtools("Network.setExtraHTTPHeaders", headers=headers)
        browser.screen(*SCREEN)
        yield browser


def waits_for(browser: Browser, text: str, selector: str = "body") -> None:
    wait_until(lambda: text in browser.text(selector), SECONDS)


def is_clean(browser: Browser) -> None:
    """Nothing that is shown became markup, and the browser has nothing to complain of."""
    assert browser.run(_MARKUP) == 0
    assert browser.complaints() == []


def in_the_end(browser: Browser, text: str, *steps: Callable[[], None]) -> None:
    """A command beside the agent says this, if not at once: Kafka, or a busy machine, may have it say something else first."""

    def said() -> bool:
        for step in steps:
            step()
        wait_until(lambda: browser.text("pre") != "", SECONDS)
        return text in browser.text("pre")

    wait_until(said, SECONDS)


def picture(browser: Browser, tmp_path: Path, name: str) -> None:
    """A small one, for docs/ui.md."""
    browser.screenshot(Path(os.environ.get("COPYCAT_SCREENSHOTS", tmp_path)) / f"ui-{name}.png")


@pytest.fixture
def running(tmp_path: Path, broker: DevBroker) -> Iterator[tuple[AgentProcess, str, Path]]:
    """An agent with two connectors, one of which reads a file with a hostile name; the address of its page; and its logs."""
    agent, logs, port, topic = AgentProcess(tmp_path / "agent", broker.bootstrap), tmp_path / "logs", free_port(), unique_topic()
    logs.mkdir()
    (tmp_path / "users").write_text(line_of("writer", PASSWORD, 1000, "operate"))
    (agent.root / "agent.yaml").write_text(
        f"api: {{users: {tmp_path}/users, page: {{listen: '127.0.0.1:{port}'}}}}\nkafka: {{create_topics: {{}}}}\n"
    )
    for name in ("nginx-access", "billing"):
        agent.define(
            name,
            {
                "source": {"type": "log_file", "include": [f"{logs}/{name}*.log"]},
                "transforms": [{"regex": r"^(?P<client>\S+) (?P<status>\d+) (?P<rest>.*)$"}, {"convert": {"status": "int"}}],
                "record": {"topic": f"{topic}.{name}", "key": "{client}"},
                "converters": {"value": "json"},
                "errors": {"tolerance": "all", "dlq": {"topic": f"{topic}.dead"}},
            },
        )
    append(logs / "nginx-access.log", 40, HOSTILE)
    append(logs / f"billing{HOSTILE}.log", 20, HOSTILE)
    agent.start("--config", str(agent.root / "agent.yaml"))
    try:
        yield agent, f"http://127.0.0.1:{port}", logs
    finally:
        agent.close()


def append(path: Path, count: int, text: str) -> None:
    """So many lines with this text, and one that the definition cannot read."""
    with path.open("a") as file:
        file.writelines(f"192.0.2.{number % 250} {200 + number % 5} GET /{number} {text}\n" for number in range(count))
        file.write(f"{text} unreadable\n")


def test_every_view_shows_a_running_agent(  # noqa: PLR0915 - one agent, which takes its time to start
    browser: Browser, running: tuple[AgentProcess, str, Path], tmp_path: Path
) -> None:
    _, base, logs = running
    wait_until(lambda: is_served(browser, base), SECONDS)
    waits_for(browser, "2 RUNNING", "#live")
    waits_for(browser, "records/s;", "#live")
    is_clean(browser)

    browser.click("a[href='/connectors/nginx-access']")
    waits_for(browser, "acknowledged\n40 records", "#live")
    picture(browser, tmp_path, "connector")
    browser.run("location.reload()")
    waits_for(browser, "Files and positions")
    is_clean(browser)

    browser.open(f"{base}/connectors/billing")
    waits_for(browser, HOSTILE, "#live")
    address = browser.run("return document.querySelector('th a[href*=\"/file?\"]').href")
    in_the_end(browser, f"{HOSTILE}.log: one connector reads it", lambda: browser.open(address))
    assert "identity" in browser.text("pre")
    is_clean(browser)

    browser.open(f"{base}/connectors/nginx-access/records")
    writing = threading.Event()

    def write() -> None:
        while not writing.wait(0.5):
            append(logs / "nginx-access-2.log", 5, f"live {HOSTILE}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        waits_for(browser, f"live {HOSTILE}", "#records")
        browser.type("#filter", "/3 live")
        wait_until(lambda: browser.run(_VISIBLE) > 0, SECONDS)
        assert "/4 live" not in browser.text("#records tbody")
        browser.click("#filters button")
        waits_for(browser, "Go on", "#filters button")
        is_clean(browser)
    finally:
        writing.set()
        writer.join()

    in_the_end(browser, f"{HOSTILE} unreadable", lambda: browser.open(f"{base}/connectors/nginx-access/letters"))
    assert "/connectors/nginx-access/replay" in browser.run("return document.querySelector('a.button').href")
    in_the_end(browser, "0 sent", lambda: browser.open(f"{base}/connectors/nginx-access/replay"), lambda: browser.click("button.does"))
    is_clean(browser)

    def choose() -> None:
        browser.open(f"{base}/connectors/nginx-access/letters")
        wait_until(lambda: browser.run(_FOCUS_BOX) == "checkbox", SECONDS)
        browser.press(" ")
        assert browser.run("return document.activeElement.checked")
        browser.click("#letters button")
        waits_for(browser, "Replay 1 dead letter of nginx-access?", "h1")
        browser.click("button.does")
        waits_for(browser, "replayed", "h1")

    in_the_end(browser, "1 dead letter: 0 sent, 1 left", choose)
    is_clean(browser)

    def fill_in() -> None:
        browser.open(f"{base}/try?connector=nginx-access")
        assert "regex:" in browser.run("return document.querySelector('#definition').value")
        browser.type("#lines", "192.0.2.7 200 GET /\n192.0.2.8 - GET /\n")
        browser.click("button.does")

    in_the_end(browser, "expects", fill_in)
    picture(browser, tmp_path, "try")
    is_clean(browser)

    browser.open(f"{base}/connectors/nginx-access")
    browser.click("a[href$='/pause']")
    browser.click("button.does")
    waits_for(browser, "PAUSED", "#live")
    browser.click("a[href$='/resume']")
    browser.click("button.does")
    waits_for(browser, "RUNNING", "#live")
    browser.open(base)
    waits_for(browser, "2 RUNNING", "#live")
    picture(browser, tmp_path, "overview")
    is_clean(browser)


def is_served(browser: Browser, address: str) -> bool:
    """Whether a page is there. What the browser says of earlier tries is forgotten."""
    try:
        browser.open(address)
    except AssertionError:
        return False
    browser.complaints()
    return bool(browser.text("main"))


def test_an_agent_that_goes_away_is_told_and_what_it_showed_stays_until_it_is_back(
    browser: Browser, page: PagePort, control: MemoryControl, tmp_path: Path
) -> None:
    browser.open(f"http://127.0.0.1:{page.number}/")
    page.server.close()
    waits_for(browser, "The agent does not answer since", "#refresh")
    assert "RUNNING" in browser.text("#live")
    control.states["app"] = dataclasses.replace(control.states["app"], state=State.PAUSED)
    options = ApiOptions.model_validate({"page": {"listen": f"127.0.0.1:{page.number}"}})
    server = ApiServer(control, tmp_path / "again" / "agent.sock", options)
    server.start()
    try:
        waits_for(browser, "PAUSED", "#live")
        assert "does not answer" not in browser.text("#refresh")
    finally:
        server.close()
    browser.complaints()


def test_a_thousand_connectors_are_looked_through_with_the_keyboard(browser: Browser, page: PagePort, control: MemoryControl) -> None:
    for number in range(1000):
        control.states[f"app-{number:04}"] = Status(f"app-{number:04}", State.RUNNING)
    browser.open(f"http://127.0.0.1:{page.number}/")
    assert sum(browser.run(_SIZES)) <= PAGE_BYTES_MAX
    assert browser.run("return document.querySelectorAll('tbody tr').length") == 50
    browser.press(_TAB)
    assert browser.run("return document.activeElement.textContent") == "Skip to content"
    browser.press(_ENTER)
    assert browser.run("return location.hash") == "#content"
    browser.press(_TAB)
    assert browser.run("return document.activeElement.id") == "q"
    browser.type("#q", f"app-0123{_ENTER}")
    waits_for(browser, "1 of 1,001 connectors")
    is_clean(browser)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen_and_hostile_texts_are_texts(
    browser: Browser, with_users: PagePort, control: MemoryControl, dark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{HOSTILE}{'x' * 200}"
    followed = FileView(f"/var/log/{text}", "fe00:1:2:0", 5, 10, 1, "failing", True, why=text)
    monkeypatch.setattr(control, "files", lambda _name: (followed,))
    control.states["app"] = dataclasses.replace(control.states["app"], state=State.FAILED, reason=text)
    control.samples = (Sample("logs.app", text.encode(), text.encode(), ((text, text.encode()),), None, text, 7, 9),)
    browser.screen(*PHONE, dark=dark)
    try:
        for path in ("/", "/connectors/app", "/losses", "/connectors/app/records", "/connectors/app/pause", "/try"):
            browser.open(f"http://127.0.0.1:{with_users.number}{path}")
            if path.endswith("records"):
                waits_for(browser, HOSTILE, "#records")
            assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0], path
            back = browser.run("return getComputedStyle(document.body).backgroundColor")
            assert back == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
            is_clean(browser)
    finally:
        browser.screen(*SCREEN)
