"""Reads and writes the rows about exactly-once lanes: ids of connectors, places and heads in Kafka, bindings to a cluster, and marks.

A *mark* is a row of `unpublished`: the saved offset of a partition, or its deletion, is not in Kafka yet. A mark that a person caused (a
*wish*) outranks Kafka until the lanes are opened next: until then Kafka's positions are older than the wish, afterwards they include it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.model import STATE_KEY, Head, OffsetsPartition, SavedRow, SourcePartition, new_connector_id
from copycat_agent.offsets import saved_rows
from copycat_agent.offsets.saved_rows import checksum
from copycat_agent.transactions.opening import Adopt, LaneGroup

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping

    from copycat_agent.offsets.saved_rows import Row


class BindingRow(NamedTuple):
    """A row of `bindings`; `lanes.SavedLanes` explains the fields."""

    cluster: str = ""
    adopt: Adopt = ""
    copied: int = 0
    unused: int = 0


class NameRow(NamedTuple):
    """A row of `names`; `lanes.SavedLanes` explains the fields."""

    id: str
    asks: int = 1
    registered: str = ""


def identified(connection: sqlite3.Connection, connector: str) -> NameRow | None:
    """Returns the connector's id in Kafka; None if it has none yet."""
    row = connection.execute("SELECT id, asks, registered FROM names WHERE connector = ?", (connector,)).fetchone()
    return NameRow(*row) if row else None


def identify(connection: sqlite3.Connection, connector: str) -> NameRow:
    """Returns the connector's id in Kafka, which is created if it has none."""
    known = identified(connection, connector)
    if known is None:
        known = NameRow(new_connector_id())
        save_identified(connection, connector, known)
    return known


def save_identified(connection: sqlite3.Connection, connector: str, what: NameRow) -> None:
    """Saves a connector's id. Raises sqlite3.IntegrityError if another connector has it."""
    row = (connector, *what)
    connection.execute(
        "INSERT INTO names (connector, id, asks, registered, checksum) VALUES (?, ?, ?, ?, ?) ON CONFLICT (connector) DO UPDATE"
        " SET id = excluded.id, asks = excluded.asks, registered = excluded.registered, checksum = excluded.checksum",
        (*row, checksum(row)),
    )


def owner(connection: sqlite3.Connection, key: str) -> str:
    """Returns the connector that has this id, or lanes with this key; "" if no connector has."""
    query = "SELECT connector FROM names WHERE id = ? UNION SELECT connector FROM places WHERE agent = '' AND name = ?"
    row = connection.execute(query, (key, key)).fetchone()
    return str(row[0]) if row else ""


def has_lanes(connection: sqlite3.Connection, connector: str) -> bool:
    """Returns whether the connector ever had lanes, under this name or an earlier one."""
    return connection.execute("SELECT 1 FROM places WHERE connector = ? LIMIT 1", (connector,)).fetchone() is not None


def is_known(connection: sqlite3.Connection, connector: str) -> bool:
    """Returns whether this store knows what Kafka has of the connector, also if that is nothing."""
    known = identified(connection, connector)
    return has_lanes(connection, connector) or (known is not None and not known.asks)


def is_renamed(connection: sqlite3.Connection, connector: str) -> bool:
    """Returns whether its id here was found to be another connector's, and its own is not known yet (`connector_names.renamed_since`)."""
    known = identified(connection, connector)
    return known is not None and bool(known.asks) and known.registered == connector


def named(connection: sqlite3.Connection) -> list[str]:
    """Returns the connectors that have lanes."""
    return [name for (name,) in connection.execute("SELECT DISTINCT connector FROM places")]


def nonces(connection: sqlite3.Connection) -> list[str]:
    """Returns the nonces that heads name."""
    return [nonce for (nonce,) in connection.execute("SELECT DISTINCT nonce FROM lanes")]


def forget_agents(connection: sqlite3.Connection, connector: str) -> None:
    """Deletes the lanes of other agents that the connector was to take over."""
    for table in ("places", "lanes"):
        connection.execute(f"DELETE FROM {table} WHERE connector = ? AND agent <> ''", (connector,))  # noqa: S608 - constants


def forget_lanes(connection: sqlite3.Connection, connector: str) -> None:
    """Deletes all lanes of the connector."""
    for table in ("places", "lanes"):
        connection.execute(f"DELETE FROM {table} WHERE connector = ?", (connector,))  # noqa: S608 - constants


def forget_group(connection: sqlite3.Connection, connector: str, group: LaneGroup) -> None:
    """Deletes one group of the connector's lanes."""
    for table in ("places", "lanes"):
        query = f"DELETE FROM {table} WHERE connector = ? AND agent = ? AND name = ?"  # noqa: S608 - constants
        connection.execute(query, (connector, group.agent, group.key))


def replace_lanes(connection: sqlite3.Connection, connector: str, place: OffsetsPartition, heads: Mapping[int, Head]) -> None:
    """Replaces all lanes of the connector."""
    forget_lanes(connection, connector)
    own = LaneGroup(identify(connection, connector).id, place, heads)
    save_place(connection, connector, own)
    save_heads(connection, connector, own, heads)


