"""Heads and positions as entries of the offsets topic: JSON, versioned, one key for each lane and each partition.

Compaction keeps the latest of each key. Keys begin with the agent's uuid and the connector's name, so that agents can share the topic.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from copycat_agent.errors import PositionsError
from copycat_agent.model import Counts, Fingerprint, Head, LaneId, Loss, Position, SourceOffset, SourcePartition
from copycat_agent.transactions.protocol import Entry

VERSION = 1
_HEAD, _POSITION = "head", "position"


def partition_of(agent: str, connector: str, count: int) -> int:
    """In which of the topic's `count` partitions a connector's entries stand: all of them in one, so that they have an order."""
    return zlib.crc32(f"{agent}/{connector}".encode()) % count


def transactional_id(lane: LaneId, seq: int) -> str:
    """The id of the only transaction that can take a lane from `seq` on.

    Two ids alternate, so that one can be prepared while the other works.
    """
    return f"copycat.{lane.agent}.{lane.connector}.{lane.number}.{seq % 2}"


def head_entry(lane: LaneId, head: Head) -> Entry:
    """A lane's head."""
    return Entry(_key(lane.agent, lane.connector, _HEAD, lane.number), _text({"v": VERSION, "seq": head.seq, "nonce": head.nonce}))


def position_entry(agent: str, position: Position) -> Entry:
    """A partition's position; without a value where it is forgotten."""
    partition, lane, seq, offset, counts, losses = position
    key = _key(agent, partition.connector, _POSITION, partition.key)
    if offset is None:
        return Entry(key, None)
    told = {
        "v": VERSION, "lane": lane, "seq": seq, "offset": asdict(offset), "counts": asdict(counts),
        "losses": [one._replace(partition=None)._asdict() for one in losses],  # type: ignore[arg-type]
    }  # fmt: skip
    return Entry(key, _text(told))


class Found(NamedTuple):
    """What entries say about one connector: heads by lane, positions in their order, and the keys of those that are forgotten."""

    heads: dict[int, Head]
    positions: list[Position]
    forgotten: set[SourcePartition]


def read(entries: Iterable[Entry], agent: str, connector: str) -> Found:
    """Those of one connector. Raises PositionsError for an entry that a newer version wrote, or that is none of ours."""
    found = Found({}, [], set())
    begin = json.dumps([agent, connector])[:-1].encode()
    for entry in entries:
        if entry.key.startswith(begin):
            _take(found, entry, connector)
    return found


def _take(found: Found, entry: Entry, connector: str) -> None:
    _, _, kind, name = json.loads(entry.key)
    if kind == _POSITION and entry.value is None:
        partition = SourcePartition(connector, name)
        found.forgotten.add(partition)
        found.positions[:] = [one for one in found.positions if one.partition != partition]
    elif entry.value is not None:
        told = _told(entry)
        if kind == _HEAD:
            found.heads[name] = Head(told["seq"], told["nonce"], entry.offset)
        else:
            partition = SourcePartition(connector, name)
            found.forgotten.discard(partition)
            found.positions.append(_position(partition, told))


def _told(entry: Entry) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads(entry.value or b"")
        version = told["v"]
    except (ValueError, TypeError, KeyError):
        version = 0
    if version != VERSION:
        words = f"offset {entry.offset} of the offsets topic was written by another version, or by somebody else"
        raise PositionsError(words, "run the newer version of copycat-agent")
    return told


def _position(partition: SourcePartition, told: dict[str, Any]) -> Position:
    offset = told["offset"]
    offset["fingerprint"] = Fingerprint(**offset["fingerprint"])
    losses = tuple(Loss(**{**one, "partition": partition}) for one in told["losses"])
    return Position(partition, told["lane"], told["seq"], SourceOffset(**offset), Counts(**told["counts"]), losses)


def _key(*parts: str | int) -> bytes:
    return json.dumps(parts).encode()


def _text(told: dict[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode()


def entries_of(agent: str, positions: Sequence[Position]) -> list[Entry]:
    """`position_entry` of each."""
    return [position_entry(agent, one) for one in positions]
