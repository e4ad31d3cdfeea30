"""Views of saved offsets: as rows, the differences of a change, lanes of exactly-once connectors, and the effect of adopting positions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from copycat_agent.cli.offsets_access import Offsets
from copycat_agent.display import age, visible
from copycat_agent.model import STATE_KEY, SavedRow, SourceOffset, SourcePartition, SourceState, offsets_in
from copycat_agent.transactions.opening import Adopt

_GOES_ON = {"local": "the positions of this host", "topic": "the positions in Kafka"}


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns rows as lines with aligned columns; the last column is not padded."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def listed(offsets: Offsets) -> list[str]:
    """Returns one line per file: how far it is settled, how large it was, what it is."""
    rows = [
        (offset.cursor or str(offset.position), str(offset.size), str(offset.records), _state(offset), partition.key, visible(offset.path))
        for partition, offset in by_path(offsets)
    ]
    return columns([("position", "size", "records", "state", "key", "path"), *rows]) if rows else []


def lane_lines(lanes: Mapping[str, Any] | None) -> list[str]:
    """Returns what is known of a connector's lanes, for below its files; nothing if it has none."""
    if lanes is None:
        return []
    where = "no partition" if lanes["partition"] is None else f"partition {lanes['partition']}"
    cluster = f"Kafka cluster {lanes['cluster']}" if lanes["cluster"] else "no Kafka cluster known yet"
    lines = ["", f"exactly once: positions in {where} of {lanes['topic']}, {cluster}"]
    lines += [f"lane {one['lane']}: step {one['step']}, at offset {one['offset']}" for one in lanes["heads"]]
    lines += [f"takes over {_whose(one)} when it starts" for one in lanes["before"]]
    if lanes["copied"]:
        lines.append("another state directory with this agent's identity has moved a lane: this host is a copy, or was copied")
    if lanes["adopt"]:
        lines.append(f"goes on from {_GOES_ON[lanes['adopt']]} when it starts")
    return lines


def _whose(one: Mapping[str, Any]) -> str:
    return f"{one['connector']} of agent {one['agent']}" if one["agent"] else f"the lanes of {one['connector']}"


def into_files(offset: SourceOffset) -> bool:
    """Returns whether what was read up to there went into the files of a sink, which decide where its connector goes on."""
    position = json.loads(offset.cursor) if offset.cursor else None
    return isinstance(position, dict) and "into" in position


def compared(before: Offsets, after: Offsets) -> list[str]:
    """Returns the differences: `-` for old rows, `+` for new ones. Empty if there are none."""
    lines = []
    states = [one for one in (*before, *after) if one.key == STATE_KEY]
    for partition in dict.fromkeys([*states, *(one for one, _ in (*by_path(before), *by_path(after)))]):
        was, now = before.get(partition), after.get(partition)
        if was != now:
            lines += [f"- {_brief(partition, was)}"] if was else []
            lines += [f"+ {_brief(partition, now)}"] if now else []
    return lines


def by_path(saved: Offsets) -> list[tuple[SourcePartition, SourceOffset]]:
    """Returns offsets sorted by path and key, without the connector's other state."""
    return sorted(offsets_in(saved).items(), key=lambda item: (item[1].path, item[0].key))


def _brief(partition: SourcePartition, row: SavedRow) -> str:
    if isinstance(row, SourceState):
        return f"first looked {age(time.time() - row.values.get('first_ms', 0) / 1000)} ago"
    return f"{visible(row.path)} ({partition.key}): position {row.cursor or row.position}, {_state(row)}"


def _state(offset: SourceOffset) -> str:
    if offset.done:
        return "done"
    return (
        "gone"
        if offset.gone_ms
        else "skipping"
        if offset.skipping
        else "read"
        if offset.position >= offset.size and not offset.compression
        else "unread"
    )


def summary(name: str, saved: Offsets, lanes: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Returns the entry of one connector in `copycat offsets list`; `lanes` is None if it has none."""
    files = [offset for _, offset in by_path(saved)]
    gone = sum(offset.gone_ms > 0 or (offset.done and not offset.mtime_ns) for offset in files)
    by_claims = any(offset.cursor and "into" in json.loads(offset.cursor) for offset in files)
    guarantee = "exactly_once" if lanes or by_claims else "at_least_once"
    size = sum(map(_settled_bytes, files))
    return {
        "name": name,
        "files": len(files),
        "gone": gone,
        "bytes": size,
        "guarantee": guarantee,
        "lanes": lanes["heads"] if lanes else [],
    }


def _settled_bytes(offset: SourceOffset) -> int:
    """Returns the settled bytes; for a finished spooled file its size on disk, as its position may be a record number."""
    return offset.size if offset.done and offset.mtime_ns else offset.position


def meaning_of(name: str, which: Adopt, lanes: Mapping[str, Any] | None) -> str:
    """Returns what happens when the connector continues from these positions."""
    words = f"{name} goes on from {_GOES_ON[which]}"
    if which == "topic":
        return f"{words}: what is behind them is sent again, even where this host has seen it committed"
    if lanes is None or not lanes["copied"]:
        return f"{words}: what is before them is not sent again, whatever Kafka says"
    return (
        f"{words}, and so does every other exactly-once connector here: this agent gets an identity of its own, and leaves the one that it"
        " shares with another host, where nothing changes. What this host has sent is not sent again; what the other one has sent of the"
        " same files is"
    )


def taken_over(name: str, agent: str) -> str:
    """Returns what happens when the connector takes over the positions of another agent, given by its uuid."""
    return (
        f"{name} takes over what Kafka says of {name} of agent {agent}: files that are the same here, by device, inode and first bytes, are"
        " read on from there. That agent must never start again: it would find its lanes taken, and refuse"
    )
