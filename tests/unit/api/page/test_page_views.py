"""What the page shows, without any JavaScript, and that nothing of what it shows becomes markup."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from copycat_agent.api.page.child_commands import ChildCommands, CommandOutput
from copycat_agent.api.page.markup import Html, joined, tag
from copycat_agent.api.page.page_app import FILES, OF_CONNECTORS, PLACES
from copycat_agent.api.page.page_frame import HEIGHT, line
from copycat_agent.api.port_access import line_of
from copycat_agent.api.rate_history import LOOKS, RateHistory
from copycat_agent.model import Counts, Loss, LossReason, LossTotal, SourcePartition
from copycat_agent.sources import FileView, Lag
from copycat_agent.worker import State, Status
from tests.unit.api.conftest import DEFINITION, PASSWORD, basic
from tests.unit.api.doubles import LoudError, MemoryControl
from tests.unit.api.page.conftest import OpenPage, PagePort, Read

HOSTILE = "/var/log/<script>alert(1)</script>\"' onload=x \x1b[31m\u202e\udcff&amp;.log"
SHOWN = "/var/log/<script>alert(1)</script>\"' onload=x \\x1b[31m\\u202e\\xff&amp;.log"
PAGE_BYTES_MAX = 100 * 1024


def test_the_overview_shows_how_each_connector_is(page: PagePort, control: MemoryControl) -> None:
    lag = Lag(bytes=3 * 2**20, files=1, known_files=4, oldest_unread_ms=int((time.time() - 120) * 1000))
    control.states["app"] = Status("app", State.RETRYING, "no broker answers", counts=Counts(dead_lettered=17), lag=lag, retries=5)
    read = page.read()
    assert read.rows[0] == ["connector", "state", "records/s", "15 minutes", "lag", "oldest unread", "retries", "dead letters", "lost"]
    assert read.rows[1] == ["app", "RETRYING no broker answers", "", "", "3.0 MiB", "2m", "5", "17", "10 B"]
    assert "1 RETRYING; 3.0 MiB unread" in read.text
    assert {"/connectors/app", "/losses?connector=app"} <= set(read.links())


def test_those_in_trouble_come_first(page: PagePort, control: MemoryControl) -> None:
    running = control.states["app"]
    for name in ("a", "b", "z"):
        control.states[name] = dataclasses.replace(running, name=name)
    control.states["z"] = Status("z", State.FAILED, "its topic is gone")
    control.states["b"] = dataclasses.replace(running, name="b", lag=Lag(troubled_files=1))
    assert [row[0] for row in page.read().rows[1:]] == ["b", "z", "a", "app"]


def test_a_thousand_connectors_are_pages_of_fifty_and_a_name_finds_one(page: PagePort, control: MemoryControl) -> None:
    for number in range(1000):
        control.states[f"app-{number:04}"] = Status(f"app-{number:04}", State.RUNNING)
    first = page.read()
    assert len(first.rows) == 51
    assert "page 1 of 21" in first.text
    assert "/?page=2" in first.links()
    assert [row[0] for row in page.read("/?page=21").rows[1:]] == ["app-0999"]
    found = page.read("/?q=0123")
    assert [row[0] for row in found.rows[1:]] == ["app-0123"]
    assert "1 of 1,001 connectors" in found.text
    assert "/?q=app&page=2" in page.read("/?q=app").links(), "what was looked for stays"


def test_the_page_is_small_with_a_thousand_connectors_and_their_lines(
    page: PagePort, control: MemoryControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1000):
        name = f"nginx-access-{number:04}"
        control.states[name] = Status(name, State.RUNNING, counts=Counts(acknowledged=10**9), lag=Lag(2**40, 1, 1, oldest_unread_ms=1))
    monkeypatch.setattr("copycat_agent.api.rate_history.RateHistory.rates", lambda *_: tuple(map(float, range(180))))
    assert sum(len(page.ask(path).body) for path in ("/", "/page.css", "/page.js")) <= PAGE_BYTES_MAX


DEAD = "errors: {tolerance: all, dlq: {topic: dead}}\n"
LONG_PATH = "/var/log/pods/shop_checkout-7d9f8b6c5d-x2x7k_0f4b6c1e-5d7a-4b7e-9d0c-2f1f0a9b8c7d/checkout/"


def test_every_view_is_small_however_much_there_is(
    open_page: OpenPage, control: MemoryControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each loads itself and two files, and nothing else; what is typed into a form is not counted."""
    users = tmp_path / "users"
    users.write_text(line_of("writer", PASSWORD, 1000, "operate"))
    page, headers = open_page(users=str(users)), {"Authorization": basic("writer", PASSWORD)}
    for number in range(1000):
        control.states[f"nginx-access-{number:04}"] = Status(f"nginx-access-{number:04}", State.FAILED, "its topic is gone, " * 50)
    why = "Permission denied " * 5
    files = tuple(
        FileView(f"{LONG_PATH}{number}.log", f"fe00:{number:x}:1a2b3c4d5e:0", 2**40, 2**41, 10**9, "failing", True, why=why)
        for number in range(3000)
    )
    monkeypatch.setattr(control, "files", lambda _: files)
    loss = Loss(SourcePartition("app", "k"), f"{LONG_PATH}0.log", 10**12, 2**40, 10**9, 1_763_776_800_000, "destroyed", "deleted " * 10, 0)
    monkeypatch.setattr(control, "losses", lambda _, limit: (loss,) * limit)
    totals: dict[tuple[str, LossReason], LossTotal] = {(name, "destroyed"): LossTotal(10**9, 10, 10) for name in control.states}
    monkeypatch.setattr(control, "loss_totals", lambda: totals)
    monkeypatch.setattr(RateHistory, "rates", lambda *_: tuple(map(float, range(180))))
    monkeypatch.setattr(ChildCommands, "of_agent", lambda *_: CommandOutput("<'\"&>" * 20_000, 0))
    path = Path(control.path("app"))
    path.write_text(DEFINITION.replace("host: h1", ", ".join(f"host-{number}: h1" for number in range(300))) + DEAD)
    control.definitions = MemoryControl(path.parent).definitions

    def size(path: str) -> int:
        answer = page.ask(path, headers=headers)
        assert answer.status == 200, path
        return len(answer.body)

    shared = sum(map(size, FILES))
    of_app = [f"/connectors/app/{rest}".rstrip("/") for rest in OF_CONNECTORS]
    for address in (*PLACES, *of_app, "/try?connector=app", "/losses?connector=app", "/?q=nginx&page=7"):
        where = f"{address}?key={files[0].key}" if address.endswith("/file") else address
        assert shared + size(where) <= PAGE_BYTES_MAX, (where, shared + size(where))


