"""Where the samples of each metric come from: readers of a snapshot of the agent."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, get_args

from copycat_agent.control import AgentView
from copycat_agent.metrics.processes import Process
from copycat_agent.model import ClientView, LossReason, LossTotal
from copycat_agent.worker import State, Status
from copycat_agent.worker.status import Timing

FRESH_SECONDS = 60.0
"""A producer's word on its brokers that is older tells nothing any more: a connector without work asks nobody."""

Sample = tuple[tuple[str, ...], float | Timing]


class Snapshot(NamedTuple):
    """The agent at one moment. `stalled_seconds` by connector, see `Health.stalled`; `now` in epoch seconds."""

    view: AgentView
    statuses: tuple[Status, ...]
    losses: Mapping[tuple[str, LossReason], LossTotal]
    stalled_seconds: Mapping[str, float]
    now: float
    processes: tuple[Process, ...] = ()


def each(read: Callable[[Status], float | Timing]) -> Callable[[Snapshot], Iterator[Sample]]:
    """One sample per connector."""
    return lambda snapshot: (((status.name,), read(status)) for status in snapshot.statuses)


def agent(read: Callable[[Snapshot], float]) -> Callable[[Snapshot], Iterator[Sample]]:
    """One sample."""
    return lambda snapshot: iter([((), read(snapshot))])


def dropped(snapshot: Snapshot) -> Iterator[Sample]:
    """By connector and why they were not sent."""
    for status in snapshot.statuses:
        yield (status.name, "filtered"), status.counts.dropped
        yield (status.name, "rejected"), status.counts.rejected


def errors(snapshot: Snapshot) -> Iterator[Sample]:
    """By connector, stage and class."""
    for status in snapshot.statuses:
        for (stage, kind), count in status.errors.items():
            yield (status.name, stage, kind), count


def transactions(snapshot: Snapshot) -> Iterator[Sample]:
    """By connector and outcome, from 0 on; of those whose guarantee is exactly_once."""
    for status in snapshot.statuses:
        if status.guarantee == "exactly_once":
            for outcome in ("committed", "undone", "unknown"):
                yield (status.name, outcome), status.delivery_outcomes.get(outcome, 0)


def lanes_opened(snapshot: Snapshot) -> Iterator[Sample]:
    """By connector, of those whose guarantee is exactly_once."""
    for status in snapshot.statuses:
        if status.guarantee == "exactly_once":
            yield (status.name,), status.delivery_outcomes.get("openings", 0)


def states(snapshot: Snapshot) -> Iterator[Sample]:
    """One-hot: every connector has every state."""
    for status in snapshot.statuses:
        for state in State:
            yield (status.name, str(state)), float(status.state is state)


def gaps(snapshot: Snapshot) -> Iterator[Sample]:
    """By connector and reason, from 0 on: a series that begins with its first loss would hide that one from `increase`."""
    none = {(status.name, reason): 0 for status in snapshot.statuses for reason in get_args(LossReason)}
    return iter((none | {key: total.size_bytes for key, total in snapshot.losses.items()}).items())


def oldest_unread(snapshot: Snapshot) -> Iterator[Sample]:
    """The wall clock tells; a step back of it gives 0, not less."""
    for status in snapshot.statuses:
        since_ms = status.lag.oldest_unread_ms
        yield (status.name,), max(0.0, snapshot.now - since_ms / 1000) if since_ms else 0.0


def stalled(snapshot: Snapshot) -> Iterator[Sample]:
    """As `Health` judges."""
    return (((name,), seconds) for name, seconds in snapshot.stalled_seconds.items())


def _fresh(snapshot: Snapshot) -> Iterator[tuple[Status, tuple[ClientView, ...]]]:
    """Connectors whose producers have said something lately, with that."""
    for status in snapshot.statuses:
        views = tuple(view for view in status.clients if snapshot.now - view.at <= FRESH_SECONDS)
        if views:
            yield status, views


def broker_up(snapshot: Snapshot) -> Iterator[Sample]:
    """A broker is up when one of the connector's producers has it up."""
    for status, views in _fresh(snapshot):
        brokers = [broker for view in views for broker in view.brokers]
        for name in sorted({broker.name for broker in brokers}):
            yield (status.name, name), float(any(broker.name == name and broker.state == "UP" for broker in brokers))


def round_trip(snapshot: Snapshot) -> Iterator[Sample]:
    """The slowest of the connector's producers."""
    for status, views in _fresh(snapshot):
        times = [(broker.name, broker.rtt_ms) for view in views for broker in view.brokers if broker.rtt_ms is not None]
        slowest = {name: ms / 1000 for name, ms in sorted(times, key=lambda one: one[1])}
        yield from (((status.name, name), seconds) for name, seconds in slowest.items())


def queued(read: Callable[[ClientView], int]) -> Callable[[Snapshot], Iterator[Sample]]:
    """The sum over the connector's producers."""
    return lambda snapshot: (((status.name,), sum(map(read, views))) for status, views in _fresh(snapshot))


def process(read: Callable[[Process], float | None]) -> Callable[[Snapshot], Iterator[Sample]]:
    """One sample per process of the agent, of those that the kernel tells."""
    return lambda snapshot: (((one.name,), value) for one in snapshot.processes if (value := read(one)) is not None)


def reloads(snapshot: Snapshot) -> Iterator[Sample]:
    """Both results from the start on."""
    return (((result,), snapshot.view.reloads.get(result, 0)) for result in ("ok", "problems"))


def build(snapshot: Snapshot) -> Iterator[Sample]:
    """One sample that is always 1."""
    yield (snapshot.view.version, platform.python_version()), 1.0


def broken(snapshot: Snapshot) -> float:
    """Definitions that do not load."""
    return len(snapshot.view.last_reload.kept) if snapshot.view.last_reload else 0


def differing(snapshot: Snapshot) -> float:
    """Options that need a restart."""
    return len(snapshot.view.last_reload.restart) if snapshot.view.last_reload else 0
