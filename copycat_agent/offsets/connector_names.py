"""Renames connectors. A name is only a label: Kafka knows a connector by its id, which follows it to its new name.

So a rename moves nothing in Kafka, and a connector that gets a name used before gets an id of its own. If a connector with lanes is merged
into another one with lanes, the next opening of the latter takes over the lanes of the former.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.model import OFFSETS_TOPIC, OffsetsPartition, SourcePartition, is_connector_id, new_connector_id
from copycat_agent.offsets import lane_rows, lanes, saved_rows
from copycat_agent.offsets.lane_rows import BindingRow, NameRow
from copycat_agent.transactions.opening import LaneGroup

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable

UNKNOWN = OffsetsPartition(OFFSETS_TOPIC, -1)
"""The place of lanes of which only the key is known here (`lanes.SavedLanes`)."""


def take_over(connection: sqlite3.Connection, connector: str, agent: str) -> None:
    """Makes the next opening also take over the lanes of that agent's connector of the same name. Moves no offset back."""
    lane_rows.forget_agents(connection, connector)
    lane_rows.save_place(connection, connector, LaneGroup(connector, UNKNOWN, agent=agent))


def looked_up(connection: sqlite3.Connection, connector: str, found: Iterable[LaneGroup]) -> None:
    """Saves the lanes that Kafka has under the connector's names. If it has none, it is asked again until lanes are opened.

    The first id found becomes the connector's own, unless it has opened lanes under another one. Lanes that are known to belong to another
    connector are ignored, unless this knowledge is older than a rename.
    """
    found = list(found)
    kept = lanes.kept(connection, connector)
    known = lane_rows.identify(connection, connector)
    _forget_old_owners(connection, connector, kept, found)
    for group in kept.before:
        if group.place == UNKNOWN and not is_connector_id(group.key):
            lane_rows.forget_group(connection, connector, group)
    owners = {one.key: lane_rows.owner(connection, one.key) for one in found if not one.agent}
    theirs = [one for one in found if one.agent or not _is_anothers(connection, owners[one.key], connector)]
    ids = [one.key for one in theirs if is_connector_id(one.key) and not one.agent]
    if ids and kept.place is None and not kept.heads:
        if lane_rows.is_renamed(connection, connector):
            if kept.adopt != "local":
                _forget_offsets(connection, connector)
            known = known._replace(registered="")
        known = known._replace(id=ids[0])
        if owners[known.id] not in {"", connector}:
            lane_rows.save_identified(connection, owners[known.id], _fresh_identity())
        lane_rows.save_place(connection, connector, LaneGroup(known.id, UNKNOWN))
    for group in theirs:
        if group.agent or group.key != known.id:
            lane_rows.save_place(connection, connector, group)
    lane_rows.save_identified(connection, connector, known._replace(asks=0 if theirs else known.asks))


def _is_anothers(connection: sqlite3.Connection, owner: str, connector: str) -> bool:
    """Whether lanes belong to another connector. An owner of which this store, perhaps a restored one, knows no lanes does not count."""
    return owner not in {"", connector} and lane_rows.is_known(connection, owner)


def renamed_since(connection: sqlite3.Connection, connector: str, key: str) -> None:
    """Gives up the connector's id `key`, which is another connector's in Kafka: this store is older than a rename.

    Kafka is then asked for the connector's id. Its offsets stay until it has one: if Kafka does not know the name, nobody else has gone on
    from them under it. Lanes of another agent that it takes over stay, too: a person has decided that. No effect if it has another id.
    """
    known = lane_rows.identified(connection, connector)
    if known is not None and known.id == key:
        for group in lane_rows.groups(connection, connector):
            if not group.agent:
                lane_rows.forget_group(connection, connector, group)
        lane_rows.save_identified(connection, connector, NameRow(new_connector_id(), asks=1, registered=connector))


def _forget_old_owners(connection: sqlite3.Connection, connector: str, kept: lanes.SavedLanes, found: Iterable[LaneGroup]) -> None:
    """Gives up ids of other connectors here that Kafka has under this connector's name, unless their own rename is not in Kafka yet."""
    asked_for = {group.key for group in kept.before if group.place == UNKNOWN}
    for one in found:
        owner = "" if one.agent else lane_rows.owner(connection, one.key)
        if owner in {"", connector, *asked_for}:
            continue
        theirs = lanes.kept(connection, owner)
        if theirs.is_new or theirs.registered == owner:
            renamed_since(connection, owner, one.key)


