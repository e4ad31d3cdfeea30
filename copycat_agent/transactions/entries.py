"""Heads, positions, states and names as entries of the offsets topic: JSON, versioned, one key for each lane, partition and name.

::

    [agent, id, "head", lane]      [agent, id, "position", partition]                                   in the partition of the id
    [agent, id, "state", ""]       [agent, id, "name", ""]
    [agent, name, "head", lane]    [agent, name, "id", ""]                                              in the partition of the name

Compaction keeps the latest entry of each key. Keys begin with the agent's uuid, so that agents can share the topic, and with the
connector's id. Under a name there are only its id, and a lane that whoever looks the name up claims. A name counts for an id only if the
id's own entry has the same name.

Versions without ids kept heads and positions under the name. They refuse the entries that are there now, because they do not know their
kind. So do versions that kept the state among the positions (`from_earlier_version`): the state that they wrote counts until it is written
anew.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, NamedTuple

from copycat_agent.errors import PositionsError
from copycat_agent.model import (
    EARLIER_STATE_KEY,
    STATE_KEY,
    Counts,
    Fingerprint,
    Head,
    LaneId,
    Loss,
    Position,
    SourceOffset,
    SourcePartition,
    SourceState,
    from_earlier_version,
)
from copycat_agent.transactions.protocol import Entry

VERSION = 1
_HEAD, _POSITION, _STATE, _NAME, _ID = "head", "position", "state", "name", "id"
_LARGEST = 2**63 - 1
"""The largest step or position: files, Kafka and the store count with 64 bits."""


def partition_of(agent: str, key: str, count: int) -> int:
    """Returns which of the topic's `count` partitions holds the entries of a connector or a name: all in one, so that they have an order.

    A transaction writes to that partition last, so it is open there only for a moment.
    """
    return zlib.crc32(f"{agent}/{key}".encode(errors="surrogatepass")) % count


def transactional_id(lane: LaneId, seq: int) -> str:
    """Returns the id of the only transaction that can move a lane on from `seq`.

    Two ids alternate, so that one can be prepared while the other works. A producer does one transaction and is never used again: a request
    to commit that the network delivers late would end whatever transaction it had by then.
    """
    return f"copycat.{lane.agent}.{lane.key}.{lane.number}.{seq % 2}"


def head_entry(lane: LaneId, head: Head) -> Entry:
    """Returns the entry of a lane's head."""
    return Entry(_key(lane.agent, lane.key, _HEAD, lane.number), _text({"v": VERSION, "seq": head.seq, "nonce": head.nonce}))


def position_entries(agent: str, key: str, positions: Iterable[Position]) -> list[Entry]:
    """Returns the entries of positions, and of the state, under the connector's key; without a value for forgotten ones.

    A state that is forgotten also deletes what an earlier version wrote of it: that would count again once the state's entry is compacted.
    """
    made = [position_entry(agent, key, one) for one in positions]
    earlier = Entry(_key(agent, key, _POSITION, EARLIER_STATE_KEY), None)
    return [*made, earlier] if Entry(_key(agent, key, _STATE, ""), None) in made else made


def position_entry(agent: str, key: str, position: Position) -> Entry:
    """Returns the entry of one position, or of the state."""
    partition, lane, seq, saved, counts, losses, nonce, _ = position
    where = _key(agent, key, _STATE, "") if partition.key == STATE_KEY else _key(agent, key, _POSITION, partition.key)
    if saved is None:
        return Entry(where, None)
    values: dict[str, Any] = {"v": VERSION, "lane": lane, "seq": seq, "nonce": nonce}
    if isinstance(saved, SourceState):
        return Entry(where, _text({**values, "state": dict(saved.values)}))
    place = {**_of_slots(saved), "fingerprint": _of_slots(saved.fingerprint)}
    lost = [one[1:] for one in losses]  # whose partition is the entry's
    return Entry(where, _text({**values, "offset": place, "counts": _of_slots(counts), "losses": lost}))


def name_entry(agent: str, key: str, name: str | None) -> Entry:
    """Returns the entry that names the connector with this id; without a value if no connector has it any more."""
    return Entry(_key(agent, key, _NAME, ""), None if name is None else _text({"v": VERSION, "name": name}))


def id_entry(agent: str, name: str, key: str | None) -> Entry:
    """Returns the entry with the id of the connector of this name; without a value if no connector has the name any more."""
    return Entry(_key(agent, name, _ID, ""), None if key is None else _text({"v": VERSION, "id": key}))


class FoundEntries(NamedTuple):
    """The entries about one connector, or one name: heads by lane, positions in their order, without those deleted later.

    `name` is the name of the id: "" if it was deleted, None if there is no entry. `id` is the id of the name, "" for none. `end` is the
    offset up to which the entries were read.
    """

    heads: dict[int, Head]
    positions: list[Position]
    end: int = 0
    name: str | None = None
    id: str = ""

    def steps(self) -> dict[int, int]:
        """Returns the latest step of each lane that any entry mentions."""
        latest = {number: head.seq for number, head in self.heads.items()}
        for one in self.positions:
            latest[one.lane] = max(latest.get(one.lane, 0), one.seq)
        return latest