def groups(connection: sqlite3.Connection, connector: str) -> list[LaneGroup]:
    """Returns the connector's own lanes and those that it takes over, by agent and key."""
    places = connection.execute("SELECT agent, name, topic, part FROM places WHERE connector = ? ORDER BY agent, name", (connector,))
    heads: dict[tuple[str, str], dict[int, Head]] = {}
    for agent, name, number, *head in connection.execute(
        "SELECT agent, name, number, seq, nonce, position FROM lanes WHERE connector = ? ORDER BY number", (connector,)
    ):
        heads.setdefault((agent, name), {})[number] = Head(*head)
    return [LaneGroup(name, OffsetsPartition(*place), heads.get((agent, name), {}), agent) for agent, name, *place in places]


def binding(connection: sqlite3.Connection, connector: str) -> BindingRow:
    """Returns the connector's binding; an empty one if none was saved."""
    row = connection.execute("SELECT cluster, adopt, copied, unused FROM bindings WHERE connector = ?", (connector,)).fetchone()
    return BindingRow(*row) if row else BindingRow()


def bind(connection: sqlite3.Connection, connector: str, bound: BindingRow) -> None:
    """Saves a binding."""
    _save(connection, "bindings", [(connector, *bound)])


def save_place(connection: sqlite3.Connection, connector: str, group: LaneGroup) -> None:
    """Saves the place of lanes in Kafka. They are the connector's own, or lanes that it takes over (`lanes.SavedLanes`)."""
    _save(connection, "places", [(connector, group.agent, group.key, *group.place)])


def save_heads(connection: sqlite3.Connection, connector: str, group: LaneGroup, heads: Mapping[int, Head]) -> None:
    """Saves heads of some lanes of a group."""
    _save(connection, "lanes", [(connector, group.agent, group.key, number, *head) for number, head in heads.items()])


def _save(connection: sqlite3.Connection, table: str, some: Collection[Row]) -> None:
    if some:
        size = len(next(iter(some))) + 1
        query = f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * size)})"  # noqa: S608 - a constant
        connection.executemany(query, [(*row, checksum(row)) for row in some])


def mark(connection: sqlite3.Connection, partitions: Iterable[SourcePartition], *, wish: bool) -> None:
    """Marks saved rows as not yet in Kafka. `wish`: a person has set them."""
    marks = [(*one, int(wish)) for one in partitions]
    connection.executemany(
        "INSERT INTO unpublished (connector, key, wish, checksum) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (connector, key) DO UPDATE SET wish = max(wish, excluded.wish)",
        [(*row, checksum(row[:2])) for row in marks],
    )


def unmark(connection: sqlite3.Connection, partitions: Iterable[SourcePartition]) -> None:
    """Removes marks: the saved rows are in Kafka."""
    connection.executemany("DELETE FROM unpublished WHERE connector = ? AND key = ?", partitions)


def changed(connection: sqlite3.Connection, partitions: Collection[SourcePartition], *, wish: bool, is_lost: bool = False) -> None:
    """Marks rows that were saved or deleted without a Kafka transaction, if their connectors have lanes.

    While a connector runs without lanes only wishes are marked, since its next opening takes all rows from here anyway. `is_lost`: the
    store may have lost lanes of connectors, so wishes of unknown ones are marked, too.
    """
    for connector in {one.connector for one in partitions}:
        may_be_unknown = wish and (is_lost or is_renamed(connection, connector))
        is_concerned = has_lanes(connection, connector) or (may_be_unknown and not is_known(connection, connector))
        if is_concerned and (wish or binding(connection, connector).adopt != "local"):
            mark(connection, [one for one in partitions if one.connector == connector], wish=wish)


def unmark_published(connection: sqlite3.Connection, published: Mapping[SourcePartition, SavedRow | None]) -> None:
    """Removes marks of rows that a transaction has written to Kafka, unless another row was saved since."""
    unmark(connection, [partition for partition, row in published.items() if saved_rows.row_of(connection, partition) == row])


def unpublished(connection: sqlite3.Connection, connector: str, limit: int) -> dict[SourcePartition, SavedRow | None]:
    """Returns up to `limit` marked rows, None for deleted ones: the connector's state first, then the oldest marks.

    The state comes first because once a log's state is in Kafka, a file that Kafka does not know counts as new.
    """
    first = "SELECT connector, key FROM unpublished WHERE connector = ? AND key = ? LIMIT ?"
    others = "SELECT connector, key FROM unpublished WHERE connector = ? AND key <> ? ORDER BY number LIMIT ?"
    marks = connection.execute(first, (connector, STATE_KEY, limit)).fetchall()
    marks += connection.execute(others, (connector, STATE_KEY, limit - len(marks)))
    return {one: saved_rows.row_of(connection, one) for one in map(SourcePartition._make, marks)}
