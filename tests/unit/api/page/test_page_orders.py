"""Pausing, resuming and restarting from the page: asked first, by those alone who may, and never because of another page."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from copycat_agent.api.page import page_app
from copycat_agent.api.page.page_app import CHANGES_MAX
from copycat_agent.worker import State
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import Answer
from tests.unit.api.doubles import MemoryControl
from tests.unit.api.page.conftest import Read, User

PAUSE = "/connectors/app/pause"


@pytest.mark.parametrize(
    ("order", "before", "state"),
    [("pause", State.RETRYING, State.PAUSED), ("resume", State.FAILED, State.RUNNING), ("restart", State.FAILED, State.RUNNING)],
)
def test_an_order_is_asked_about_and_then_carried_out(
    writer: User, control: MemoryControl, order: str, before: State, state: State
) -> None:
    control.states["app"] = dataclasses.replace(control.states["app"], state=before)
    assert f"/connectors/app/{order}" in writer.read("/connectors/app").links()
    asked = writer.read(f"/connectors/app/{order}")
    assert ("form", {"method": "post"}) in asked.tags
    assert "/connectors/app" in asked.links(), "there is a way back"
    assert control.states["app"].state is before, "a link changes nothing"
    done = writer.post(f"/connectors/app/{order}")
    assert (done.status, done.headers["Location"]) == (303, "/connectors/app")
    assert control.states["app"].state is state


def test_who_may_only_look_finds_no_orders_and_gives_none(reader: User, control: MemoryControl) -> None:
    before = dict(control.states)
    assert not any(link.startswith("/connectors/app/p") for link in reader.read("/connectors/app").links())
    assert reader.ask(PAUSE).status == 403
    refused = reader.post(PAUSE)
    assert refused.status == 403
    assert "copycat passwd NAME --role operate" in Read(refused.body).text
    assert control.states == before


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_what_another_page_sends_changes_nothing(writer: User, control: MemoryControl, headers: dict[str, str]) -> None:
    before = dict(control.states)
    assert writer.post(PAUSE, headers).status == 403
    assert control.states == before


def test_an_order_to_a_connector_that_is_not_there_or_is_disabled_is_told(writer: User, control: MemoryControl) -> None:
    assert writer.post("/connectors/none/pause").status == 404
    control.states["app"] = dataclasses.replace(control.states["app"], enabled=False)
    refused = writer.post(PAUSE)
    assert refused.status == 409
    assert "set enabled: true there" in Read(refused.body).text


@pytest.mark.parametrize("path", ["/connectors/app/stop", "/connectors/app/forget_offsets", "/connectors/app/__init__", "/connectors/app/"])
def test_there_are_no_other_orders(writer: User, control: MemoryControl, path: str) -> None:
    before = dict(control.states)
    assert writer.post(path).status in {404, 405}
    assert control.states == before


def test_a_change_beyond_the_places_is_told_to_wait(writer: User, control: MemoryControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_app, "WAIT_SECONDS", 0.05)
    control.hold.clear()
    answers: list[Answer] = []
    waiting = [threading.Thread(target=lambda: answers.append(writer.post(PAUSE))) for _ in range(CHANGES_MAX)]
    try:
        for one in waiting:
            one.start()
        wait_until(lambda: control.under_way == CHANGES_MAX)
        assert writer.post(PAUSE).status == 409
    finally:
        control.hold.set()
        for one in waiting:
            one.join(60)
    assert [one.status for one in answers] == [303] * CHANGES_MAX