def read(entries: Iterable[Entry], agent: str, key: str, connector: str = "") -> FoundEntries:
    """Reads the entries under one key, as positions of `connector`, or of the key without one.

    Raises PositionsError for an entry that a newer version wrote, or that is none of ours.
    """
    begin = _key(agent, key)[:-1]
    heads: dict[int, Head] = {}
    texts: dict[str, str] = {}
    found: dict[SourcePartition, list[tuple[int, Position]]] = {}
    for order, entry in enumerate(entries):
        if not entry.key.startswith(begin):
            continue
        try:
            kind, name = _kind_and_name(entry.key)
            if kind in {_NAME, _ID}:
                texts[kind] = _text_of(entry.value, kind)
            elif kind == _HEAD and entry.value is not None:
                heads[name] = _head(entry.value)._replace(offset=entry.offset)
            elif entry.value is None:
                partition = SourcePartition(connector or key, name)
                for one in (partition, from_earlier_version(partition, None)[0]):
                    found.pop(one, None)
            else:
                position = _position(SourcePartition(connector or key, name), entry.value)
                found.setdefault(position.partition, []).append((order, position))
        except (ValueError, TypeError, KeyError, RecursionError):
            words = f"offset {entry.offset} of the offsets topic was written by another version, or by somebody else"
            raise PositionsError(words, "run the newer version of copycat-agent") from None
    for some in found.values():
        some[:-1] = [(order, position._replace(is_last=False)) for order, position in some[:-1]]
    positions = [position for _, position in sorted(one for some in found.values() for one in some)]
    return FoundEntries(heads, positions, 0, texts.get(_NAME), texts.get(_ID, ""))


def steps(entries: Iterable[Entry], agent: str, key: str) -> list[tuple[int, Head]]:
    """Returns each step of each lane under a key, in the order of the entries. Raises as `read` does."""
    begin = _key(agent, key, _HEAD)[:-1]
    taken = (read((entry,), agent, key).heads for entry in entries if entry.key.startswith(begin))
    return [step for one in taken for step in one.items()]


def names_in(entries: Iterable[Entry], agent: str, key: str) -> bool:
    """Returns whether any entry says which name an id has, or which id a name has. `key` is either."""
    said = {_key(agent, key, kind, "") for kind in (_NAME, _ID)}
    return any(entry.key in said for entry in entries)


def _kind_and_name(key: bytes) -> tuple[str, Any]:
    """Returns the kind and the last part of a key. Raises ValueError for a key that is not one of this version's."""
    _, _, kind, name = json.loads(key)
    expected = {_HEAD: int, _POSITION: str, _STATE: str, _NAME: str, _ID: str}[kind]
    if type(name) is not expected:
        raise ValueError
    return kind, name


def _loaded(value: bytes) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(value)
    if values["v"] != VERSION:
        raise ValueError
    return values


def _head(value: bytes) -> Head:
    values = _loaded(value)
    return Head(_number(values["seq"]), values["nonce"])


def _position(partition: SourcePartition, value: bytes) -> Position:
    values = _loaded(value)
    lane, seq, nonce = _number(values["lane"]), _number(values["seq"]), values.get("nonce", "")
    if partition.key == STATE_KEY:
        return Position(partition, lane, seq, SourceState(dict(values["state"])), nonce=nonce)
    offset = values["offset"]
    offset["fingerprint"] = Fingerprint(**offset["fingerprint"])
    _number(offset["position"])
    losses = tuple(Loss(partition, *one) for one in values["losses"])
    now, saved = from_earlier_version(partition, SourceOffset(**offset))
    return Position(now, lane, seq, saved, Counts(**values["counts"]), losses, nonce)


def _text_of(value: bytes | None, kind: str) -> str:
    """Returns a name or an id; "" if it was deleted."""
    text = "" if value is None else _loaded(value)[kind]
    if type(text) is not str:
        raise ValueError
    return text


def _number(number: Any) -> int:  # noqa: ANN401 - what JSON holds
    """Returns the number. Raises ValueError for anything else: a seq or an offset out of range must not be compared with one."""
    if type(number) is not int or not 0 <= number <= _LARGEST:
        raise ValueError
    return number


def _of_slots(value: SourceOffset | Counts | Fingerprint) -> dict[str, Any]:
    """Returns the fields that differ from their defaults: most do not."""
    kind = type(value)
    return {name: field for name in kind.__slots__ if (field := getattr(value, name)) != _DEFAULTS[kind].get(name)}


_DEFAULTS: dict[type, dict[str, Any]] = {
    kind: {one.name: one.default for one in fields(kind)} for kind in (SourceOffset, Counts, Fingerprint)
}


def _key(*parts: str | int) -> bytes:
    return json.dumps(parts).encode()


def _text(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()
