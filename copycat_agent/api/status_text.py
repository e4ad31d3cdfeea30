"""Turns the agent's answers into texts for people, the same ones for commands and the page.

The functions take the JSON of `handlers`. The texts have no markup and no control characters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from copycat_agent.display import age, count, size, visible, without_nulls

Document = Mapping[str, Any]
"""A JSON object of the API."""

GOOD_STATES = frozenset({"running", "paused", "stopped"})
"""States that are intended; all others are degraded."""
TROUBLED_FILES = ("failing", "blocked")
"""States of files whose reason is shown."""
_FROM = {"default": "default", "command line": "command line", "changed": "the file as it was; it has changed since"}


def is_degraded(connector: Document) -> bool:
    """Returns whether its state is not an intended one, or its offsets could not be saved."""
    return connector["state"] not in GOOD_STATES or connector["unsaved"]


def state_words(connector: Document) -> str:
    """Returns the state in capitals; DISABLED if its definition disables it."""
    return connector["state"].upper() if connector["enabled"] else "DISABLED"


def reason_words(connector: Document) -> str:
    """Returns the reasons for a connector's state, "" without any."""
    words = [connector["reason"]] if connector["reason"] else []
    if connector["unsaved"]:
        words.append("offsets could not be saved, what they cover will be sent again")
    if troubled := connector["lag"]["troubled_files"]:
        paths = "path that matches" if troubled == 1 else "paths that match"
        words.append(f"{troubled} {paths} cannot be read, or not cleaned up: copycat describe names them")
    return visible("; ".join(words))


def lost_bytes(connector: Document) -> int:
    """Returns all bytes that this connector ever gave up, for whatever reason."""
    return sum(total["size_bytes"] for total in connector["losses"].values())


def oldest_words(connector: Document, now: float) -> str:
    """Returns the age of the oldest unread bytes at `now` (epoch seconds), "-" if there are none."""
    oldest = connector["lag"]["oldest_unread_ms"]
    return age(now - oldest / 1000) if oldest else "-"


def lag_words(connector: Document) -> str:
    """Returns what is not settled yet: in records if they are counted, else in bytes."""
    lag = connector["lag"]
    if (records := lag.get("records")) is None:  # an agent of an earlier version does not send it
        return size(lag["bytes"])
    return f"{count(records)} {'record' if records == 1 else 'records'}"


def _lag_fact(connector: Document) -> str:
    lag = connector["lag"]
    if lag.get("records") is None:
        return f"{size(lag['bytes'])} in {count(lag['files'])} of {count(lag['known_files'])} files"
    waiting = lag["waiting_records"]
    return f"{lag_words(connector)}{f', {count(waiting)} of them wait until they make a file' if waiting else ''}"


def unread_words(file: Document) -> str:
    """Returns what is unread of a file or partition, as `lag_words`."""
    return size(file["unread"]) if file.get("behind") is None else f"{count(file['behind'])} records"


def connector_facts(connector: Document, now: float) -> dict[str, str]:
    """Returns facts about a connector besides state and rate, by label; "" for one that does not apply."""
    counts, last = connector["counts"], connector["acknowledged_at"]
    return {
        "lag": _lag_fact(connector),
        "oldest unread": oldest_words(connector, now),
        "acknowledged": f"{count(counts['acknowledged'])} records{f', the last {age(now - last)} ago' if last else ''}",
        "retries": count(connector["retries"]),
        "dead letters": count(counts["dead_lettered"]),
        "passed over": count(counts["rejected"]),
        "dropped on purpose": count(counts["dropped"]),
        "lost, ever": size(lost_bytes(connector)),
        "guarantee": connector["guarantee"].replace("_", " "),
        "errors": visible(", ".join(f"{count(one['count'])} {one['type']} in {one['stage']}" for one in connector["errors"])),
    }


def warnings(agent: Document) -> list[str]:
    """Returns the problems of the agent as a whole."""
    found = []
    if agent["stopping"]:
        found.append("the agent is stopping")
    if agent["offsets_unsaved"]:
        found.append(f"offsets cannot be saved: {agent['offsets_unsaved']}")
    if agent["stuck"]:
        found.append(f"stuck: {', '.join(agent['stuck'])}; a file system that they read from may hang")
    if agent.get("hangs"):  # an agent of an earlier version does not send it
        found.append("what all connectors need does not answer; restart the agent")
    if last := agent["last_reload"]:
        found += [f"{name}: {why}" for name, why in last["kept"].items()]
        found += [f"agent.yaml: {option} changed; restart the agent" for option in last["restart"]]
    return [visible(one) for one in found]


def position_words(file: Document) -> str:
    """Returns a connector's position in a file: a byte, a record, or the cursor of a source without files."""
    return visible(file.get("cursor") or f"{file['position']:,}{' records' if file['counts_records'] else ''}")


def origin_words(value: Document) -> str:
    """Returns where a value of a definition comes from: a line of a file, or a word."""
    return _FROM.get(value["from"]) or f"{visible(os.path.basename(value['path']))}:{value['line']}"  # noqa: PTH119 - a text


def option_words(value: object) -> str:
    """Returns a value of a definition on one line; `-` for None."""
    if value is None:
        return "-"
    return visible(value) if isinstance(value, str) else visible(json.dumps(without_nulls(value), ensure_ascii=False))
