"""When the lights are red, and what they say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from copycat_agent.metrics import Health, Verdict
from copycat_agent.model import Counts
from copycat_agent.sources import Lag
from copycat_agent.worker import State, Status
from tests.unit.metrics.doubles import NOW, Clock, FakeAgent, behind, running


def health_of(agent: FakeAgent, clock: Clock | None = None) -> Health:
    clock = clock or Clock()
    return Health(agent.control, wall=lambda: clock.wall, monotonic=lambda: clock.monotonic)


def kinds(verdict: Verdict) -> list[tuple[str, str]]:
    return [(trouble.kind, trouble.connector) for trouble in verdict.troubles]


def test_an_agent_with_nothing_to_read_is_healthy_however_long() -> None:
    clock = Clock()
    health = health_of(FakeAgent(running(acknowledged_at=NOW - 1e6)), clock)
    for _ in range(3):
        assert health.delivering().good
        clock.pass_(10_000)


def test_a_backlog_that_does_not_move_turns_the_light_red_and_says_what_waits() -> None:
    clock, agent = Clock(), FakeAgent(running("ok"), behind(state=State.RETRYING, reason="no broker answers"))
    health = health_of(agent, clock)
    assert health.delivering().good
    clock.pass_(59)
    assert health.delivering().good
    clock.pass_(2)
    (trouble,) = health.delivering().troubles
    assert (trouble.kind, trouble.connector, trouble.since) == ("stalled", "app", NOW)
    assert trouble.reason == "nothing acknowledged for 61 s while 300 bytes in 2 files wait: no broker answers"
    assert trouble.action == "copycat describe app"


def test_the_first_question_already_knows_how_long_it_has_been() -> None:
    assert kinds(health_of(FakeAgent(behind(since=NOW - 100))).delivering()) == [("stalled", "app")]


def test_a_long_rest_before_the_first_line_is_no_stall() -> None:
    assert health_of(FakeAgent(behind(since=NOW - 1, acknowledged_at=NOW - 1e5))).delivering().good


def test_an_agent_that_catches_up_slowly_is_healthy() -> None:
    clock, agent = Clock(), FakeAgent(behind(since=NOW - 9000, acknowledged_at=NOW))
    health = health_of(agent, clock)
    for number in range(10):
        clock.pass_(50)
        agent.there = (behind(since=NOW - 9000, acknowledged_at=clock.wall - 1, counts=Counts(read=number)),)
        assert health.delivering().good


def test_it_turns_green_with_the_first_acknowledgement() -> None:
    clock, agent = Clock(), FakeAgent(behind(since=NOW - 500))
    health = health_of(agent, clock)
    assert not health.delivering().good
    agent.there = (behind(since=NOW - 500, acknowledged_at=NOW, counts=Counts(acknowledged=1)),)
    assert health.delivering().good


@pytest.mark.parametrize("step", [86_400, -86_400])
def test_a_step_of_the_wall_clock_neither_raises_nor_hides_an_alarm(step: float) -> None:
    clock, agent = Clock(), FakeAgent(behind())
    health = health_of(agent, clock)
    assert health.delivering().good
    clock.wall += step
    assert health.delivering().good
    clock.pass_(61)
    assert not health.delivering().good


def test_backlogs_that_come_and_go_are_no_stall() -> None:
    """Half-written lines: something is unread for a moment, over and over, without a record to acknowledge."""
    clock, agent = Clock(), FakeAgent(behind())
    health = health_of(agent, clock)
    for _ in range(10):
        clock.pass_(15)
        agent.there = (behind(since=clock.wall),)
        assert health.delivering().good


@pytest.mark.parametrize(
    ("state", "kind", "action"), [(State.FAILED, "failed", "copycat ctl restart app"), (State.BLOCKED, "blocked", "copycat doctor /d")]
)
def test_a_connector_that_needs_somebody_turns_the_light_red_at_once(state: State, kind: str, action: str) -> None:
    (trouble,) = health_of(FakeAgent(running(state=state, reason="topic t does not exist"))).delivering().troubles
    assert trouble == (kind, "app", "topic t does not exist", NOW - 1000, action)


@pytest.mark.parametrize("state", [State.PAUSED, State.STOPPED])
def test_rest_on_purpose_is_healthy_and_listed(state: State) -> None:
    clock, agent = Clock(), FakeAgent(behind(state=state), running("off", enabled=False, state=State.STOPPED))
    health = health_of(agent, clock)
    health.delivering()
    clock.pass_(1000)
    verdict = health.delivering()
    assert (verdict.good, verdict.resting) == (True, {"app": str(state), "off": "disabled"})


def test_after_a_pause_the_clock_begins_anew() -> None:
    clock, agent = Clock(), FakeAgent(behind(state=State.PAUSED, since=0))
    health = health_of(agent, clock)
    health.delivering()
    clock.pass_(1000)
    agent.there = (behind(since=clock.wall),)
    assert health.delivering().good


def test_offsets_that_cannot_be_saved_turn_the_light_red_at_once() -> None:
    agent = FakeAgent(running())
    agent.now = replace(agent.now, offsets_unsaved="disk full")
    (trouble,) = health_of(agent).delivering().troubles
    assert (trouble.kind, trouble.connector, trouble.reason) == ("offsets_unsaved", "", "offsets cannot be saved: disk full")


def test_offsets_unsaved_are_dated_from_the_first_sight() -> None:
    clock, agent = Clock(), FakeAgent(running())
    agent.now = replace(agent.now, offsets_unsaved="disk full")
    health = health_of(agent, clock)
    health.delivering()
    clock.pass_(30)
    assert health.delivering().troubles[0].since == NOW


def test_a_start_is_told_as_such_until_every_connector_has_looked_at_its_files() -> None:
    agent = FakeAgent(running("a"), Status("b", since=NOW - 3))
    health = health_of(agent)
    for verdict in (health.ready(), health.delivering()):
        assert kinds(verdict) == [("starting", "b")]
    agent.there = (running("a"), running("b"))
    assert health.ready().good
    assert health.delivering().good


def test_before_the_definitions_are_loaded_it_is_not_ready() -> None:
    agent = FakeAgent()
    agent.now = replace(agent.now, last_reload=None)
    health = health_of(agent)
    assert kinds(health.ready()) == [("starting", "")]
    agent.now = FakeAgent().now
    assert health.ready().good  # an empty directory is loaded


def test_a_connector_that_is_added_later_does_not_make_the_agent_unready_unless_it_hangs() -> None:
    clock, agent = Clock(), FakeAgent(running("a"))
    health = health_of(agent, clock)
    assert health.ready().good
    agent.there = (running("a"), Status("b", since=NOW))
    assert health.ready().good
    assert health.delivering().good
    clock.pass_(61)
    assert kinds(health.delivering()) == [("stalled", "b")]
    assert health.ready().good


def test_kafka_has_no_say_in_readiness() -> None:
    assert health_of(FakeAgent(behind(since=NOW - 500, state=State.RETRYING))).ready().good


def test_an_agent_that_stops_says_so() -> None:
    agent = FakeAgent(running())
    agent.now = replace(agent.now, stopping=True)
    health = health_of(agent)
    assert kinds(health.ready()) == kinds(health.delivering()) == [("stopping", "")]
    assert health.alive().good


def test_an_agent_whose_store_or_executor_hangs_is_not_alive() -> None:
    agent = FakeAgent(running())
    agent.now = replace(agent.now, hangs=True)
    health = health_of(agent)
    assert kinds(health.alive()) == [("stuck", "")]
    assert not health.delivering().good


def test_one_connector_that_hangs_is_no_reason_to_restart_the_agent() -> None:
    agent = FakeAgent(running(), running("hung", state=State.BLOCKED, reason="it has hung for a while"))
    agent.now = replace(agent.now, stuck=("hung",))
    health = health_of(agent)
    assert health.alive().good
    assert kinds(health.delivering()) == [("blocked", "hung")]


def test_the_threshold_is_the_one_of_agent_yaml() -> None:
    agent = FakeAgent(behind(since=NOW - 10))
    agent.options = agent.options.model_copy(update={"api": agent.options.api.model_copy(update={"stalled_after": 5.0})})
    assert not health_of(agent).delivering().good


def test_a_source_that_cannot_tell_since_when_is_measured_from_the_first_sight() -> None:
    clock, agent = Clock(), FakeAgent(running(lag=Lag(bytes=5, files=1)))
    health = health_of(agent, clock)
    assert health.delivering().good
    clock.pass_(61)
    assert not health.delivering().good