def _forget_offsets(connection: sqlite3.Connection, connector: str) -> None:
    """Forgets offsets that belong to the id it had before, except those that a person has set."""
    wished = {key for (key,) in connection.execute("SELECT key FROM unpublished WHERE connector = ? AND wish = 1", (connector,))}
    saved_rows.delete(connection, [one for one in saved_rows.keys_of(connection, connector) if one.key not in wished])
    connection.execute("DELETE FROM unpublished WHERE connector = ? AND wish = 0", (connector,))


def rename(
    connection: sqlite3.Connection,
    old: str,
    new: str,
    moved: Collection[SourcePartition],
    kept: Collection[SourcePartition],
    *,
    is_lost: bool,
) -> None:
    """Moves the lanes of `old` to `new`, after the offsets have `moved`. A later connector named `old` has no part in them.

    `kept` are partitions that both had: for these the saved offsets outrank Kafka's. `is_lost` is that of `lane_rows.changed`.
    """
    for key, wish in connection.execute("SELECT key, wish FROM unpublished WHERE connector = ?", (old,)).fetchall():
        lane_rows.mark(connection, [SourcePartition(new, key)], wish=bool(wish))
    connection.execute("DELETE FROM unpublished WHERE connector = ?", (old,))
    is_known = lane_rows.is_known(connection, old)
    if lane_rows.has_lanes(connection, old):
        lane_rows.mark(connection, kept, wish=True)
        _hand_over(connection, old, new, moved)
    elif moved and is_lost and not is_known:
        lane_rows.save_place(connection, new, LaneGroup(old, UNKNOWN))  # Kafka may know more than the store, which was lost
    else:
        lane_rows.changed(connection, moved, wish=False)
    if moved or is_known:
        lane_rows.save_identified(connection, old, _fresh_identity())


def _fresh_identity() -> NameRow:
    """Returns an id for the next connector of this name; what Kafka has under the name is not that connector's."""
    return NameRow(new_connector_id(), asks=0)


def _hand_over(connection: sqlite3.Connection, old: str, new: str, moved: Collection[SourcePartition]) -> None:
    """Moves the id as well, unless `new` has lanes of its own: then its next opening merges those of `old` into them."""
    theirs, groups = lane_rows.identify(connection, old), lane_rows.groups(connection, old)
    ours, bound = lane_rows.identified(connection, new), _merged(connection, old, new)
    is_used = lane_rows.has_lanes(connection, new)
    lane_rows.forget_lanes(connection, old)
    lane_rows.save_identified(connection, old, _fresh_identity())  # first, because ids are unique
    if is_used:
        lane_rows.save_place(connection, new, LaneGroup(theirs.id, UNKNOWN))  # a first opening may have been killed after it wrote to Kafka
    else:
        is_reset = lane_rows.binding(connection, new).adopt == "local"
        asks = 0 if is_reset or (ours is not None and not ours.asks) else 1
        lane_rows.save_identified(connection, new, theirs._replace(asks=asks, registered=""))
        lane_rows.mark(connection, [one for one in saved_rows.keys_of(connection, new) if one not in set(moved)], wish=False)
    for group in groups:
        lane_rows.save_place(connection, new, group)
        lane_rows.save_heads(connection, new, group, group.known)
    lane_rows.bind(connection, new, bound)
    lane_rows.bind(connection, old, BindingRow())


def _merged(connection: sqlite3.Connection, old: str, new: str) -> BindingRow:
    """Returns the binding of both. A decision for a `new` without lanes does not apply to the lanes that it gets."""
    theirs, ours = lane_rows.binding(connection, old), lane_rows.binding(connection, new)
    decided = ours.adopt if ours.adopt != "local" or lane_rows.has_lanes(connection, new) else ""
    clusters = dict.fromkeys(one.cluster for one in (ours, theirs) if one.cluster)  # two names match no cluster: a person decides
    return BindingRow(" and ".join(clusters), decided or theirs.adopt, ours.copied or theirs.copied, theirs.unused)
