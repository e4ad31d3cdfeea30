"""The driver's half of a lane: fence, read, check, claim. At the start of a connector, and whenever an outcome is not known.

The order matters. After the fence nobody who began before it can commit; so what is read then is the truth, and what is planned from it
is not done yet. The claim takes each head one step further, under the nonce of this start: a batch that was planned before, and whose
process only wakes up now, finds a head that is not the one it was planned at.

Lanes are taken over a few at a time, lanes of earlier names first, and what is read after the last fence counts. Everybody begins with the
same lane: of two copies of one agent that open at the same time, one gets it, and the other finds out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from copycat_agent import failpoints
from copycat_agent.errors import CopiedError, PositionsError
from copycat_agent.model import Head, LaneId, Place, Position, SourceOffset, SourcePartition
from copycat_agent.transactions.entries import Found, head_entry, position_entry, read, transactional_id
from copycat_agent.transactions.protocol import Entry, Handle, Lines, Step

_AT_ONCE = 8
"""Lanes that are taken over at a time: each has two producers meanwhile."""

_LOCAL, _TOPIC = "go on from the positions of this host", "from those of the topic, which sends what is behind them again"

Adopt = Literal["", "local", "topic"]
"""Which positions a person has decided for; "" for none: then they have to belong together."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of one name: the connector's, or one that it had before. `known` are their heads as SQLite has them.

    `agent`: of another agent, whose state directory is gone and whose work this one takes over; "" for this one's own.
    """

    connector: str
    place: Place
    known: Mapping[int, Head] = field(default_factory=dict)
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Opening:
    """What is asked for. `wanted` are lanes of the connector that are to work; all that there are of it are fenced, whatever is wanted.

    `before` are the lanes of its earlier names. `nonce` is this start's, `nonces` are those of all starts of this state directory, this
    one included. `cluster` is where its positions belong, "" when that is not known yet.

    `publish` are positions that SQLite has and the topic has not, None for what is forgotten: after a rename, an adoption, or another
    guarantee. They go there with the last claim, so that the topic is complete before anything is planned; none of them may be in flight.
    `only`: just these lanes of a connector that is open already are opened again, and the others, which go on working meanwhile, are left
    alone; empty for all.
    """

    agent: str
    lanes: Lanes
    wanted: tuple[int, ...]
    nonce: str
    nonces: frozenset[str]
    cluster: str = ""
    before: tuple[Lanes, ...] = ()
    adopt: Adopt = ""
    publish: tuple[tuple[SourcePartition, SourceOffset | None], ...] = ()
    only: frozenset[int] = frozenset()

    def lane(self, group: Lanes, number: int) -> LaneId:
        """A lane of one of its groups."""
        return LaneId(group.agent or self.agent, group.connector, number)


class Truth(NamedTuple):
    """What is so. `heads` are the claimed ones. `positions` are those that SQLite does not have, in their order."""

    cluster: str
    heads: dict[int, Head]
    positions: tuple[Position, ...]


Read = list[tuple[Lanes, Found]]
"""What the topic says of each group: those of earlier names first."""


def open_lanes(asked: Opening) -> Lines[Truth]:
    """Fence, read, check and claim. Returns what is so.

    Raises PositionsError when a person has to decide; what the steps raise otherwise, then all of it is to be done again.
    """
    cluster = yield Step("cluster_id")
    if asked.cluster and cluster != asked.cluster and asked.adopt != "local":
        raise _other_cluster(asked, cluster)
    groups = (asked.lanes,) if asked.only else (*asked.before, asked.lanes)
    todo, done = _known(asked, groups), set[LaneId]()
    heads: dict[int, Head] = {}
    positions: list[Position] = []
    while todo:
        some = sorted(todo, key=lambda lane: (_is_present(asked, lane), lane))[:_AT_ONCE]
        done.update(some)
        handles: list[Handle] = []
        try:
            yield from _fence(some, handles)
            found = yield from _read(asked, groups)
            positions = _check(asked, found)
            todo = (todo | _lanes_in(asked, found)) - done
            if not (todo or _is_present(asked, some[-1])):
                todo = {min(lane for lane in done if _is_present(asked, lane))}  # once more: what is published goes with the last claim
            publish = [] if todo else _missing(asked, found, positions)
            fenced = {lane: (handles[2 * n], handles[2 * n + 1]) for n, lane in enumerate(some)}
            heads |= yield from _claim(asked, found, fenced, publish)
        except Exception:
            yield from _close(handles)
            raise
        yield from _close(handles)
    return Truth(cluster, heads, tuple(positions))


def _is_present(asked: Opening, lane: LaneId) -> bool:
    """Whether the lane has the connector's present name."""
    return lane[:2] == asked.lane(asked.lanes, 0)[:2]