def test_the_page_of_a_connector_shows_its_files_and_where_each_value_comes_from(page: PagePort, directory: Path) -> None:
    read = page.read("/connectors/app")
    assert ["/var/log/0.log", "following", "5", "10", "0 B", "1", "never"] in read.rows
    assert ["record.topic", "logs.app", "app.yaml:5"] in read.rows
    assert ["delivery.guarantee", "at_least_once", "default"] in read.rows
    assert str(directory / "app.yaml") in read.text
    assert "RUNNING" in read.text


def test_of_many_files_those_in_trouble_are_shown(page: PagePort, control: MemoryControl, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = FileView("/z.log", "", 0, 0, 0, "failing", is_open=False, why="Permission denied")
    many = (*(FileView(f"/{number:05}.log", str(number), 0, 0, 0, "following", is_open=False) for number in range(3000)), bad)
    monkeypatch.setattr(control, "files", lambda _: many)
    read = page.read("/connectors/app")
    assert "100 of 3,001 files" in read.text
    assert next(row for row in read.rows if ".log" in row[0])[:2] == ["/z.log Permission denied", "failing"]


def test_a_secret_is_on_no_page(open_page: OpenPage, directory: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("c4n4ry-secret\n")
    client = f"kafka: {{security: {{protocol: SASL_PLAINTEXT, mechanism: PLAIN, username: u, password: '${{file:{secret}}}'}}}}\n"
    (directory / "app.yaml").write_text(DEFINITION + client)
    page = open_page(MemoryControl(directory))
    read = page.read("/connectors/app")
    assert any(row[0] == "kafka.security.password" and row[1] == "********" for row in read.rows)
    assert all(b"c4n4ry-secret" not in page.ask(path).body for path in ("/", "/connectors/app", "/losses"))


def test_the_ledger_says_what_was_lost_where_and_why(page: PagePort) -> None:
    read = page.read("/losses")
    assert ["app", "destroyed", "10", "unknown", "1"] in read.rows
    assert ["2025-11-22 02:00:00", "app", "destroyed", "10", "unknown", "0 to 10", "/var/log/app.log", "deleted"] in read.rows
    assert page.read("/losses?connector=other").text.count("Nothing was given up.") == 1


def test_nothing_of_a_file_or_a_reason_becomes_markup(page: PagePort, control: MemoryControl, monkeypatch: pytest.MonkeyPatch) -> None:
    view = FileView(HOSTILE, "k", 0, 0, 0, "failing", is_open=False, why=HOSTILE, cursor=HOSTILE)
    monkeypatch.setattr(control, "files", lambda _: (view,))
    loss = Loss(SourcePartition("app", "k"), HOSTILE, 0, 1, 1, 1, "destroyed", HOSTILE, 0)
    monkeypatch.setattr(control, "losses", lambda *_: (loss,))
    control.states["app"] = Status("app", State.FAILED, HOSTILE, errors={("read", HOSTILE): 1})
    pages = {path: page.ask(path).body for path in ("/", "/connectors/app", "/losses")}
    for body in pages.values():
        read = Read(body)
        assert SHOWN in read.text
        assert [given for name, given in read.tags if name == "script"] == [{"src": "/page.js", "defer": None}]
        assert not any("onload" in given for _, given in read.tags)
        assert not any(odd in body for odd in (b"\x1b", "\u202e".encode()))


def test_what_was_looked_for_stays_a_text(page: PagePort) -> None:
    read = page.read("/?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
    assert next(given["value"] for name, given in read.tags if name == "input") == '"><script>alert(1)</script>'
    assert len([name for name, _ in read.tags if name == "script"]) == 1


def test_a_store_that_cannot_be_read_hides_no_connector(page: PagePort, control: MemoryControl, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[tuple[str, LossReason], LossTotal]:
        raise LoudError("the store cannot be read")

    monkeypatch.setattr(control, "loss_totals", fail)
    assert page.read().rows[1][0] == "app"
    assert page.ask("/losses").status == 500


def test_a_line_is_as_wide_as_the_time_it_covers_and_as_high_as_its_largest_rate() -> None:
    def points(rates: list[float]) -> list[list[int]]:
        given = next(given for name, given in Read(line(rates, "app").encode()).tags if name == "polyline")
        return [list(map(int, point.split(","))) for point in str(given["points"]).split()]

    assert line([], "app") == line([1.0, 2.0, 3.0], "app") == "", "one point is no line"
    full = points([float(number) for number in range(LOOKS)])
    assert [x for x, _ in full] == list(range(60))
    assert (full[0][1], full[-1][1]) == (HEIGHT, 0)
    assert points([0.0] * 6) == [[58, HEIGHT], [59, HEIGHT]], "a short one ends where now is"
    assert "at most 4.0" in line([0.0, 0.0, 0.0, 4.0, 4.0, 4.0], "app")


def test_a_reader_of_the_screen_finds_its_way(page: PagePort) -> None:
    for path in ("/", "/connectors/app", "/losses"):
        tags = page.read(path).tags
        assert tags[0] == ("html", {"lang": "en"})
        assert [name for name, _ in tags].count("h1") == [name for name, _ in tags].count("main") == 1
        assert next(given for name, given in tags if name == "a") == {"href": "#content", "class": "skip"}
        assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in tags
        ids = [given["id"] for _, given in tags if "id" in given]
        assert len(ids) == len(set(ids))
        fields = {given["id"] for name, given in tags if name == "input"}
        assert fields == {given["for"] for name, given in tags if name == "label"}


def test_only_what_a_tag_has_made_is_markup() -> None:
    made = tag("p", "a<b", tag("b", "&"), class_='"x', hidden=True, title=None)
    assert made == '<p class="&quot;x" hidden>a&lt;b<b>&amp;</b></p>'
    assert joined(made[:3], made[3:]) == joined(str(made[:3]), str(made[3:])), "a part of markup is a text"
    assert "&lt;" in joined(made[:3])
    assert not isinstance(made + "", Html)
