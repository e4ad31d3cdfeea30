"""The driver's side of a lane: fence, read, check, claim. It runs when a connector starts, and whenever an outcome is not known.

The order matters. After the fence nobody who began before it can commit, so what is read then is final, and what is planned from it is not
done yet. The claim moves each head one step further, under the nonce of this start: a batch that was planned before, and whose process only
wakes up now, finds a head that is not the one it was planned at.

Lanes are taken over a few at a time, those of other keys first, and what is read after the last fence counts. Every process begins with the
same lane: of two copies of one agent that open at the same time, one gets it, and the other finds out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from copycat_agent import failpoints
from copycat_agent.model import Head, LaneId, OffsetsPartition, Position, SavedRow, SourcePartition, is_connector_id
from copycat_agent.transactions import checks
from copycat_agent.transactions.checks import Claim, read_back
from copycat_agent.transactions.entries import FoundEntries, head_entry, id_entry, name_entry, position_entries, read, transactional_id
from copycat_agent.transactions.protocol import Entry, Handle, Procedure, Step

AT_ONCE = 8
"""How many lanes are taken over at a time: each has two producers meanwhile."""

Adopt = Literal["", "local", "topic"]
"""Which positions a person has chosen; "" if nobody has: then those of the store and of the topic have to be consistent."""


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """The lanes of one key: the connector's id, or another key whose work it takes over. `known` are their heads as SQLite has them.

    `agent` is another agent whose state directory is gone and whose work this one takes over; "" for this agent.
    """

    key: str
    place: OffsetsPartition
    known: Mapping[int, Head] = field(default_factory=dict)
    agent: str = ""


@dataclass(frozen=True, slots=True)
class OpeningPlan:
    """The request for an opening.

    `wanted` are lanes of the connector that are to work; all existing lanes of it are fenced, whether wanted or not. `before` are lanes of
    other keys whose work it takes over: of connectors that were merged into it, of its name in versions without ids, of an agent that is
    gone. `nonce` is this start's; `nonces` are those of all starts of this state directory, this one included. `cluster` is the Kafka
    cluster that its positions belong to, "" when that is not known yet.

    `publish` are positions that SQLite has and the topic has not, None for forgotten ones: after a merge, an adoption, or another
    guarantee. They are written once everything is claimed and the claims are read back, so that the topic is complete before anything is
    planned; none may be in flight. `only`: just these lanes of an open connector are opened again, and the others, which go on working
    meanwhile, are left alone; empty for all. `name` is the connector's name; "": the same as its key. `home` is the partition with the id
    of that name, None if names are not written to Kafka. `registers`: the name is written in any case, not only if another name was read.
    `checks_name`: as far as is known here, no other name was written for the id, so a different one in Kafka is a later one.
    """

    agent: str
    lanes: LaneGroup
    wanted: tuple[int, ...]
    nonce: str
    nonces: frozenset[str]
    cluster: str = ""
    before: tuple[LaneGroup, ...] = ()
    adopt: Adopt = ""
    publish: tuple[tuple[SourcePartition, SavedRow | None], ...] = ()
    only: frozenset[int] = frozenset()
    name: str = ""
    home: OffsetsPartition | None = None
    registers: bool = False
    checks_name: bool = False

    @property
    def connector(self) -> str:
        """Returns the name of the connector whose positions they become."""
        return self.name or self.lanes.key

    def lane(self, group: LaneGroup, number: int) -> LaneId:
        """Returns a lane of one of its groups."""
        return LaneId(group.agent or self.agent, group.key, number)


class LaneSnapshot(NamedTuple):
    """The result of an opening. `heads` are the claimed ones. `positions` are those that SQLite does not have, in their order.

    `name` and `id` are what was read under the key of `OpeningPlan.lanes`, see `entries.FoundEntries`.
    """

    cluster: str
    heads: dict[int, Head]
    positions: tuple[Position, ...]
    name: str | None = None
    id: str = ""


Read = list[tuple[LaneGroup, FoundEntries]]
"""The contents of the topic for each group, the connector's own group last."""


