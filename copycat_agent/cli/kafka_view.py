"""The brokers as the producers see them, one row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from copycat_agent.cli.shown import count, size, visible
from copycat_agent.cli.tables import Column, table

_UP = "UP"


def kafka_table(connectors: Sequence[Mapping[str, Any]], width: int) -> Table | None:
    """All brokers by name, as all producers together see them; None when no producer has said anything yet."""
    seen: dict[str, list[Mapping[str, Any]]] = {}
    for client in _clients(connectors):
        for broker in client["brokers"]:
            seen.setdefault(broker["name"], []).append(broker)
    if not seen:
        return None
    names = sorted(seen)
    columns = [
        Column("broker", [visible(name) for name in names], left=True),
        Column("state", [_states(seen[name]) for name in names], left=True),
        Column("producers", [str(len(seen[name])) for name in names], rank=1),
        Column("rtt", [_rtt(seen[name]) for name in names]),
    ]
    return table(columns, width)


def clients_line(connectors: Sequence[Mapping[str, Any]]) -> Text:
    """What waits in the producers' queues, in words."""
    clients = _clients(connectors)
    records, waiting = sum(one["queue_records"] for one in clients), sum(one["queue_bytes"] for one in clients)
    retries = sum(one["retries"] for one in clients)
    return Text(f"queued {count(records)} records, {size(waiting)}   resent {count(retries)}")


def _clients(connectors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [client for one in connectors for client in one["clients"]]


def _states(brokers: Sequence[Mapping[str, Any]]) -> Text:
    """`UP`, or how many producers see what."""
    states = Counter(visible(broker["state"]) for broker in brokers)
    if len(states) == 1:
        state = next(iter(states))
        return Text(state, "green" if state == _UP else "red")
    return Text(", ".join(f"{number} {state}" for state, number in states.most_common()), "yellow")


def _rtt(brokers: Sequence[Mapping[str, Any]]) -> str:
    """The worst of the producers' means."""
    known = [broker["rtt_ms"] for broker in brokers if broker["rtt_ms"] is not None]
    return f"{max(known):.1f} ms" if known else "-"
