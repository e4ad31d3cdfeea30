"""The driver's half of a lane: fence, read, check, claim. At the start of a connector, and whenever an outcome is not known.

The order matters. After the fence nobody who began before it can commit; so what is read then is the truth, and what is planned from it
is not done yet. The claim takes each head one step further, under the nonce of this start: a batch that was planned before, and whose
process only wakes up now, finds a head that is not the one it was planned at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from copycat_agent import failpoints
from copycat_agent.errors import PositionsError
from copycat_agent.model import Head, LaneId, Place, Position, SourcePartition
from copycat_agent.transactions.entries import Found, head_entry, read, transactional_id
from copycat_agent.transactions.protocol import Handle, Lines, Step

_AT_ONCE = 8
"""Lanes that are fenced at a time: each takes two producers."""

Adopt = Literal["", "local", "topic"]
"""Which positions a person has decided for; "" for none: then they have to belong together."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of one name: the connector's, or one that it had before. `known` are their heads as SQLite has them."""

    connector: str
    place: Place
    known: Mapping[int, Head] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opening:
    """What is asked for. `wanted` are lanes of the connector that are to work; all that there are of it are fenced, whatever is wanted.

    `before` are the lanes of its earlier names. `nonce` is this start's, `nonces` are those of all starts of this state directory, this
    one included. `cluster` is where its positions belong, "" when that is not known yet.
    """

    agent: str
    lanes: Lanes
    wanted: tuple[int, ...]
    nonce: str
    nonces: frozenset[str]
    cluster: str = ""
    before: tuple[Lanes, ...] = ()
    adopt: Adopt = ""


class Truth(NamedTuple):
    """What is so. `heads` are the claimed ones. `positions` are those that SQLite does not have, in their order."""

    cluster: str
    heads: dict[int, Head]
    positions: tuple[Position, ...]


Fenced = dict[LaneId, tuple[Handle, Handle]]
"""Producers of each lane, by the parity of the step that they may take."""


def open_lanes(asked: Opening) -> Lines[Truth]:
    """Fence, read, check and claim. Returns what is so.

    Raises PositionsError when a person has to decide; what the steps raise otherwise, then all of it is to be done again.
    """
    cluster = yield Step("cluster_id")
    if asked.cluster and cluster != asked.cluster and asked.adopt != "local":
        raise _other_cluster(asked, cluster)
    fenced: Fenced = {}
    try:
        groups = (asked.lanes, *asked.before)
        found = yield from _fence_and_read(asked, groups, fenced)
        positions: list[Position] = []
        for group in reversed(groups):  # what its present name says comes last, and counts
            _check(asked, group, found[group.connector])
            _take_news(asked, group, found[group.connector], positions)
        heads = yield from _claim(asked, groups, found, fenced)
    except Exception:
        yield from _close(fenced)
        raise
    yield from _close(fenced)
    return Truth(cluster, heads, tuple(positions))


def _fence_and_read(asked: Opening, groups: Iterable[Lanes], fenced: Fenced) -> Lines[dict[str, Found]]:
    """Fence every lane that there is, also those that only the topic knows of; then read."""
    groups = tuple(groups)
    todo = {LaneId(asked.agent, asked.lanes.connector, number) for number in asked.wanted}
    todo |= {LaneId(asked.agent, group.connector, number) for group in groups for number in group.known}
    found: dict[str, Found] = {}
    while todo:
        for some in _portions(sorted(todo)):
            yield from _fence(some, fenced)
        failpoints.hit("fenced")
        for group in groups:
            found[group.connector] = yield from _read(asked, group)
        todo = {LaneId(asked.agent, name, number) for name, one in found.items() for number in one.heads} - fenced.keys()
    return found


def _portions(lanes: list[LaneId]) -> Iterator[list[LaneId]]:
    for begin in range(0, len(lanes), _AT_ONCE):
        yield lanes[begin : begin + _AT_ONCE]


def _fence(lanes: Iterable[LaneId], fenced: Fenced) -> Lines[None]:
    """Both ids of each lane: a batch that was planned one step earlier uses the other one."""
    mine = []
    for lane in lanes:
        even = yield Step("prepare", (transactional_id(lane, 0),))
        odd = yield Step("prepare", (transactional_id(lane, 1),))
        fenced[lane] = even, odd
        mine += [even, odd]
    for handle in mine:
        yield Step("ready", (handle,))