def _known(asked: Opening, groups: Iterable[Lanes]) -> set[LaneId]:
    """Lanes that there are, or are to be, as far as one knows without the topic."""
    todo = {asked.lane(asked.lanes, number) for number in asked.only or asked.wanted}
    return todo | {asked.lane(group, number) for group in groups for number in group.known if not asked.only}


def _lanes_in(asked: Opening, found: Read) -> set[LaneId]:
    """Lanes that the topic knows."""
    return {asked.lane(group, number) for group, one in found for number in one.heads if not asked.only}


def _fence(lanes: Iterable[LaneId], handles: list[Handle]) -> Lines[None]:
    """Both ids of each lane: a batch that was planned one step earlier uses the other one. All `handles` are the caller's to close."""
    for lane in lanes:
        for parity in (0, 1):
            handle = yield Step("prepare", (transactional_id(lane, parity),))
            handles.append(handle)
    for handle in handles:
        yield Step("ready", (handle,))
    failpoints.hit("fenced")


def _read(asked: Opening, groups: Iterable[Lanes]) -> Lines[Read]:
    found = []
    for group in groups:
        there = yield from _read_group(asked, group)
        found.append((group, there))
    return found


def _read_group(asked: Opening, group: Lanes) -> Lines[Found]:
    agent = group.agent or asked.agent
    end = yield Step("end", (group.place,))
    known = {number: head for number, head in group.known.items() if not asked.only or number in asked.only}
    since = 0 if asked.adopt else max(0, min((head.offset for head in known.values()), default=0))
    entries = yield Step("replay", (group.place, since, end))
    found = read(entries, agent, group.connector)
    if since and not found.heads.keys() >= known.keys():
        entries = yield Step("replay", (group.place, 0, end))  # SQLite was wrong about where they stand
        found = read(entries, agent, group.connector)
    return found


def _check(asked: Opening, found: Read) -> list[Position]:
    """What the topic has and SQLite has not. Raises PositionsError where they do not belong together and nobody has decided."""
    news = [one for group, there in found for one in _news(asked, group, there)]
    for group, there in found:
        for number, head in there.heads.items():
            if not asked.adopt and not group.agent and head.nonce not in asked.nonces:
                raise _foreign(asked, number, [one for one in news if one.nonce == asked.nonce])
        for number, known in group.known.items():
            head = there.heads.get(number, Head())
            if not asked.adopt and head.seq < known.seq and (not asked.only or number in asked.only):
                raise _behind(asked, number, known, head, group.place)
    return news


def _news(asked: Opening, group: Lanes, found: Found) -> Iterable[Position]:
    """Of one group, under the connector's present name."""
    if asked.adopt == "local" and not group.agent:
        return
    for one in found.positions:
        known = group.known.get(one.lane, Head()).seq if asked.adopt != "topic" else 0
        if one.seq > known and (not asked.only or one.lane in asked.only):
            yield one._replace(partition=SourcePartition(asked.lanes.connector, one.partition.key))