def open_lanes(plan: OpeningPlan) -> Procedure[LaneSnapshot]:
    """Fences, reads, checks, claims, and reads the claims back. Returns what it found.

    Raises PositionsError when a person has to decide; RenamedError, with nothing published, when the id belongs to another connector by
    now; otherwise what the steps raise, and then all of it has to be done again.
    """
    cluster = yield Step("cluster_id")
    if plan.cluster and cluster != plan.cluster and plan.adopt != "local":
        raise checks.other_cluster(plan.connector, plan.cluster, cluster)
    groups = (plan.lanes,) if plan.only else (*plan.before, plan.lanes)
    todo, done = known_lanes(plan, groups), set[LaneId]()
    claims: list[Claim] = []
    positions: list[Position] = []
    while todo:
        some = sorted(todo, key=lambda lane: (is_own(plan, lane), lane))[:AT_ONCE]
        done.update(some)
        handles: list[Handle] = []
        try:
            yield from fence(some, handles)
            found = yield from read_groups(plan, groups)
            positions = check(plan, found)
            todo = (todo | lanes_in(plan, found)) - done
            if not (todo or is_own(plan, some[-1])):
                todo = {min(lane for lane in done if is_own(plan, lane))}  # once more: this lane is the one that publishes
            fenced = {lane: (handles[2 * n], handles[2 * n + 1]) for n, lane in enumerate(some)}
            claims += yield from claim(plan, found, fenced)
            if not todo:
                ends = {plan.lane(group, 0)[:2]: there.end for group, there in found}
                yield from read_back(claims, ends, plan.connector, whole=not plan.only)
                _check_name(plan, cluster, found[-1][1])
                claims += yield from publish(plan, found, claims[-1], fenced[some[-1]], missing(plan, found, positions))
        except Exception:
            yield from close_all(handles)
            raise
        yield from close_all(handles)
    heads = {one.lane.number: one.head for one in claims if is_own(plan, one.lane)}
    return LaneSnapshot(cluster, heads, tuple(positions), found[-1][1].name, found[-1][1].id)


def is_own(plan: OpeningPlan, lane: LaneId) -> bool:
    """Returns whether the lane is one of the connector's own."""
    return lane[:2] == plan.lane(plan.lanes, 0)[:2]


def known_lanes(plan: OpeningPlan, groups: Iterable[LaneGroup]) -> set[LaneId]:
    """Returns the lanes that exist, or are to exist, as far as is known without the topic."""
    todo = {plan.lane(plan.lanes, number) for number in plan.only or plan.wanted}
    return todo | {plan.lane(group, number) for group in groups for number in group.known if not plan.only}


def lanes_in(plan: OpeningPlan, found: Read) -> set[LaneId]:
    """Returns the lanes that are in the topic."""
    return {plan.lane(group, number) for group, one in found for number in one.heads if not plan.only}


def fence(lanes: Iterable[LaneId], handles: list[Handle]) -> Procedure[None]:
    """Fences both ids of each lane: a batch that was planned one step earlier uses the other one. The caller closes all `handles`."""
    for lane in lanes:
        for parity in (0, 1):
            handle = yield Step("prepare", (transactional_id(lane, parity),))
            handles.append(handle)
    for handle in handles:
        yield Step("ready", (handle,))
    failpoints.hit("fenced")


def read_groups(plan: OpeningPlan, groups: Iterable[LaneGroup]) -> Procedure[Read]:
    """Reads the topic's entries of each group."""
    found = []
    for group in groups:
        there = yield from _read_group(plan, group)
        found.append((group, there))
    return found


def _read_group(plan: OpeningPlan, group: LaneGroup) -> Procedure[FoundEntries]:
    agent = group.agent or plan.agent
    end = yield Step("end", (group.place,))
    known = {number: head for number, head in group.known.items() if not plan.only or number in plan.only}
    is_whole = plan.adopt or plan.before  # everything under another key is deleted, except what the connector has under its own
    since = 0 if is_whole else max(0, min((head.offset for head in known.values()), default=0))
    entries = yield Step("replay", (group.place, since, end))
    found = read(entries, agent, group.key, plan.connector)
    if since and not found.heads.keys() >= known.keys():
        entries = yield Step("replay", (group.place, 0, end))  # SQLite was wrong about their offsets
        found = read(entries, agent, group.key, plan.connector)
    return found._replace(end=end)


def check(plan: OpeningPlan, found: Read) -> list[Position]:
    """Returns positions that the topic has and SQLite has not. Raises PositionsError if they are inconsistent and nobody has decided."""
    own = {one.partition for one in found[-1][1].positions}
    earlier = (one for group, there in found[:-1] for one in _news(plan, group, there))
    news = [one._replace(is_last=False) if one.partition in own else one for one in earlier]
    news += _news(plan, *found[-1])
    for group, there in found:
        for number, head in there.heads.items():
            if not plan.adopt and not group.agent and head.nonce not in plan.nonces:
                raise checks.foreign(plan.connector, number, [one for one in news if one.nonce == plan.nonce], plan.lanes.place)
        for number, known in group.known.items():
            head = there.heads.get(number, Head())
            if not plan.adopt and head.seq < known.seq and (not plan.only or number in plan.only):
                raise checks.behind(plan.connector, number, known, head, group.place)
    return news


def _check_name(plan: OpeningPlan, cluster: str, own: FoundEntries) -> None:
    """Raises RenamedError if Kafka has a later name of the id. Called only after the claims are seen: a broker may show an earlier one.

    It is later if all lanes are further than they are known here, since whoever writes a name has claimed them. A topic that was set back
    has an earlier one.
    """
    if not plan.checks_name or own.name in {None, plan.name} or plan.cluster not in {"", cluster}:
        return
    steps = own.steps()
    if all(steps.get(number, 0) > head.seq for number, head in plan.lanes.known.items()):
        raise checks.renamed(plan.connector, own.name or "")