def _read(asked: Opening, group: Lanes) -> Lines[Found]:
    end = yield Step("end", (group.place,))
    offsets = [head.offset for head in group.known.values()] if asked.adopt != "topic" else []
    since = max(0, min(offsets, default=0))
    known = set(group.known)
    entries = yield Step("replay", (group.place, since, end))
    found = read(entries, asked.agent, group.connector)
    if since and not found.heads.keys() >= known:
        entries = yield Step("replay", (group.place, 0, end))  # SQLite was wrong about where they stand
        found = read(entries, asked.agent, group.connector)
    return found


def _check(asked: Opening, group: Lanes, found: Found) -> None:
    """Whether SQLite and the topic belong together. Raises PositionsError."""
    if asked.adopt:
        return
    for number, head in found.heads.items():
        if head.nonce not in asked.nonces:
            raise _foreign(asked, number)
    for number, known in group.known.items():
        head = found.heads.get(number, Head())
        if head.seq < known.seq:
            raise _behind(asked, number, known, head, group.place)


def _take_news(asked: Opening, group: Lanes, found: Found, positions: list[Position]) -> None:
    """What the topic has and SQLite has not, under the connector's present name."""
    if asked.adopt == "local":
        return
    name = asked.lanes.connector
    for one in found.positions:
        known = group.known.get(one.lane, Head()).seq if asked.adopt != "topic" else 0
        if one.seq > known:
            positions.append(one._replace(partition=SourcePartition(name, one.partition.key)))


def _claim(asked: Opening, groups: Iterable[Lanes], found: dict[str, Found], fenced: Fenced) -> Lines[dict[int, Head]]:
    """One step for each lane, in a transaction that holds nothing but its head."""
    places = {group.connector: group.place for group in groups}
    heads = {}
    for lane, handles in fenced.items():
        before = found[lane.connector].heads.get(lane.number, Head())
        head = Head(before.seq + 1, asked.nonce)
        handle = handles[before.seq % 2]
        yield Step("begin", (handle,))
        yield Step("send", (handle, places[lane.connector], [head_entry(lane, head)]))
        offset = yield Step("flush", (handle,))
        yield Step("commit", (handle,))
        if lane.connector == asked.lanes.connector:
            heads[lane.number] = head._replace(offset=offset)
    return heads


def _close(fenced: Fenced) -> Lines[None]:
    for handles in fenced.values():
        for handle in handles:
            yield Step("close", (handle,))


def _ways(name: str, local: str, topic: str) -> str:
    adopt = f"copycat offsets adopt {name}"
    return f"{local}: {adopt}; {topic}: {adopt} --from-topic; read everything again: copycat offsets reset {name}"


def _other_cluster(asked: Opening, cluster: str) -> PositionsError:
    name = asked.lanes.connector
    words = f"the positions of connector {name} belong to Kafka cluster {asked.cluster}, and this one is {cluster}"
    hint = f"connect it to that cluster again, or go on here from the positions of this host: copycat offsets adopt {name}"
    return PositionsError(words, f"{hint}; or read everything again: copycat offsets reset {name}")


def _behind(asked: Opening, number: int, known: Head, head: Head, place: Place) -> PositionsError:
    name = asked.lanes.connector
    words = (
        f"lane {number} of connector {name} is at step {known.seq} here, and at {head.seq} in partition {place.partition} of {place.topic}:"
        " the topic was emptied, made anew, or has lost acknowledged records"
    )
    ways = _ways(name, "go on from the positions of this host", "from those of the topic, which sends what is behind them again")
    return PositionsError(words, ways)


def _foreign(asked: Opening, number: int) -> PositionsError:
    name = asked.lanes.connector
    words = (
        f"lane {number} of connector {name} was moved by an agent with this agent's identity and another state directory:"
        " this host, or its state directory, is a copy"
    )
    hint = "stop this agent for good, or give it an identity of its own, and go on from the positions of this host"
    return PositionsError(words, f"{hint}: copycat offsets adopt {name}")