def _missing(asked: Opening, found: Read, news: Sequence[Position]) -> list[tuple[SourcePartition, SourceOffset | None]]:
    """What the topic has to be told before anything is planned, so that it is complete under the connector's present name."""
    present = found[-1][1]
    rows: dict[SourcePartition, SourceOffset | None] = {}
    if asked.adopt == "local":
        rows = {one.partition: None for one in present.positions}
    rows |= dict(asked.publish)
    there = {one.partition for one in present.positions} & {one.partition for one in news}
    moved = {one.partition: one.offset for one in news}
    if asked.before or asked.publish:
        rows |= moved
    return [(partition, offset) for partition, offset in rows.items() if partition not in there]


def _claim(
    asked: Opening,
    found: Read,
    fenced: Mapping[LaneId, tuple[Handle, Handle]],
    publish: Sequence[tuple[SourcePartition, SourceOffset | None]],
) -> Lines[dict[int, Head]]:
    """One step for each lane, in a transaction that holds nothing but its head; the last one's holds `publish` as well.

    By then all lanes are fenced, and those of earlier names are claimed. A head never goes back, not even where the topic was made anew.
    """
    heads = {}
    end = yield Step("end", (asked.lanes.place,))
    for lane, handles in fenced.items():
        group, there = next(one for one in found if asked.lane(one[0], lane.number) == lane)
        before = there.heads.get(lane.number, Head())
        head = Head(max(before.seq, group.known.get(lane.number, Head()).seq) + 1, asked.nonce)
        entries = [head_entry(lane, head)]
        if lane == list(fenced)[-1]:
            entries = [*_published(asked, lane, head, publish), *entries]
        yield from _commit(handles[before.seq % 2], group.place, entries)
        if group is asked.lanes:
            heads[lane.number] = head._replace(offset=end)
    return heads


def _published(asked: Opening, lane: LaneId, head: Head, publish: Iterable[tuple[SourcePartition, SourceOffset | None]]) -> list[Entry]:
    told = [Position(partition, lane.number, head.seq, offset, nonce=head.nonce) for partition, offset in publish]
    return [position_entry(asked.agent, one) for one in told]


def _commit(handle: Handle, place: Place, entries: Sequence[Entry]) -> Lines[None]:
    yield Step("begin", (handle,))
    yield Step("send", (handle, place, entries))
    yield Step("flush", (handle,))
    yield Step("commit", (handle,))


def _close(handles: Iterable[Handle]) -> Lines[None]:
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


def made_anew(connector: str, place: Place, partitions: int) -> PositionsError:
    """The refusal where the topic has too few partitions for the connector's place: a topic never loses any."""
    there = f"{place.topic} has {partitions} partition{'s' if partitions > 1 else ''}"
    words = f"the positions of connector {connector} were in partition {place.partition}, and {there}: the topic was made anew"
    return PositionsError(words, _ways(connector, _LOCAL, _TOPIC))


def _behind(asked: Opening, number: int, known: Head, head: Head, place: Place) -> PositionsError:
    name = asked.lanes.connector
    words = (
        f"lane {number} of connector {name} is at step {known.seq} here, and at {head.seq} in partition {place.partition} of {place.topic}:"
        " the topic was emptied, made anew, or has lost acknowledged records"
    )
    return PositionsError(words, _ways(name, _LOCAL, _TOPIC))


def _foreign(asked: Opening, number: int, mine: Sequence[Position]) -> CopiedError:
    name = asked.lanes.connector
    words = (
        f"lane {number} of connector {name} was moved by an agent with this agent's identity and another state directory:"
        " this host, or its state directory, is a copy"
    )
    hint = (
        "if this is a backup or a snapshot that was put back, and no other agent uses this state directory:"
        f" copycat offsets adopt {name} --from-topic; if it is a second host, stop one of the two for good, or let this one go on"
        f" as an agent of its own from the positions it has: copycat offsets adopt {name}"
    )
    return CopiedError(words, hint, tuple(mine), asked.lanes.place)
