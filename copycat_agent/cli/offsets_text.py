"""Saved offsets as people read them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from copycat_agent.cli.shown import age, visible
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.log_file.followed import STARTED

GOES_ON = {"local": "the positions of this host", "topic": "the positions in Kafka"}

Offsets = Mapping[SourcePartition, SourceOffset]


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows as lines, columns below each other; the last one as long as it is."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def listed(offsets: Offsets) -> list[str]:
    """One line per file: how far it is settled, how large it was, what it is."""
    rows = [
        (str(offset.position), str(offset.size), str(offset.records), _state(offset), partition.key, visible(offset.path))
        for partition, offset in by_path(offsets)
    ]
    return columns([("position", "size", "records", "state", "key", "path"), *rows]) if rows else []


def lane_lines(lanes: Mapping[str, Any] | None) -> list[str]:
    """What is known of a connector's lanes, below its files; nothing for one that has none."""
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
        lines.append(f"goes on from {GOES_ON[lanes['adopt']]} when it starts")
    return lines


def _whose(one: Mapping[str, Any]) -> str:
    return f"{one['connector']} of agent {one['agent']}" if one["agent"] else f"the lanes of {one['connector']}"


def compared(before: Offsets, after: Offsets) -> list[str]:
    """What is different: `-` for what was, `+` for what is. Empty when nothing is."""
    lines = []
    for partition in dict.fromkeys(partition for partition, _ in [*by_path(before, everything=True), *by_path(after, everything=True)]):
        was, now = before.get(partition), after.get(partition)
        if was != now:
            lines += [f"- {_brief(partition, was)}"] if was else []
            lines += [f"+ {_brief(partition, now)}"] if now else []
    return lines


def by_path(offsets: Offsets, *, everything: bool = False) -> list[tuple[SourcePartition, SourceOffset]]:
    """By path and key. Without `everything` files only, not the row that says when the connector first looked."""
    chosen = (item for item in offsets.items() if everything or item[0].key != STARTED)
    return sorted(chosen, key=lambda item: (item[1].path, item[0].key))


def _brief(partition: SourcePartition, offset: SourceOffset) -> str:
    if partition.key == STARTED:
        return f"first looked {age(time.time() - offset.position / 1000)} ago"
    return f"{visible(offset.path)} ({partition.key}): position {offset.position}, {_state(offset)}"


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
