"""Rows about exactly-once lanes: ids of connectors, places and heads in Kafka, bindings to a cluster, and marks.

A *mark* is a row of `unpublished`: the offset that is saved of this partition, or that it is deleted, is not in Kafka yet. A mark that a
person made outranks what Kafka says until the lanes are opened next: up to then Kafka's positions are older than the person's wish,
afterwards they were made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.model import STATE_KEY, Head, OffsetsPartition, SourcePartition, new_connector_id
from copycat_agent.offsets import saved_rows
from copycat_agent.offsets.saved_rows import checksum
from copycat_agent.transactions.opening import Adopt, Lanes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping

    from copycat_agent.model import SavedRow
    from copycat_agent.offsets.saved_rows import Row


class Binding(NamedTuple):
    """A row of `bindings`: see `lanes.KeptLanes`."""

    cluster: str = ""
    adopt: Adopt = ""
    copied: int = 0
    unused: int = 0


class Identified(NamedTuple):
    """A row of `names`: see `lanes.KeptLanes`."""

    id: str
    asks: int = 1
    registered: str = ""


def identified(connection: sqlite3.Connection, connector: str) -> Identified | None:
    """Returns what the connector is in Kafka; None for one that has no id yet."""
    row = connection.execute("SELECT id, asks, registered FROM names WHERE connector = ?", (connector,)).fetchone()
    return Identified(*row) if row else None


def identify(connection: sqlite3.Connection, connector: str) -> Identified:
    """Returns what the connector is in Kafka, with an id that is made where there is none."""
    known = identified(connection, connector)
    if known is None:
        known = Identified(new_connector_id())
        save_identified(connection, connector, known)
    return known


def save_identified(connection: sqlite3.Connection, connector: str, what: Identified) -> None:
    """Save it. sqlite3.IntegrityError where another connector has the id."""
    row = (connector, *what)
    connection.execute(
        "INSERT INTO names (connector, id, asks, registered, checksum) VALUES (?, ?, ?, ?, ?) ON CONFLICT (connector) DO UPDATE"
        " SET id = excluded.id, asks = excluded.asks, registered = excluded.registered, checksum = excluded.checksum",
        (*row, checksum(row)),
    )


def owner(connection: sqlite3.Connection, key: str) -> str:
    """The connector that has this id, or lanes of this key; "" for nobody."""
    query = "SELECT connector FROM names WHERE id = ? UNION SELECT connector FROM places WHERE agent = '' AND name = ?"
    row = connection.execute(query, (key, key)).fetchone()
    return str(row[0]) if row else ""


def has_lanes(connection: sqlite3.Connection, connector: str) -> bool:
    """Whether they were ever opened, under this name or an earlier one."""
    return connection.execute("SELECT 1 FROM places WHERE connector = ? LIMIT 1", (connector,)).fetchone() is not None


def is_known(connection: sqlite3.Connection, connector: str) -> bool:
    """Whether this store knows what Kafka has of the connector, if only that there is nothing."""
    known = identified(connection, connector)
    return has_lanes(connection, connector) or (known is not None and not known.asks)


def is_renamed(connection: sqlite3.Connection, connector: str) -> bool:
    """Whether the id that it had here was found to be another's, and nobody knows yet which it has (`connector_names.renamed_since`)."""
    known = identified(connection, connector)
    return known is not None and bool(known.asks) and known.registered == connector


def named(connection: sqlite3.Connection) -> list[str]:
    """Connectors that have lanes."""
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


def forget_group(connection: sqlite3.Connection, connector: str, group: Lanes) -> None:
    """Deletes one group of the connector's lanes."""
    for table in ("places", "lanes"):
        query = f"DELETE FROM {table} WHERE connector = ? AND agent = ? AND name = ?"  # noqa: S608 - constants
        connection.execute(query, (connector, group.agent, group.key))


def replace_lanes(connection: sqlite3.Connection, connector: str, place: OffsetsPartition, heads: Mapping[int, Head]) -> None:
    """Saves these lanes in place of all that the connector has."""
    forget_lanes(connection, connector)
    own = Lanes(identify(connection, connector).id, place, heads)
    save_place(connection, connector, own)
    save_heads(connection, connector, own, heads)


