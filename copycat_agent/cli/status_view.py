"""Connectors as a table, and what is wrong with them in words; `status` and `top` show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from copycat_agent.cli.rates import Rates
from copycat_agent.cli.screen import TableColumn, table
from copycat_agent.cli.shown import EXACTLY_ONCE, age, count, guarantee_of, lost_bytes, rate, size, spark, visible

SPARK_CELLS = 20
GOOD_STATES = frozenset({"running", "paused", "stopped"})
"""States that are meant; everything else is degraded."""
_STYLES = {"running": "green", "failed": "bold red", "retrying": "yellow", "blocked": "yellow", "paused": "cyan", "stopped": "dim"}

Connector = Mapping[str, Any]


def is_degraded(connector: Connector) -> bool:
    """Whether it is not in a state that somebody meant it to be in, or could not save its offsets."""
    return connector["state"] not in GOOD_STATES or connector["unsaved"]


def connectors_table(connectors: Sequence[Connector], rates: Rates, now: float, width: int, *, sparks: bool = False) -> Table:
    """One row per connector. `now` in epoch seconds, `width` in terminal cells."""
    columns = [
        TableColumn("connector", [visible(one["name"]) for one in connectors], left=True),
        TableColumn("state", [state_text(one) for one in connectors], left=True),
        TableColumn("since", [age(now - one["since"]) for one in connectors], rank=3),
    ]
    if any(one.get("guarantee") == EXACTLY_ONCE for one in connectors):
        columns.append(TableColumn("guarantee", [guarantee_of(one) for one in connectors], rank=6, left=True))
    known = [rates.of(one["name"]) for one in connectors]
    if any(value is not None for value in known):
        columns.append(TableColumn("records/s", [_rate(value) for value in known], rank=1))
    if sparks:
        columns.append(TableColumn("", [spark(rates.history(one["name"]), SPARK_CELLS) for one in connectors], rank=9, left=True))
    columns += [
        TableColumn("acknowledged", [count(one["counts"]["acknowledged"]) for one in connectors], rank=2),
        TableColumn("lag", [size(one["lag"]["bytes"]) for one in connectors], rank=1),
        _numbers("files", [one["lag"]["files"] for one in connectors], rank=5),
        TableColumn(
            "oldest unread", [_oldest(one, now) for one in connectors], rank=2, is_idle=not any(_unread(one) for one in connectors)
        ),
        _numbers("retries", [one["retries"] for one in connectors], rank=6),
        _numbers("DLQ", [one["counts"]["dead_lettered"] for one in connectors], rank=4),
        _numbers("kept", [one["counts"]["kept"] for one in connectors], rank=7),
        _numbers("passed over", [one["counts"]["rejected"] for one in connectors], rank=8),
        TableColumn("lost", [_lost(one) for one in connectors], rank=3, is_idle=not any(map(lost_bytes, connectors))),
    ]
    return table(columns, width)


def reasons(connectors: Sequence[Connector]) -> list[Text]:
    """What a connector says about its state, one paragraph each."""
    found = []
    for one in connectors:
        words = [one["reason"]] if one["reason"] else []
        if one["unsaved"]:
            words.append("offsets could not be saved, what they cover will be sent again")
        if troubled := one["lag"]["troubled_files"]:
            words.append(
                f"{troubled} {'path that matches' if troubled == 1 else 'paths that match'} cannot be read, or not cleaned up: "
                "copycat describe names them"
            )
        if words:
            found.append(Text(f"{visible(one['name'])}: {visible('; '.join(words))}", _style(one)))
    return found


def warnings(agent: Mapping[str, Any]) -> list[str]:
    """What is wrong with the agent as a whole, in words."""
    found = []
    if agent["stopping"]:
        found.append("the agent is stopping")
    if agent["offsets_unsaved"]:
        found.append(f"offsets cannot be saved: {agent['offsets_unsaved']}")
    if agent["stuck"]:
        found.append(f"stuck: {', '.join(agent['stuck'])}; a file system that they read from may hang")
    if agent.get("hangs"):  # one that was started before an upgrade does not say
        found.append("what all connectors need does not answer; restart the agent")
    if last := agent["last_reload"]:
        found += [f"{name}: {why}" for name, why in last["kept"].items()]
        found += [f"agent.yaml: {option} changed; restart the agent" for option in last["restart"]]
    return [visible(one) for one in found]


def state_text(one: Connector) -> Text:
    """The state as definitions.md writes it; what is off on purpose in the file says so."""
    words = one["state"].upper() if one["enabled"] else "DISABLED"
    return Text(words, _style(one))


def _style(one: Connector) -> str:
    return _STYLES.get(one["state"], "")


def _rate(value: float | None) -> str:
    return "" if value is None else rate(value)


def _numbers(title: str, values: Sequence[int], rank: int) -> TableColumn:
    return TableColumn(title, [count(value) for value in values], rank=rank, is_idle=not any(values))


def _unread(one: Connector) -> int:
    oldest: int = one["lag"]["oldest_unread_ms"]
    return oldest


def _oldest(one: Connector, now: float) -> str:
    return age(now - _unread(one) / 1000) if _unread(one) else "-"


def _lost(one: Connector) -> Text:
    lost = lost_bytes(one)
    return Text(size(lost), "red" if lost else "")