def _news(plan: OpeningPlan, group: LaneGroup, found: FoundEntries) -> Iterable[Position]:
    if plan.adopt == "local" and not group.agent:
        return
    for one in found.positions:
        known = group.known.get(one.lane, Head()).seq if plan.adopt != "topic" else 0
        if one.seq > known and (not plan.only or one.lane in plan.only):
            yield one


def missing(plan: OpeningPlan, found: Read, news: Sequence[Position]) -> list[tuple[SourcePartition, SavedRow | None]]:
    """Returns what has to be written to the topic before anything is planned, so that it is complete under the connector's own key."""
    present = found[-1][1]
    rows: dict[SourcePartition, SavedRow | None] = {}
    if plan.adopt == "local":
        rows = {one.partition: None for one in present.positions}
    rows |= dict(plan.publish)
    moved = {one.partition: one.offset for one in news if one.is_last}
    there = {one.partition for one in present.positions} & moved.keys()
    if plan.before or plan.publish:
        rows |= moved
    return [(partition, offset) for partition, offset in rows.items() if partition not in there]


def claim(plan: OpeningPlan, found: Read, fenced: Mapping[LaneId, tuple[Handle, Handle]]) -> Procedure[list[Claim]]:
    """Takes one step of each lane, in a transaction that holds nothing but its head. By then all lanes are fenced.

    A head never goes back, not even if the topic was made anew, or if an opening that was not shown everything has claimed a step that was
    taken.
    """
    claims = []
    groups = {plan.lane(group, 0)[:2]: (group, there.end, there.steps()) for group, there in found}
    for lane, handles in fenced.items():
        group, end, steps = groups[lane[:2]]
        before = max(steps.get(lane.number, 0), group.known.get(lane.number, Head()).seq)
        head = Head(before + 1, plan.nonce, end)
        yield from _commit(handles[before % 2], [(group.place, [head_entry(lane, head)])])
        claims.append(Claim(lane, group.place, head))
    return claims


def publish(
    plan: OpeningPlan,
    found: Read,
    last: Claim,
    handles: tuple[Handle, Handle],
    rows: Sequence[tuple[SourcePartition, SavedRow | None]],
) -> Procedure[list[Claim]]:
    """Takes one more step of the lane that was claimed last, if there is anything to write: `rows`, now that they are known to be correct.

    It is a transaction of its own after the claims: written with a claim, before that was read back, it could overwrite positions that the
    broker had not shown with older ones.

    It also deletes the positions under other keys: they are under the connector's own from then on, and an opening that looks for the other
    keys after the store is lost finds none. It also writes the connector's name, before anything is planned.
    """
    head = last.head._replace(seq=last.head.seq + 1)
    told = [(last.place, _published(plan, last.lane, head, rows)), *_left(plan, found), *registered(plan, found[-1][1].name)]
    if not any(entries for _, entries in told):
        return []
    yield from _commit(handles[last.head.seq % 2], [*told, (last.place, [head_entry(last.lane, head)])])
    return [last._replace(head=head)]


def _published(plan: OpeningPlan, lane: LaneId, head: Head, publish: Iterable[tuple[SourcePartition, SavedRow | None]]) -> list[Entry]:
    told = [Position(partition, lane.number, head.seq, offset, nonce=head.nonce) for partition, offset in publish]
    return position_entries(plan.agent, lane.key, told)


def _left(plan: OpeningPlan, found: Read) -> Iterable[tuple[OffsetsPartition, list[Entry]]]:
    """Yields the entries that delete the positions under other keys, except those of an agent that is gone: they are not ours to delete."""
    for group, there in found[:-1]:
        if not group.agent:
            gone = position_entries(plan.agent, group.key, [one._replace(offset=None) for one in there.positions])
            yield group.place, gone + ([name_entry(plan.agent, group.key, None)] if is_connector_id(group.key) else [])


def registered(plan: OpeningPlan, known: str | None) -> Iterable[tuple[OffsetsPartition, list[Entry]]]:
    """Yields the entries with the name, if the topic does not have it or has another one."""
    if plan.home is not None and (plan.registers or known not in {None, plan.name}):
        key = plan.lanes.key
        yield plan.home, [id_entry(plan.agent, plan.name, key)]
        yield plan.lanes.place, [name_entry(plan.agent, key, plan.name)]


def _commit(handle: Handle, entries: Iterable[tuple[OffsetsPartition, Sequence[Entry]]]) -> Procedure[None]:
    yield Step("begin", (handle,))
    for place, some in entries:
        if some:
            yield Step("send", (handle, place, some))
    yield Step("flush", (handle,))
    yield Step("commit", (handle,))


def close_all(handles: Iterable[Handle]) -> Procedure[None]:
    """Closes these producers."""
    for handle in handles:
        yield Step("close", (handle,))