def groups(connection: sqlite3.Connection, connector: str) -> list[Lanes]:
    """Returns the connector's own lanes and those that it takes over, by agent and key."""
    places = connection.execute("SELECT agent, name, topic, part FROM places WHERE connector = ? ORDER BY agent, name", (connector,))
    heads: dict[tuple[str, str], dict[int, Head]] = {}
    for agent, name, number, *head in connection.execute(
        "SELECT agent, name, number, seq, nonce, position FROM lanes WHERE connector = ? ORDER BY number", (connector,)
    ):
        heads.setdefault((agent, name), {})[number] = Head(*head)
    return [Lanes(name, OffsetsPartition(*place), heads.get((agent, name), {}), agent) for agent, name, *place in places]


def binding(connection: sqlite3.Connection, connector: str) -> Binding:
    """Returns what the connector is bound to; an empty binding where nothing was ever saved of it."""
    row = connection.execute("SELECT cluster, adopt, copied, unused FROM bindings WHERE connector = ?", (connector,)).fetchone()
    return Binding(*row) if row else Binding()


def bind(connection: sqlite3.Connection, connector: str, bound: Binding) -> None:
    """Save it."""
    _save(connection, "bindings", [(connector, *bound)])


def save_place(connection: sqlite3.Connection, connector: str, group: Lanes) -> None:
    """Save where lanes stand; `lanes.KeptLanes` says whose."""
    _save(connection, "places", [(connector, group.agent, group.key, *group.place)])


def save_heads(connection: sqlite3.Connection, connector: str, group: Lanes, heads: Mapping[int, Head]) -> None:
    """Save how far lanes of a group are; others of it stay."""
    _save(connection, "lanes", [(connector, group.agent, group.key, number, *head) for number, head in heads.items()])


def _save(connection: sqlite3.Connection, table: str, some: Collection[Row]) -> None:
    if some:
        size = len(next(iter(some))) + 1
        query = f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * size)})"  # noqa: S608 - a constant
        connection.executemany(query, [(*row, checksum(row)) for row in some])


def mark(connection: sqlite3.Connection, partitions: Iterable[SourcePartition], *, wish: bool) -> None:
    """Notes that what is saved of them is not in Kafka; `wish`: because a person wants it so."""
    marks = [(*one, int(wish)) for one in partitions]
    connection.executemany(
        "INSERT INTO unpublished (connector, key, wish, checksum) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (connector, key) DO UPDATE SET wish = max(wish, excluded.wish)",
        [(*row, checksum(row[:2])) for row in marks],
    )


def unmark(connection: sqlite3.Connection, partitions: Iterable[SourcePartition]) -> None:
    """Notes that what is saved of them is in Kafka."""
    connection.executemany("DELETE FROM unpublished WHERE connector = ? AND key = ?", partitions)


def changed(connection: sqlite3.Connection, partitions: Collection[SourcePartition], *, wish: bool, is_lost: bool = False) -> None:
    """Offsets were saved or deleted that no transaction has told: mark those of connectors with lanes.

    While a connector runs without them the next opening takes everything from here anyway: only a person's marks are made then.
    `is_lost`: the store may have known lanes of connectors that it does not know any more; what a person wants is marked for these, too.
    """
    for connector in {one.connector for one in partitions}:
        may_be_unknown = wish and (is_lost or is_renamed(connection, connector))
        is_concerned = has_lanes(connection, connector) or (may_be_unknown and not is_known(connection, connector))
        if is_concerned and (wish or binding(connection, connector).adopt != "local"):
            mark(connection, [one for one in partitions if one.connector == connector], wish=wish)


def told(connection: sqlite3.Connection, also: Mapping[SourcePartition, SavedRow | None]) -> None:
    """Takes away the marks of rows that a transaction told, where what is saved is still what it told."""
    unmark(connection, [partition for partition, row in also.items() if saved_rows.row_of(connection, partition) == row])


def unpublished(connection: sqlite3.Connection, connector: str, limit: int) -> dict[SourcePartition, SavedRow | None]:
    """Returns up to `limit` marked rows, None for deleted ones: the connector's state, then the oldest marks.

    With the state of log files in Kafka, a file that Kafka does not know is new.
    """
    first = "SELECT connector, key FROM unpublished WHERE connector = ? AND key = ? LIMIT ?"
    others = "SELECT connector, key FROM unpublished WHERE connector = ? AND key <> ? ORDER BY number LIMIT ?"
    marks = connection.execute(first, (connector, STATE_KEY, limit)).fetchall()
    marks += connection.execute(others, (connector, STATE_KEY, limit - len(marks)))
    return {one: saved_rows.row_of(connection, one) for one in map(SourcePartition._make, marks)}
