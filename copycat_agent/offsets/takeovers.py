"""Lanes that change hands: connectors that get other names, and agents that are gone.

Kafka knows lanes and positions under the name that a connector had when they were sent. The store remembers who they belong to by now,
until they are told under that connector's present name, in the transaction that deletes them under the earlier one. Should somebody else
have got that earlier name before, then what stands under it is brought home first: whoever opens lanes of a name finishes what is left
to do of earlier holders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.model import OFFSETS_TOPIC, Place, SourcePartition
from copycat_agent.offsets import lane_rows, lanes
from copycat_agent.transactions.opening import Lanes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from copycat_agent.model import Position
    from copycat_agent.transactions.opening import Truth


class Pending(NamedTuple):
    """Lanes that another connector had under this name, and has not opened under its own."""

    owner: str
    lanes: Lanes
    kept: lanes.KeptLanes
    """What is known of its owner's."""


def pending(connection: sqlite3.Connection, name: str) -> Pending | None:
    """Those of which it is to be found out what they did last, before anybody else uses them."""
    query = "SELECT connector FROM places WHERE agent = '' AND name = ? AND connector <> ?"
    row = connection.execute(query, (name, name)).fetchone()
    if row is None:
        return None
    kept = lanes.kept(connection, row[0])
    return Pending(row[0], next(one for one in kept.before if _is_of(one, name)), kept)


def brought_home(connection: sqlite3.Connection, found: Pending, truth: Truth) -> list[Position]:
    """What `pending` lanes did last is their owner's now, and nobody waits for them any more. Returns what was not known of it.

    Nothing happens where their owner has opened them meanwhile.
    """
    owner, name = found.owner, found.lanes.connector
    kept = lanes.kept(connection, owner)
    if not any(_is_of(one, name) for one in kept.before):
        return []
    lanes.apply(connection, truth.positions, may_rewind=kept.adopt == "topic")
    for table in ("places", "lanes"):
        connection.execute(f"DELETE FROM {table} WHERE connector = ? AND agent = '' AND name = ?", (owner, name))  # noqa: S608 - constants
    rows = connection.execute("SELECT key FROM offsets WHERE connector = ?", (owner,)).fetchall()
    lanes.mark(connection, [SourcePartition(owner, key) for (key,) in rows], wish=False)
    known = {number: head.seq for number, head in found.lanes.known.items()}
    return [one for one in truth.positions if one.seq > known.get(one.lane, 0)]


def cleared(connection: sqlite3.Connection, connector: str, place: Place, truth: Truth, before: Collection[Lanes]) -> None:
    """What stood under the connector's name and was another's is deleted in Kafka; these are its own lanes from now on.

    It still has to take over those that it had `before`.
    """
    own = Lanes(connector, place, truth.heads)
    expected(connection, connector, before)
    lane_rows.save_place(connection, connector, own)
    lane_rows.save_heads(connection, connector, own, truth.heads)
    lane_rows.bind(connection, connector, lane_rows.binding(connection, connector)._replace(adopt=""))


def expected(connection: sqlite3.Connection, connector: str, groups: Collection[Lanes]) -> None:
    """Something of the connector stands there, or is about to: saved before Kafka is told of it, for a rename after a kill."""
    for group in groups:
        lane_rows.save_place(connection, connector, group)


def take_over(connection: sqlite3.Connection, connector: str, agent: str) -> None:
    """The next opening takes over the lanes of that agent's connector of the same name as well. Nothing is taken back here."""
    lane_rows.forget_agents(connection, connector)
    lane_rows.save_place(connection, connector, Lanes(connector, Place(OFFSETS_TOPIC, -1), agent=agent))


def rename(
    connection: sqlite3.Connection,
    old: str,
    new: str,
    moved: Collection[SourcePartition],
    kept: Collection[SourcePartition],
    *,
    is_lost: bool,
) -> None:
    """Lanes of `old` become earlier ones of `new`; should anybody be called `old` again, its lanes are not those of today.

    Called when the offsets have `moved`. Kafka knows them under the old name, so all of them are told again. `kept` are those that both
    had: whatever Kafka says of them, what is saved here counts. `is_lost`: see `lanes.changed`.
    """
    for key, wish in connection.execute("SELECT key, wish FROM unpublished WHERE connector = ?", (old,)).fetchall():
        lanes.mark(connection, [SourcePartition(new, key)], wish=bool(wish))
    connection.execute("DELETE FROM unpublished WHERE connector = ?", (old,))
    theirs, groups = lane_rows.binding(connection, old), lane_rows.groups(connection, old)
    if not groups and moved and is_lost and not lane_rows.is_bound(connection, old):
        groups = [Lanes(old, Place(OFFSETS_TOPIC, -1))]
    if not groups:
        lanes.changed(connection, moved, wish=False)
        if moved:
            lane_rows.bind(connection, old, lane_rows.Binding(adopt="moved"))  # an opening may have been killed that has told them
        return
    lanes.mark(connection, kept, wish=True)
    bound = _merged(connection, theirs, new, returns=any(_is_of(group, new) for group in groups))
    for group in groups:
        lane_rows.save_place(connection, new, group)
        lane_rows.save_heads(connection, new, group, group.known)
    for table in ("places", "lanes"):
        connection.execute(f"DELETE FROM {table} WHERE connector = ?", (old,))  # noqa: S608 - constants
    lane_rows.bind(connection, new, bound)
    lane_rows.bind(connection, old, lane_rows.Binding(adopt="moved"))


def _merged(connection: sqlite3.Connection, theirs: lane_rows.Binding, new: str, *, returns: bool) -> lane_rows.Binding:
    """`returns`: the lanes that go to `new` include those that stand under just this name."""
    ours, is_used = lane_rows.binding(connection, new), lane_rows.has_lanes(connection, new)
    mine, other = ours.adopt, "" if theirs.adopt == "moved" else theirs.adopt
    if returns and (mine == "moved" or not is_used):
        mine = ""
    elif mine == "local" and not is_used:
        mine = "moved"
    adopt = other if not mine or (mine == "moved" and other == "local") else mine
    clusters = dict.fromkeys(one.cluster for one in (ours, theirs) if one.cluster)  # two are none: a person decides
    return lane_rows.Binding(" and ".join(clusters), adopt, ours.copied or theirs.copied, theirs.unused)


def _is_of(group: Lanes, name: str) -> bool:
    """Whether these lanes of this agent are called so."""
    return group.connector == name and not group.agent
