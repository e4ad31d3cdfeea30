"""Heads and positions as entries of the offsets topic: JSON, versioned, one key for each lane and each partition.

Compaction keeps the latest of each key. Keys begin with the agent's uuid and the connector's name, so that agents can share the topic.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, NamedTuple

from copycat_agent.errors import PositionsError
from copycat_agent.model import Counts, Fingerprint, Head, LaneId, Loss, Position, SourceOffset, SourcePartition
from copycat_agent.transactions.protocol import Entry

VERSION = 1
_HEAD, _POSITION = "head", "position"
_LARGEST = 2**63 - 1
"""Of steps and positions: what files, Kafka and the store count with."""


def partition_of(agent: str, connector: str, count: int) -> int:
    """In which of the topic's `count` partitions a connector's entries stand: all of them in one, so that they have an order."""
    return zlib.crc32(f"{agent}/{connector}".encode(errors="surrogatepass")) % count


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
    partition, lane, seq, offset, counts, losses, nonce, _ = position
    key = _key(agent, partition.connector, _POSITION, partition.key)
    if offset is None:
        return Entry(key, None)
    place = {**_of_slots(offset), "fingerprint": _of_slots(offset.fingerprint)}
    lost = [one[1:] for one in losses]  # whose partition is the entry's
    told = {"v": VERSION, "lane": lane, "seq": seq, "nonce": nonce, "offset": place, "counts": _of_slots(counts), "losses": lost}
    return Entry(key, _text(told))


class Found(NamedTuple):
    """What entries say about one connector: heads by lane, positions in their order without those that were forgotten after them.

    `end`: up to where they were read.
    """

    heads: dict[int, Head]
    positions: list[Position]
    end: int = 0

    def steps(self) -> dict[int, int]:
        """The latest step that anything tells of, by lane."""
        latest = {number: head.seq for number, head in self.heads.items()}
        for one in self.positions:
            latest[one.lane] = max(latest.get(one.lane, 0), one.seq)
        return latest


def read(entries: Iterable[Entry], agent: str, connector: str) -> Found:
    """Those of one connector. Raises PositionsError for an entry that a newer version wrote, or that is none of ours."""
    begin = _key(agent, connector)[:-1]
    heads: dict[int, Head] = {}
    told: dict[str, list[tuple[int, Position]]] = {}
    for order, entry in enumerate(entries):
        if not entry.key.startswith(begin):
            continue
        try:
            kind, name = _kind_and_name(entry.key)
            if entry.value is None:
                told.pop(name, None)
            elif kind == _HEAD:
                heads[name] = _head(entry.value)._replace(offset=entry.offset)
            else:
                told.setdefault(name, []).append((order, _position(SourcePartition(connector, name), entry.value)))
        except (ValueError, TypeError, KeyError, RecursionError):
            words = f"offset {entry.offset} of the offsets topic was written by another version, or by somebody else"
            raise PositionsError(words, "run the newer version of copycat-agent") from None
    for some in told.values():
        some[:-1] = [(order, position._replace(is_last=False)) for order, position in some[:-1]]
    return Found(heads, [position for _, position in sorted(one for some in told.values() for one in some)])


def steps(entries: Iterable[Entry], agent: str, connector: str) -> list[tuple[int, Head]]:
    """Each step of each of its lanes that is there, in their order. Raises as `read` does."""
    begin = _key(agent, connector, _HEAD)[:-1]
    taken = (read((entry,), agent, connector).heads for entry in entries if entry.key.startswith(begin))
    return [step for one in taken for step in one.items()]


def _kind_and_name(key: bytes) -> tuple[str, Any]:
    """Raises ValueError for a key that is none of this version's."""
    _, _, kind, name = json.loads(key)
    expected = {_HEAD: int, _POSITION: str}[kind]
    if type(name) is not expected:
        raise ValueError
    return kind, name


def _loaded(value: bytes) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(value)
    if told["v"] != VERSION:
        raise ValueError
    return told


def _head(value: bytes) -> Head:
    told = _loaded(value)
    return Head(_number(told["seq"]), told["nonce"])


def _position(partition: SourcePartition, value: bytes) -> Position:
    told = _loaded(value)
    offset = told["offset"]
    offset["fingerprint"] = Fingerprint(**offset["fingerprint"])
    _number(offset["position"])
    losses = tuple(Loss(partition, *one) for one in told["losses"])
    lane, seq = _number(told["lane"]), _number(told["seq"])
    return Position(partition, lane, seq, SourceOffset(**offset), Counts(**told["counts"]), losses, told.get("nonce", ""))


def _number(told: Any) -> int:  # noqa: ANN401 - what JSON holds
    """Raises ValueError for anything else: a seq or an offset that is no number, or that no file has, must not be compared with one."""
    if type(told) is not int or not 0 <= told <= _LARGEST:
        raise ValueError
    return told


def _of_slots(value: SourceOffset | Counts | Fingerprint) -> dict[str, Any]:
    """Its fields, where they are not what they are unless said: those are most of them."""
    kind = type(value)
    return {name: told for name in kind.__slots__ if (told := getattr(value, name)) != _DEFAULTS[kind].get(name)}


_DEFAULTS: dict[type, dict[str, Any]] = {
    kind: {one.name: one.default for one in fields(kind)} for kind in (SourceOffset, Counts, Fingerprint)
}


def _key(*parts: str | int) -> bytes:
    return json.dumps(parts).encode()


def _text(told: dict[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode()
